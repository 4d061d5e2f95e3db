//! From a request's path, query and body to the message a method takes.

use prost_reflect::prost::Message as _;
use prost_reflect::{DeserializeOptions, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value};
use yumen_http::{Known, Method};
use yumen_plugin::Exchange;

use super::Call;
use super::rules::{Body, Rule};
use crate::query::pairs;

/// Messages inside messages are gone into so deep.
const DEPTH_MAX: usize = 64;

/// The message in its frame.
pub(super) fn message(call: &Call, ex: &Exchange<'_>) -> Result<Vec<u8>, String> {
    let input = call.method.input();
    let mut fields = fields(&input, ex)?;
    for (name, range) in &ex.path_params {
        let value = &ex.request.path()[range.clone()];
        put(&input, &mut fields, name, &String::from_utf8_lossy(value), true);
    }
    framed(input, fields)
}

/// The message of a call that a rule led to, in its frame; `told` is what the path says.
pub(super) fn ruled_message(
    call: &Call,
    rule: &Rule,
    told: Vec<(&str, String)>,
    ex: &Exchange<'_>,
) -> Result<Vec<u8>, String> {
    let input = call.method.input();
    let body = ex.body.as_deref().unwrap_or_default();
    let body = || match body.trim_ascii() {
        b"" => Ok(Value::Object(Map::new())),
        body => serde_json::from_slice(body).map_err(|error| format!("its body is no JSON: {error}")),
    };
    let mut fields = Map::new();
    match &rule.body {
        Body::All => match body()? {
            Value::Object(members) => fields = members,
            _ => return Err("its body is no JSON object".to_owned()),
        },
        Body::Field(name) if ex.body.as_ref().is_some_and(|body| !body.is_empty()) => {
            fields.insert(name.clone(), body()?);
        }
        Body::Field(_) | Body::Nothing => {}
    }
    // A body that is all leaves nothing for the query to say; one field is not the query's to add to.
    if rule.body != Body::All {
        for (name, value) in pairs(ex.request.query().unwrap_or_default()) {
            let name = String::from_utf8_lossy(&name);
            let is_body = |field: &str| name.split('.').next() == Some(field);
            if !matches!(&rule.body, Body::Field(field) if is_body(field)) {
                put(&input, &mut fields, &name, &String::from_utf8_lossy(&value), false);
            }
        }
    }
    for (name, value) in told {
        put(&input, &mut fields, name, &value, true);
    }
    framed(input, fields)
}

fn framed(input: MessageDescriptor, fields: Map<String, Value>) -> Result<Vec<u8>, String> {
    let mut json = Value::Object(fields);
    settle(&input, &mut json, 0);
    let lenient = DeserializeOptions::new().deny_unknown_fields(false);
    let message =
        DynamicMessage::deserialize_with_options(input, json, &lenient).map_err(|error| error.to_string())?;
    let length = message.encoded_len();
    let mut frame = Vec::with_capacity(5 + length);
    frame.push(0);
    frame.extend_from_slice(&u32::try_from(length).map_err(|error| error.to_string())?.to_be_bytes());
    frame.extend(message.encode_to_vec());
    Ok(frame)
}

/// What the body says, or else the query.
fn fields(input: &MessageDescriptor, ex: &Exchange<'_>) -> Result<Map<String, Value>, String> {
    let body = ex.body.as_deref().unwrap_or_default();
    let method = ex.request.method();
    let content_type = ex.request.fields.known(Known::ContentType).unwrap_or_default();
    let is_json = content_type.windows(16).any(|part| part.eq_ignore_ascii_case(b"application/json"));
    if is_json && matches!(method, Method::Post | Method::Put | Method::Patch) && !body.is_empty() {
        return match serde_json::from_slice(body) {
            Ok(Value::Object(members)) => Ok(members),
            Ok(_) => Err("its body is no JSON object".to_owned()),
            Err(error) => Err(format!("its body is no JSON: {error}")),
        };
    }
    let text = if method == Method::Post && !body.is_empty() {
        body
    } else {
        ex.request.query().unwrap_or_default()
    };
    let mut fields = Map::new();
    for (name, value) in pairs(text) {
        put(input, &mut fields, &String::from_utf8_lossy(&name), &String::from_utf8_lossy(&value), false);
    }
    Ok(fields)
}

/// A field by either of its names.
fn field(of: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    of.get_field_by_name(name).or_else(|| of.get_field_by_json_name(name))
}

/// Puts a text where `name` says: `a.b` is field `b` of message `a`. Names of no field are left out.
fn put(of: &MessageDescriptor, fields: &mut Map<String, Value>, name: &str, text: &str, replaces: bool) {
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    let Some(found) = field(of, first) else { return };
    // One name, whichever was used: the same field twice would be refused.
    let key = found.name().to_owned();
    if key != found.json_name()
        && let Some(said) = fields.remove(found.json_name())
    {
        fields.insert(key.clone(), said);
    }
    match (rest, found.kind()) {
        (Some(rest), Kind::Message(inner)) if !found.is_list() && !found.is_map() => {
            let inside = fields.entry(key).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inside) = inside {
                put(&inner, inside, rest, text, replaces);
            }
        }
        (Some(_), _) => {}
        (None, kind) if found.is_list() => {
            let value = of_text(&kind, text);
            match fields.get_mut(&key) {
                Some(Value::Array(values)) => values.push(value),
                _ => drop(fields.insert(key, Value::Array(vec![value]))),
            }
        }
        (None, kind) => {
            let value = of_text(&kind, text);
            if replaces || !fields.contains_key(&key) {
                fields.insert(key, value);
            }
        }
    }
}

/// A text as JSON of a kind; numbers may be texts there.
fn of_text(kind: &Kind, text: &str) -> Value {
    match kind {
        Kind::Bool => match text {
            "true" | "1" => Value::Bool(true),
            "false" | "0" => Value::Bool(false),
            _ => text.into(),
        },
        Kind::Enum(_) => text.parse::<i32>().map_or_else(|_| text.into(), Value::from),
        Kind::Message(_) => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
        _ => text.into(),
    }
}

/// Large integers may come as the texts they are answered as: `"#123"`, `"#0x7b"`.
fn settle(of: &MessageDescriptor, json: &mut Value, depth: usize) {
    let Value::Object(members) = json else { return };
    if depth > DEPTH_MAX {
        return;
    }
    for (name, value) in members {
        let Some(found) = field(of, name) else { continue };
        match value {
            Value::Array(values) => values.iter_mut().for_each(|one| settle_one(&found.kind(), one, depth)),
            one => settle_one(&found.kind(), one, depth),
        }
    }
}

fn settle_one(kind: &Kind, value: &mut Value, depth: usize) {
    match kind {
        Kind::Message(inner) => settle(inner, value, depth + 1),
        Kind::Int64 | Kind::Uint64 | Kind::Sint64 | Kind::Fixed64 | Kind::Sfixed64 => {
            if let Some(number) = value.as_str().and_then(|text| number(text.strip_prefix('#')?)) {
                *value = number.to_string().into();
            }
        }
        _ => {}
    }
}

fn number(text: &str) -> Option<i128> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => i128::from_str_radix(digits, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(if negative { -number } else { number })
}
