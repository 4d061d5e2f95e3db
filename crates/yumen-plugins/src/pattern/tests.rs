//! What patterns are refused, and what replacements give.

use super::{Replacement, Substitution, compile, with_options};

#[test]
fn what_needs_backtracking_is_refused_with_a_reason() {
    for (pattern, part) in [
        ("(?=a)b", "look-around"),
        (r"(a)\1", "backreferences"),
        ("(", "unclosed group"),
        ("[z-a]", "invalid character class range"),
    ] {
        let error = compile(pattern, "regex_uri").expect_err(pattern);
        assert_eq!(error.path, "regex_uri");
        assert!(error.message.contains(part), "{}", error.message);
    }
}

#[test]
fn an_unknown_option_is_refused() {
    let error = with_options("a", "h", "filters").expect_err("h is no option");
    assert_eq!(error.message, "unknown flag \"h\" (flags \"h\")");
}

#[test]
fn a_replacement_takes_groups_by_number() {
    let check = |pattern: &str, template: &str, text: &str, first: Option<&str>, all: Option<&str>| {
        let by = Replacement::parse(template, "").expect(template);
        let it = Substitution::new(compile(pattern, "").expect(pattern), by);
        let string = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        assert_eq!(it.first(text.as_bytes()).map(|(out, _)| string(out)).as_deref(), first, "{template}");
        assert_eq!(it.all(text.as_bytes()).map(string).as_deref(), all, "{template}");
    };
    check("l+", "L", "hello all", Some("heLo all"), Some("heLo aL"));
    check("^/a/(.*)/(.*)$", "/$2/${1}x", "/a/b/c", Some("/c/bx"), Some("/c/bx"));
    check("b", "$0$0$$", "abc", Some("abb$c"), Some("abb$c"));
    check("(x)?b", "[$1]", "abc", Some("a[]c"), Some("a[]c"));
    check("z", "y", "abc", None, None);
}

#[test]
fn a_replacement_without_a_group_number_is_refused() {
    for template in ["$name", "a$", "${1", "${a}"] {
        assert!(Replacement::parse(template, "regex_uri").is_err(), "{template}");
    }
}
