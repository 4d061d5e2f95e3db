//! Values inside a buffered request body: forms (urlencoded, multipart) and JSON.
//!
//! Knows the three formats, not who buffered the body.

use std::borrow::Cow;

use percent_encoding::percent_decode;
use serde_json::Value;
use yumen_http::Known;

use super::VarValue;
use crate::Exchange;

/// The form field or JSON place called `name`. A JSON path is dotted; a number in it, plain or in
/// brackets, is an array index from 0, and a `*` all there are: such a path gives a list.
pub(super) fn argument<'a>(ex: &'a Exchange<'_>, name: &str) -> Option<VarValue<'a>> {
    let body = ex.body.as_deref()?;
    let content_type = ex.request.fields.known(Known::ContentType)?;
    let media_type = media_type(content_type);
    if media_type.eq_ignore_ascii_case(b"application/x-www-form-urlencoded") {
        form_field(body, name.as_bytes()).map(|value| VarValue::Text(Cow::Owned(value)))
    } else if media_type.eq_ignore_ascii_case(b"multipart/form-data") {
        multipart_field(body, content_type, name.as_bytes()).map(|value| VarValue::Text(Cow::Borrowed(value)))
    } else if is_json(media_type) {
        let document: Value = serde_json::from_slice(body).ok()?;
        if name.contains('*') { all_at(&document, name) } else { typed(json_at(&document, name)?) }
    } else {
        None
    }
}

/// Whether the body is of a type that has fields or places.
pub(super) fn is_looked_into(ex: &Exchange<'_>) -> bool {
    ex.request.fields.known(Known::ContentType).map(media_type).is_some_and(|media_type| {
        media_type.eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
            || media_type.eq_ignore_ascii_case(b"multipart/form-data")
            || is_json(media_type)
    })
}

/// The media type of a `Content-Type`, without its parameters.
pub(super) fn media_type(content_type: &[u8]) -> &[u8] {
    content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

pub(super) fn is_json(media_type: &[u8]) -> bool {
    let suffix = media_type.len().saturating_sub(b"+json".len());
    media_type.eq_ignore_ascii_case(b"application/json")
        || media_type[suffix..].eq_ignore_ascii_case(b"+json")
}

/// The decoded value of the first `name` in an urlencoded text; one without `=` is empty.
pub(super) fn form_field(form: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    yumen_http::uri::query_arguments(form)
        .find(|(key, _)| form_decode(key).as_ref() == name)
        .map(|(_, value)| form_decode(value).into_owned())
}

/// Decodes `%XX` and `+`; text that holds neither is borrowed.
pub(super) fn form_decode(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'%', b'+', text).is_none() {
        return Cow::Borrowed(text);
    }
    let spaced: Vec<u8> = text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    Cow::Owned(percent_decode(&spaced).collect())
}

/// The part whose disposition names it (RFC 7578 §4.2).
fn multipart_field<'a>(body: &'a [u8], content_type: &[u8], name: &[u8]) -> Option<&'a [u8]> {
    let boundary = parameter(content_type, b"boundary")?;
    let mut delimiter = b"\r\n--".to_vec();
    delimiter.extend_from_slice(boundary);
    // The first delimiter has no line before it where there is no preamble.
    let first = delimiter[2..].to_vec();
    let start = if body.starts_with(&first) {
        first.len()
    } else {
        memchr::memmem::find(body, &delimiter)? + delimiter.len()
    };
    let mut rest = &body[start..];
    loop {
        if rest.starts_with(b"--") {
            return None;
        }
        let line_end = memchr::memmem::find(rest, b"\r\n")?;
        let part = &rest[line_end..];
        let end = memchr::memmem::find(part, &delimiter)?;
        if let Some(value) = named_part(&part[..end], name) {
            return Some(value);
        }
        rest = &part[end + delimiter.len()..];
    }
}

/// The content of a part, which begins with the line break before its fields, if it is called `name`.
fn named_part<'a>(part: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let head_end = memchr::memmem::find(part, b"\r\n\r\n")?;
    let disposition = part[..head_end].split(|byte| *byte == b'\n').find_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        line[..colon].eq_ignore_ascii_case(b"content-disposition").then(|| line[colon + 1..].trim_ascii())
    })?;
    (parameter(disposition, b"name")? == name).then(|| &part[head_end + 4..])
}

/// A parameter of a field value, without its quotes.
fn parameter<'a>(value: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    value.split(|byte| *byte == b';').skip(1).find_map(|parameter| {
        let equals = memchr::memchr(b'=', parameter)?;
        let text = parameter[equals + 1..].trim_ascii();
        let text = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(text);
        parameter[..equals].trim_ascii().eq_ignore_ascii_case(name).then_some(text)
    })
}

fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[']).map(|step| step.trim_end_matches(']'))
}

fn json_at<'v>(document: &'v Value, path: &str) -> Option<&'v Value> {
    steps(path).try_fold(document, step_into)
}

fn step_into<'v>(at: &'v Value, step: &str) -> Option<&'v Value> {
    match at {
        Value::Object(members) => members.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    }
}

/// All that a path with stars in it leads to; no value where that is nothing.
fn all_at(document: &Value, path: &str) -> Option<VarValue<'static>> {
    let mut reached = vec![document];
    for step in steps(path) {
        reached = match step {
            "*" => reached.into_iter().flat_map(inside).collect(),
            step => reached.into_iter().filter_map(|at| step_into(at, step)).collect(),
        };
    }
    let values: Vec<_> = reached.into_iter().filter_map(typed).collect();
    (!values.is_empty()).then_some(VarValue::List(values))
}

fn inside(at: &Value) -> Vec<&Value> {
    match at {
        Value::Object(members) => members.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    }
}

fn typed(value: &Value) -> Option<VarValue<'static>> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(truth) => VarValue::Bool(*truth),
        Value::Number(number) => VarValue::Number(number.as_f64()?),
        Value::String(text) => VarValue::Text(Cow::Owned(text.clone().into_bytes())),
        Value::Array(items) => VarValue::List(items.iter().filter_map(typed).collect()),
        Value::Object(_) => VarValue::Text(Cow::Owned(value.to_string().into_bytes())),
    })
}
