//! YAML that readers of version 1.1, such as those of APISIX and Python, and of version 1.2 understand alike.
//!
//! A text that one of the versions reads as another type, such as `on`, `0123` or `12:30:45`, is quoted.

mod expansion;

use serde_json::{Map, Value};

pub use expansion::bounded;

/// Serializes a value in block style.
pub fn write(mut value: Value) -> Result<String, serde_yaml_ng::Error> {
    // The usual document needs no second pass.
    if !any_text(&value, &is_another_type) {
        return serde_yaml_ng::to_string(&value);
    }
    // The library quotes texts that version 1.2 would misread, and cannot be configured to quote more. A
    // private-use character that the value does not contain stands for the quotes, which keeps a text plain,
    // and is replaced afterwards.
    let mut marks = '\u{e000}'..='\u{f8ff}';
    // A value that uses all 6 400 characters is written without the additional quotes, which is still valid YAML 1.2.
    let Some(mark) = marks.find(|mark| !any_text(&value, &|text| text.contains(*mark))) else {
        return serde_yaml_ng::to_string(&value);
    };
    quote(&mut value, mark);
    Ok(serde_yaml_ng::to_string(&value)?.replace(mark, "'"))
}

fn any_text(value: &Value, is_one: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => is_one(text),
        Value::Array(items) => items.iter().any(|item| any_text(item, is_one)),
        Value::Object(members) => {
            members.iter().any(|(name, member)| is_one(name) || any_text(member, is_one))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn quote(value: &mut Value, mark: char) {
    // The library puts quotes of its own around a text with one of these.
    let has_quotes = |text: &str| text.contains('\t') || text.contains(": ") || text.ends_with([':', ' ']);
    let needs_quotes = |text: &str| is_another_type(text) && !has_quotes(text);
    let quoted = |text: String| if needs_quotes(&text) { format!("{mark}{text}{mark}") } else { text };
    match value {
        Value::String(text) => *text = quoted(std::mem::take(text)),
        Value::Array(items) => items.iter_mut().for_each(|item| quote(item, mark)),
        Value::Object(members) => {
            members.values_mut().for_each(|member| quote(member, mark));
            if members.keys().any(|name| is_another_type(name)) {
                // Rebuilt only where a key needs quotes.
                let all = std::mem::take(members).into_iter();
                *members = all.map(|(name, member)| (quoted(name), member)).collect::<Map<_, _>>();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether a reader of version 1.1 takes a plain text for another type. A false positive only adds quotes.
fn is_another_type(text: &str) -> bool {
    // The words to which YAML 1.1 gives another type: booleans, nulls, and the keys for a default and a merge.
    const WORDS: [&str; 12] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "=", "<<"];
    // No number or time is longer, so long texts are skipped quickly.
    let is_short = text.len() <= 64;
    is_short && (WORDS.iter().any(|word| text.eq_ignore_ascii_case(word)) || is_number(text) || is_date(text))
}

/// Whether a text is a number: decimal, octal, hexadecimal, binary, in groups, sexagesimal, with a fraction
/// and an exponent.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let has_base = |base: &&str| unsigned.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(base));
    if ["0b", "0o", "0x"].iter().any(has_base) {
        return unsigned[2..].bytes().all(|b| b.is_ascii_hexdigit() || b"_.pP+-".contains(&b));
    }
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let has_digits = |part: &str| part.bytes().any(|b| b.is_ascii_digit());
    has_digits(mantissa)
        && has_digits(exponent)
        && !mantissa.starts_with(':')
        && mantissa.bytes().all(|b| b.is_ascii_digit() || b"_:.".contains(&b))
        && mantissa.bytes().filter(|b| *b == b'.').count() <= 1
        && exponent.bytes().all(|b| b.is_ascii_digit() || b == b'_')
}

/// Whether a text is a date, with or without a time.
fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let (Some(year), Some(month), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let day_end = rest.find(['T', 't', ' ', '\t']).unwrap_or(rest.len());
    // A shorter year is no timestamp of YAML 1.1.
    let is_day = year.len() == 4 && [year, month, &rest[..day_end]].into_iter().all(is_number);
    is_day && rest.bytes().all(|b| b.is_ascii_digit() || b"Tt \t:.Z+-".contains(&b))
}

#[cfg(test)]
mod tests;
