//! Values with a list of duplicate object members, and of numbers that differ from the text.
//!
//! JSON and YAML readers disagree on which of several members with one name counts, and a value has no infinite numbers
//! and no integers beyond 64 bits. The caller decides how to treat such a text.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use crate::json_text::{JsonText, JsonTextError};

/// Reported duplicates per text; further ones are not recorded.
const TOLD_MAX: usize = 16;

/// Reasons of inexact numbers.
const NOT_FINITE: &str = "the number is not finite; write a number or remove the member";
const BEYOND_64_BITS: &str =
    "the number is beyond 64 bits and would be rounded; write a smaller one, or a text in quotes";
/// The first integer beyond 64 bits, 2^64.
const INTEGER_END: f64 = 18_446_744_073_709_551_616.0;

/// Characters of each member name in a reported path.
const NAME_CHARS_MAX: usize = 64;

/// A value and its duplicate members. The value has the last member of each name.
#[derive(Debug, Clone, PartialEq)]
pub struct DuplicateCheckedValue {
    /// The parsed value.
    pub value: Value,
    /// Dotted paths of members that occur more than once, at most 16.
    pub duplicates: Vec<String>,
    /// Dotted paths of numbers that the value does not have as written, with the reason; at most 16.
    pub inexact: Vec<(String, &'static str)>,
}

impl DuplicateCheckedValue {
    /// A value without findings.
    pub(crate) fn of(value: Value) -> DuplicateCheckedValue {
        DuplicateCheckedValue { value, duplicates: Vec::new(), inexact: Vec::new() }
    }

    /// The value if no member is duplicated and all numbers are exact, otherwise a message that lists the others.
    pub fn into_distinct(self) -> Result<Value, String> {
        let duplicates = self.duplicates.iter().map(|path| message_at(path));
        let inexact = self.inexact.iter().map(|(path, reason)| format!("\"{path}\": {reason}"));
        let faults: Vec<String> = duplicates.chain(inexact).collect();
        if faults.is_empty() { Ok(self.value) } else { Err(faults.join("; ")) }
    }
}

/// The message for a duplicate member.
pub fn message_at(path: &str) -> String {
    format!("\"{path}\" is written more than once")
}

/// Parses JSON, in which strings may contain raw control characters ([`JsonText`]); trailing data is an error.
pub fn from_json(text: &[u8]) -> Result<DuplicateCheckedValue, JsonTextError> {
    let text = JsonText::new(text);
    let mut json = serde_json::Deserializer::from_slice(text.strict());
    // Nothing in JSON repeats a text.
    let mut bytes_left = usize::MAX;
    let read = DuplicateKeyReader { bytes_left: &mut bytes_left }.deserialize(&mut json);
    // Otherwise a second value behind the first would be ignored silently.
    read.and_then(|read| json.end().map(|()| read)).map_err(|error| text.error(&error))
}

/// Parses one YAML document; merge keys (`<<`) are ordinary members here.
pub fn from_yaml(text: &[u8]) -> Result<DuplicateCheckedValue, serde_yaml_ng::Error> {
    let bytes_left = &mut expanded_bytes_max(text.len());
    DuplicateKeyReader { bytes_left }.deserialize(serde_yaml_ng::Deserializer::from_slice(text))
}

/// Bytes that the names and texts of a YAML document of this length may have. An alias repeats a text for two bytes of
/// input, and the library bounds only the number of repeated nodes.
pub(crate) fn expanded_bytes_max(length: usize) -> usize {
    length.saturating_mul(8).saturating_add(1024 * 1024)
}

/// Takes the bytes of a text from those that are left. None are left after an error.
pub(crate) fn take_bytes<E: Error>(bytes_left: &mut usize, count: usize) -> Result<(), E> {
    let left = bytes_left.checked_sub(count);
    *bytes_left = left.unwrap_or(0);
    left.map(drop).ok_or_else(|| E::custom("the aliases (\"*name\") repeat too much text"))
}

/// Seed for one value of a larger text.
pub(crate) struct DuplicateKeyReader<'b> {
    /// Bytes that names and texts may still have.
    pub(crate) bytes_left: &'b mut usize,
}

impl<'de> DeserializeSeed<'de> for DuplicateKeyReader<'_> {
    type Value = DuplicateCheckedValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<DuplicateCheckedValue, D::Error> {
        let mut faults =
            TextFaults { duplicates: Vec::new(), inexact: Vec::new(), bytes_left: self.bytes_left };
        let seed = DuplicateKeySeed { step: JsonPathStep::Top, faults: &mut faults };
        let value = seed.deserialize(deserializer)?;
        let TextFaults { duplicates, inexact, .. } = faults;
        Ok(DuplicateCheckedValue { value, duplicates, inexact })
    }
}

/// Path from the root to a value, as a linked list on the stack. Only a reported path is serialized.
#[derive(Clone, Copy)]
enum JsonPathStep<'a> {
    Top,
    Member(&'a JsonPathStep<'a>, &'a str),
    Item(&'a JsonPathStep<'a>, usize),
}

impl fmt::Display for JsonPathStep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JsonPathStep::Top => Ok(()),
            JsonPathStep::Item(within, at) => write!(f, "{within}[{at}]"),
            JsonPathStep::Member(within, name) => {
                let dot = if matches!(within, JsonPathStep::Top) { "" } else { "." };
                write!(f, "{within}{dot}{name:.NAME_CHARS_MAX$}")
            }
        }
    }
}

/// The findings of one text, and the rest of its bound.
struct TextFaults<'b> {
    duplicates: Vec<String>,
    inexact: Vec<(String, &'static str)>,
    bytes_left: &'b mut usize,
}

struct DuplicateKeySeed<'a, 'b> {
    step: JsonPathStep<'a>,
    faults: &'a mut TextFaults<'b>,
}

impl DuplicateKeySeed<'_, '_> {
    /// A number that may differ from the one in the text.
    fn inexact(self, value: f64, reason: &'static str) -> Value {
        if self.faults.inexact.len() < TOLD_MAX {
            self.faults.inexact.push((self.step.to_string(), reason));
        }
        Number::from_f64(value).map_or(Value::Null, Value::Number)
    }

    fn take<E: Error>(&mut self, text: &str) -> Result<(), E> {
        take_bytes(self.faults.bytes_left, text.len())
    }
}

impl<'de> DeserializeSeed<'de> for DuplicateKeySeed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DuplicateKeySeed<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            self.take(&name)?;
            // One search of the map serves the check and the insertion.
            let member = members.entry(name);
            let step = JsonPathStep::Member(&self.step, member.key());
            if matches!(member, Entry::Occupied(_)) && self.faults.duplicates.len() < TOLD_MAX {
                let path = step.to_string();
                // Three members of one name give one report.
                if self.faults.duplicates.last() != Some(&path) {
                    self.faults.duplicates.push(path);
                }
            }
            let value = map.next_value_seed(DuplicateKeySeed { step, faults: &mut *self.faults })?;
            match member {
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                Entry::Occupied(mut entry) => {
                    entry.insert(value);
                }
            }
        }
        Ok(Value::Object(members))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let step = JsonPathStep::Item(&self.step, items.len());
            match seq.next_element_seed(DuplicateKeySeed { step, faults: &mut *self.faults })? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<Value, E> {
        self.take(text)?;
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E: Error>(mut self, text: String) -> Result<Value, E> {
        self.take(&text)?;
        Ok(Value::String(text))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(self.inexact(value as f64, BEYOND_64_BITS))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(self.inexact(value as f64, BEYOND_64_BITS))
    }

    /// JSON has no NaN and no infinity; like `serde_json`, this reader replaces them with null. An integer beyond 64 bits
    /// arrives here as a rounded one, like a number with an exponent.
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(match Number::from_f64(value) {
            None => self.inexact(value, NOT_FINITE),
            Some(_) if value >= INTEGER_END || value <= -INTEGER_END / 2.0 => {
                self.inexact(value, BEYOND_64_BITS)
            }
            Some(number) => Value::Number(number),
        })
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests;
