use super::*;

#[test]
fn an_argument_is_found_by_its_decoded_name() {
    let check = |query: &str, expected: Argument<'_>| {
        assert_eq!(argument(query.as_bytes(), b"a b"), expected, "{query}");
    };
    let one = |value: &'static str| Argument::One(Cow::Borrowed(value.as_bytes()));
    check("", Argument::Absent);
    check("ab=1&c=2", Argument::Absent);
    check("x=1&a+b=v", one("v"));
    check("a%20b=%41%zz+", one("A%zz "));
    check("a+b=", one(""));
    check("a+b", Argument::Other);
    check("a+b=1&a%20b=1", Argument::Other);
}

#[test]
fn an_argument_is_taken_out_and_the_others_keep_their_order() {
    let check = |target: &str, expected: Option<&str>| {
        let found = without_argument(target.as_bytes(), b"auth");
        assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{target}");
    };
    check("/a", None);
    check("/a?b=1", None);
    check("/a?auth=1", Some("/a"));
    check("/a?b=1&auth=1&c=%20&auth", Some("/a?b=1&c=%20"));
    check("/auth?%61uth=1&b", Some("/auth?b"));
}
