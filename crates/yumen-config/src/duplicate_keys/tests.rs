//! Reported duplicates, and values equal to those of `serde_json`.

use serde_json::{Value, json};

use super::{DuplicateCheckedValue, from_json, from_yaml};

fn check(text: &str, value: Value, duplicates: &[&str]) {
    let duplicates: Vec<String> = duplicates.iter().map(|path| (*path).to_owned()).collect();
    let expected = DuplicateCheckedValue { value, duplicates, inexact: Vec::new() };
    assert_eq!(from_json(text.as_bytes()).unwrap(), expected, "{text}");
    assert_eq!(from_yaml(text.as_bytes()).unwrap(), expected, "{text}");
}

#[test]
fn duplicate_member_is_reported_by_path_and_the_last_counts() {
    check(r#"{"a": 1, "b": {"a": 2}}"#, json!({ "a": 1, "b": { "a": 2 } }), &[]);
    check(r#"{"a": 1, "b": 2, "a": 3}"#, json!({ "a": 3, "b": 2 }), &["a"]);
    check(r#"{"a": [0, {"b": {"c": 1, "c": 2}}]}"#, json!({ "a": [0, { "b": { "c": 2 } }] }), &["a[1].b.c"]);
    check(r#"{"a": 1, "a": 2, "a": 3, "b": 1, "b": 2}"#, json!({ "a": 3, "b": 2 }), &["a", "b"]);
    check(r#"{"a": {"b": 1, "b": 2}, "a": {}}"#, json!({ "a": {} }), &["a.b", "a"]);
}

#[test]
fn a_raw_line_break_and_its_escape_are_one_name() {
    let read = from_json(b"{\"a\n\": \"x\ty\", \"a\\n\": 2}").unwrap();
    let (value, duplicates) = (json!({ "a\n": 2 }), vec!["a\n".to_owned()]);
    assert_eq!(read, DuplicateCheckedValue { value, duplicates, inexact: Vec::new() });
    let error = from_json(b"{\"a\n\": 1}\n x").unwrap_err();
    assert_eq!(error.to_string(), "trailing characters at line 3 column 2");
}

#[test]
fn duplicate_reports_are_bounded() {
    let long = "é".repeat(1000);
    let many: Vec<String> = (0..100).map(|at| format!(r#""{at}{long}": 1, "{at}{long}": 2"#)).collect();
    let read = from_json(format!("{{{}}}", many.join(",")).as_bytes()).unwrap();
    assert_eq!(read.duplicates.len(), 16);
    assert!(read.duplicates.iter().all(|path| path.chars().count() == 64), "{:?}", read.duplicates);
}

#[test]
fn values_are_those_of_serde_json() {
    for text in [
        r#"[null, true, -1, 18446744073709551615, 1.5, 1e3, -0.0, "é\n\u0000", {}, [], {"": {"$serde": 1}}]"#,
        r#""a""#,
        "9007199254740993",
        "18446744073709551616",
    ] {
        assert_eq!(from_json(text.as_bytes()).unwrap().value, serde_json::from_str::<Value>(text).unwrap());
    }
    for text in ["1: a\n2.5: b\ntrue: c\n", "a: .nan\nb: .inf\nc: 0x10\nd: ~\n", "- no\n- 'x'\n"] {
        let same = serde_yaml_ng::from_str::<Value>(text).unwrap();
        assert_eq!(from_yaml(text.as_bytes()).unwrap().value, same, "{text}");
    }
    for text in ["{\"a\": 1", "{} x", "", "[1,]", &"[".repeat(200)] {
        let same = serde_json::from_str::<Value>(text).unwrap_err().to_string();
        assert_eq!(from_json(text.as_bytes()).unwrap_err().to_string(), same, "{text}");
    }
    for text in ["a: !x 1\n", "a: 1\n---\nb: 2\n", "~: 1\n", "a: 340282366920938463463374607431768211456\n"] {
        let same = serde_yaml_ng::from_str::<Value>(text).map_err(|error| error.to_string());
        let read = from_yaml(text.as_bytes()).map(|read| read.value).map_err(|error| error.to_string());
        assert_eq!(read, same, "{text}");
    }
}

#[test]
fn numbers_that_the_value_cannot_have_are_reported_by_path() {
    fn check(text: &str, paths: &[&str]) {
        let read = if text.starts_with('{') {
            from_json(text.as_bytes()).unwrap()
        } else {
            from_yaml(text.as_bytes()).unwrap()
        };
        let found: Vec<&str> = read.inexact.iter().map(|(path, _)| &**path).collect();
        assert_eq!(found, paths, "{text}");
        assert_eq!(read.into_distinct().is_ok(), paths.is_empty(), "{text}");
    }
    check("a: [1, {b: .inf}]\nc: -.Inf\nd: .nan\n", &["a[1].b", "c", "d"]);
    check("a: 18446744073709551616\nb: -9223372036854775809\n", &["a", "b"]);
    check("a: 340282366920938463463374607431768211456\n", &["a"]);
    check(r#"{"a": 18446744073709551616, "b": -9223372036854775809}"#, &["a", "b"]);
    check(
        r#"{"a": 18446744073709551615, "b": -9223372036854775808, "c": 1.5e18, "d": "18446744073709551616"}"#,
        &[],
    );
    check("a: 0.1\nb: 1e3\nc: '.inf'\nd: \"18446744073709551616\"\n", &[]);
    check(
        &format!("a: [{}]\n", ".nan,".repeat(100)),
        &(0..16)
            .map(|at| format!("a[{at}]"))
            .collect::<Vec<_>>()
            .iter()
            .map(|path| &**path)
            .collect::<Vec<_>>(),
    );
}
