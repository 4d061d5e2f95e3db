//! Places of problems in the text of a document.

use yumen_base::Problem;

use super::super::parse;
use super::DocumentPlaces;

#[test]
fn every_beginning_of_a_document_has_places() {
    let yaml = "routes:\n- &a { id: r, uri: \"/\u{e4}\", labels: { a.b: [1, 'x'] } } # note\n- <<: *a\n\tpriority: |\n    high\n";
    let json = "{\"routes\": [{\"id\": \"\u{e4}\", \"uri\": 1,}, {\"id\": \"b\"}]}";
    for text in [yaml, json] {
        for (end, _) in text.char_indices() {
            let text = &text[..end];
            let (_, mut problems) = parse(text, &|_| None);
            DocumentPlaces::of("f", text, &|_| None).locate(&mut problems);
            for place in problems.iter().filter_map(|problem| problem.place.as_ref()) {
                let line = text.lines().nth(place.span.line as usize - 1).unwrap_or_default();
                assert!(place.span.column as usize <= line.chars().count() + 1, "{text}: {place}");
            }
        }
    }
}

#[test]
fn problems_have_the_places_of_their_members() {
    let text = "routes:\n- { id: a, uri: /a }\nroutes:\n- { id: b, uri: /b }\n- /c\n";
    let (_, mut problems) = parse(text, &|_| None);
    problems.push(Problem::error("routes/b", "uri", "x"));
    problems.push(Problem::error("routes/routes#3", "", "x"));
    problems.push(Problem::error("node", "", "x"));
    DocumentPlaces::of("f.yaml", text, &|_| None).locate(&mut problems);
    let places: Vec<Option<String>> =
        problems.iter().map(|problem| problem.place.as_ref().map(ToString::to_string)).collect();
    let place = |text: &str| Some(text.to_owned());
    assert_eq!(places, [place("f.yaml:3:1"), place("f.yaml:4:17"), place("f.yaml:5:3"), None]);
}

#[test]
fn a_variable_of_json_that_became_a_number_has_a_remedy_that_works() {
    let quotes = "write the value in quotes";
    let reference = "a variable of JSON that reads as a number is one; write \"$env://V\", which is text";
    let yaml = "a variable of JSON that reads as a number is one; in YAML, quotes keep it text";
    for (text, path, expected) in [
        (
            r#"{"routes":[{"id":"a","plugins":{"key-auth":{"key":"${{V}}"}}}]}"#,
            "plugins.key-auth.key",
            reference,
        ),
        (
            r#"{"routes":[{"id":"a","plugins":{"key-auth":{"key":"${{ V := 1 }}"}}}]}"#,
            "plugins.key-auth.key",
            reference,
        ),
        (r#"{"routes":[{"id":"a","plugins":{"key-auth":{"key":"1${{V}}"}}}]}"#, "plugins.key-auth.key", yaml),
        (r#"{"routes":[{"id":"a","desc":"${{V}}"}]}"#, "desc", yaml),
        (r#"{"routes":[{"id":"a","desc":5}]}"#, "desc", quotes),
        ("routes:\n- { id: a, desc: \"${{V}}\" }\n", "desc", quotes),
    ] {
        for in_hint in [true, false] {
            let mut problem = Problem::error("routes/a", path, "wrong type");
            let notation = Some(quotes.to_owned());
            if in_hint {
                problem.hint = notation
            } else {
                problem.allowed = notation
            }
            DocumentPlaces::of("f", text, &|_| Some("7".into())).locate([&mut problem]);
            let found = if in_hint { problem.hint } else { problem.allowed };
            assert_eq!(found.as_deref(), Some(expected), "{text}");
            assert!(problem.place.is_some(), "{text}");
        }
    }
}
