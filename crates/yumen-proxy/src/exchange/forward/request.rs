//! One request on one connection: its head, its body, and the wait for the response head.
//!
//! Must not depend on retries, which `forward` decides.

use std::future::poll_fn;

use yumen_http::body::ChunkedDecoder;
use yumen_http::fields::write_line;
use yumen_http::{Framing, HttpVersion, KnownField, encode};
use yumen_plugin::{Exchange, forwarding};
use yumen_snapshot::{Endpoint, HostRewrite, Route, Upstream, UpstreamScheme};

use super::head_wait::HeadWait;
use super::resend::left_of_body;
use crate::copy::transfer::Transfer;
use crate::exchange::forwarded;
use crate::exchange::proxied::ProxiedExchange;
use crate::fault::{Fault, FaultKind};
use crate::runtime::buffer::InboxMark;
use crate::runtime::cold_future::box_cold;
use crate::tls::TlsName;
use crate::transport::stream::{HeadSent, TransportStream};
use crate::upstream::attempt::{Attempt, EndpointConnected, RequestSent, RequestText, UnansweredAttempt};
use crate::upstream::target::EndpointTarget;

/// A sent request, or the attempt whose connection turned out to be closed.
pub(super) type SendResult<'u> = Result<Attempt<'u, RequestSent>, Box<UnansweredAttempt<'u>>>;

/// Serialized form of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestForm {
    Plain,
    /// HTTP/1.1 with the client's `Upgrade` field.
    Upgrade,
    /// HTTP/2.
    Stream,
}

/// Target of an attempt: the endpoint at `index` with the TLS name and timeout of the exchange.
#[inline]
pub(super) fn target<'a>(
    ex: &'a Exchange<'_>,
    route: &Route,
    upstream: &'a Upstream,
    index: usize,
) -> EndpointTarget<'a> {
    let endpoint = &upstream.endpoints[index];
    EndpointTarget {
        upstream,
        index,
        tls_name: is_tls(ex, upstream).then(|| tls_name(ex, upstream, endpoint)),
        is_http2: speaks_http2(ex, route, upstream),
        protection: upstream.protection.as_deref(),
        connect_ms: route.timeouts.as_deref().unwrap_or(&upstream.timeouts).connect_ms,
    }
}

/// Server name for the endpoint's certificate: the configured one, else the `Host` that the endpoint receives, as in APISIX. An
/// endpoint that is configured by name takes precedence where the client's `Host` is passed on.
fn tls_name<'a>(ex: &'a Exchange<'_>, upstream: &'a Upstream, endpoint: &'a Endpoint) -> TlsName<'a> {
    if let Some(name) = TlsName::of_settings(upstream) {
        return name;
    }
    let own = TlsName { host: endpoint.host.as_bytes(), is_explicit: false };
    let name = match (&ex.upstream.host, &upstream.pass_host) {
        (Some(host), _) => TlsName { host: host_only(host), is_explicit: true },
        (None, HostRewrite::Pass) if endpoint.host.parse::<std::net::IpAddr>().is_ok() => {
            TlsName { host: ex.request.host(), is_explicit: true }
        }
        (None, HostRewrite::Rewrite(host)) => {
            TlsName { host: host_only(host.as_bytes()), is_explicit: false }
        }
        (None, HostRewrite::Node | HostRewrite::Pass) => own,
    };
    // A request may carry an empty `Host` (RFC 9112 §3.2), which is no server name.
    if name.host.is_empty() { own } else { name }
}

fn is_tls(ex: &Exchange<'_>, upstream: &Upstream) -> bool {
    match ex.upstream.scheme {
        Some(scheme) => scheme == "https",
        None => upstream.protocol.scheme.is_tls(),
    }
}

fn host_only(authority: &[u8]) -> &[u8] {
    match authority.iter().rposition(|byte| *byte == b':') {
        // Behind the last colon of an IPv6 literal there is a closing bracket, so only a port is all digits.
        Some(colon) if authority[colon + 1..].iter().all(u8::is_ascii_digit) => &authority[..colon],
        _ => authority,
    }
}

/// Whether the endpoint is reached over HTTP/2.
///
/// A WebSocket uses HTTP/1.1: few servers accept one over HTTP/2 (RFC 8441), and those that do accept it over
/// HTTP/1.1 too. gRPC services support HTTP/2 only.
fn speaks_http2(ex: &Exchange<'_>, route: &Route, upstream: &Upstream) -> bool {
    upstream.protocol.http2
        && ex.upstream.scheme.is_none()
        && (matches!(upstream.protocol.scheme, UpstreamScheme::Grpc | UpstreamScheme::Grpcs)
            || !is_upgrade(ex, route))
}

/// Whether the client requests an upgrade that the route allows.
#[inline]
fn is_upgrade(ex: &Exchange<'_>, route: &Route) -> bool {
    route.enable_websocket
        && ex.request.options.upgrade
        // A server ignores `Upgrade` in an HTTP/1.0 request (RFC 9110 §7.8).
        && ex.request.version != HttpVersion::Http10
        && ex.request.fields.known(KnownField::Upgrade).is_some()
        && ex.request.framing == Framing::None
}

impl<'s> ProxiedExchange<'_, 's> {
    /// Sends the rest of the request and reads the response head. Returns whether the connection is upgraded.
    pub(super) async fn response_head(&mut self, sent: &mut Attempt<'s, RequestSent>) -> Result<bool, Fault> {
        loop {
            self.await_head(sent).await?;
            let status = sent.head().status;
            match status {
                101 if self.is_upgrade(sent) => return Ok(true),
                // A 101 that the client did not request must not reach it: it would continue with HTTP (RFC
                // 9110 §7.8).
                101 => return Err(FaultKind::UnexpectedUpgrade.into()),
                100..=199 => {
                    box_cold(self.pass_interim(sent)).await?;
                    sent.clear_head();
                }
                _ => {
                    check_body(sent)?;
                    return Ok(false);
                }
            }
        }
    }

    /// Whether the request asked for an upgrade and the response names the new protocol (RFC 9110 §7.8).
    #[cold]
    fn is_upgrade(&self, sent: &mut Attempt<'s, RequestSent>) -> bool {
        // HTTP/2 has no 101 response (RFC 9113 §8.6).
        !sent.connection().stream.is_shared()
            && is_upgrade(self.ex, self.route)
            && sent.head().fields.known(KnownField::Upgrade).is_some()
    }

    #[cold]
    pub(super) fn give_up(
        &mut self,
        sent: Attempt<'s, RequestSent>,
        fault: Fault,
        mark: InboxMark,
    ) -> Box<UnansweredAttempt<'s>> {
        self.flow.body = left_of_body(self.conn, &mut self.upload, mark);
        let client = &self.conn.worker.upstream;
        self.upload.transfer.recycle(&client.buffers);
        sent.give_up(client, fault)
    }

    /// Sends the head, or queues it in front of the body.
    #[inline]
    pub(super) fn send_head(&mut self, connected: Attempt<'s, EndpointConnected>) -> SendResult<'s> {
        let form = match connected.is_stream() {
            true => RequestForm::Stream,
            false if is_upgrade(self.ex, self.route) => RequestForm::Upgrade,
            false => RequestForm::Plain,
        };
        let upstream = self.pinned.upstream;
        let endpoint = &upstream.endpoints[connected.index()];
        let mut text = self.conn.worker.buffers.take_text();
        self.write_head(&mut text, endpoint, form);
        let request = RequestText {
            text: &text,
            is_tls: is_tls(self.ex, upstream),
            authority: &endpoint.authority,
            is_complete: match &self.ex.body.buffered {
                Some(body) => body.is_empty(),
                None => self.ex.request.framing == Framing::None,
            },
            last_fields: &self.conn.peer.last_fields,
        };
        let (mut sent, head_sent) = connected.send_head(&self.conn.worker.upstream, &request)?;
        if head_sent == HeadSent::Separately {
            self.conn.worker.buffers.put_text(std::mem::take(&mut text));
        }
        self.begin_upload(text, &sent.connection().stream);
        Ok(sent)
    }

    /// Queues `text` and the request body for the endpoint.
    #[inline]
    fn begin_upload(&mut self, mut text: Vec<u8>, sink: &TransportStream) {
        let is_chunked = self.ex.request.framing == Framing::Chunked;
        let mut framing = self.conn.stream.incoming(self.ex.request.framing);
        if let Some(body) = &self.ex.body.buffered {
            text.extend_from_slice(body);
            // The buffered body is sent with the head, so nothing is read from the connection.
            framing = Framing::None;
        }
        let bytes_max = self.conn.body_bytes_max(self.ex);
        let encoding = sink.ending(is_chunked && framing != Framing::None);
        let budget = &self.conn.worker.upstream.replay_budget;
        self.upload.begin(Transfer::new(framing, encoding, text, bytes_max), budget);
        // A tap per attempt: a retry reads the body again from its start.
        if self.ex.has_taps() {
            self.upload.transfer.tap = self.ex.new_request_tap();
        }
    }

    fn write_head(&self, out: &mut Vec<u8>, endpoint: &Endpoint, form: RequestForm) {
        let ex = &*self.ex;
        let request = &ex.request;
        encode::request_line(out, request);
        let host: &[u8] = match (&ex.upstream.host, &self.pinned.upstream.pass_host) {
            (Some(host), _) => host,
            (None, HostRewrite::Pass) => request.authority(),
            (None, HostRewrite::Node) => endpoint.authority.as_bytes(),
            (None, HostRewrite::Rewrite(host)) => host.as_bytes(),
        };
        // `Host` comes first (RFC 9110 §7.2).
        write_line(out, b"Host", host);
        self.write_forwarding(out);
        let writes_forwarded = self.conn.worker.settings.forwarding.forwarded_field;
        if writes_forwarded {
            forwarded::write(out, ex);
        }
        let mut has_length = false;
        encode::request_fields(out, request, |field| match field.known() {
            // Written above, except `Trailer`: request trailers are not forwarded (decision 47).
            KnownField::Host | KnownField::XRealIp | KnownField::XForwardedFor | KnownField::Trailer => true,
            // Without the setting, a value of a plugin is the only one.
            KnownField::Forwarded => field.is_received() || writes_forwarded,
            KnownField::ContentLength => {
                // The client's field stays only if it matches the length of the body that follows; plugins
                // may have changed either.
                let matches_body = ex.body.buffered.is_none()
                    && field.is_received()
                    && request.framing.agrees_with(request.fields.value(field));
                has_length |= matches_body;
                !matches_body
            }
            KnownField::Other => forwarded::is_false(&request.fields, field),
            _ => false,
        });
        match &ex.body.buffered {
            Some(body) => encode::framing(out, Framing::Length(body.len() as u64)),
            None if !has_length => encode::framing(out, request.framing),
            None => {}
        }
        if form == RequestForm::Upgrade {
            out.extend_from_slice(b"Connection: upgrade\r\n");
            write_line(out, b"Upgrade", request.fields.known(KnownField::Upgrade).unwrap_or_default());
        }
        if form == RequestForm::Stream && self.accepts_trailers() {
            // The only value of `TE` that HTTP/2 permits (RFC 9113 §8.2.2).
            out.extend_from_slice(b"TE: trailers\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Whether the endpoint may send trailers: to clients that accept them (RFC 9110 §10.1.4), and in gRPC,
    /// which needs them.
    fn accepts_trailers(&self) -> bool {
        let mut te = self.ex.request.fields.all_known(KnownField::Te).flat_map(yumen_http::head::tokens);
        matches!(self.pinned.upstream.protocol.scheme, UpstreamScheme::Grpc | UpstreamScheme::Grpcs)
            || te.any(|token| token.eq_ignore_ascii_case(b"trailers"))
    }

    /// Writes the fields that describe the client. Without fields of other proxies, those of the connection
    /// are reused.
    fn write_forwarding(&self, out: &mut Vec<u8>) {
        const OF_PROXIES: [KnownField; 5] = [
            KnownField::XRealIp,
            KnownField::XForwardedFor,
            KnownField::XForwardedProto,
            KnownField::XForwardedHost,
            KnownField::XForwardedPort,
        ];
        let (conn, ex) = (&*self.conn, &*self.ex);
        let fields = &ex.request.fields;
        let is_peer = ex.client.ip == ex.client.connection.peer.ip().to_canonical();
        if is_peer && !fields.may_have_any(&OF_PROXIES) && ex.upstream.omitted.is_empty() {
            out.extend_from_slice(&conn.peer.forwarding);
            write_line(out, b"X-Forwarded-Host", ex.request.host());
            return;
        }
        let own_ip = if is_peer { None } else { Some(ex.client.ip.to_string().into_bytes()) };
        let ip = own_ip.as_deref().unwrap_or(conn.peer.ip());
        forwarding::write(ex, ip, out);
    }

    /// Sends more of the body and waits for the next response head, final or interim.
    async fn await_head(&mut self, sent: &mut Attempt<'s, RequestSent>) -> Result<(), Fault> {
        let mut wait = HeadWait::new(self.conn, self.ex, self.timeouts());
        let (conn, upload) = (&mut *self.conn, &mut self.upload);
        poll_fn(|cx| wait.poll(cx, conn, upload, sent)).await
    }

    /// Forwards an interim response within the limits. An HTTP/1.0 client must not receive one
    /// (RFC 9110 §15.2).
    async fn pass_interim(&mut self, sent: &Attempt<'s, RequestSent>) -> Result<(), Fault> {
        let head = sent.head();
        let mut text = Vec::new();
        encode::status_line(&mut text, head.status, head.reason());
        // RFC 9110 §8.6: a 1xx response must not have a `Content-Length`.
        encode::response_fields(&mut text, head, |field| field.known() == KnownField::ContentLength);
        text.extend_from_slice(b"\r\n");
        let bytes_max = self.conn.worker.settings.limits.response_head.head_bytes_max;
        // Counted before the version is checked: an endless series must not hold the exchange of an HTTP/1.0
        // client either.
        self.interim.count(text.len(), bytes_max)?;
        if self.ex.request.version == HttpVersion::Http10 {
            return Ok(());
        }
        self.conn.send_interim(text).await
    }
}

/// Fails if the part of the body that arrived with the head is malformed: the client can still receive a
/// local response.
fn check_body(sent: &mut Attempt<'_, RequestSent>) -> Result<(), Fault> {
    let framing = sent.head().framing;
    let connection = sent.connection();
    if framing != Framing::Chunked || connection.stream.is_shared() {
        return Ok(());
    }
    let begun = ChunkedDecoder::default().step(connection.inbox.bytes());
    begun.map_or_else(|error| Err(FaultKind::UpstreamBody(error).into()), |_| Ok(()))
}
