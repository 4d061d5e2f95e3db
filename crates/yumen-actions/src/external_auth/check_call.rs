//! The call `Check` of the gRPC service `envoy.service.auth.v3.Authorization`, with the messages that it needs.
//!
//! The numbers of members are those of the public protocol definition.

use std::collections::BTreeMap;

use prost::Message;
use yumen_http::{Fields, Framing, HttpVersion, Method};
use yumen_plugin::{Exchange, LocalResponse, SubrequestResponse, SubrequestSpec};

use super::{AuthDecision, ExternalAuth, FieldAction, FieldChange, is_of_connection, undecided};

/// Path of the call.
const PATH: &str = "/envoy.service.auth.v3.Authorization/Check";

/// Bytes in front of a message: the flag of compression and the length.
const PREFIX_BYTES: usize = 5;

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) attributes: Option<CheckAttributes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckAttributes {
    #[prost(message, optional, tag = "1")]
    pub(super) source: Option<CheckPeer>,
    #[prost(message, optional, tag = "2")]
    pub(super) destination: Option<CheckPeer>,
    #[prost(message, optional, tag = "4")]
    pub(super) request: Option<CheckedRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckPeer {
    #[prost(message, optional, tag = "1")]
    pub(super) address: Option<CheckAddress>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckAddress {
    #[prost(message, optional, tag = "1")]
    pub(super) socket_address: Option<CheckSocketAddress>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckSocketAddress {
    #[prost(string, tag = "2")]
    pub(super) address: String,
    #[prost(uint32, tag = "3")]
    pub(super) port_value: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckTime {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckedRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) time: Option<CheckTime>,
    #[prost(message, optional, tag = "2")]
    pub(super) http: Option<CheckedHttp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckedHttp {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) method: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(super) headers: BTreeMap<String, String>,
    #[prost(string, tag = "4")]
    pub(super) path: String,
    #[prost(string, tag = "5")]
    pub(super) host: String,
    #[prost(string, tag = "6")]
    pub(super) scheme: String,
    /// -1 if the length is unknown.
    #[prost(int64, tag = "9")]
    pub(super) size: i64,
    #[prost(string, tag = "10")]
    pub(super) protocol: String,
    #[prost(string, tag = "11")]
    pub(super) body: String,
    #[prost(bytes = "vec", tag = "12")]
    pub(super) raw_body: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<CheckStatus>,
    #[prost(message, optional, tag = "2")]
    pub(super) denied: Option<DeniedCheck>,
    #[prost(message, optional, tag = "3")]
    pub(super) ok: Option<AdmittedCheck>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeniedCheck {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<CheckStatus>,
    #[prost(message, repeated, tag = "2")]
    pub(super) headers: Vec<CheckFieldOption>,
    #[prost(string, tag = "3")]
    pub(super) body: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AdmittedCheck {
    #[prost(message, repeated, tag = "2")]
    pub(super) headers: Vec<CheckFieldOption>,
    #[prost(string, repeated, tag = "5")]
    pub(super) headers_to_remove: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(super) response_headers_to_add: Vec<CheckFieldOption>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckFieldOption {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<CheckField>,
    #[prost(message, optional, tag = "2")]
    pub(super) append: Option<CheckFlag>,
    #[prost(int32, tag = "3")]
    pub(super) append_action: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckField {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) raw_value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CheckFlag {
    #[prost(bool, tag = "1")]
    pub(super) value: bool,
}

/// The call about a request.
pub(super) fn question(auth: &ExternalAuth, slot: u32, ex: &Exchange<'_>) -> SubrequestSpec {
    let message = CheckRequest { attributes: Some(attributes(auth, ex)) }.encode_to_vec();
    let mut body = vec![0; PREFIX_BYTES];
    body[1..].copy_from_slice(&(message.len() as u32).to_be_bytes());
    body.extend_from_slice(&message);
    let mut fields = Fields::default();
    fields.add("Content-Type", b"application/grpc");
    fields.add("Grpc-Timeout", format!("{}m", auth.written.timeout_ms).as_bytes());
    SubrequestSpec {
        upstream: slot,
        plugin: "external-auth",
        method: Method::Post,
        target: PATH.to_owned(),
        // Ids of upstreams may have characters that an authority must not have.
        authority: "authorization".to_owned(),
        fields,
        body,
        keeps: true,
        timeout_ms: auth.written.timeout_ms,
        may_repeat: true,
        response_bytes_max: SubrequestSpec::RESPONSE_BYTES_MAX,
        in_flight_max: SubrequestSpec::IN_FLIGHT_MAX,
    }
}

fn attributes(auth: &ExternalAuth, ex: &Exchange<'_>) -> CheckAttributes {
    let peer = |ip: std::net::IpAddr, port: u16| {
        let socket_address =
            CheckSocketAddress { address: ip.to_canonical().to_string(), port_value: port.into() };
        CheckPeer { address: Some(CheckAddress { socket_address: Some(socket_address) }) }
    };
    let local = ex.client.connection.local;
    let time =
        CheckTime { seconds: ex.now.unix_s() as i64, nanos: (ex.now.unix_ms % 1000) as i32 * 1_000_000 };
    CheckAttributes {
        source: Some(peer(ex.client.ip, ex.client.connection.peer.port())),
        destination: Some(peer(local.ip(), local.port())),
        request: Some(CheckedRequest { time: Some(time), http: Some(http(auth, ex)) }),
    }
}

fn http(auth: &ExternalAuth, ex: &Exchange<'_>) -> CheckedHttp {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let request = &ex.request;
    let (method, path) = (text(request.method_name()), text(request.upstream_target()));
    let (host, scheme) = (text(request.authority()), ex.client.scheme().to_owned());
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in request.fields.iter().filter(|(name, _)| auth.sends(name, true)) {
        let entry = headers.entry(text(name).to_ascii_lowercase()).or_default();
        // Equal names are one value (RFC 9110 §5.3).
        if !entry.is_empty() {
            entry.push(',');
        }
        entry.push_str(&text(value));
    }
    let pseudo = [(":authority", &host), (":method", &method), (":path", &path), (":scheme", &scheme)];
    headers.extend(pseudo.map(|(name, value)| (name.to_owned(), value.clone())));
    let body = auth.body(ex);
    let (body, raw_body) = match std::str::from_utf8(body) {
        Ok(body) => (body.to_owned(), Vec::new()),
        Err(_) => (String::new(), body.to_vec()),
    };
    let size = match request.framing {
        Framing::None => 0,
        Framing::Length(length) => i64::try_from(length).unwrap_or(i64::MAX),
        _ => ex.body.buffered.as_ref().map_or(-1, |body| body.len() as i64),
    };
    let protocol = match request.version {
        HttpVersion::Http10 => "HTTP/1.0",
        HttpVersion::Http11 => "HTTP/1.1",
        HttpVersion::Http2 => "HTTP/2",
        HttpVersion::Http3 => "HTTP/3",
    };
    let protocol = protocol.to_owned();
    CheckedHttp { id: String::new(), method, headers, path, host, scheme, size, protocol, body, raw_body }
}

/// The decision of a response; a failed call refuses.
pub(super) fn decision(answer: &SubrequestResponse) -> AuthDecision {
    match response(answer) {
        Some(CheckResponse { denied: None, ok, status }) if code(&status) == 0 => {
            let ok = ok.unwrap_or_default();
            AuthDecision {
                refusal: None,
                removed: ok.headers_to_remove,
                request: ok.headers.into_iter().filter_map(change).collect(),
                response: ok.response_headers_to_add.into_iter().filter_map(change).collect(),
            }
        }
        Some(CheckResponse { denied, .. }) => AuthDecision::refusal(refusal(denied.unwrap_or_default())),
        None => AuthDecision::refusal(undecided()),
    }
}

fn code(status: &Option<CheckStatus>) -> i32 {
    status.as_ref().map_or(0, |status| status.code)
}

/// The message of a call that ended with status 0.
fn response(answer: &SubrequestResponse) -> Option<CheckResponse> {
    let status = answer.fields.get("grpc-status").map(<[u8]>::to_vec);
    let status = status.or_else(|| trailer(&answer.trailers, "grpc-status"));
    if answer.status != 200 || status.as_deref() != Some(b"0") {
        return None;
    }
    let body = answer.body.as_deref()?;
    let (prefix, message) = body.split_at_checked(PREFIX_BYTES)?;
    let length = u32::from_be_bytes(prefix[1..].try_into().ok()?);
    // A compressed message was not asked for.
    if prefix[0] != 0 || length as usize != message.len() {
        return None;
    }
    CheckResponse::decode(message).ok()
}

/// The value of a trailer among `lines`.
fn trailer(lines: &[u8], name: &str) -> Option<Vec<u8>> {
    lines.split(|byte| *byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let is_it = line[..colon].eq_ignore_ascii_case(name.as_bytes());
        is_it.then(|| line[colon + 1..].trim_ascii().to_vec())
    })
}

fn refusal(denied: DeniedCheck) -> LocalResponse {
    let status = u16::try_from(code(&denied.status)).ok().filter(|status| (200..=599).contains(status));
    let mut response = LocalResponse::status(status.unwrap_or(403));
    for change in denied.headers.into_iter().filter_map(change) {
        if !is_of_connection(change.name.as_bytes()) {
            change.apply(response.fields_mut());
        }
    }
    response.body(denied.body)
}

/// The change of a field; `None` without a valid one.
fn change(option: CheckFieldOption) -> Option<FieldChange> {
    let header = option.header?;
    // A line break in a value would begin another field.
    let value = if header.raw_value.is_empty() { header.value.into_bytes() } else { header.raw_value };
    let is_valid = !header.key.is_empty() && !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let action = match (option.append, option.append_action) {
        (Some(CheckFlag { value: true }), _) => FieldAction::Add,
        (_, 1) => FieldAction::AddIfAbsent,
        (_, 3) => FieldAction::SetIfPresent,
        // The service replaces fields unless it asks to append.
        _ => FieldAction::Set,
    };
    (is_valid && header.key.bytes().all(is_token)).then_some(FieldChange { name: header.key, value, action })
}
