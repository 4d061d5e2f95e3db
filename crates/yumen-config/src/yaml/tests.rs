use serde_json::{Value, json};

use super::write;

fn check(value: Value, expected: &str) {
    let text = write(value.clone()).expect("it can be written");
    assert_eq!(text, expected);
    let read: Value = serde_yaml_ng::from_str(&text).expect("it can be read");
    assert_eq!(read, value);
}

#[test]
fn text_that_yaml_1_1_types_differently_is_quoted() {
    for text in [
        "y",
        "N",
        "yes",
        "No",
        "ON",
        "off",
        "true",
        "null",
        "~",
        "=",
        "0",
        "012",
        "0o14",
        "0x1F",
        "0b1010",
        "1_000",
        "_1",
        "-1_0.5",
        "12:30:45",
        "190:20:30.15",
        "1:2",
        "1e3",
        "1.5",
        "1.e+3",
        ".5",
        "+12",
        "2001-12-14",
        "2001-1-1",
        "2001-12-14t21:59:43.10-05:00",
        "2001-12-14 21:59:43",
        "0xdead_beef",
        "00:11:22:33:44:55",
    ] {
        check(json!({ "a": text }), &format!("a: '{text}'\n"));
        check(json!([text]), &format!("- '{text}'\n"));
        check(json!({ text: [{ text: 1 }] }), &format!("'{text}':\n- '{text}': 1\n"));
    }
}

#[test]
fn other_texts_stay_plain() {
    for text in [
        "yesterday",
        "only",
        "127.0.0.1",
        "127.0.0.1:80",
        "1.21.4",
        "a1",
        "12a",
        "12:3a",
        "e5",
        "1e",
        "_",
        "x-1",
        "2001-12",
        "2001-12-14-15x",
        "10.0.0.0/8",
        "fe80::1",
        "/on",
        "on off",
        "1s",
    ] {
        check(json!({ "a": text, text: 1 }), &format!("a: {text}\n{text}: 1\n"));
    }
    check(
        json!({ "a": "on\noff\n", "b": true, "c": null, "d": 1.5 }),
        "a: |\n  on\n  off\nb: true\nc: null\nd: 1.5\n",
    );
}

#[test]
fn no_character_of_a_text_is_taken_for_a_quote() {
    let all: String = ('\u{e000}'..='\u{e005}').collect();
    check(json!({ "a": "on", "b": all }), &format!("a: 'on'\nb: {all}\n"));
}

#[test]
fn dates_with_marks_of_yaml_survive() {
    for text in ["2001-01-01 : 5", "2001-01-01\t1", "2001-01-01 :", "2001-01-01 : : "] {
        for value in [json!({ "a": text }), json!({ text: 1 }), json!([text])] {
            let written = write(value.clone()).expect("it can be written");
            let read: Value =
                serde_yaml_ng::from_str(&written).unwrap_or_else(|error| panic!("{written}: {error}"));
            assert_eq!(read, value, "{written}");
        }
    }
}
