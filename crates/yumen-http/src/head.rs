//! Request and response heads, and the framing of the body that follows them.

use std::borrow::Cow;
use std::ops::Range;

use crate::fields::{ByteSpan, FieldLine, Fields, KnownField};
use crate::parse;
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
    /// Any other token; its bytes are in the head.
    Other,
}

impl Method {
    /// The method of this exact name.
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

    /// Its name; empty for [`Method::Other`].
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

    /// A bit of its own, for sets of methods.
    pub fn bit(self) -> u16 {
        1 << self as u16
    }

    /// Whether repeating the request has the effect of making it once (RFC 9110 §9.2.2).
    pub fn is_idempotent(self) -> bool {
        !matches!(self, Method::Post | Method::Patch | Method::Connect | Method::Other)
    }
}

/// The version of HTTP a peer speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum HttpVersion {
    Http10,
    #[default]
    Http11,
    /// Messages are ended by their stream, and connections are not theirs to end.
    Http2,
    /// As with HTTP/2.
    Http3,
}

/// How the end of a body is told (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// There is no body.
    #[default]
    None,
    /// So many bytes follow.
    Length(u64),
    /// Chunks follow.
    Chunked,
    /// Everything until the peer closes; responses only.
    Close,
}

impl Framing {
    /// Whether a `Content-Length` of this value tells where the body ends: beside any other it would lie, and
    /// who believes it takes the next message for a part of this one, or the other way round (RFC 9112
    /// §11.2).
    pub fn is_told_by(self, content_length: &[u8]) -> bool {
        let told = parse::content_length(content_length).ok();
        match self {
            Framing::None => told == Some(0),
            Framing::Length(length) => told == Some(length),
            Framing::Chunked | Framing::Close => false,
        }
    }
}

/// What the `Connection` field says, read once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionOptions {
    /// `close` was among the options.
    pub close: bool,
    /// `keep-alive` was among the options.
    pub keep_alive: bool,
    /// `upgrade` was among the options.
    pub upgrade: bool,
    /// Other fields were nominated as hop-by-hop.
    pub nominates: bool,
}

impl ConnectionOptions {
    pub(crate) fn read(fields: &Fields) -> ConnectionOptions {
        let mut options = ConnectionOptions::default();
        // What nearly all say who say anything.
        match fields.only(KnownField::Connection) {
            Ok(Some((b"keep-alive", _))) => return ConnectionOptions { keep_alive: true, ..options },
            Ok(Some((b"close", _))) => return ConnectionOptions { close: true, ..options },
            _ => {}
        }
        for token in fields.all_known(KnownField::Connection).flat_map(tokens) {
            if token.eq_ignore_ascii_case(b"close") {
                options.close = true;
            } else if token.eq_ignore_ascii_case(b"keep-alive") {
                options.keep_alive = true;
            } else if token.eq_ignore_ascii_case(b"upgrade") {
                options.upgrade = upgrades(fields);
            } else {
                options.nominates = true;
            }
        }
        options
    }

    /// Whether the connection may carry another message (RFC 9112 §9.3).
    pub fn persistent(self, version: HttpVersion) -> bool {
        match version {
            HttpVersion::Http2 | HttpVersion::Http3 => true,
            HttpVersion::Http11 => !self.close,
            HttpVersion::Http10 => self.keep_alive && !self.close,
        }
    }
}

/// Whether what is asked for is another protocol. HTTP/2 is none: through a tunnel of it requests would come
/// past all that looks at them, and nobody is asked for it in this way any more (RFC 9113 §3.1).
#[cold]
#[inline(never)]
fn upgrades(fields: &Fields) -> bool {
    let is_http2 = |token: &[u8]| token.eq_ignore_ascii_case(b"h2c");
    !fields.all_known(KnownField::Upgrade).flat_map(tokens).any(is_http2)
}

/// The comma-separated tokens of a field value, trimmed, empty ones left out.
pub fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(crate::ascii::trim).filter(|token| !token.is_empty())
}

/// Whether a field belongs to one connection and is not forwarded (RFC 9110 §7.6.1).
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

/// A peer cannot nominate away what the message's end or route depends on, nor what was set here, such
/// as who the consumer is.
#[cold]
fn is_nominated(fields: &Fields, field: &FieldLine) -> bool {
    if matches!(field.known(), KnownField::Host | KnownField::ContentLength) || !field.is_received() {
        return false;
    }
    let name = fields.name(field);
    fields.all_known(KnownField::Connection).flat_map(tokens).any(|token| token.eq_ignore_ascii_case(name))
}

/// The head of a request: who asks for what, and how its body ends.
#[derive(Debug, Default, Clone)]
pub struct RequestHead {
    /// Header fields; edits made here go to the upstream.
    pub fields: Fields,
    /// Protocol version of the client.
    pub version: HttpVersion,
    /// How the body ends.
    pub framing: Framing,
    /// What the client said of its connection.
    pub options: ConnectionOptions,
    pub(crate) method: Method,
    pub(crate) method_span: ByteSpan,
    /// What the client asked with, once a plugin changed the method.
    pub(crate) original_method: Option<Method>,
    /// The target as received.
    pub(crate) target: ByteSpan,
    /// The decoded path, without the query.
    pub(crate) path: ByteSpan,
    /// The path that the router matches, where an encoded slash makes it another than the decoded one.
    pub(crate) routed_path: Option<ByteSpan>,
    /// Path and query without dot segments, where the received path had some.
    pub(crate) resolved: Option<ByteSpan>,
    /// Whether the upstream gets the received path although it has dot segments.
    pub(crate) forwards_received: bool,
    /// The query, without its question mark, as plugins left it; `None` where there is none.
    pub(crate) query: Option<ByteSpan>,
    /// Where the path and query stand in the target as received.
    pub(crate) origin_form: ByteSpan,
    /// Lower-case host without port; empty where the request named none.
    pub(crate) host: ByteSpan,
    /// Host and port as the client wrote them.
    pub(crate) authority: ByteSpan,
    /// What the upstream will be asked for, once a plugin changed it.
    pub(crate) rewritten: Option<ByteSpan>,
    pub(crate) received_bytes: u32,
}

/// A head keeps at most this much memory when its connection has nothing more to read.
const KEEP_BYTES: usize = 4096;

impl RequestHead {
    /// Forgets the request and keeps modest memory for the next.
    pub fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear(KEEP_BYTES);
        *self = RequestHead { fields, ..RequestHead::default() };
    }

    /// Bytes the head was received in; 0 for one made here.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.into()
    }

    /// The method that goes upstream: what came, unless a plugin changed it.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The method the client asked with, which decides whether its answer has a body (RFC 9112 §6.3).
    pub fn client_method(&self) -> Method {
        self.original_method.unwrap_or(self.method)
    }

    /// The method's name as received.
    pub fn method_name(&self) -> &[u8] {
        self.method_span.of(&self.fields.block)
    }

    /// Changes the method that goes upstream. A name that is not a token (RFC 9110 §9.1) is ignored,
    /// since it could end the request line.
    pub fn set_method(&mut self, name: &str) {
        if !crate::ascii::is_token(name.as_bytes()) {
            return;
        }
        self.original_method = Some(self.client_method());
        self.method = Method::of(name.as_bytes());
        self.method_span = self.fields.append(name.as_bytes());
    }

    /// The target as received, which may begin with scheme and host: for what shows the request line.
    pub fn target(&self) -> &[u8] {
        self.target.of(&self.fields.block)
    }

    /// Path and query as received: `request_uri` of NGINX, `real_request_uri` of APISIX. No rule may look at
    /// it: one path has many spellings, and dot segments in it are not resolved.
    pub fn real_request_uri(&self) -> &[u8] {
        self.origin_form.of(&self.fields.block)
    }

    /// The path that routing sees and the query as plugins left it, for whoever compares: `request_uri` of
    /// APISIX. What is written somewhere is [`RequestHead::encoded_request_uri`].
    pub fn request_uri(&self) -> Cow<'_, [u8]> {
        if self.is_normal() {
            return Cow::Borrowed(self.real_request_uri());
        }
        Cow::Owned(with_query(self.path().to_vec(), self.query()))
    }

    /// [`RequestHead::request_uri`] for a key or a field: the path is percent-encoded, so that none of its
    /// octets ends it or begins a query. All spellings of a path give the same text.
    pub fn encoded_request_uri(&self) -> Cow<'_, [u8]> {
        if self.is_normal() && uri::is_encoded(self.path()) {
            return Cow::Borrowed(self.real_request_uri());
        }
        let mut out = Vec::new();
        uri::encode_path(self.path(), &mut out);
        Cow::Owned(with_query(out, self.query()))
    }

    /// Path and query for a URL: the path as forwarded, octets that a URL excludes percent-encoded, and the
    /// query as plugins left it.
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

    /// The path without dot segments and otherwise as received: what [`RequestHead::path`] decodes.
    pub fn raw_path(&self) -> &[u8] {
        let target = self.resolved.unwrap_or(self.origin_form).of(&self.fields.block);
        &target[..memchr::memchr(b'?', target).unwrap_or(target.len())]
    }

    /// Whether path and query stand in the target as routing and plugins see them.
    fn is_normal(&self) -> bool {
        let end = match self.query {
            None => self.path.end,
            Some(query) if !query.is_empty() && query.start == self.path.end + 1 => query.end,
            Some(_) => return false,
        };
        (self.path.start, end) == (self.origin_form.start, self.origin_form.end)
    }

    /// The path that plugins see: dot segments resolved, decoded, slashes merged. `uri` of NGINX.
    pub fn path(&self) -> &[u8] {
        self.path.of(&self.fields.block)
    }

    /// The path that the router matches: [`RequestHead::path`], unless an encoded slash is part of a segment.
    /// Then `%2F` and `%25` are left encoded.
    #[inline]
    pub fn routed_path(&self) -> &[u8] {
        self.routed_path.unwrap_or(self.path).of(&self.fields.block)
    }

    /// A part of [`RequestHead::routed_path`], decoded.
    pub fn routed_part(&self, range: Range<usize>) -> Option<Cow<'_, [u8]>> {
        let part = self.routed_path().get(range)?;
        Some(if self.routed_path.is_some() { uri::decode_escapes(part) } else { Cow::Borrowed(part) })
    }

    /// The query without its question mark, as plugins left it: an argument that was removed is not there.
    pub fn query(&self) -> Option<&[u8]> {
        self.query.map(|span| span.of(&self.fields.block))
    }

    /// The host in lower case without port and trailing dot; empty where none was named.
    pub fn host(&self) -> &[u8] {
        self.host.of(&self.fields.block)
    }

    /// Host and port as the client wrote them.
    pub fn authority(&self) -> &[u8] {
        self.authority.of(&self.fields.block)
    }

    /// Path and query the upstream is asked for: those received, without dot segments, unless a plugin
    /// changed them.
    pub fn upstream_target(&self) -> &[u8] {
        let resolved = if self.forwards_received { None } else { self.resolved };
        self.rewritten.or(resolved).unwrap_or(self.origin_form).of(&self.fields.block)
    }

    /// Whether a plugin changed the path or query that goes upstream.
    pub fn is_rewritten(&self) -> bool {
        self.rewritten.is_some()
    }

    /// Takes arguments out of the query, for all who look at it from now on and for whatever goes upstream.
    /// `is_removed` gets a name as it stands in the query.
    pub fn remove_arguments(&mut self, is_removed: impl Fn(&[u8]) -> bool) {
        let query = self.query().and_then(|query| uri::without_arguments(query, &is_removed));
        let target = self.upstream_target();
        let target = memchr::memchr(b'?', target).and_then(|question| {
            let kept = uri::without_arguments(&target[question + 1..], &is_removed)?;
            Some(with_query(target[..question].to_vec(), Some(&kept)))
        });
        if let Some(kept) = query {
            self.query = if kept.is_empty() { None } else { Some(self.fields.append(&kept)) };
        }
        if let Some(target) = target {
            self.set_upstream_target(&target);
        }
    }

    /// Changes path and query that go upstream; spaces and controls are percent-encoded, so that
    /// no rewrite can break the request line. Routing is not repeated.
    ///
    /// `%` and `?` stay as they are. Whoever makes a target of decoded text, such as
    /// [`RequestHead::path`], encodes it with [`uri::encode_path`] first: its `%` would be decoded
    /// again, its `?` would begin a query.
    pub fn set_upstream_target(&mut self, target: &[u8]) {
        let start = self.fields.block.len();
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
        self.rewritten = Some(ByteSpan::new(start, self.fields.block.len()));
    }

    /// Whether the client wants the connection to carry another request.
    pub fn persistent(&self) -> bool {
        self.options.persistent(self.version)
    }

    /// Whether the client waits for leave to send its body (RFC 9110 §10.1.1).
    pub fn expects_continue(&self) -> bool {
        self.version != HttpVersion::Http10
            && self.framing != Framing::None
            && self
                .fields
                .known(KnownField::Expect)
                .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
    }

    /// The value of a cookie, as it stands in the `Cookie` fields.
    pub fn cookie<'a>(&'a self, name: &[u8]) -> Option<&'a [u8]> {
        self.fields.all_known(KnownField::Cookie).find_map(|line| {
            line.split(|byte| *byte == b';').map(crate::ascii::trim).find_map(|pair| {
                let equals = memchr::memchr(b'=', pair)?;
                (&pair[..equals] == name).then(|| &pair[equals + 1..])
            })
        })
    }

    /// Takes path and query out of `origin`, a span of the block, and reads the path.
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
        self.origin_form = origin;
        self.query = question.map(|at| ByteSpan::new(start + at + 1, origin.end as usize));
        self.path = ByteSpan::new(start, start + path_end);
        if !uri::is_normal(self.path.of(&self.fields.block)) {
            self.read_path(policy)?;
        }
        Ok(())
    }

    /// Notes the forms of a path that is not in its normal form.
    #[inline(never)]
    fn read_path(&mut self, policy: PathPolicy) -> Result<(), InvalidPath> {
        let raw = self.path;
        let forms = PathForms::read(raw.of(&self.fields.block), policy)?;
        self.path = self.fields.append(&forms.decoded);
        self.routed_path = forms.routed.map(|routed| self.fields.append(&routed));
        self.forwards_received = forms.forwards_received;
        self.resolved = forms.resolved.map(|mut target| {
            let received = ByteSpan { start: raw.end, end: self.origin_form.end };
            target.extend_from_slice(received.of(&self.fields.block));
            self.fields.append(&target)
        });
        Ok(())
    }

    /// Notes the host the request is for, in lower case and without its port.
    pub(crate) fn set_authority(&mut self, authority: ByteSpan, part: HostPart) {
        self.authority = authority;
        let host = &authority.of(&self.fields.block)[..part.end];
        // The root's dot is no part of the name.
        let end = part.end - usize::from(host.ends_with(b"."));
        let host = &host[..end];
        let start = authority.start as usize;
        if part.has_capitals {
            let lower = host.to_ascii_lowercase();
            self.host = self.fields.append(&lower);
        } else {
            self.host = ByteSpan::new(start, start + end);
        }
    }
}

/// A path and the query behind it, if there is one.
fn with_query(mut path: Vec<u8>, query: Option<&[u8]>) -> Vec<u8> {
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        path.push(b'?');
        path.extend_from_slice(query);
    }
    path
}

/// The head of a response.
#[derive(Debug, Default, Clone)]
pub struct ResponseHead {
    /// Header fields; edits made here go to the client.
    pub fields: Fields,
    /// Protocol version of the upstream.
    pub version: HttpVersion,
    /// Status code, 100 to 599 or whatever three digits the upstream sent.
    pub status: u16,
    /// How the body ends. Whoever changes the body calls [`ResponseHead::body_changes`].
    pub framing: Framing,
    /// What the upstream said of its connection.
    pub options: ConnectionOptions,
    pub(crate) reason: ByteSpan,
}

impl ResponseHead {
    /// Forgets the response and keeps modest memory for the next.
    pub fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear(KEEP_BYTES);
        *self = ResponseHead { fields, ..ResponseHead::default() };
    }

    /// The reason phrase as received; empty for a response made here.
    pub fn reason(&self) -> &[u8] {
        self.reason.of(&self.fields.block)
    }

    /// Changes the status; the reason phrase becomes the standard one.
    pub fn set_status(&mut self, status: u16) {
        self.status = status;
        self.reason = ByteSpan::default();
    }

    /// Tells that the body will not be the one the upstream announced: its length, if `length`
    /// tells none, is then marked by chunks or by closing.
    pub fn body_changes(&mut self, length: Option<u64>) {
        self.fields.remove("content-length");
        self.framing = match length {
            Some(0) => Framing::Length(0),
            Some(length) => Framing::Length(length),
            None => Framing::Chunked,
        };
    }

    /// Whether the upstream's connection may carry another request.
    pub fn persistent(&self) -> bool {
        self.framing != Framing::Close && self.options.persistent(self.version)
    }
}
