use super::document_starts::document_starts;

#[test]
fn documents_start_at_their_first_line_of_content() {
    for (text, expected) in [
        ("", &[][..]),
        ("a: 1\n", &[1]),
        ("# comment\n\n---\n# comment\na: 1\n--- # next\n\nb: |\n  ---\n  c\n---\n---\nd: 1\n", &[5, 8, 13]),
        ("--- { a: 1 }\n...\n---\nb: 1", &[1, 4]),
        ("{\"a\": \"---\"}", &[1]),
    ] {
        assert_eq!(document_starts(text), expected, "{text}");
    }
}
