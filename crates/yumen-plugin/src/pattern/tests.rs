//! Engines of patterns, their matches, and their bounds.

use super::{
    BacktrackBudget, BacktrackLimitExceeded, EXCHANGE_BYTES_MAX, PatternCase, PatternOptions, PatternUnit,
    RegexPattern,
};

fn pattern(text: &str) -> RegexPattern {
    RegexPattern::new(text, PatternOptions::default()).expect(text)
}

#[test]
fn only_what_the_linear_engine_cannot_do_is_left_to_the_other() {
    for text in ["^/a", "(a|b)*c", r"\bx\b", "[^/]+", "(?i)x", "", "[*+]", r"a\++", "a[}+]"] {
        assert!(pattern(text).is_linear(), "{text}");
    }
    for text in [
        "^/(?!admin)",
        "(?<=a)b",
        "(?<!a)b",
        "(?=a)b",
        r"(a)\1",
        r"^/(?<p>a)/\k<p>$",
        r"(?P<n>a)(?P=n)",
        "(?>a)(?!b)",
        "(?!b)(?>a)",
        "[^/]++",
    ] {
        assert!(!pattern(text).is_linear(), "{text}");
    }
    for (text, part) in [
        ("(", "unclosed group"),
        ("[z-a]", "invalid character class range"),
        ("(?!(", "without closing parenthesis"),
        (&format!("(?!b){}a{}", "(".repeat(1000), ")".repeat(1000)), "PCRE: "),
    ] {
        let reason = RegexPattern::new(text, PatternOptions::default()).expect_err(text);
        assert!(reason.contains(part) && !reason.contains('\n') && !reason.ends_with(": "), "{reason}");
    }
}

#[test]
fn patterns_match_bytes_with_look_around_and_back_references() {
    let check = |text: &str, found: &[u8], expected: bool| {
        assert_eq!(
            pattern(text).is_match(found, &BacktrackBudget::default()),
            Ok(expected),
            "{text} {found:?}"
        );
    };
    check("^/(?!admin)", b"/admin/x", false);
    check("^/(?!admin)", b"/shop", true);
    check("^/(?!admin).$", b"/\xff", true);
    check(r"(?<!\w)x", b"\xc3x", true);
    check(r"(?<=v)\d", b"/v2", true);
    check(r"^/(\w+)/\1$", b"/a/a", true);
    check(r"^/(\w+)/\1$", b"/a/b", false);
    check(r"^\d{3}+$", b"123456", false);
    check(r"^\d{3}+$", b"123", true);
    check("^a?+$", b"aa", false);
    check(".++b", b"11bxa", false);
    check("^[^/]++/b", b"a/b", true);
    let loose = PatternOptions { case: PatternCase::Insensitive, ..PatternOptions::default() };
    assert_eq!(
        RegexPattern::new("^/(?!admin)", loose).unwrap().is_match(b"/ADMIN", &BacktrackBudget::default()),
        Ok(false)
    );
    let unicode = PatternOptions { unit: PatternUnit::Unicode, ..PatternOptions::default() };
    let greek = RegexPattern::new(r"(?!x)^\p{Greek}$", unicode).unwrap();
    let alpha = "\u{3b1}".as_bytes();
    assert_eq!(greek.is_match(alpha, &BacktrackBudget::default()), Ok(true));
    assert_eq!(greek.captures(alpha, &BacktrackBudget::default()).unwrap().unwrap().get(0), Some((0, alpha)));
    // Invalid UTF-8, on which the engine would panic.
    let pattern = RegexPattern::new(r"(?!.*b).+\b++.(?:a|b)+", unicode).unwrap();
    let bytes = b"a1\xc3a\xe9a\xa9b=\xc311\xc3/11b\xc3a\xc31o1abab1\xfe";
    assert_eq!(pattern.is_match(bytes, &BacktrackBudget::default()), Err(BacktrackLimitExceeded));
    assert_eq!(pattern.captures(bytes, &BacktrackBudget::default()).err(), Some(BacktrackLimitExceeded));
}

#[test]
fn both_engines_report_equal_groups() {
    for text in [r"/(\w+)/(x)?(\d+)", r"/(\w+)/(x)?(\d+)(?!z)"] {
        let found = pattern(text).captures(b"a/cat/42", &BacktrackBudget::default()).unwrap().unwrap();
        let groups: Vec<_> = (0..found.len()).map(|group| found.get(group)).collect();
        let expected: [Option<(usize, &[u8])>; 4] =
            [Some((1, b"/cat/42")), Some((2, b"cat")), None, Some((6, b"42"))];
        assert_eq!(groups, expected, "{text}");
        assert_eq!(found.get(9), None);
        assert!(pattern(text).captures(b"none", &BacktrackBudget::default()).unwrap().is_none());
    }
}

#[test]
fn slow_match_ends_at_the_step_limit() {
    let long = |bytes: usize| vec![b'a'; bytes];
    for text in [r"(a|a)*\1b", r"(a*)*(?!b)c", r"(?:a(?!b)|a)*c"] {
        assert_eq!(
            pattern(text).is_match(&long(64), &BacktrackBudget::default()),
            Err(BacktrackLimitExceeded),
            "{text}"
        );
        assert_eq!(
            pattern(text).captures(&long(4096), &BacktrackBudget::default()).err(),
            Some(BacktrackLimitExceeded),
            "{text}"
        );
    }
    // An anchored pattern needs few steps for any length of text.
    let anchored = pattern(r"^(?!.*\.\.)a");
    for bytes in [10, 1025, 1 << 16] {
        assert_eq!(anchored.is_match(&long(bytes), &BacktrackBudget::default()), Ok(true));
    }
    assert_eq!(
        anchored.is_match(&long((1 << 16) + 1), &BacktrackBudget::default()),
        Err(BacktrackLimitExceeded)
    );
    assert_eq!(
        pattern("b").is_match(&long((1 << 16) + 1), &BacktrackBudget::default()),
        Ok(false),
        "the linear engine has no bounds"
    );
}

#[test]
fn uncountable_pattern_is_refused_with_an_alternative() {
    let check = |text: &str, part: &str| {
        let reason = RegexPattern::new(text, PatternOptions::default()).expect_err(text);
        assert!(reason.contains(part), "{text}: {reason}");
    };
    for text in [
        "^(?:(?=.*[0-9]x?)a)*[0-9]",
        "^(?:(?:(?=.*x)a)+b)*",
        r"(?:(?<=a)a)+b(?!c)",
        "(?:(?>.*x|a))*(?!b)",
        "(?:(?((?=.*x))a|b))*",
        "(?=(?:(?=.*x)a)*)",
        "(?!(?:(?=.*x)a)*)",
    ] {
        check(text, "put it before the repetition");
    }
    check(r"(?:\n\Z)*(?!b)", "put it behind the repetition");
    check(r"(x?)(?:\1){1000000000}", "let it repeat what is not empty");
    check(r"(?:(?:|a){1000}a)*(?!b)", "let it repeat what is not empty");
    for text in [r"(a\g<1>?b)(?!c)", "(?~ab)(?!c)"] {
        check(text, "write out what they stand for");
    }
    for text in [
        "^(?=.*x)(?!y).*$",
        "^(?=.*[a-z])(?=.*[A-Z]).{8,}$",
        "^(?:(?!x).)*$",
        "^(?:(?<!x)y)*$",
        r#"^(?!"x)"(?:[^"]++|"")*"$"#,
        "^(?:(?=a)b)?c",
        r"^(/[a-z]+){2,3}/(?!x)",
        r"^(a)\1*$",
        r"(\d)\1{3}",
    ] {
        assert!(!pattern(text).is_linear(), "{text}");
    }
}

#[test]
fn a_match_takes_of_the_budget_what_it_may_have_looked_at() {
    let took = |text: &str, bytes: usize| {
        let budget = BacktrackBudget::default();
        let found = pattern(text).is_match(&vec![b'a'; bytes], &budget);
        (found, EXCHANGE_BYTES_MAX - budget.0.get())
    };
    assert_eq!(took("b", 1 << 20), (Ok(false), 0), "the linear engine takes nothing");
    assert_eq!(took("^(?!b)", 0), (Ok(true), 4 * 64));
    assert_eq!(took("^(?!b)", 1 << 16), (Ok(true), 4 << 16));
    assert_eq!(took("^(?=.*a)(?!b)", 1 << 10), (Ok(true), (2 * 4) << 10));
    assert_eq!(took("^(?:(?!b).)*$", 100), (Ok(true), 100 * (4 + 32 + 256)));
    assert_eq!(took("(?!.*b)c", 1 << 16), (Err(BacktrackLimitExceeded), (4 + 32) << 16));
    assert_eq!(took(r"(a|a)*\1b", (1 << 16) + 1), (Err(BacktrackLimitExceeded), 0));
    let many = "(?=.*a)".repeat(20) + "(?!b)";
    assert_eq!(
        took(&many, 1 << 16),
        (Err(BacktrackLimitExceeded), 0),
        "each of them looks at the whole text"
    );
    assert_eq!(
        took(&many, 1 << 10),
        (Ok(true), (6 * 21 * 4) << 10),
        "and it is six times as long as is looked at once"
    );
    let counted = took(r"^(?:\w{2,40}){60}(?!b)", 1 << 10);
    assert_eq!(counted, (Err(BacktrackLimitExceeded), (151 * 4) << 10), "2 400 characters are written so");
}

#[test]
fn matching_budget_is_shared_by_an_exchange() {
    let slow = pattern("(?!.*b)[ac]c");
    let budget = BacktrackBudget::default();
    let line = vec![b'a'; 1000];
    let ended = (0..60).filter(|_| slow.is_match(&line, &budget).is_ok()).count();
    assert_eq!(ended, 3);
    assert_eq!(
        pattern("^(?!b)").is_match(b"a", &budget),
        Err(BacktrackLimitExceeded),
        "the budget is used up"
    );
    assert_eq!(pattern("^a").is_match(b"a", &budget), Ok(true));
}

#[test]
fn no_match_takes_long_whatever_the_text() {
    for text in [
        r"^(?=.*a)(?:a(?!x)|a)*y",
        r"(a)(?>\1*)c",
        r"(?=(a)\1*c?)d",
        r"(?!(a)\1*).",
        r"(?:a++|b)*+\b(?!x)c",
        r"(a*)(?:\1|b)*c",
        r"^(a)\1{60}(?!b)",
        "(?=.*x)(?!y)z|(?=.*v)w",
        "(?!.*x)foo",
        &format!(r"^(?!b)(?:a|a)*{}\1c", "()".repeat(5000)),
    ] {
        let pattern = pattern(text);
        for bytes in [1 << 7, 1 << 10, 1 << 13, 1 << 16] {
            let begun = std::time::Instant::now();
            let _ = pattern.is_match(&vec![b'a'; bytes], &BacktrackBudget::default());
            let took = begun.elapsed();
            assert!(took.as_secs() < 2, "{text} over {bytes} bytes: {took:?}");
        }
    }
}
