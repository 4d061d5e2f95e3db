//! Builds the message of a call from path, query and body of a request.
//!
//! Protobuf parsers use the last of duplicate scalar fields, and merge duplicate messages. Values of the path
//! take precedence over the body, so they are written after it.

use std::collections::HashMap;
use std::ops::Range;

use prost_reflect::{Kind, MessageDescriptor};
use serde::de::value::{BoolDeserializer, Error as Refused, I32Deserializer, StrDeserializer};
use serde::de::{DeserializeSeed, IgnoredAny, IntoDeserializer};
use serde_json::error::Category;
use yumen_http::{KnownField, Method};
use yumen_plugin::{BufferedBody, Exchange};
use yumen_proto_json::{
    DEPTH_MAX, FieldCardinality, FieldSeed, MembersSeed, MessageWriter, OpenField, OptionalSeed,
    SingularSeed, WellKnownType, WireField,
};

use super::TranscodedCall;
use super::rules::{HttpRule, HttpRuleBody};
use crate::query::pairs;

/// The components of a request that the message depends on, owned so that another thread can use them.
pub(super) struct MessageInput {
    method: Method,
    content_type: Vec<u8>,
    query: Vec<u8>,
    path_params: Vec<(String, Vec<u8>)>,
    pub(super) body: BufferedBody,
}

impl MessageInput {
    /// Moves the body out of the exchange, because the message replaces it.
    pub(super) fn take(ex: &mut Exchange<'_>) -> MessageInput {
        let request = &ex.request;
        let param = |(name, range): &(&str, Range<usize>)| {
            let value = request.routed_part(range.clone()).unwrap_or_default();
            ((*name).to_owned(), value.into_owned())
        };
        MessageInput {
            method: ex.request.method(),
            content_type: ex.request.fields.known(KnownField::ContentType).unwrap_or_default().to_vec(),
            query: ex.request.query().unwrap_or_default().to_vec(),
            path_params: ex.route.path_params.iter().map(param).collect(),
            body: ex.body.buffered.take().unwrap_or_default(),
        }
    }
}

/// Encodes the message in a gRPC frame.
pub(super) fn message(call: &TranscodedCall, input: &MessageInput) -> Result<Vec<u8>, String> {
    let of = call.method.input();
    let mut to = MessageWriter::default();
    body_or_query(&of, input, &mut to)?;
    // Last, because decoders use the last value of a field.
    for (name, value) in &input.path_params {
        TextFields::default().put(&of, &mut to, name, &String::from_utf8_lossy(value))?;
    }
    to.framed()
}

/// Encodes the message of a call by an HTTP rule in a gRPC frame; `captures` are the variables of the path.
pub(super) fn ruled_message(
    call: &TranscodedCall,
    rule: &HttpRule,
    captures: &[(String, String)],
    input: &MessageInput,
) -> Result<Vec<u8>, String> {
    let of = call.method.input();
    let body = input.body.trim_ascii();
    let mut to = MessageWriter::default();
    match &rule.body {
        HttpRuleBody::All if !body.is_empty() => object(&of, body, &mut to)?,
        HttpRuleBody::Field(name) if !body.is_empty() => {
            let field = WireField::named(&of, name).ok_or("the rule names no field")?;
            read(OptionalSeed { field: &field, to: &mut to }, body)?;
        }
        HttpRuleBody::All | HttpRuleBody::Field(_) | HttpRuleBody::Nothing => {}
    }
    // With `body: "*"` the query is unused, and a field that is the body takes no value from the query.
    if rule.body != HttpRuleBody::All {
        let mut texts = TextFields::default();
        for (name, value) in pairs(&input.query) {
            let name = String::from_utf8_lossy(&name);
            let is_body = |field: &str| name.split('.').next() == Some(field);
            if !matches!(&rule.body, HttpRuleBody::Field(field) if is_body(field)) {
                texts.put(&of, &mut to, &name, &String::from_utf8_lossy(&value))?;
            }
        }
    }
    // Last, because decoders use the last value of a field.
    // A new `TextFields` knows no earlier values, so these are not ignored as duplicates.
    for (name, value) in captures {
        TextFields::default().put(&of, &mut to, name, value)?;
    }
    to.framed()
}

/// Encodes the fields of a JSON body, or else those of the form or query.
fn body_or_query(of: &MessageDescriptor, input: &MessageInput, to: &mut MessageWriter) -> Result<(), String> {
    let (body, method) = (&*input.body, &input.method);
    // As in APISIX, the media type may occur anywhere in the value.
    let is_json = input.content_type.windows(16).any(|part| part.eq_ignore_ascii_case(b"application/json"));
    if is_json && matches!(method, Method::Post | Method::Put | Method::Patch) && !body.is_empty() {
        return object(of, body, to);
    }
    let text = if *method == Method::Post && !body.is_empty() { body } else { &input.query };
    let mut texts = TextFields::default();
    for (name, value) in pairs(text) {
        texts.put(of, to, &String::from_utf8_lossy(&name), &String::from_utf8_lossy(&value))?;
    }
    Ok(())
}

/// Encodes a JSON body as the whole message.
fn object(of: &MessageDescriptor, body: &[u8], to: &mut MessageWriter) -> Result<(), String> {
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(match serde_json::from_slice::<IgnoredAny>(body) {
            Ok(_) => "the body is not a JSON object".to_owned(),
            Err(error) => format!("the body is not JSON: {error}"),
        });
    }
    read(MembersSeed { of, to }, body)
}

fn read<'de>(seed: impl DeserializeSeed<'de>, body: &'de [u8]) -> Result<(), String> {
    let mut json = serde_json::Deserializer::from_slice(body);
    seed.deserialize(&mut json).and_then(|_| json.end()).map_err(|error| match error.classify() {
        Category::Data => error.to_string(),
        _ => format!("the body is not JSON: {error}"),
    })
}

/// Encoder of fields with text values, one at a time.
#[derive(Default)]
struct TextFields {
    /// Fields and oneofs that have a value already, by the field numbers on their path.
    counts: HashMap<Vec<u32>, u32>,
}

impl TextFields {
    /// Encodes the value of the field at path `name`: `a.b` is field `b` of message `a`. Unknown fields are
    /// ignored, and so are further values of a field that is not repeated.
    fn put(
        &mut self,
        of: &MessageDescriptor,
        to: &mut MessageWriter,
        name: &str,
        text: &str,
    ) -> Result<(), String> {
        let Some(path) = path(of, name)? else { return Ok(()) };
        if self.is_assigned(&path, name)? {
            return Ok(());
        }
        let Some((last, parents)) = path.split_last() else { return Ok(()) };
        let refused = |error: Refused| format!("{}: {error}", shown(name));
        let opened: Result<Vec<OpenField>, Refused> = parents.iter().map(|field| field.begin(to)).collect();
        let opened = opened.map_err(refused)?;
        write(last, text, to).map_err(refused)?;
        opened.into_iter().rev().for_each(|open| to.end(open));
        Ok(())
    }

    fn is_assigned(&mut self, path: &[WireField], name: &str) -> Result<bool, String> {
        /// No field has this number. After the number of a oneof's first field it marks the oneof.
        const ONEOF: u32 = u32::MAX;
        let mut parents: Vec<u32> = Vec::with_capacity(path.len());
        for field in path {
            if let Some(oneof) = &field.oneof {
                let mut key = parents.clone();
                key.extend(oneof.fields().next().map(|first| first.number()).into_iter().chain([ONEOF]));
                if *self.counts.entry(key).or_insert(field.number) != field.number {
                    let oneof = oneof.name();
                    return Err(format!(
                        "{}: the oneof {oneof} has more than one of its fields",
                        shown(name)
                    ));
                }
            }
            parents.push(field.number);
        }
        let is_one = path.last().is_some_and(|field| field.form == FieldCardinality::One);
        Ok(is_one && self.counts.insert(parents, 0).is_some())
    }
}

/// The fields on a path; `None` if one does not exist.
pub(super) fn path(of: &MessageDescriptor, name: &str) -> Result<Option<Vec<WireField>>, String> {
    let mut path: Vec<WireField> = Vec::new();
    for part in name.split('.') {
        if path.len() > DEPTH_MAX {
            return Err(format!("{} leads into messages more than {DEPTH_MAX} deep", shown(name)));
        }
        let found = match path.last() {
            None => WireField::named(of, part),
            Some(WireField { kind: Kind::Message(inner), form: FieldCardinality::One, .. }) => {
                WireField::named(inner, part)
            }
            Some(_) => None,
        };
        match found {
            Some(field) => path.push(field),
            None => return Ok(None),
        }
    }
    Ok(Some(path))
}

/// A name as it appears in problems: quoted, at most 60 characters.
fn shown(name: &str) -> String {
    const LETTERS: usize = 60;
    let start: String = name.chars().take(LETTERS).collect();
    if start.len() < name.len() { format!("\"{start}...\"") } else { format!("\"{start}\"") }
}

/// Encodes text as a value of the field, parsed according to the type of the field.
fn write(field: &WireField, text: &str, to: &mut MessageWriter) -> Result<(), Refused> {
    let seed = SingularSeed { field, to };
    let plain: StrDeserializer<'_, Refused> = text.into_deserializer();
    let kind = match &field.kind {
        Kind::Message(of) if WellKnownType::of(of.full_name()) == Some(WellKnownType::Wrapper) => {
            of.get_field(1).map_or_else(|| field.kind.clone(), |field| field.kind())
        }
        kind => kind.clone(),
    };
    match kind {
        Kind::Bool => match text {
            "true" | "1" => seed.deserialize(BoolDeserializer::new(true)),
            "false" | "0" => seed.deserialize(BoolDeserializer::new(false)),
            _ => seed.deserialize(plain),
        },
        Kind::Enum(_) => match text.parse() {
            Ok(number) => seed.deserialize(I32Deserializer::new(number)),
            Err(_) => seed.deserialize(plain),
        },
        _ if field.form == FieldCardinality::Map => of_json(FieldSeed { field, to: seed.to }, text),
        // Text that is not JSON is a string, such as an unquoted timestamp.
        Kind::Message(_) if serde_json::from_str::<IgnoredAny>(text).is_ok() => of_json(seed, text),
        _ => seed.deserialize(plain),
    }
}

fn of_json<'de>(seed: impl DeserializeSeed<'de, Value = ()>, text: &'de str) -> Result<(), Refused> {
    let mut json = serde_json::Deserializer::from_str(text);
    seed.deserialize(&mut json).and_then(|()| json.end()).map_err(serde::de::Error::custom)
}
