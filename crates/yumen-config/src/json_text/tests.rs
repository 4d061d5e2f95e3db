use serde_json::{Value, json};

use super::*;

#[test]
fn raw_control_characters_in_strings_equal_their_escapes() {
    let all: String = (1..0x20_u8).map(char::from).collect();
    for (written, value) in [
        ("{\"a\": \"x\ny\"}".to_owned(), json!({ "a": "x\ny" })),
        ("{\"a\tb\": [\"\r\n\"],\n\t\"c\": 1}".to_owned(), json!({ "a\tb": ["\r\n"], "c": 1 })),
        ("[\"\\\"\n\", \"\\\\\", \"\n\"]".to_owned(), json!(["\"\n", "\\", "\n"])),
        (format!("\"{all}\""), json!(all)),
        (" \n\t{}\r\n".to_owned(), json!({})),
    ] {
        assert_eq!(from_slice::<Value>(written.as_bytes()), Ok(value), "{written:?}");
    }
}

#[test]
fn text_without_raw_characters_is_not_copied() {
    for text in ["{\n\t\"a\": \"x\\ny\"\r\n}", "", "\"", "{\"a\": 1}", "\"\\"] {
        assert!(matches!(JsonText::new(text.as_bytes()).strict, Cow::Borrowed(_)), "{text:?}");
    }
}

#[test]
fn errors_name_the_place_in_the_text_as_written() {
    for (written, expected) in [
        ("{\"a\": 1,}", "trailing comma at line 1 column 9"),
        ("{\"a\": \"x\ny\", }", "trailing comma at line 2 column 5"),
        ("{\"a\": \"x\n\ty\",\n\"b\" 1}", "expected `:` at line 3 column 5"),
        ("[\"\x01\", x]", "expected value at line 1 column 7"),
        ("{\"a\": \"x\n", "EOF while parsing a string at line 2 column 0"),
        ("\"\n\\\n\"", "invalid escape at line 3 column 0"),
        ("\"\n\0\"", "control character (\\u0000-\\u001F) found while parsing a string at line 2 column 1"),
        ("\"\n\" 1", "trailing characters at line 2 column 3"),
    ] {
        let error = from_slice::<Value>(written.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), expected, "{written:?}");
    }
}

#[test]
fn a_strict_text_keeps_its_meaning_and_its_errors() {
    // Every short text over these characters, so every state of the scan meets every byte.
    const BYTES: [u8; 7] = [b'"', b'\\', b'\n', b'n', b'[', b']', b','];
    for mut number in 0..BYTES.len().pow(6) {
        let mut text = [0; 6];
        for byte in &mut text {
            *byte = BYTES[number % BYTES.len()];
            number /= BYTES.len();
        }
        let Ok(strict) = serde_json::from_slice::<Value>(&text) else { continue };
        assert_eq!(from_slice::<Value>(&text), Ok(strict), "{}", text.escape_ascii());
    }
}
