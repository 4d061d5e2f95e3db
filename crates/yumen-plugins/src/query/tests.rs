use super::*;
use crate::testing::PluginBench;

#[test]
fn an_argument_is_found_by_its_decoded_name() {
    let check = |query: &str, expected: QueryArgument<'_>| {
        assert_eq!(argument(query.as_bytes(), b"a b"), expected, "{query}");
    };
    let one = |value: &'static str| QueryArgument::One(Cow::Borrowed(value.as_bytes()));
    check("", QueryArgument::Absent);
    check("ab=1&c=2", QueryArgument::Absent);
    check("x=1&a+b=v", one("v"));
    check("a%20b=%41%zz+", one("A%zz "));
    check("a+b=", one(""));
    check("a+b", QueryArgument::Other);
    check("a+b=1&a%20b=1", QueryArgument::Other);
}

#[test]
fn an_argument_is_taken_out_for_everybody_and_the_others_keep_their_order() {
    let bench = PluginBench::new();
    let check = |target: &str, query: Option<&str>, left: &str| {
        let mut ex = bench.exchange(&format!("GET {target} HTTP/1.1"));
        remove_argument(&mut ex.request, b"auth");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(ex.request.query().map(text).as_deref(), query, "{target}");
        assert_eq!(text(ex.request.upstream_target()), left, "{target}");
        assert_eq!(text(&ex.request.request_uri()), left, "{target}");
    };
    check("/a", None, "/a");
    check("/a?b=1", Some("b=1"), "/a?b=1");
    check("/a?auth=1", None, "/a");
    check("/a?b=1&auth=1&c=%20&auth", Some("b=1&c=%20"), "/a?b=1&c=%20");
    check("/auth?%61uth=1&b", Some("b"), "/auth?b");
}

#[test]
fn an_argument_is_taken_out_of_a_target_that_was_rewritten() {
    let bench = PluginBench::new();
    let mut ex = bench.exchange("GET /a?auth=1&b HTTP/1.1");
    ex.request.set_upstream_target(b"/new?c&auth=1&b");
    remove_argument(&mut ex.request, b"auth");
    assert_eq!(ex.request.upstream_target(), b"/new?c&b");
    assert_eq!((ex.request.query(), ex.request.path()), (Some(&b"b"[..]), &b"/a"[..]));
}
