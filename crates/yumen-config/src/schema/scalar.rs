//! Types, strings, numbers, formats, and equality.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::{Number, Value};

use super::InvalidSettings;
use super::evaluate::{SchemaEvaluator, SchemaKeywords};
use super::patterns;

/// Beyond this a float does not hold every integer.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// `type`, and the forms that count as the same: `2.0` is an integer, an empty table is both kinds.
pub(super) fn types(
    ev: SchemaEvaluator<'_>,
    types: &Value,
    instance: &mut Value,
) -> Result<(), InvalidSettings> {
    match types {
        Value::String(name) => {
            if !is_type(name, instance) {
                return ev.refuse(|| format!("wrong type: expected {name}, got {}", lua_type(instance)));
            }
            if ev.complete {
                normalise(name, instance);
            }
            Ok(())
        }
        Value::Array(names) => {
            let mut names = names.iter().filter_map(Value::as_str);
            if names.clone().any(|name| is_type(name, instance)) {
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

fn is_type(name: &str, instance: &Value) -> bool {
    match (name, instance) {
        ("object", Value::Object(_)) | ("array", Value::Array(_)) => true,
        ("object", Value::Array(items)) => items.is_empty(),
        ("array", Value::Object(members)) => members.is_empty(),
        ("table", Value::Object(_) | Value::Array(_)) => true,
        ("string", Value::String(_)) | ("boolean", Value::Bool(_)) | ("null", Value::Null) => true,
        ("number", Value::Number(_)) => true,
        ("integer", Value::Number(number)) => {
            // Beyond the exact ones a number is not what was written any more.
            let is_whole = |float: f64| float.fract() == 0.0 && float.abs() < EXACT_MAX;
            number.is_i64() || (number.is_f64() && number.as_f64().is_some_and(is_whole))
        }
        _ => false,
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
        Value::Null => "userdata",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) | Value::Object(_) => "table",
    }
}

/// Lengths count characters, not bytes.
pub(super) fn string(
    ev: SchemaEvaluator<'_>,
    k: &SchemaKeywords<'_>,
    text: &str,
) -> Result<(), InvalidSettings> {
    if k.length_min.is_some() || k.length_max.is_some() {
        let length = text.chars().count() as u64;
        if let Some(min) = k.length_min.filter(|min| length < *min) {
            return ev.refuse(|| format!("string too short, expected at least {min}, got {length}"));
        }
        if let Some(max) = k.length_max.filter(|max| length > *max) {
            return ev.refuse(|| format!("string too long, expected at most {max}, got {length}"));
        }
    }
    let Some(pattern) = k.pattern else { return Ok(()) };
    match patterns::compiled(pattern) {
        Some(regex) if regex.is_match(text) => Ok(()),
        Some(_) => ev.refuse(|| {
            let mut shown = text.to_owned();
            crate::url::hide_userinfo(&mut shown);
            format!("failed to match pattern {} with {}", quoted(pattern), quoted(&shown))
        }),
        None => ev.refuse(|| format!("the schema's pattern \"{pattern}\" is not supported")),
    }
}

/// Bounds; the older spelling with a boolean `exclusiveMinimum` is understood too.
pub(super) fn number(
    ev: SchemaEvaluator<'_>,
    k: &SchemaKeywords<'_>,
    number: &Number,
) -> Result<(), InvalidSettings> {
    let value = number.as_f64().unwrap_or(f64::NAN);
    let bound = |keyword: Option<&Value>| keyword.and_then(Value::as_f64);
    let strict = |keyword: Option<&Value>| keyword == Some(&Value::Bool(true));
    let (mut min, mut above) = (bound(k.minimum), bound(k.exclusive_minimum));
    if strict(k.exclusive_minimum) {
        (min, above) = (None, min);
    }
    let (mut max, mut below) = (bound(k.maximum), bound(k.exclusive_maximum));
    if strict(k.exclusive_maximum) {
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
    match bound(k.multiple_of) {
        Some(factor) if factor > 0.0 && (value / factor).fract() != 0.0 => {
            ev.refuse(|| format!("expected {number} to be a multiple of {factor}"))
        }
        _ => Ok(()),
    }
}

/// Only the formats the tools check; others say something to people alone.
pub(super) fn format(ev: SchemaEvaluator<'_>, format: &str, text: &str) -> Result<(), InvalidSettings> {
    let fits = match format {
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        _ => true,
    };
    if fits { Ok(()) } else { ev.refuse(|| format!("expect valid {format} format but got: {text}")) }
}

/// Equality where `1` and `1.0` are the same number.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

/// Text in double quotes as Lua's `%q` writes it, which is what the tools compare with.
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
