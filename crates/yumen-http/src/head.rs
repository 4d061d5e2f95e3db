//! Request and response heads, and the framing of their bodies.
//!
//! Owns the derived forms of the target. Independent of routes, plugins or connections.

use std::borrow::Cow;
use std::ops::Range;

use crate::fields::{ByteSpan, FieldLine, Fields, KnownField};
use crate::uri::{self, HostPart, InvalidPath, PathForms, PathPolicy};

/// A request method (RFC 9110 §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Delete,
    Connect,
    Options,
    Trace,
    Patch,
    Purge,
    /// Any other method; the name is in the head.
    Other,
}

impl Method {
    /// The method with this case-sensitive name.
    pub fn of(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"CONNECT" => Method::Connect,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"PATCH" => Method::Patch,
            b"PURGE" => Method::Purge,
            _ => Method::Other,
        }
    }

    /// The method name; empty for [`Method::Other`].
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Connect => "CONNECT",
            Method::Options => "OPTIONS",
            Method::Trace => "TRACE",
            Method::Patch => "PATCH",
            Method::Purge => "PURGE",
            Method::Other => "",
        }
    }

    /// The bit of this method in sets.
    pub fn bit(self) -> u16 {
        1 << self as u16
    }

    /// Whether the method is idempotent (RFC 9110 §9.2.2).
    pub fn is_idempotent(self) -> bool {
        // Methods of unknown semantics must not be repeated.
        !matches!(self, Method::Post | Method::Patch | Method::Connect | Method::Other)
    }
}

/// The HTTP version of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum HttpVersion {
    Http10,
    #[default]
    Http11,
    /// HTTP/2: a stream delimits each message, and no message closes the connection.
    Http2,
    /// HTTP/3, with the same rules.
    Http3,
}

/// The rule that ends a body (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// There is no body.
    #[default]
    None,
    /// The body has this number of bytes.
    Length(u64),
    /// The chunked transfer coding.
    Chunked,
    /// The body ends when the peer closes; responses only.
    Close,
}

impl Framing {
    /// Whether a `Content-Length` of this value is consistent with the framing. An inconsistent one would
    /// allow request smuggling or response splitting (RFC 9112 §11.2).
    pub fn agrees_with(self, content_length: &[u8]) -> bool {
        let declared = parse_content_length(content_length);
        match self {
            Framing::None => declared == Some(0),
            Framing::Length(length) => declared == Some(length),
            Framing::Chunked | Framing::Close => false,
        }
    }
}

/// Parses a decimal length of at most 18 digits; `None` for signs, lists and spaces.
pub(crate) fn parse_content_length(value: &[u8]) -> Option<u64> {
    // 18 digits cannot overflow.
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(value.iter().fold(0u64, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// Persistence of a connection as its peer requests it (RFC 9112 §9.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConnectionPersistence {
    /// Neither `close` nor `keep-alive`: the HTTP version decides.
    #[default]
    ByVersion,
    /// `keep-alive` without `close`.
    KeepAlive,
    /// `close`, which overrides `keep-alive`.
    Close,
}

/// The options of the `Connection` field, parsed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionOptions {
    /// The options `close` and `keep-alive`.
    pub persistence: ConnectionPersistence,
    /// `upgrade` is present, and not for HTTP/2.
    pub upgrade: bool,
    /// Other fields are nominated as hop-by-hop.
    pub nominates: bool,
}

impl ConnectionOptions {
    pub(crate) fn read(fields: &Fields) -> ConnectionOptions {
        let mut options = ConnectionOptions::default();
        match fields.only(KnownField::Connection) {
            Ok(Some((b"keep-alive", _))) => {
                return ConnectionOptions { persistence: ConnectionPersistence::KeepAlive, ..options };
            }
            Ok(Some((b"close", _))) => {
                return ConnectionOptions { persistence: ConnectionPersistence::Close, ..options };
            }
            _ => {}
        }
        for token in fields.all_known(KnownField::Connection).flat_map(tokens) {
            if token.eq_ignore_ascii_case(b"close") {
                options.persistence = ConnectionPersistence::Close;
            } else if token.eq_ignore_ascii_case(b"keep-alive") {
                if options.persistence != ConnectionPersistence::Close {
                    options.persistence = ConnectionPersistence::KeepAlive;
                }
            } else if token.eq_ignore_ascii_case(b"upgrade") {
                options.upgrade = upgrades(fields);
            } else {
                options.nominates = true;
            }
        }
        options
    }

    /// Whether the connection persists after the message (RFC 9112 §9.3).
    pub fn persistent(self, version: HttpVersion) -> bool {
        match version {
            HttpVersion::Http2 | HttpVersion::Http3 => true,
            HttpVersion::Http11 => self.persistence != ConnectionPersistence::Close,
            HttpVersion::Http10 => self.persistence == ConnectionPersistence::KeepAlive,
        }
    }
}

/// Whether the `Upgrade` field may be honored. An upgrade to `h2c` is obsolete (RFC 9113 §3.1), and its
/// tunnel would carry requests past all routes and plugins.
#[cold]
#[inline(never)]
fn upgrades(fields: &Fields) -> bool {
    let is_http2 = |token: &[u8]| token.eq_ignore_ascii_case(b"h2c");
    !fields.all_known(KnownField::Upgrade).flat_map(tokens).any(is_http2)
}

/// The comma-separated tokens of a field value, trimmed; empty ones are skipped.
pub fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(crate::ascii::trim).filter(|token| !token.is_empty())
}

/// Whether a field is hop-by-hop and must not be forwarded (RFC 9110 §7.6.1).
pub fn is_hop_by_hop(fields: &Fields, field: &FieldLine, options: ConnectionOptions) -> bool {
    HOP_BY_HOP & field.known().bit() != 0 || (options.nominates && is_nominated(fields, field))
}

const HOP_BY_HOP: u64 = KnownField::Connection.bit()
    | KnownField::KeepAlive.bit()
    | KnownField::ProxyConnection.bit()
    | KnownField::ProxyAuthenticate.bit()
    | KnownField::ProxyAuthorization.bit()
    | KnownField::Te.bit()
    | KnownField::TransferEncoding.bit()
    | KnownField::Upgrade.bit();

/// Whether the `Connection` field nominates a field. A peer cannot nominate fields that framing or routing
/// depend on, nor fields that the gateway has set, such as the consumer name.
#[cold]
fn is_nominated(fields: &Fields, field: &FieldLine) -> bool {
    if matches!(field.known(), KnownField::Host | KnownField::ContentLength) || !field.is_received() {
        return false;
    }
    let name = fields.name(field);
    fields.all_known(KnownField::Connection).flat_map(tokens).any(|token| token.eq_ignore_ascii_case(name))
}

/// The head of a request.
#[derive(Debug, Default, Clone)]
pub struct RequestHead {
    /// Header fields. Edits affect the request to the upstream.
    pub fields: Fields,
    /// The protocol version of the client.
    pub version: HttpVersion,
    /// The framing of the body.
    pub framing: Framing,
    /// The `Connection` options of the client.
    pub options: ConnectionOptions,
    pub(crate) method: Method,
    pub(crate) method_span: ByteSpan,
    /// The method as received, if a plugin has changed it.
    pub(crate) original_method: Option<Method>,
    pub(crate) target: TargetForms,
    /// The host in lower case, without port; empty if the request has none.
    pub(crate) host: ByteSpan,
    /// Host and port, as received.
    pub(crate) authority: ByteSpan,
    pub(crate) received_bytes: u32,
}

/// The forms of a request target (RFC 9112 §3.2), as spans of the received block.
#[derive(Debug, Default, Clone)]
pub(crate) struct TargetForms {
    /// The target, as received.
    pub(crate) received: ByteSpan,
    /// The position of path and query in the received target.
    pub(crate) origin_form: ByteSpan,
    /// The decoded path, without the query.
    pub(crate) path: ByteSpan,
    /// The path for the router, if an encoded slash makes it differ from the decoded one.
    pub(crate) routed_path: Option<ByteSpan>,
    /// Path and query without dot segments, if the received path contains some.
    pub(crate) resolved: Option<ByteSpan>,
    /// Whether the upstream receives the original path although it contains dot segments.
    pub(crate) forwards_received: bool,
    /// The query without `?`, as edited by plugins; `None` without a query.
    pub(crate) query: Option<ByteSpan>,
    /// The target for the upstream, if a plugin has changed it.
    pub(crate) rewritten: Option<ByteSpan>,
}

/// The most memory that an idle head retains, in bytes.
const KEEP_BYTES: usize = 4096;

impl RequestHead {
    /// Resets the head, retaining at most 4 KiB of memory.
    pub fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear(KEEP_BYTES);
        *self = RequestHead { fields, ..RequestHead::default() };
    }

    /// Bytes in which the head was received; 0 for a head of the gateway.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.into()
    }

    /// The method for the upstream, which plugins may have changed.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The method that the client sent, which decides whether the response has a body (RFC 9112 §6.3).
    pub fn client_method(&self) -> Method {
        self.original_method.unwrap_or(self.method)
    }

    /// The name of the method for the upstream.
    pub fn method_name(&self) -> &[u8] {
        self.method_span.of(&self.fields.block)
    }

    /// Changes the method for the upstream. A name that is not a token (RFC 9110 §9.1) is ignored, because it
    /// could end the request line.
    pub fn set_method(&mut self, name: &str) {
        if !crate::ascii::is_token(name.as_bytes()) {
            return;
        }
        // `client_method` returns the original over several changes.
        self.original_method = Some(self.client_method());
        self.method = Method::of(name.as_bytes());
        self.method_span = self.fields.append(name.as_bytes());
    }

    /// The target as received, which may contain scheme and host. For logs of the request line.
    pub fn target(&self) -> &[u8] {
        self.target.received.of(&self.fields.block)
    }

    /// Path and query as received: `request_uri` of NGINX, `real_request_uri` of APISIX. Not for rules: one
    /// path has many encodings, and dot segments are unresolved.
    pub fn real_request_uri(&self) -> &[u8] {
        self.target.origin_form.of(&self.fields.block)
    }

    /// The path as routed and the query as edited by plugins, for comparisons: `request_uri` of APISIX.
    /// Output uses [`RequestHead::encoded_request_uri`].
    pub fn request_uri(&self) -> Cow<'_, [u8]> {
        if self.is_normal() {
            return Cow::Borrowed(self.real_request_uri());
        }
        Cow::Owned(with_query(self.path().to_vec(), self.query()))
    }

    /// [`RequestHead::request_uri`] for keys and fields: the path is percent-encoded, so that no octet ends
    /// it or starts a query. All encodings of a path give the same text.
    pub fn encoded_request_uri(&self) -> Cow<'_, [u8]> {
        if self.is_normal() && uri::is_encoded(self.path()) {
            return Cow::Borrowed(self.real_request_uri());
        }
        let mut out = Vec::new();
        uri::encode_path(self.path(), &mut out);
        Cow::Owned(with_query(out, self.query()))
    }

    /// Path and query for a URL: the path as forwarded, with characters that a URL excludes percent-encoded,
    /// and the query as edited by plugins.
    pub fn forwarded_request_uri(&self) -> Cow<'_, [u8]> {
        match uri::encode_excluded(self.raw_path()) {
            Cow::Borrowed(_) if self.is_normal() => Cow::Borrowed(self.real_request_uri()),
            path => Cow::Owned(with_query(path.into_owned(), self.query())),
        }
    }

    /// [`RequestHead::forwarded_request_uri`] with the query as received: only for the client that sent it.
    pub fn forwarded_request_uri_for_client(&self) -> Vec<u8> {
        let received = self.real_request_uri();
        let query = memchr::memchr(b'?', received).map(|question| &received[question + 1..]);
        with_query(uri::encode_excluded(self.raw_path()).into_owned(), query)
    }

    /// The path as received, without dot segments: the encoded form of [`RequestHead::path`].
    pub fn raw_path(&self) -> &[u8] {
        let target = self.target.resolved.unwrap_or(self.target.origin_form).of(&self.fields.block);
        &target[..memchr::memchr(b'?', target).unwrap_or(target.len())]
    }

    /// Whether path and query are identical in the received target.
    fn is_normal(&self) -> bool {
        let end = match self.target.query {
            None => self.target.path.end,
            Some(query) if !query.is_empty() && query.start == self.target.path.end + 1 => query.end,
            Some(_) => return false,
        };
        (self.target.path.start, end) == (self.target.origin_form.start, self.target.origin_form.end)
    }

    /// The path for plugins: dot segments resolved, decoded, slashes merged. `uri` of NGINX.
    pub fn path(&self) -> &[u8] {
        self.target.path.of(&self.fields.block)
    }

    /// The path for the router: [`RequestHead::path`], unless a segment contains an encoded slash. Then `%2F`
    /// and `%25` remain encoded.
    #[inline]
    pub fn routed_path(&self) -> &[u8] {
        self.target.routed_path.unwrap_or(self.target.path).of(&self.fields.block)
    }

    /// A range of [`RequestHead::routed_path`], decoded.
    pub fn routed_part(&self, range: Range<usize>) -> Option<Cow<'_, [u8]>> {
        let part = self.routed_path().get(range)?;
        Some(if self.target.routed_path.is_some() { uri::decode_escapes(part) } else { Cow::Borrowed(part) })
    }

    /// The query without `?`, as edited by plugins, without removed arguments.
    pub fn query(&self) -> Option<&[u8]> {
        self.target.query.map(|span| span.of(&self.fields.block))
    }

    /// The host in lower case, without port and trailing dot; empty if the request has none.
    pub fn host(&self) -> &[u8] {
        self.host.of(&self.fields.block)
    }

    /// Host and port, as received.
    pub fn authority(&self) -> &[u8] {
        self.authority.of(&self.fields.block)
    }

    /// Path and query for the upstream: as received without dot segments, unless a plugin has changed them.
    pub fn upstream_target(&self) -> &[u8] {
        let resolved = if self.target.forwards_received { None } else { self.target.resolved };
        self.target.rewritten.or(resolved).unwrap_or(self.target.origin_form).of(&self.fields.block)
    }

    /// Whether a plugin has changed the path or query for the upstream.
    pub fn is_rewritten(&self) -> bool {
        self.target.rewritten.is_some()
    }

    /// Removes arguments from the query, for later readers and for the upstream. `is_removed` receives each
    /// name in its encoded form.
    pub fn remove_arguments(&mut self, is_removed: impl Fn(&[u8]) -> bool) {
        let query = self.query().and_then(|query| uri::without_arguments(query, &is_removed));
        let target = self.upstream_target();
        let target = memchr::memchr(b'?', target).and_then(|question| {
            let query_left = uri::without_arguments(&target[question + 1..], &is_removed)?;
            Some(with_query(target[..question].to_vec(), Some(&query_left)))
        });
        if let Some(query_left) = query {
            self.target.query =
                if query_left.is_empty() { None } else { Some(self.fields.append(&query_left)) };
        }
        if let Some(target) = target {
            self.set_upstream_target(&target);
        }
    }

    /// Changes path and query for the upstream. Spaces and control characters are percent-encoded, so that no
    /// rewrite can break the request line. Routing is not repeated.
    ///
    /// `%` and `?` remain. A caller with decoded text, such as [`RequestHead::path`], must encode it with
    /// [`uri::encode_path`] first: otherwise `%` would be decoded again, and `?` would start a query.
    pub fn set_upstream_target(&mut self, target: &[u8]) {
        let start = self.fields.block.len();
        // The asterisk form has no slash (RFC 9112 §3.2.4).
        if !target.starts_with(b"/") && target != b"*" {
            self.fields.block.push(b'/');
        }
        for byte in target {
            if crate::ascii::is_target(std::slice::from_ref(byte)) {
                self.fields.block.push(*byte);
            } else {
                uri::escape(*byte, &mut self.fields.block);
            }
        }
        self.target.rewritten = Some(ByteSpan::new(start, self.fields.block.len()));
    }

    /// Whether the client's connection persists after this request.
    pub fn persistent(&self) -> bool {
        self.options.persistent(self.version)
    }

    /// Whether the client waits for a 100 (Continue) response (RFC 9110 §10.1.1).
    pub fn expects_continue(&self) -> bool {
        // An expectation in HTTP/1.0 is ignored (RFC 9110 §10.1.1), and without a body there is nothing to
        // wait for.
        self.version != HttpVersion::Http10
            && self.framing != Framing::None
            && self
                .fields
                .known(KnownField::Expect)
                .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
    }

    /// The raw value of a cookie.
    pub fn cookie<'a>(&'a self, name: &[u8]) -> Option<&'a [u8]> {
        self.fields.all_known(KnownField::Cookie).find_map(|line| {
            crate::ascii::parts(line, b';').map(crate::ascii::trim).find_map(|pair| {
                let equals = memchr::memchr(b'=', pair)?;
                (&pair[..equals] == name).then(|| &pair[equals + 1..])
            })
        })
    }

    /// Sets path and query from `origin`, a span of the block, and normalizes the path.
    #[inline]
    pub(crate) fn set_origin_form(
        &mut self,
        origin: ByteSpan,
        policy: PathPolicy,
    ) -> Result<(), InvalidPath> {
        let bytes = origin.of(&self.fields.block);
        let question = memchr::memchr(b'?', bytes);
        let path_end = question.unwrap_or(bytes.len());
        let start = origin.start as usize;
        self.target.origin_form = origin;
        self.target.query = question.map(|at| ByteSpan::new(start + at + 1, origin.end as usize));
        self.target.path = ByteSpan::new(start, start + path_end);
        if !uri::is_normal(self.target.path.of(&self.fields.block)) {
            self.read_path(policy)?;
        }
        Ok(())
    }

    /// Derives the forms of a path that is not in normal form.
    #[inline(never)]
    fn read_path(&mut self, policy: PathPolicy) -> Result<(), InvalidPath> {
        let raw = self.target.path;
        let forms = PathForms::read(raw.of(&self.fields.block), policy)?;
        self.target.path = self.fields.append(&forms.decoded);
        self.target.routed_path = forms.routed.map(|routed| self.fields.append(&routed));
        self.target.forwards_received = forms.forwards_received;
        self.target.resolved = forms.resolved.map(|mut target| {
            let received = ByteSpan { start: raw.end, end: self.target.origin_form.end };
            target.extend_from_slice(received.of(&self.fields.block));
            self.fields.append(&target)
        });
        Ok(())
    }

    /// Sets the authority, and the host in lower case without port.
    pub(crate) fn set_authority(&mut self, authority: ByteSpan, part: HostPart) {
        self.authority = authority;
        let host = &authority.of(&self.fields.block)[..part.end];
        // The trailing dot of the DNS root is not part of the name.
        let end = part.end - usize::from(host.ends_with(b"."));
        let host = &host[..end];
        let start = authority.start as usize;
        // Nearly all hosts arrive in lower case and need no copy.
        if part.has_capitals {
            let lower = host.to_ascii_lowercase();
            self.host = self.fields.append(&lower);
        } else {
            self.host = ByteSpan::new(start, start + end);
        }
    }
}

/// A path, with the query if there is one.
pub(crate) fn with_query(mut path: Vec<u8>, query: Option<&[u8]>) -> Vec<u8> {
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        path.push(b'?');
        path.extend_from_slice(query);
    }
    path
}

/// The head of a response.
#[derive(Debug, Default, Clone)]
pub struct ResponseHead {
    /// Header fields. Edits affect the response to the client.
    pub fields: Fields,
    /// The protocol version of the upstream.
    pub version: HttpVersion,
    /// The status code, 100 to 999 as received.
    pub status: u16,
    /// The framing of the body. Callers that change the body call [`ResponseHead::body_changes`].
    pub framing: Framing,
    /// The `Connection` options of the upstream.
    pub options: ConnectionOptions,
    pub(crate) reason: ByteSpan,
}

impl ResponseHead {
    /// Resets the head, retaining at most 4 KiB of memory.
    pub fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear(KEEP_BYTES);
        *self = ResponseHead { fields, ..ResponseHead::default() };
    }

    /// The reason phrase as received; empty for a local response.
    pub fn reason(&self) -> &[u8] {
        self.reason.of(&self.fields.block)
    }

    /// Changes the status and drops the received reason phrase.
    pub fn set_status(&mut self, status: u16) {
        self.status = status;
        self.reason = ByteSpan::default();
    }

    /// Declares a new body of `length` bytes. With `None`, the length is unknown and the body is chunked or
    /// ends with the connection.
    pub fn body_changes(&mut self, length: Option<u64>) {
        self.fields.remove("content-length");
        self.framing = match length {
            Some(0) => Framing::Length(0),
            Some(length) => Framing::Length(length),
            None => Framing::Chunked,
        };
    }

    /// Whether the upstream connection persists after this response.
    pub fn persistent(&self) -> bool {
        // A body that ends with the connection leaves none to reuse (RFC 9112 §6.3).
        self.framing != Framing::Close && self.options.persistent(self.version)
    }
}
