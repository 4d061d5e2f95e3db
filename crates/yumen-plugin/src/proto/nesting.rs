//! Checks the nesting of a proto before it is parsed. Parsers recurse, some of them on the stack of a worker.
//!
//! The scanner distinguishes brackets, strings and comments, without a grammar.

use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use prost_reflect::prost_types::{DescriptorProto, FileDescriptorSet};
use prost_reflect::{DescriptorPool, DynamicMessage, Value};
use yumen_config::schema::InvalidSettings;

/// Deepest nesting of messages, groups and option values. `protoc` accepts 32 messages.
const DEPTH_MAX: usize = 64;

/// Refuses text with brackets that are nested too deep.
pub(super) fn check_text(text: &str) -> Result<(), InvalidSettings> {
    let refused = |at: usize, what: String| {
        let line = text[..at].bytes().filter(|byte| *byte == b'\n').count() + 1;
        Err(InvalidSettings::at("content", format!("line {line}: {what}")))
    };
    match scan(text.as_bytes()) {
        NestingScan::Fine => Ok(()),
        NestingScan::TooDeep(at) => refused(at, format!("it nests more than {DEPTH_MAX} levels deep")),
        NestingScan::NestedComment(at) => refused(at, "a comment begins inside a comment".to_owned()),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum NestingScan {
    Fine,
    /// Offset of the first bracket beyond the limit.
    TooDeep(usize),
    /// Invalid in a proto, and parsers disagree where the outer comment ends.
    NestedComment(usize),
}

fn scan(text: &[u8]) -> NestingScan {
    const OPENING: &[u8] = b"{[(<";
    const CLOSING: &[u8] = b"}])>";
    // Counted by kind: an unmatched bracket is an error, but a parser that continues is still as deep.
    let mut open = [0_usize; 4];
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let kind = |brackets: &[u8]| brackets.iter().position(|bracket| *bracket == rest[0]);
        if rest.starts_with(b"/*") {
            match comment(rest) {
                Ok(length) => at += length,
                Err(inside) => return NestingScan::NestedComment(at + inside),
            }
            continue;
        }
        at += match rest[0] {
            // A number sign begins a comment in the text format of options.
            b'#' => line(rest),
            b'/' if rest.starts_with(b"//") => line(rest),
            b'"' | b'\'' => quoted(rest),
            _ => 1,
        };
        if let Some(kind) = kind(OPENING) {
            open[kind] += 1;
            if open.iter().sum::<usize>() > DEPTH_MAX {
                return NestingScan::TooDeep(at - 1);
            }
        } else if let Some(kind) = kind(CLOSING) {
            // The parser reports unbalanced brackets.
            open[kind] = open[kind].saturating_sub(1);
        }
    }
    NestingScan::Fine
}

/// Length up to the end of the line.
fn line(text: &[u8]) -> usize {
    text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len())
}

/// Length of a string with its quotes; an unterminated one ends with its line.
fn quoted(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = text.get(at) {
        match byte {
            // A string literal ends with its line even without a closing quote.
            b'\n' => return at,
            b'\\' if text.get(at + 1) != Some(&b'\n') => at += 2,
            byte if *byte == text[0] => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// Length of a comment with its delimiters, or the offset of a comment inside it.
fn comment(text: &[u8]) -> Result<usize, usize> {
    let mut at = 2;
    while let Some(pair) = text.get(at..at + 2) {
        match pair {
            b"*/" => return Ok(at + 2),
            b"/*" => return Err(at),
            _ => at += 1,
        }
    }
    Ok(text.len())
}

/// Refuses a descriptor set that is nested too deep or has malformed map entries.
pub(super) fn check_set(set: &[u8]) -> Result<(), InvalidSettings> {
    let refused =
        |what: String| InvalidSettings::at("content", format!("the descriptor set cannot be read: {what}"));
    // The caller decodes the set again and reports the error.
    let Ok(files) = FileDescriptorSet::decode(set) else { return Ok(()) };
    for file in &files.file {
        file.message_type.iter().try_for_each(|message| check_message(message, 1)).map_err(refused)?;
    }
    let of = DescriptorPool::global().get_message_by_name("google.protobuf.FileDescriptorSet");
    if let Some(set) = of.and_then(|of| DynamicMessage::decode(of, set).ok()) {
        check_options(&set).map_err(refused)?;
    }
    Ok(())
}

fn check_message(message: &DescriptorProto, depth: usize) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("message {} nests more than {DEPTH_MAX} levels deep", message.name()));
    }
    let is_map_entry = message.options.as_ref().is_some_and(|options| options.map_entry());
    // The accessors of map entries panic without these fields.
    if is_map_entry && !has_key_and_value(message) {
        return Err(format!("the map entry {} has no key and value", message.name()));
    }
    message.nested_type.iter().try_for_each(|inner| check_message(inner, depth + 1))
}

fn has_key_and_value(entry: &DescriptorProto) -> bool {
    let is_key = |kind: Type| {
        !matches!(kind, Type::Double | Type::Float | Type::Bytes | Type::Message | Type::Group | Type::Enum)
    };
    let one = |number: i32| {
        let mut fields = entry.field.iter().filter(|field| field.number() == number);
        fields.next().filter(|field| field.label() != Label::Repeated)
    };
    // A field without a type, which has only a type name, is a message or an enum.
    one(1).is_some_and(|key| key.r#type.is_some() && is_key(key.r#type())) && one(2).is_some()
}

/// Uninterpreted options contain text, which is parsed when the set is loaded.
fn check_options(message: &DynamicMessage) -> Result<(), String> {
    for (field, value) in message.fields() {
        let values = match value {
            Value::List(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        for value in values {
            match value {
                Value::Message(inner) => check_options(inner)?,
                Value::String(text) if field.full_name() == AGGREGATE => match scan(text.as_bytes()) {
                    NestingScan::Fine => {}
                    _ => return Err(format!("an option nests more than {DEPTH_MAX} levels deep")),
                },
                _ => {}
            }
        }
    }
    Ok(())
}

const AGGREGATE: &str = "google.protobuf.UninterpretedOption.aggregate_value";

#[cfg(test)]
mod tests;
