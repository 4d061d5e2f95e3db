//! Which engine a pattern gets, what it matches there, and where that gives up.

use super::{GaveUp, Pattern, PatternOptions};

fn pattern(text: &str) -> Pattern {
    Pattern::new(text, PatternOptions::default()).expect(text)
}

#[test]
fn only_what_the_linear_engine_cannot_do_is_left_to_the_other() {
    for text in ["^/a", "(a|b)*c", r"\bx\b", "[^/]+", "(?i)x", ""] {
        assert!(pattern(text).is_linear(), "{text}");
    }
    for text in ["^/(?!admin)", "(?<=a)b", "(?<!a)b", "(?=a)b", r"(a)\1"] {
        assert!(!pattern(text).is_linear(), "{text}");
    }
    for (text, part) in [("(", "unclosed group"), ("[z-a]", "invalid character class range"), ("(?!(", "")] {
        let reason = Pattern::new(text, PatternOptions::default()).expect_err(text);
        assert!(reason.contains(part) && !reason.contains('\n'), "{reason}");
    }
}

#[test]
fn patterns_match_bytes_with_look_around_and_back_references() {
    let check = |text: &str, found: &[u8], expected: bool| {
        assert_eq!(pattern(text).is_match(found), Ok(expected), "{text} {found:?}");
    };
    check("^/(?!admin)", b"/admin/x", false);
    check("^/(?!admin)", b"/shop", true);
    check("^/(?!admin).$", b"/\xff", true);
    check(r"(?<!\w)x", b"\xc3x", true);
    check(r"(?<=v)\d", b"/v2", true);
    check(r"^/(\w+)/\1$", b"/a/a", true);
    check(r"^/(\w+)/\1$", b"/a/b", false);
    let loose = PatternOptions { ignores_case: true, ..PatternOptions::default() };
    assert_eq!(Pattern::new("^/(?!admin)", loose).unwrap().is_match(b"/ADMIN"), Ok(false));
    let unicode = PatternOptions { is_unicode: true, ..PatternOptions::default() };
    let greek = Pattern::new(r"(?!x)^\p{Greek}$", unicode).unwrap();
    let alpha = "\u{3b1}".as_bytes();
    assert_eq!(greek.is_match(alpha), Ok(true));
    assert_eq!(greek.captures(alpha).unwrap().unwrap().get(0), Some((0, alpha)));
    // Bytes that are no Unicode, over which the engine would panic.
    let pattern = Pattern::new(r"(?!.*b).+\b++.(?:a|b)+", unicode).unwrap();
    let bytes = b"a1\xc3a\xe9a\xa9b=\xc311\xc3/11b\xc3a\xc31o1abab1\xfe";
    assert_eq!(pattern.is_match(bytes), Err(GaveUp));
    assert_eq!(pattern.captures(bytes).err(), Some(GaveUp));
}

#[test]
fn groups_are_told_by_both_engines_alike() {
    for text in [r"/(\w+)/(x)?(\d+)", r"/(\w+)/(x)?(\d+)(?!z)"] {
        let found = pattern(text).captures(b"a/cat/42").unwrap().unwrap();
        let groups: Vec<_> = (0..found.len()).map(|group| found.get(group)).collect();
        let expected: [Option<(usize, &[u8])>; 4] =
            [Some((1, b"/cat/42")), Some((2, b"cat")), None, Some((6, b"42"))];
        assert_eq!(groups, expected, "{text}");
        assert_eq!(found.get(9), None);
        assert!(pattern(text).captures(b"none").unwrap().is_none());
    }
}

#[test]
fn a_match_that_would_take_too_long_is_given_up() {
    let long = |bytes: usize| vec![b'a'; bytes];
    for text in [r"(a|a)*\1b", r"(a*)*(?!b)c", r"(?:a(?=a)|a)*c"] {
        assert_eq!(pattern(text).is_match(&long(64)), Err(GaveUp), "{text}");
        assert_eq!(pattern(text).captures(&long(4096)).err(), Some(GaveUp), "{text}");
    }
    // What begins at one place only needs few steps however long the text is.
    let anchored = pattern(r"^(?!.*\.\.)a");
    for bytes in [10, 1025, 1 << 16] {
        assert_eq!(anchored.is_match(&long(bytes)), Ok(true));
    }
    assert_eq!(anchored.is_match(&long((1 << 16) + 1)), Err(GaveUp));
    assert_eq!(pattern("b").is_match(&long((1 << 16) + 1)), Ok(false), "the linear engine has no bounds");
}
