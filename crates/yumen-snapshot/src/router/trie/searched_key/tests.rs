use super::*;

#[track_caller]
fn check(host: &str, at: usize, label: &str, expected: bool) {
    assert_eq!(
        ReversedKey(host.as_bytes()).has_at(at, label.as_bytes()),
        expected,
        "{label} at {at} of {host}"
    );
}

#[test]
fn a_label_matches_the_bytes_of_a_reversed_key_from_the_position() {
    // Labels of less than a word, of one, of one and a rest, and of two.
    for label in ["", "m", "moc.elp", "moc.elpm", "moc.elpma", "moc.elpmaxe.sba"] {
        check("abs.example.com", 0, label, true);
    }
    check("abs.example.com", 15, "", true);
    check("abs.example.com", 4, "elpmaxe.sba", true);
    check("www.abs.example.com", 4, "elpmaxe.sba", true);
}

#[test]
fn a_label_that_differs_in_one_byte_or_is_longer_than_the_key_does_not_match() {
    for label in ["n", "moc.elpn", "xoc.elpmaxe", "moc.elpmaxe.sbc", "moc.elpmaxe.sbaa", "moc.elpmaxe.abs"] {
        check("abs.example.com", 0, label, false);
    }
    check("com", 3, "c", false);
    check("", 0, "c", false);
    check("example.com", 4, "elpmaxe.", false);
}
