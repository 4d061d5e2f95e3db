//! Translates the response of a call into JSON and an HTTP status.

use std::io::{self, Write as _};

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use prost_reflect::DynamicMessage;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use yumen_plugin::proto;
use yumen_plugin::{BufferedResponse, LocalResponse};
use yumen_proto_json::{JsonSink, malformed, write_json};

use super::TranscodedCall;

/// The setting that bounds a response.
const BODY_BOUND: &str = "max_resp_body_size";

/// The response for the client.
pub(super) fn translate(call: &TranscodedCall, answer: BufferedResponse<'_>) -> LocalResponse {
    let http_status = answer.head.status;
    if http_status != 200 {
        // Not from a gRPC service but from an HTTP proxy in front of it.
        return passed_on(answer, http_status).body(answer.body.to_vec());
    }
    let status_text =
        answer.trailer("grpc-status").map(|status| String::from_utf8_lossy(status).into_owned());
    match status_text.as_deref() {
        Some("0") => match decoded(call, answer.body) {
            Ok(json) => passed_on(answer, 200).field("Content-Type", "application/json").body(json),
            Err(problem) => {
                let is_malformed = problem.kind() == io::ErrorKind::InvalidData;
                let is = if is_malformed { "is malformed" } else { "cannot be told" };
                LocalResponse::error_msg(502, &format!("the upstream's answer {is}: {problem}"))
            }
        },
        Some(status) => failed(call, answer, status),
        None => LocalResponse::error_msg(502, "the upstream response is malformed: grpc-status is missing"),
    }
}

/// The fields of the response without those of gRPC and of the connection.
fn passed_on(answer: BufferedResponse<'_>, status: u16) -> LocalResponse {
    let mut response = LocalResponse::status(status);
    // gRPC responses have the status 200; a proxy that responds with another one sends its own type.
    let is_grpc = status == 200;
    for (name, value) in answer.head.fields.iter() {
        let name = String::from_utf8_lossy(name);
        let lower = name.to_ascii_lowercase();
        let is_of_protocol = matches!(lower.as_str(), "content-length" | "trailer" | "date" | "server")
            || is_grpc && (lower == "content-type" || lower.starts_with("grpc-"));
        if !is_of_protocol && !is_framing(&lower) {
            response.fields_mut().add(&name, value);
        }
    }
    response
}

fn is_framing(name: &str) -> bool {
    matches!(name, "connection" | "transfer-encoding" | "keep-alive" | "upgrade" | "te")
}

/// The JSON of the only message in a body.
fn decoded(call: &TranscodedCall, body: &[u8]) -> io::Result<Vec<u8>> {
    // A gRPC frame: one byte for the compression, four for the length.
    let (head, rest) = body.split_at_checked(5).ok_or_else(|| malformed("it has no message"))?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if head[0] != 0 {
        return Err(malformed("its message is compressed"));
    }
    let message = match rest.len() {
        found if found == length => rest,
        found if found > length => return Err(malformed("it has more than one message")),
        _ => return Err(malformed("its message breaks off")),
    };
    let mut json = JsonSink::new(call.body_bytes_max, BODY_BOUND, call.form);
    write_json(&mut json, &call.types, &call.method.output(), message)?;
    let json = json.into_bytes();
    match &call.response_body {
        None => Ok(json),
        Some(field) => Ok(member(&json, field).unwrap_or(b"null").to_vec()),
    }
}

/// The value of a member of a JSON object, as a slice of its text.
fn member<'j>(object: &'j [u8], name: &str) -> Option<&'j [u8]> {
    // The printer writes no white space, so each token follows the previous one directly.
    let mut rest = object.get(1..)?;
    loop {
        let mut names = serde_json::Deserializer::from_slice(rest).into_iter::<String>();
        let found = names.next()?.ok()?;
        let value = rest.get(names.byte_offset() + 1..)?;
        let mut values = serde_json::Deserializer::from_slice(value).into_iter::<IgnoredAny>();
        values.next()?.ok()?;
        let end = values.byte_offset();
        if found == name {
            return value.get(..end);
        }
        rest = value.get(end + 1..)?;
    }
}

/// The HTTP status for a gRPC status, by the mapping of `google.rpc.Code`.
fn http_status(status: &str) -> u16 {
    match status {
        "1" => 499,
        "2" | "13" | "15" => 500,
        "3" | "9" | "11" => 400,
        "4" => 504,
        "5" => 404,
        "6" | "10" => 409,
        "7" => 403,
        "8" => 429,
        "12" => 501,
        "14" => 503,
        "16" => 401,
        _ => 599,
    }
}

fn failed(call: &TranscodedCall, answer: BufferedResponse<'_>, status: &str) -> LocalResponse {
    // The fields belong to the service; its HTTP status is 200 even if the call failed.
    let mut response = passed_on(answer, 200).field("grpc-status", status);
    response.status = http_status(status);
    let message = answer.trailer("grpc-message").unwrap_or_default();
    if !message.is_empty() {
        response.fields_mut().add("grpc-message", message);
    }
    if !call.show_status {
        return response;
    }
    let whole = answer.trailer("grpc-status-details-bin").and_then(|text| status_of(call, text));
    let error = whole.unwrap_or_else(|| {
        let code = status.parse().map_or_else(|_| Value::from(status), |code: u32| Value::from(code));
        error(&code, &unescaped(message), None)
    });
    response.field("Content-Type", "application/json").body(error)
}

/// The body of a failed call; `details` are JSON.
fn error(code: &Value, message: &str, details: Option<Vec<u8>>) -> Vec<u8> {
    let mut body = format!("{{\"error\":{{\"code\":{code}").into_bytes();
    if let Some(details) = details {
        body.extend_from_slice(b",\"details\":");
        body.extend(details);
    }
    body.extend(format!(",\"message\":{}}}}}", Value::from(message)).into_bytes());
    body
}

fn unescaped(message: &[u8]) -> String {
    percent_encoding::percent_decode(message).decode_utf8_lossy().into_owned()
}

/// The body of a failed call from the `google.rpc.Status` in its trailers.
fn status_of(call: &TranscodedCall, text: &[u8]) -> Option<Vec<u8>> {
    // Binary metadata is valid with and without padding (gRPC over HTTP/2).
    const INDIFFERENT: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let bytes = INDIFFERENT.decode(text).ok()?;
    let status = DynamicMessage::decode(proto::status(), bytes.as_slice()).ok()?;
    let field = |name| status.get_field_by_name(name);
    let listed = field("details")?;
    let details = Some(listed.as_list()?).filter(|list| !list.is_empty());
    // Details beyond the bound are left out: code and message matter more.
    let details = details.and_then(|list| details_of(call, list).ok());
    Some(error(&field("code")?.as_i32()?.into(), field("message")?.as_str()?, details))
}

/// The list of details as JSON, at most as long as a response.
fn details_of(call: &TranscodedCall, list: &[prost_reflect::Value]) -> io::Result<Vec<u8>> {
    let mut out = JsonSink::new(call.body_bytes_max, BODY_BOUND, call.form);
    let mut is_first = true;
    out.write_all(b"[")?;
    for any in list.iter().filter_map(|any| any.as_message()) {
        out.comma(&mut is_first)?;
        detail(call, any, &mut out)?;
    }
    out.write_all(b"]")?;
    Ok(out.into_bytes())
}

/// One detail as the configured message type, or else as bytes in Base64.
fn detail(call: &TranscodedCall, any: &DynamicMessage, out: &mut JsonSink) -> io::Result<()> {
    let (kind, value) = (any.get_field_by_name("type_url"), any.get_field_by_name("value"));
    let kind = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or_default();
    let value = value.as_ref().and_then(|value| value.as_bytes()).map(|value| &value[..]).unwrap_or_default();
    let written = out.len();
    if let Some(of) = &call.detail {
        if write_json(out, &call.types, of, value).is_ok() {
            return Ok(());
        }
        // The type may not match the bytes: a partial object must not remain in the list.
        out.cut(written)?;
    }
    write!(out, "{}", json!({ "type_url": kind, "value": STANDARD.encode(value) }))
}
