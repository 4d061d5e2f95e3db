//! Types, strings, numbers, formats, and equality.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Number, Value};

use super::evaluate::{SchemaEvaluator, SchemaKeywords};
use super::patterns;
use super::{InvalidSettings, RuleViolation, remedy};

/// 2^53. Beyond it a float cannot represent every integer.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Validates `type`. As in Lua, `2.0` is an integer, and an empty table is both an object and an array.
pub(super) fn types(
    ev: SchemaEvaluator<'_>,
    types: &Value,
    instance: &mut Value,
) -> Result<(), InvalidSettings> {
    match types {
        Value::String(name) => {
            if !is_type(ev, name, instance) {
                return Err(wrong_type(ev, name, instance));
            }
            if ev.complete {
                // Typed decoding is stricter than Lua: serde refuses `[]` for a map and `2.0` for an integer.
                normalise(name, instance);
            }
            Ok(())
        }
        Value::Array(names) => {
            let mut names = names.iter().filter_map(Value::as_str);
            // No normalisation: the value keeps its form where several are allowed.
            if names.clone().any(|name| is_type(ev, name, instance)) {
                return Ok(());
            }
            ev.refuse(|| {
                let first = names.next().unwrap_or("").to_owned();
                let all = names.fold(first, |all, name| all + ", " + name);
                format!("wrong type: expected one of {all}, got {}", lua_type(instance))
            })
        }
        _ => Ok(()),
    }
}

fn wrong_type(ev: SchemaEvaluator<'_>, name: &str, instance: &Value) -> InvalidSettings {
    let violation = match (name, instance) {
        // YAML 1.2 reads `yes` and `on` as texts, which earlier versions read as booleans; the caller adds a hint.
        ("boolean", Value::String(_)) => RuleViolation::TextForBoolean,
        _ => RuleViolation::Other,
    };
    let message = if ev.builds_messages {
        format!("wrong type: expected {name}, got {}", lua_type(instance))
    } else {
        String::new()
    };
    let hint = if ev.builds_hints() { remedy::of_type(name, instance) } else { None };
    InvalidSettings { violation, hint, ..InvalidSettings::new(message) }
}

fn is_type(ev: SchemaEvaluator<'_>, name: &str, instance: &Value) -> bool {
    match (name, instance) {
        ("object", Value::Object(_)) | ("array", Value::Array(_)) => true,
        // Lua has one empty table, so tools that are written in it may write either form.
        ("object", Value::Array(items)) => items.is_empty(),
        ("array", Value::Object(members)) => members.is_empty(),
        ("table", Value::Object(_) | Value::Array(_)) => true,
        ("string", Value::String(_)) | ("boolean", Value::Bool(_)) | ("null", Value::Null) => true,
        ("number", Value::Number(_)) => true,
        ("integer", Value::Number(number)) => {
            // Settings are decoded from the number, which is exact up to a bound. Documents keep their text.
            let is_exact = |float: f64| ev.references.is_some() || float.abs() < EXACT_MAX;
            let is_whole = |float: f64| float.fract() == 0.0 && is_exact(float);
            number.is_i64()
                || ((number.is_f64() || ev.references.is_some()) && number.as_f64().is_some_and(is_whole))
        }
        _ => false,
    }
}

/// Whether a value has this JSON type.
pub(super) fn is_of_type(name: &str, instance: &Value) -> bool {
    match instance {
        Value::Object(_) => name == "object",
        Value::Array(_) => name == "array",
        Value::String(_) => name == "string",
        Value::Number(_) => matches!(name, "number" | "integer"),
        Value::Bool(_) => name == "boolean",
        Value::Null => name == "null",
    }
}

fn normalise(name: &str, instance: &mut Value) {
    match (name, &*instance) {
        ("object", Value::Array(_)) => *instance = Value::Object(Default::default()),
        ("array", Value::Object(_)) => *instance = Value::Array(Vec::new()),
        ("integer", Value::Number(number)) if number.is_f64() => {
            if let Some(float) = number.as_f64().filter(|float| float.abs() < EXACT_MAX) {
                *instance = Value::from(float as i64);
            }
        }
        _ => {}
    }
}

fn lua_type(instance: &Value) -> &'static str {
    match instance {
        // Lua's cjson represents null as userdata.
        Value::Null => "userdata",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) | Value::Object(_) => "table",
    }
}

/// Validates a string. Lengths count characters, not bytes.
pub(super) fn string(
    ev: SchemaEvaluator<'_>,
    k: &SchemaKeywords<'_>,
    text: &str,
) -> Result<(), InvalidSettings> {
    if k.text.length_min.is_some() || k.text.length_max.is_some() {
        // JSON Schema draft-07 validation §6.3 counts characters. Counting is skipped where no bound needs it.
        let length = text.chars().count() as u64;
        if let Some(min) = k.text.length_min.filter(|min| length < *min) {
            return ev.refuse(|| format!("string too short, expected at least {min}, got {length}"));
        }
        if let Some(max) = k.text.length_max.filter(|max| length > *max) {
            return ev.refuse(|| format!("string too long, expected at most {max}, got {length}"));
        }
    }
    let Some(pattern) = k.text.pattern else { return Ok(()) };
    match patterns::compiled(pattern) {
        Some(regex) if regex.is_match(text) => Ok(()),
        Some(_) => ev.refuse(|| {
            // The value may be a URL with credentials.
            let mut shown = text.to_owned();
            crate::masking::hide_in_urls(&mut shown);
            format!("failed to match pattern {} with {}", quoted(pattern), quoted(&shown))
        }),
        // Refused: accepting every text would switch the check off silently.
        None => ev.refuse(|| format!("the schema's pattern \"{pattern}\" is not supported")),
    }
}

/// Validates bounds, including the older form with a boolean `exclusiveMinimum`.
pub(super) fn number(
    ev: SchemaEvaluator<'_>,
    k: &SchemaKeywords<'_>,
    number: &Number,
) -> Result<(), InvalidSettings> {
    // A comparison with NaN is false, so a number without a float is not refused here.
    let value = number.as_f64().unwrap_or(f64::NAN);
    let bound = |keyword: Option<&Value>| keyword.and_then(Value::as_f64);
    let strict = |keyword: Option<&Value>| keyword == Some(&Value::Bool(true));
    let (mut min, mut above) = (bound(k.number.minimum), bound(k.number.exclusive_minimum));
    // Draft-04: a boolean makes `minimum` itself exclusive.
    if strict(k.number.exclusive_minimum) {
        (min, above) = (None, min);
    }
    let (mut max, mut below) = (bound(k.number.maximum), bound(k.number.exclusive_maximum));
    if strict(k.number.exclusive_maximum) {
        (max, below) = (None, max);
    }
    if let Some(min) = min.filter(|min| value < *min) {
        return ev.refuse(|| format!("expected {number} to be at least {min}"));
    }
    if let Some(max) = max.filter(|max| value > *max) {
        return ev.refuse(|| format!("expected {number} to be at most {max}"));
    }
    if let Some(above) = above.filter(|above| value <= *above) {
        return ev.refuse(|| format!("expected {number} to be greater than {above}"));
    }
    if let Some(below) = below.filter(|below| value >= *below) {
        return ev.refuse(|| format!("expected {number} to be smaller than {below}"));
    }
    match bound(k.number.multiple_of) {
        // The specification requires a factor above 0 (draft-07 validation §6.2.1); division by another is undefined.
        Some(factor) if factor > 0.0 && (value / factor).fract() != 0.0 => {
            ev.refuse(|| format!("expected {number} to be a multiple of {factor}"))
        }
        _ => Ok(()),
    }
}

/// Validates the formats that APISIX checks; all others are annotations.
pub(super) fn format(ev: SchemaEvaluator<'_>, format: &str, text: &str) -> Result<(), InvalidSettings> {
    let fits = match format {
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        // Draft-07 §7.2 lets an implementation treat formats as annotations.
        _ => true,
    };
    if fits { Ok(()) } else { ev.refuse(|| format!("expect valid {format} format but got: {text}")) }
}

/// Equality where `1` and `1.0` are the same number, at any depth, and the order of members does not matter.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            // Two integers are compared exactly: as floats, neighbours beyond 2^53 would be equal.
            a == b || ((a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64())
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            // With equal counts, one direction suffices.
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}

/// A hash that is the same for values that are [`equal`].
pub(super) fn hash(hasher: &RandomState, value: &Value) -> u64 {
    match value {
        // Adding 0.0 turns -0.0 into 0.0.
        Value::Number(number) => hasher.hash_one(number.as_f64().map(|float| (float + 0.0).to_bits())),
        Value::String(text) => hasher.hash_one(text),
        Value::Array(items) => {
            let mut state = hasher.build_hasher();
            items.iter().for_each(|item| state.write_u64(hash(hasher, item)));
            state.finish()
        }
        // A commutative sum, because the order of members does not matter for equality.
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| hasher.hash_one((name, hash(hasher, value))))
            .fold(1, u64::wrapping_add),
        // Arbitrary distinct values; a collision only costs a comparison.
        Value::Null => 2,
        Value::Bool(truth) => 3 + u64::from(*truth),
    }
}

/// Text in double quotes as Lua's `%q` writes it; tools compare this form.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' | '\n' => out.extend(['\\', c]),
            '\r' => out.push_str("\\r"),
            '\0' => out.push_str("\\0"),
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}
