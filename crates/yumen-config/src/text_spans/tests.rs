use super::*;

/// The place of a path as `line:column+width`, of the value and of its key.
fn check(text: &str, path: &str, value: &str, key: &str) {
    let spans = TextSpans::of(text);
    let found = spans.find(spans.root().expect("a value"), path);
    assert!(found.is_exact, "{path}");
    let shown = |span: LineSpan| format!("{}:{}+{}", span.line, span.column, span.width);
    assert_eq!((shown(found.value.span()), found.key.map(shown)), (value.to_owned(), Some(key.to_owned())));
}

const YAML: &str = "\
routes:
  - id: r1
    uri: /ä # note
    upstream: { nodes: { \"127.0.0.1:80\": 1, a.b: 2 } }
";

#[test]
fn a_member_has_the_place_of_its_key_and_value() {
    check(YAML, "routes[0].uri", "3:10+2", "3:5+3");
    check(YAML, "routes[0].upstream.nodes", "4:24+1", "4:17+5");
}

#[test]
fn names_with_dots_are_found() {
    check(YAML, "routes[0].upstream.nodes.127.0.0.1:80", "4:42+1", "4:26+14");
    check(YAML, "routes[0].upstream.nodes.a.b", "4:50+1", "4:45+3");
}

#[test]
fn json_with_tabs_has_places() {
    check("{\n\t\"routes\": [\n\t\t{\"id\": \"1\"}]}", "routes[0].id", "3:10+3", "3:4+4");
}

#[test]
fn the_last_of_equal_members_counts() {
    check("a: 1\nb: 2\na: 3\n", "a", "3:4+1", "3:1+1");
}

#[test]
fn merged_members_have_the_place_of_their_anchor() {
    check("x: &x { retries: many }\ny:\n  <<: *x\n", "y.retries", "1:18+4", "1:9+7");
}

#[test]
fn an_absent_member_leads_to_its_parent() {
    let spans = TextSpans::of(YAML);
    let found = spans.find(spans.root().expect("a value"), "routes[0].upstream.type");
    assert!(!found.is_exact);
    assert_eq!(found.key.map(|key| (key.line, key.column)), Some((4, 5)));
}

#[test]
fn a_broken_text_has_places_up_to_the_fault() {
    check("a: 1\nb: [1, 2\nc: }", "a", "1:4+1", "1:1+1");
}
