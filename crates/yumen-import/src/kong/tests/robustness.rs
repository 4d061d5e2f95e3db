//! Cases with lines or values that are changed at random: the import never panics, and its result can be written, parsed and
//! compiled.

use serde_json::{Value, json};
use yumen_config::document;

use super::{case_files, compiled, imported};
use crate::ImportResult;

/// A pseudo-random generator (xorshift64*).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }
}

/// Values that no field expects everywhere.
fn odd_values() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(0),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!(":"),
        json!("a:b:c"),
        json!("$"),
        json!("${{ env"),
        json!("{vault://env/}"),
        json!("~(a"),
        json!("[::1]:x"),
        json!("\u{E000}0\u{E001}"),
        json!([]),
        json!([[]]),
        json!([null, {}]),
        json!({}),
        json!({"": {"": []}}),
    ]
}

/// Number of values inside `value`, including itself.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        _ => 0,
    }
}

/// The value at a position in depth-first order.
fn at<'v>(value: &'v mut Value, position: &mut usize) -> Option<&'v mut Value> {
    if *position == 0 {
        return Some(value);
    }
    *position -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| at(item, position)),
        Value::Object(members) => members.values_mut().find_map(|member| at(member, position)),
        _ => None,
    }
}

/// Imports a text; the result of a readable one can be written, parsed and compiled.
fn check(text: &str) {
    let Ok(ImportResult { resources, report }) = imported(text) else { return };
    assert!(!report.summary().is_empty());
    let written = document::to_yaml(&resources).unwrap();
    let (read, problems) = document::parse(&written, &|_| None);
    assert_eq!(problems, [], "{text}\n{written}");
    assert_eq!(read.len(), resources.len(), "{text}\n{written}");
    for problem in &compiled(&resources).problems {
        assert!(!problem.object.is_empty() && !problem.message.is_empty(), "{text}");
    }
}

#[test]
fn odd_values_are_reported_and_never_panic() {
    let odd = odd_values();
    for path in case_files() {
        let text = std::fs::read_to_string(&path).unwrap();
        let Ok(original) = serde_yaml_ng::from_str::<Value>(&text) else { continue };
        let mut chance = Chance(text.len() as u64 | 1);
        for _ in 0..12 {
            let mut value = original.clone();
            for _ in 0..=chance.below(3) {
                let mut position = chance.below(count(&value));
                if let Some(place) = at(&mut value, &mut position) {
                    *place = odd[chance.below(odd.len())].clone();
                }
            }
            // A changed version is refused before anything else is read.
            if value.is_object() {
                value["_format_version"] = original["_format_version"].clone();
            }
            check(&value.to_string());
        }
    }
}

#[test]
fn truncated_and_shuffled_lines_never_panic() {
    for path in case_files() {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let mut chance = Chance(text.len() as u64 | 1);
        for end in (0..lines.len()).step_by(3) {
            let mut some: Vec<&str> = lines[..end].to_vec();
            check(&some.join("\n"));
            if end > 1 {
                some.remove(chance.below(end - 1) + 1);
                check(&some.join("\n"));
            }
        }
    }
}

#[test]
fn aliases_cannot_repeat_a_text_without_end() {
    let long = "x".repeat(4000);
    let aliases = vec!["*a"; 9000].join(",");
    let text = format!("_format_version: '3.0'\n_ignore: [&a {long}, {aliases}]\n");
    let error = imported(&text).expect_err("too much text");
    assert!(error.contains("repeat too much text"), "{error}");
}
