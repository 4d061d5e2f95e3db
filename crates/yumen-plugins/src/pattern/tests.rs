//! Refused patterns, and the results of replacements.

use yumen_plugin::{BacktrackBudget, BacktrackLimitExceeded};

use super::{
    LinearSubstitution, MatchReplacement, PatternSubstitution, any_matches, any_of, compile,
    linear_with_options, with_options,
};

#[test]
fn unsupported_patterns_are_refused_with_a_reason() {
    for (pattern, part) in [("(", "unclosed group"), ("[z-a]", "invalid character class range")] {
        let error = compile(pattern, "regex_uri").expect_err(pattern);
        assert_eq!(error.path, "regex_uri");
        assert!(error.message.contains(part), "{}", error.message);
    }
    for pattern in ["(?=a)b", r"(a)\1", r"(?P<n>a)(?P=n)", "(?>a)(?!b)"] {
        compile(pattern, "regex_uri").expect(pattern);
        let error = linear_with_options(pattern, "", "filters").expect_err(pattern);
        assert!(error.message.ends_with("; rewrite it without: patterns over bodies match in linear time"));
    }
}

#[test]
fn any_of_several_patterns_may_match_and_each_has_its_own_groups() {
    let texts = [r"^/(a)\1$", "^/x", r"^/(b)\1$", "y$"].map(String::from);
    let patterns = any_of(&texts, "i", "block_rules").unwrap();
    assert_eq!(patterns.len(), 3, "those of linear time are one");
    for (text, expected) in [("/aa", true), ("/BB", true), ("/ba", false), ("/x", true), ("/z/Y", true)] {
        assert_eq!(
            any_matches(&patterns, text.as_bytes(), &BacktrackBudget::default()),
            Ok(expected),
            "{text}"
        );
    }
    assert_eq!(any_matches(&any_of(&[], "", "").unwrap(), b"all", &BacktrackBudget::default()), Ok(true));
    // A match counts even if other patterns were aborted; no match only counts if none was.
    let texts = [r"(a|a)*\1b", "^x"].map(String::from);
    let patterns = any_of(&texts, "", "").unwrap();
    let long = "a".repeat(64);
    assert_eq!(
        any_matches(&patterns, long.as_bytes(), &BacktrackBudget::default()),
        Err(BacktrackLimitExceeded)
    );
    assert_eq!(any_matches(&patterns, format!("x{long}").as_bytes(), &BacktrackBudget::default()), Ok(true));
    let error = any_of(&["a".into(), "(".into()], "", "block_rules").unwrap_err();
    assert_eq!(error.path, "block_rules.1");
}

#[test]
fn an_unknown_option_is_refused() {
    let error = with_options("a", "h", "filters").expect_err("h is no option");
    assert_eq!(error.message, "unknown flag \"h\" (flags \"h\")");
}

#[test]
fn a_replacement_takes_groups_by_number() {
    let check = |pattern: &str, template: &str, text: &str, first: Option<&str>, all: Option<&str>| {
        let by = MatchReplacement::parse(template, "").expect(template);
        let string = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        for pattern in [pattern.to_owned(), format!("(?!never){pattern}")] {
            let by = MatchReplacement::parse(template, "").expect(template);
            let it = PatternSubstitution::new(compile(&pattern, "").expect(&pattern), by);
            let found = it.first(text.as_bytes(), &BacktrackBudget::default()).unwrap();
            assert_eq!(found.map(|(out, _)| string(out)).as_deref(), first, "{pattern} {template}");
        }
        let it = LinearSubstitution::new(linear_with_options(pattern, "", "").expect(pattern), by);
        assert_eq!(it.replaced(text.as_bytes(), 1).map(string).as_deref(), first, "{template}");
        assert_eq!(it.replaced(text.as_bytes(), usize::MAX).map(string).as_deref(), all, "{template}");
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
        assert!(MatchReplacement::parse(template, "regex_uri").is_err(), "{template}");
    }
}
