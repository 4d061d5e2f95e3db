//! Conversion of heads between HTTP/2 and the field lines of HTTP/1.
//!
//! One parser validates every head and one encoder writes every forwarded head. Must not depend on streams.

use std::sync::LazyLock;

use bytes::Bytes;
use h2::ext::Protocol;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use yumen_http::fields::write_line;
use yumen_http::parse::{HeadError, HeadLimits, field_parts};
use yumen_http::{Framing, HttpVersion, KnownField, RequestHead, ResponseHead};

/// Status in place of a success when a requested tunnel was not established.
pub(crate) const NO_TUNNEL: u16 = 502;

/// Handshake fields of a WebSocket client on HTTP/1.1; on HTTP/2 their values carry no meaning
/// (RFC 8441 §5.1).
const UPGRADE: &[(&[u8], &[u8])] = &[
    (b"Connection", b"Upgrade"),
    (b"Upgrade", b"websocket"),
    (b"Sec-WebSocket-Key", b"eXVtZW4gb3ZlciBIVFRQLw=="),
];

/// Reads a request head into `head`, which must be empty. `has_ended` means that no body follows.
pub(crate) fn read_request<T>(
    request: &Request<T>,
    has_ended: bool,
    limits: &HeadLimits,
    head: &mut RequestHead,
) -> Result<(), HeadError> {
    let is_websocket = websocket(request)?;
    let authority = authority(request)?;
    let is_connect = request.method() == Method::CONNECT && !is_websocket;
    // The handshake of HTTP/1.1 is a GET (RFC 6455 §4.1).
    let method = if is_websocket { "GET" } else { request.method().as_str() };
    // A CONNECT names its target in `:authority` only (RFC 9113 §8.5).
    let target = match request.uri().path_and_query() {
        Some(target) if !is_connect => target.as_str().as_bytes(),
        _ => authority,
    };
    let host = std::iter::once((&b"Host"[..], authority));
    // `authority` has compared it with `:authority`; a second `Host` line would be refused.
    let fields = pairs(request.headers()).filter(|(name, _)| *name != b"host");
    let upgrade = if is_websocket { UPGRADE } else { &[] };
    let fields = host.chain(fields).chain(upgrade.iter().copied());
    field_parts::request(method.as_bytes(), target, fields, limits, head)?;
    head.version = HttpVersion::Http2;
    if is_websocket && head.fields.known(KnownField::ContentLength).is_some() {
        // The bytes belong to a tunnel and not to content, so no length can apply (RFC 9110 §9.3.6).
        return Err(HeadError::Malformed("a WebSocket has a Content-Length"));
    }
    // A CONNECT has no content: its DATA frames are the tunnel (RFC 9113 §8.5).
    if has_ended || is_websocket {
        head.framing = Framing::None;
    } else if head.framing == Framing::None && head.fields.known(KnownField::ContentLength).is_none() {
        // A `Content-Length` of 0 stays: with chunked framing beside it the request would be ambiguous
        // (RFC 9112 §6.2).
        head.framing = Framing::Chunked;
    }
    Ok(())
}

/// Records method, target and host of a refused request in `head`, for the access log.
#[cold]
pub(crate) fn note_refused<T>(request: &Request<T>, limits: &HeadLimits, head: &mut RequestHead) {
    let uri = request.uri();
    let named = uri.authority().map(|authority| authority.as_str().as_bytes());
    let host = named.or_else(|| Some(request.headers().get(http::header::HOST)?.as_bytes()));
    let host = host.unwrap_or_default();
    let target = uri.path_and_query().map_or(host, |target| target.as_str().as_bytes());
    field_parts::refused_request(request.method().as_str().as_bytes(), target, host, limits, head);
    head.version = HttpVersion::Http2;
}

/// Whether the request is an extended CONNECT (RFC 8441, RFC 9220). A server may ignore an HTTP/1.1 upgrade,
/// but any success of an extended CONNECT establishes the tunnel.
pub(crate) fn is_tunnel_request(request: &RequestHead) -> bool {
    // `read_request` adds connection options to a WebSocket only.
    request.options.upgrade && matches!(request.version, HttpVersion::Http2 | HttpVersion::Http3)
}

/// Refuses connection-specific fields, which HTTP/3 forbids (RFC 9114 §4.2). For HTTP/2 the library has
/// checked.
pub(crate) fn refuse_connection_fields(fields: &HeaderMap) -> Result<(), HeadError> {
    use http::header::{CONNECTION, TE, TRANSFER_ENCODING, UPGRADE};
    let names =
        [CONNECTION.as_str(), TRANSFER_ENCODING.as_str(), UPGRADE.as_str(), "keep-alive", "proxy-connection"];
    let has_other_te = fields.get_all(TE).iter().any(|value| value != "trailers");
    match has_other_te || names.iter().any(|name| fields.contains_key(*name)) {
        true => Err(HeadError::Malformed("a field belongs to a connection")),
        false => Ok(()),
    }
}

/// Whether the request opens a WebSocket. Other `:protocol` values are not supported.
fn websocket<T>(request: &Request<T>) -> Result<bool, HeadError> {
    match request.extensions().get::<Protocol>() {
        None => Ok(false),
        Some(_) if request.method() != Method::CONNECT => {
            Err(HeadError::Malformed("a protocol is asked for without CONNECT"))
        }
        Some(protocol) if protocol.as_str().eq_ignore_ascii_case("websocket") => Ok(true),
        // Answered with 501 (RFC 9220 §3).
        Some(_) => Err(HeadError::UnknownCoding),
    }
}

/// Authority of the request: `:authority`, which `Host` must not contradict (RFC 9113 §8.3.1), or `Host`.
fn authority<T>(request: &Request<T>) -> Result<&[u8], HeadError> {
    let mut hosts = request.headers().get_all(http::header::HOST).iter().map(HeaderValue::as_bytes);
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(HeadError::Malformed("there is more than one Host"));
    }
    match (request.uri().authority().map(|authority| authority.as_str().as_bytes()), host) {
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            Err(HeadError::Malformed("the Host is not the authority"))
        }
        (Some(authority), _) => Ok(authority),
        (None, Some(host)) => Ok(host),
        (None, None) => Err(HeadError::Malformed("there is no Host")),
    }
}

/// Names and values of the fields. Values of one name are adjacent.
fn pairs(fields: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
}

/// Reads a response head into `head`, which must be empty.
pub(crate) fn read_response<T>(
    response: &Response<T>,
    has_ended: bool,
    limits: &HeadLimits,
    method: yumen_http::Method,
    head: &mut ResponseHead,
) -> Result<(), HeadError> {
    field_parts::response(response.status().as_u16(), pairs(response.headers()), limits, method, head)?;
    head.version = HttpVersion::Http2;
    // END_STREAM on the head: the body is empty, although its framing allows content.
    if has_ended && !matches!(head.framing, Framing::None) {
        head.framing = Framing::Length(0);
    }
    Ok(())
}

/// Serializes trailers as field lines.
pub(crate) fn trailer_lines(trailers: &HeaderMap) -> Vec<u8> {
    let mut text = Vec::new();
    pairs(trailers).for_each(|(name, value)| write_line(&mut text, name, value));
    text
}

/// Converts a request head of HTTP/1 text.
///
/// `authority` is the default without a `Host` line; `last` caches the fields of the client's previous
/// request.
pub(crate) fn request(
    text: &[u8],
    is_tls: bool,
    authority: &str,
    last: &mut CachedFields,
) -> Option<Request<()>> {
    let mut lines = HeadLines(text);
    let mut words = lines.next()?.split(|byte| *byte == b' ');
    let method = Method::from_bytes(words.next()?).ok()?;
    let target = path_and_query(words.next()?)?;
    let (fields, host) = last.encode(lines)?;
    let host = match host {
        Some(host) => host,
        None => Authority::from_maybe_shared(Bytes::copy_from_slice(authority.as_bytes())).ok()?,
    };
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(if is_tls { Scheme::HTTPS } else { Scheme::HTTP });
    parts.path_and_query = Some(target);
    parts.authority = Some(host);
    let mut request = Request::new(());
    *request.uri_mut() = Uri::from_parts(parts).ok()?;
    *request.method_mut() = method;
    *request.version_mut() = http::Version::HTTP_2;
    *request.headers_mut() = fields;
    Some(request)
}

/// Encoded fields of a client's last request. The next request usually has the same; a copy costs a fifth of
/// an encoding.
#[derive(Default)]
pub(crate) struct CachedFields {
    lines: Bytes,
    /// Set when the same lines occurred twice in a row.
    made: Option<EncodedHead>,
}

/// Fields without `Host`, and the host.
type EncodedHead = (HeaderMap, Option<Authority>);

impl CachedFields {
    /// Longest cached field section, in bytes: bounds the memory per client.
    const BYTES_MAX: usize = 2048;

    fn encode(&mut self, HeadLines(lines): HeadLines<'_>) -> Option<EncodedHead> {
        if lines.len() > CachedFields::BYTES_MAX {
            return make(&Bytes::copy_from_slice(lines));
        }
        if *lines != *self.lines {
            // Encoded fields are kept only if the same lines follow, so that changing heads cost no copy of a
            // map.
            *self = CachedFields { lines: Bytes::copy_from_slice(lines), made: None };
            return make(&self.lines);
        }
        if self.made.is_none() {
            self.made = make(&self.lines);
        }
        self.made.clone()
    }
}

fn make(block: &Bytes) -> Option<EncodedHead> {
    let lines = HeadLines(block);
    // `Host` becomes `:authority`, so the map holds one field less.
    let mut fields = HeaderMap::with_capacity(lines.left().saturating_sub(1));
    let host = read_fields(block, lines, &mut fields, |known, _, value| {
        // The only value that HTTP/2 allows (RFC 9113 §8.2.2).
        is_expressed(known) || (known == KnownField::Te && value == b"trailers")
    });
    let host = host.filter(|host| !host.is_empty()).map(Authority::from_maybe_shared);
    Some((fields, host.transpose().ok()?))
}

/// Converts a request target. Bytes that a URI cannot contain are percent-encoded.
fn path_and_query(target: &[u8]) -> Option<PathAndQuery> {
    let is_odd = |byte: &u8| matches!(byte, 0..=b' ' | b'#' | b'<' | b'>' | b'`' | 0x7f..);
    if !target.iter().any(is_odd) {
        return PathAndQuery::from_maybe_shared(Bytes::copy_from_slice(target)).ok();
    }
    let mut encoded = String::with_capacity(target.len() + 16);
    for byte in target {
        match is_odd(byte) {
            true => encoded.push_str(&format!("%{byte:02X}")),
            false => encoded.push(char::from(*byte)),
        }
    }
    PathAndQuery::from_maybe_shared(Bytes::from(encoded)).ok()
}

/// Converts a response head of HTTP/1 text. An upgrade becomes 200 without the handshake fields
/// (RFC 8441 §5). If the client asked for a tunnel, any other success becomes 502: the client would take it
/// for the tunnel (RFC 9110 §9.3.6).
pub(crate) fn response(text: &[u8], is_connect: bool) -> Option<Response<()>> {
    let block = Bytes::copy_from_slice(text);
    let mut lines = HeadLines(&block);
    // The status follows `HTTP/1.1 `.
    let status = StatusCode::from_bytes(lines.next()?.get(9..12)?).ok()?;
    let mut response = Response::new(());
    let is_tunnel = status == StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().reserve(lines.left());
    read_fields(&block, lines, response.headers_mut(), |known, name, _| {
        is_expressed(known) && !(is_tunnel && name.eq_ignore_ascii_case(b"sec-websocket-accept"))
    });
    *response.status_mut() = match status {
        _ if is_tunnel => StatusCode::OK,
        status if is_connect && status.is_success() => StatusCode::BAD_GATEWAY,
        status => status,
    };
    Some(response)
}

/// Whether the response head, given as HTTP/1 text, is an upgrade (101).
pub(crate) fn is_tunnel(text: &[u8]) -> bool {
    text.get(9..12) == Some(b"101")
}

/// Converts trailers from field lines; fields that must not be trailers are dropped.
pub(crate) fn trailers(lines: &[u8]) -> HeaderMap {
    let block = Bytes::copy_from_slice(lines);
    let lines = HeadLines(&block);
    let mut trailers = HeaderMap::with_capacity(lines.left());
    read_fields(&block, lines, &mut trailers, |known, _, _| known.may_trail());
    trailers
}

/// Whether a field may be sent on HTTP/2: connection-specific fields may not (RFC 9113 §8.2.2).
pub(crate) fn is_expressed(known: KnownField) -> bool {
    !matches!(
        known,
        KnownField::Connection
            | KnownField::KeepAlive
            | KnownField::ProxyConnection
            | KnownField::TransferEncoding
            | KnownField::Upgrade
            | KnownField::Te
    )
}

/// Appends fields from lines of `block`; the values share its memory. Returns the `Host` instead of appending
/// it.
fn read_fields(
    block: &Bytes,
    lines: HeadLines<'_>,
    fields: &mut HeaderMap,
    is_expressed: impl Fn(KnownField, &[u8], &[u8]) -> bool,
) -> Option<Bytes> {
    let mut host = None;
    for line in lines {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], block.slice_ref(line[colon + 1..].trim_ascii()));
        let known = KnownField::of(name);
        if known == KnownField::Host {
            host = Some(value);
        } else if is_expressed(known, name, &value)
            && let (Some(name), Ok(mut value)) =
                (field_name(known, name), HeaderValue::from_maybe_shared(value))
        {
            value.set_sensitive(is_secret(known));
            fields.append(name, value);
        }
    }
    host
}

/// Whether HPACK must never index the field (RFC 7541 §7.1.3). On a connection that carries many clients, one
/// client could otherwise guess another's value from compressed sizes. Other HTTP/2 implementations do the
/// same.
fn is_secret(known: KnownField) -> bool {
    matches!(known, KnownField::Authorization | KnownField::ProxyAuthorization)
}

/// Converts a field name; known names are created once per process.
fn field_name(known: KnownField, name: &[u8]) -> Option<HeaderName> {
    static NAMES: LazyLock<Vec<HeaderName>> =
        LazyLock::new(|| KnownField::ALL.iter().map(|known| HeaderName::from_static(known.name())).collect());
    match (known as usize).checked_sub(1) {
        Some(at) => NAMES.get(at).cloned(),
        None => HeaderName::from_bytes(name).ok(),
    }
}

/// Iterator over lines up to the empty line, without line ends.
struct HeadLines<'a>(&'a [u8]);

impl HeadLines<'_> {
    /// Number of lines, to size a map once and exactly.
    fn left(&self) -> usize {
        memchr::memchr_iter(b'\n', self.0).count().saturating_sub(1)
    }
}

impl<'a> Iterator for HeadLines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let feed = memchr::memchr(b'\n', self.0)?;
        let line = self.0[..feed].strip_suffix(b"\r").unwrap_or(&self.0[..feed]);
        self.0 = &self.0[feed + 1..];
        (!line.is_empty()).then_some(line)
    }
}

#[cfg(test)]
mod tests;
