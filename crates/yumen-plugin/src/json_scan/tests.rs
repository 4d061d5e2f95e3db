use serde_json::Value;

use super::*;

fn accepts(text: &[u8]) -> Result<(), JsonFault> {
    JsonScan::new(0, usize::MAX).whole(text)
}

#[track_caller]
fn check(text: &str) {
    let expected = serde_json::from_str::<Value>(text);
    assert_eq!(accepts(text.as_bytes()).is_ok(), expected.is_ok(), "{text:?} {expected:?}");
    // A scan that is interrupted after every token has the same result.
    let mut scan = JsonScan::new(0, usize::MAX);
    let stepwise = loop {
        match scan.advance(text.as_bytes(), 1) {
            Ok(ScanProgress::More) => {}
            Ok(ScanProgress::Done) => break scan.ends(text.as_bytes()),
            Err(fault) => break Err(fault),
        }
    };
    assert_eq!(stepwise.is_ok(), expected.is_ok(), "{text:?}");
}

#[test]
fn the_grammar_is_that_of_serde_json() {
    for text in [
        "",
        " ",
        "0",
        "-0",
        "-",
        "01",
        "1.",
        "1.5",
        ".5",
        "1e",
        "1e5",
        "1E+5",
        "1e-5",
        "1e+",
        "+1",
        "true",
        "tru",
        "truex",
        "null",
        "false",
        "nul",
        "\"\"",
        "\"",
        "\"a\nb\"",
        r#""\n""#,
        r#""\x""#,
        r#""\u00e4""#,
        r#""\u00""#,
        r#""abcdefgh\"ijklmnopqrstuv""#,
        "[]",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1, 2]",
        "[[],[[]]]",
        "{}",
        "{",
        "}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1}",
        "{\"a\":1,}",
        "{\"a\":1,\"b\":[{}]}",
        "{1:2}",
        "{\"a\" 1}",
        "{\"a\":1]",
        "[1}",
        " { \"a\" : [ 1 , { \"b\" : null } ] } ",
        "{} {}",
        "1 2",
        "\"a\u{7f}ä\"",
    ] {
        check(text);
    }
}

#[test]
fn mutated_documents_get_the_same_verdict() {
    let seed = r#"{"a":[1,-2.5e3,"x\"y",{"b":null,"c":[true,false,[]]}],"d\u0041":{"e":"abcdefghijk"}}"#;
    let alphabet = b"{}[],:\"\\0123456789eE+-.tfnu alse \n";
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    for _ in 0..20_000 {
        let mut text = seed.as_bytes().to_vec();
        for _ in 0..=draw(3) {
            let at = draw(text.len());
            match draw(3) {
                0 => drop(text.remove(at)),
                1 => text.insert(at, alphabet[draw(alphabet.len())]),
                _ => text[at] = alphabet[draw(alphabet.len())],
            }
        }
        check(std::str::from_utf8(&text).unwrap());
    }
}

#[test]
fn depth_is_bounded_as_in_serde_json() {
    for depth in [1, JSON_DEPTH_MAX, JSON_DEPTH_MAX + 1, 100_000] {
        let text = "[".repeat(depth) + &"]".repeat(depth);
        check(&text);
        let expected = if depth <= JSON_DEPTH_MAX { Ok(()) } else { Err(JsonFault::TooDeep) };
        assert_eq!(accepts(text.as_bytes()), expected);
    }
}

#[test]
fn values_are_counted() {
    for (text, values) in [("1", 0), ("[]", 0), ("[1,2,3]", 3), (r#"{"a":1,"b":[2]}"#, 3)] {
        assert_eq!(JsonScan::new(0, values).whole(text.as_bytes()), Ok(()), "{text}");
        if values > 0 {
            let fault = JsonScan::new(0, values - 1).whole(text.as_bytes());
            assert_eq!(fault, Err(JsonFault::TooManyValues), "{text}");
        }
    }
}

#[test]
fn members_are_linked_within_their_object() {
    let text = br#"{"a":{"b":1,"c":2},"d":[{"e":3}],"f":4}"#;
    let mut scan = JsonScan::noting_members(6);
    scan.whole(text).unwrap();
    let members = scan.into_members();
    let names: Vec<u8> = members.iter().map(|member| text[member.start as usize + 1]).collect();
    assert_eq!(names, b"abcdef");
    let next: Vec<Option<usize>> = members.iter().map(|member| member.next()).collect();
    assert_eq!(next, [Some(3), Some(2), None, Some(5), None, None]);
    assert_eq!(JsonScan::noting_members(5).whole(text), Err(JsonFault::TooManyValues));
}
