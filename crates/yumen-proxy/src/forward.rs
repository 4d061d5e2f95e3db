//! From a request to the head of an endpoint's answer. The retry loop is here, and nowhere else.

mod admission;
mod head_wait;
mod interim;
mod lane;
mod refused;

use std::future::poll_fn;
use std::pin::pin;

use yumen_base::Now;
use yumen_http::body::Chunked;
use yumen_http::fields::write_line;
use yumen_http::{Framing, Known, encode};
use yumen_plugin::{Exchange, Phase, forwarding};
use yumen_snapshot::protection::{Full, Retry};
use yumen_snapshot::{Endpoint, PassHost, Route, Timeouts, Upstream};

use crate::apart::apart;
use crate::body::Ending;
use crate::buffer::Inbox;
use crate::chains::Chains;
use crate::chosen::Chosen;
use crate::clock;
use crate::connection::Connection;
use crate::deadline;
use crate::fault::{Fault, Kind};
use crate::flow::{Flow, RequestBody};
use crate::forwarded;
use crate::grpc;
use crate::pace::Pace;
use crate::relay::Relay;
use crate::stream::Stream;
use crate::tls::{Handshake, TlsName};
use crate::transfer::Transfer;
use crate::upstream::connection::UpstreamConnection;
use crate::upstream::dial::Dial;
use crate::upstream::health;
use crate::upstream::pool::PoolKey;
use crate::upstream::replay::RequestReplay;
use crate::wait::Wait;
use admission::{Asking, Attempts};
use head_wait::HeadWait;
pub(crate) use interim::Interim;
use refused::Refused;

/// Tries endpoints until one answers, the request may not be repeated, or the attempts are spent.
/// Every way out of the loop is visible here.
pub(crate) async fn forward<'u>(
    conn: &mut Connection,
    ex: &mut Exchange<'u>,
    chains: &Chains<'_>,
    route: &Route,
    chosen: &mut Chosen<'u>,
    relay: &mut Relay<'u>,
    flow: &mut Flow,
) -> Result<(), Fault> {
    let mut attempts = Attempts::default();
    let mut last = Fault::from(Kind::NoEndpoint);
    let body_mark = conn.inbox.mark();
    let started = clock::now();
    flow.upstream_started_us = Some(started.mono_us);
    let mut elsewhere = None;
    relay.replay = RequestReplay::of(ex, chosen.upstream);
    loop {
        let index = match (elsewhere.take(), &chosen.upstream.protection) {
            (Some(index), _) => index,
            (None, None) => chosen.upstream.pick(ex, &attempts.tried).ok_or(last)?,
            (None, Some(_)) => {
                let asking = Asking { conn, ex, chosen, relay, attempts: &mut attempts, started };
                apart(asking.admit(last)).await?
            }
        };
        // Who has waited may go to a newer one.
        let upstream = chosen.upstream;
        if ex.deadline_ms != 0 {
            deadline::check(conn)?;
        }
        attempts.tried.push(index);
        flow.attempts += 1;
        let endpoint = &upstream.endpoints[index];
        ex.endpoint = Some(endpoint.addr);
        ex.endpoint_host = &endpoint.host;
        relay.underway = Some(upstream.started(index, clock::now().mono_us));
        let mut attempt = Attempt { conn, ex, chains, route, upstream, index, endpoint, relay, flow };
        let tried_out = attempt.run().await;
        if let Some(watch) = chains.explaining() {
            watch.attempted(endpoint.addr, tried_out.err());
        }
        let Err(fault) = tried_out else {
            health::observe_answer(upstream, index, ex, &relay.head);
            if upstream.grpc_retry_statuses.is_empty() {
                return Ok(());
            }
            attempts.may_have_acted = true;
            let tried = &attempts.tried;
            elsewhere = Refused { conn, ex, upstream, relay, flow, tried, started, body_mark }.elsewhere();
            if elsewhere.is_none() {
                return Ok(());
            }
            conn.worker.counters.retries.add(1);
            continue;
        };
        let fault = settled(conn, relay, fault);
        end_failed(upstream, index, relay, fault);
        flow.upstream_us = Some(clock::now().mono_us.saturating_sub(started.mono_us));
        last = fault;
        attempts.may_have_acted |= !fault.unsent;
        if is_late(upstream, started)
            || !may_retry(conn, ex, upstream, relay, flow, (fault, attempts.tried.count(), body_mark))
        {
            // What another attempt reads again is counted once.
            flow.received_bytes += relay.upload.read_bytes;
            return Err(last);
        }
        conn.worker.counters.retries.add(1);
    }
}

/// Whether the time in which endpoints are tried is over.
fn is_late(upstream: &Upstream, started: Now) -> bool {
    upstream.retry_timeout_ms != 0 && clock::now().mono_ms() - started.mono_ms() >= upstream.retry_timeout_ms
}

/// What a failed attempt failed by.
#[cold]
fn settled(conn: &Connection, relay: &Relay, fault: Fault) -> Fault {
    relay.note_fault(fault.kind);
    deadline::settle(conn, fault)
}

/// Ends an attempt that failed, and notes that of its endpoint.
#[cold]
fn end_failed(upstream: &Upstream, index: usize, relay: &mut Relay<'_>, fault: Fault) {
    // A kept connection may have been closed for its idleness, which says nothing of the endpoint.
    let was_kept = relay.link.take().is_some_and(|link| link.requests > 0);
    let was_stale = was_kept && fault.kind == Kind::UpstreamClosed;
    relay.end_attempt();
    let shared = relay.shared.take();
    if !was_stale {
        health::observe_fault(upstream, index, fault.kind, shared.as_deref());
    }
}

/// Whether a request that failed may be asked again, and is worth it; counts it as a retry then.
#[cold]
fn may_retry(
    conn: &mut Connection,
    ex: &Exchange<'_>,
    upstream: &Upstream,
    relay: &mut Relay<'_>,
    flow: &mut Flow,
    (fault, attempts, body_mark): (Fault, u32, (usize, u64)),
) -> bool {
    let spent = attempts > upstream.retries;
    let repeatable = fault.unsent || ex.request.method().is_idempotent();
    if spent || !repeatable || !fault.kind.is_worth_retrying() {
        return false;
    }
    let Some(again) = Again::of(conn, ex, &relay.replay, body_mark) else { return false };
    let Ok(leave) = leave_to_retry(upstream, relay) else { return false };
    again.resend(conn, relay, body_mark, flow);
    relay.note_retry(leave);
    true
}

/// Leave for one more attempt, where they are counted.
fn leave_to_retry(upstream: &Upstream, relay: &Relay<'_>) -> Result<Option<Retry>, Full> {
    upstream.protection.as_ref().map_or(Ok(None), |protection| protection.retry(relay.turn.as_ref()))
}

/// Where a request body is to be had again, all of it.
#[derive(Clone, Copy)]
enum Again {
    /// There is none, it was buffered, or nothing was read beyond what had arrived with the head.
    Inbox,
    /// It is kept.
    Kept,
}

impl Again {
    /// Changes nothing, so that it can be asked before anything that does. `mark` is where the body began.
    fn of(conn: &Connection, ex: &Exchange<'_>, replay: &RequestReplay, mark: (usize, u64)) -> Option<Again> {
        let lies_there = match replay {
            RequestReplay::Kept(_) => return Some(Again::Kept),
            // What is not kept may still lie in the inbox.
            RequestReplay::Off | RequestReplay::Wanted | RequestReplay::TooMuch => match ex.request.framing {
                Framing::None => true,
                // Decoding chunks moves them in place.
                Framing::Chunked if !conn.stream.is_shared() => conn.inbox.mark() == mark,
                _ => conn.inbox.can_rewind(mark),
            },
        };
        lies_there.then_some(Again::Inbox)
    }

    /// Goes back to where the body began, and notes what is there.
    fn resend(self, conn: &mut Connection, relay: &mut Relay<'_>, mark: (usize, u64), flow: &mut Flow) {
        flow.body = match self {
            Again::Inbox => {
                conn.inbox.rewind(mark);
                RequestBody::Whole
            }
            // What was read of it does not come back to the inbox.
            Again::Kept => left_of_body(conn, relay, mark),
        };
    }
}

/// What an attempt left of the request body, `mark` being where it began.
fn left_of_body(conn: &mut Connection, relay: &mut Relay<'_>, mark: (usize, u64)) -> RequestBody {
    let upload = &mut relay.upload;
    if upload.is_read() {
        // What follows it in the inbox is the next request.
        upload.discard_frame(&mut conn.inbox);
        return RequestBody::Read;
    }
    // What is kept was begun by some attempt.
    let is_begun = upload.read_bytes > 0 || matches!(relay.replay, RequestReplay::Kept(_));
    if !is_begun && conn.inbox.mark() == mark { RequestBody::Whole } else { RequestBody::Torn }
}

/// One try on one endpoint.
struct Attempt<'a, 's, 'u> {
    conn: &'a mut Connection,
    ex: &'a mut Exchange<'s>,
    chains: &'a Chains<'a>,
    route: &'a Route,
    upstream: &'a Upstream,
    index: usize,
    endpoint: &'a Endpoint,
    relay: &'a mut Relay<'u>,
    flow: &'a mut Flow,
}

impl<'a> Attempt<'a, '_, '_> {
    /// A connection used before that turns out to be dead says nothing about the endpoint: the request is
    /// repeated on another, once.
    async fn run(&mut self) -> Result<(), Fault> {
        let tls = self.is_tls();
        let pool_key = self.pool_key(tls);
        let mark = self.conn.inbox.mark();
        if self.ex.deadline_ms != 0 {
            let left_ms = deadline::left_ms(self.ex);
            grpc::tell_timeout(self.ex, left_ms);
        }
        self.chains.each(self.ex, Phase::UpstreamRequest, |plugin, ex| plugin.upstream_request(ex));
        let mut may_repeat = true;
        loop {
            let was_used = if self.speaks_http2() {
                match self.take_free_place(pool_key) {
                    Some(was_used) => was_used,
                    None => apart(self.take_place(tls, pool_key)).await?,
                }
            } else if may_repeat && self.take_kept(pool_key) {
                true
            } else {
                apart(self.link_anew(tls, pool_key)).await?;
                false
            };
            // The only place that asks: what is called once costs no call.
            let asked = self.ask().await;
            let again = match asked {
                Err(Fault { kind: Kind::UpstreamClosed, unsent })
                    if was_used && may_repeat && (unsent || self.ex.request.method().is_idempotent()) =>
                {
                    Again::of(self.conn, self.ex, &self.relay.replay, mark)
                }
                _ => None,
            };
            let Some(again) = again else { return asked };
            again.resend(self.conn, self.relay, mark, self.flow);
            may_repeat = false;
            self.relay.head.clear();
        }
    }

    /// Takes a connection that idles, if there is one.
    fn take_kept(&mut self, pool_key: PoolKey) -> bool {
        self.chains.explaining().inspect(|watch| watch.lap());
        let gate = self.upstream.protection.as_ref().and_then(|protection| protection.counts_connections());
        let kept = self.conn.worker.pool.borrow_mut().take(pool_key, gate, clock::now().mono_ms());
        let Some((stream, requests, permit)) = kept else { return false };
        self.conn.worker.counters.reuses.add(1);
        if permit.is_some() {
            self.relay.permit = permit;
        }
        self.relay.link = Some(UpstreamConnection { stream, inbox: Inbox::default(), requests, pool_key });
        true
    }

    async fn link_anew(&mut self, tls: bool, pool_key: PoolKey) -> Result<(), Fault> {
        let watch = self.chains.explaining();
        watch.inspect(|watch| watch.lap());
        let connected = self.connect(tls).await;
        watch.inspect(|watch| watch.connected());
        let stream = connected.map_err(|kind| Fault { kind, unsent: true })?;
        self.relay.link = Some(UpstreamConnection { stream, inbox: Inbox::default(), requests: 0, pool_key });
        Ok(())
    }

    fn pool_key(&self, tls: bool) -> PoolKey {
        pool_key(self.ex, self.upstream, self.endpoint, tls)
    }

    fn is_tls(&self) -> bool {
        is_tls(self.ex, self.upstream)
    }

    /// Whether the client asks for another protocol, and the route lets it.
    #[inline]
    fn wants_upgrade(&self) -> bool {
        self.route.enable_websocket
            && self.ex.request.options.upgrade
            // Clients of HTTP/1.0 know of none (RFC 9110 §7.8).
            && self.ex.request.version != yumen_http::Version::Http10
            && self.ex.request.fields.known(Known::Upgrade).is_some()
            && self.ex.request.framing == Framing::None
    }

    fn timeouts(&self) -> Timeouts {
        *self.route.timeouts.as_deref().unwrap_or(&self.upstream.timeouts)
    }

    async fn connect(&mut self, tls: bool) -> Result<Stream, Kind> {
        let dial = self.dial(tls)?;
        let mut wait = Wait::begun(self.conn, dial.timeout_ms);
        wait.on(self.conn, Kind::ConnectTimeout, pin!(dial.connect())).await?
    }

    /// What it takes to connect, where there is leave to.
    fn dial(&mut self, tls: bool) -> Result<Dial, Kind> {
        let handshake = if tls { Some(self.handshake()?) } else { None };
        if let Some(protection) = &self.upstream.protection
            && self.relay.permit.is_none()
        {
            self.relay.permit = protection.connect(self.index).map_err(|Full| Kind::UpstreamFull)?;
        }
        self.conn.worker.counters.connects.add(1);
        let pool_key = self.pool_key(tls);
        self.conn.worker.departures.connected(pool_key.endpoint(), &self.endpoint.state);
        let (address, timeout_ms) = (self.endpoint.addr, self.timeouts().connect_ms);
        Ok(Dial { address, opening: Vec::new(), handshake, timeout_ms })
    }

    fn handshake(&self) -> Result<Handshake, Kind> {
        let name = tls_name(self.ex, self.upstream, self.endpoint);
        Handshake::new(self.upstream, self.endpoint, name, self.speaks_http2())
    }

    /// Sends the request and reads the head of the answer.
    async fn ask(&mut self) -> Result<(), Fault> {
        self.relay.upgrade = self.relay.place.is_none() && self.wants_upgrade();
        let mark = self.conn.inbox.mark();
        let mut text = self.conn.worker.buffers.take_text();
        self.write_head(&mut text);
        if self.relay.place.is_some() {
            self.send_on_lane(&text)?;
            self.conn.worker.buffers.give_text(std::mem::take(&mut text));
        }
        self.begin_upload(text);
        loop {
            let step = self.await_head().await;
            let fault = match (step, self.relay.head.status) {
                (Err(fault), _) => fault,
                // To what it changed must be said.
                (Ok(()), 101)
                    if self.relay.upgrade && self.relay.head.fields.known(Known::Upgrade).is_some() =>
                {
                    return Ok(());
                }
                (Ok(()), 101) => Kind::UnexpectedUpgrade.into(),
                (Ok(()), 100..=199) => match self.pass_interim().await {
                    Ok(()) => {
                        self.relay.head.clear();
                        continue;
                    }
                    Err(fault) => fault,
                },
                (Ok(()), _) => match self.look_at_body() {
                    Ok(()) => {
                        self.relay.upgrade = false;
                        return Ok(());
                    }
                    Err(fault) => fault,
                },
            };
            self.flow.body = left_of_body(self.conn, self.relay, mark);
            self.relay.upload.recycle(&self.conn.worker.buffers);
            return Err(fault);
        }
    }

    /// Whether what came of a body in chunks together with its head is none: as yet the client can be told.
    fn look_at_body(&self) -> Result<(), Fault> {
        let Some(link) = &self.relay.link else { return Ok(()) };
        if self.relay.head.framing != Framing::Chunked || link.stream.is_shared() {
            return Ok(());
        }
        let begun = Chunked::default().step(link.inbox.bytes());
        begun.map_or_else(|error| Err(Kind::UpstreamBody(error).into()), |_| Ok(()))
    }

    /// What is sent first, and the body behind it.
    fn begin_upload(&mut self, mut text: Vec<u8>) {
        let chunked = self.ex.request.framing == Framing::Chunked;
        let mut framing = self.conn.stream.incoming(self.ex.request.framing);
        if let Some(body) = &self.ex.body {
            text.extend_from_slice(body);
            framing = Framing::None;
        }
        let bytes_max = self.conn.body_bytes_max(self.ex);
        let ending = match &self.relay.link {
            Some(link) => link.stream.ending(chunked && framing != Framing::None),
            None => Ending::Known,
        };
        let begun = match &mut self.relay.replay {
            RequestReplay::Off => None,
            replay => replay.begin(&mut self.relay.upload, &self.conn.worker.kept_bytes),
        };
        self.relay.upload = Transfer::new(framing, ending, text, bytes_max);
        // They would get past whatever plugins set in the head or took out of it.
        self.relay.upload.drop_trailers();
        if let Some(rest) = begun {
            self.relay.replay.send_again(&mut self.relay.upload, &mut self.conn.inbox, rest);
        }
    }

    fn write_head(&self, out: &mut Vec<u8>) {
        let ex = &*self.ex;
        let request = &ex.request;
        encode::request_line(out, request);
        let host: &[u8] = match (&ex.upstream.host, &self.upstream.pass_host) {
            (Some(host), _) => host,
            (None, PassHost::Pass) => request.authority(),
            (None, PassHost::Node) => self.endpoint.authority.as_bytes(),
            (None, PassHost::Rewrite(host)) => host.as_bytes(),
        };
        write_line(out, b"Host", host);
        self.write_forwarding(out);
        if self.conn.worker.settings.forwarded {
            forwarded::write(out, ex);
        }
        let mut has_length = false;
        encode::request_fields(out, request, |field| match field.known() {
            Known::Host | Known::XRealIp | Known::XForwardedFor | Known::Forwarded | Known::Trailer => true,
            Known::ContentLength => {
                // What the client sent stays only where it is the length of what follows, whatever plugins say of it.
                let is_told = ex.body.is_none()
                    && field.is_received()
                    && request.framing.is_told_by(request.fields.value(field));
                has_length |= is_told;
                !is_told
            }
            Known::Other => forwarded::is_false(&request.fields, field),
            _ => false,
        });
        match &ex.body {
            Some(body) => encode::framing(out, Framing::Length(body.len() as u64)),
            None if !has_length => encode::framing(out, request.framing),
            None => {}
        }
        if self.relay.upgrade {
            out.extend_from_slice(b"Connection: upgrade\r\n");
            write_line(out, b"Upgrade", request.fields.known(Known::Upgrade).unwrap_or_default());
        }
        if self.relay.place.is_some() && self.wants_trailers() {
            out.extend_from_slice(b"TE: trailers\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Tells the endpoint who asked and how; where nobody else said anything, in words that were made once.
    fn write_forwarding(&self, out: &mut Vec<u8>) {
        const SAID: [Known; 4] =
            [Known::XForwardedFor, Known::XForwardedProto, Known::XForwardedHost, Known::XForwardedPort];
        let (conn, ex) = (&*self.conn, &*self.ex);
        let fields = &ex.request.fields;
        let is_peer = ex.remote_ip == ex.client.peer.ip().to_canonical();
        if is_peer && !fields.ever_had_any(&SAID) {
            out.extend_from_slice(&conn.peer.forwarding);
            write_line(out, b"X-Forwarded-Host", ex.request.host());
            return;
        }
        let own_ip = if is_peer { None } else { Some(ex.remote_ip.to_string().into_bytes()) };
        let ip = own_ip.as_deref().unwrap_or(conn.peer.ip());
        forwarding::write(ex, ip, out);
    }

    /// Moves the request body on and waits for the next head, final or interim.
    async fn await_head(&mut self) -> Result<(), Fault> {
        let (timeouts, rate) = (self.timeouts(), self.conn.body_rate(self.ex));
        // Between two messages of a call nobody owes anything: it is as quiet as its endpoint may be.
        let has_pauses = self.ex.request.framing != Framing::None && grpc::is_call(self.ex);
        let body_ms = if has_pauses { timeouts.read_ms } else { self.conn.worker.settings.body_timeout_ms };
        let method = self.ex.request.method();
        let (conn, relay) = (&mut *self.conn, &mut *self.relay);
        let mut wait = HeadWait {
            replay: &mut relay.replay,
            timeouts,
            body_ms,
            progress: None,
            heard: false,
            wait: Wait::new(),
            scanned: 0,
            upload_broken: false,
            awaits_client: false,
            rate,
            pace: Pace::default(),
        };
        let Some(link) = &mut relay.link else { return Err(Kind::Connect.into()) };
        let (upload, head) = (&mut relay.upload, &mut relay.head);
        poll_fn(|cx| wait.poll(cx, conn, link, upload, method, head)).await
    }

    /// Passes an interim answer on, unless there were too many; clients of HTTP/1.0 know none (RFC 9110 §15.2).
    async fn pass_interim(&mut self) -> Result<(), Fault> {
        let head = &self.relay.head;
        let mut text = Vec::new();
        encode::status_line(&mut text, head.status, head.reason());
        // It has no body, whose length this could be (RFC 9110 §8.6).
        encode::response_fields(&mut text, head, |field| field.known() == Known::ContentLength);
        text.extend_from_slice(b"\r\n");
        let bytes_max = self.conn.worker.settings.response_head.head_bytes_max;
        self.relay.interim.count(text.len(), bytes_max)?;
        if self.ex.request.version == yumen_http::Version::Http10 {
            return Ok(());
        }
        self.conn.send_interim(text).await
    }
}

/// Whose connections may be used.
fn pool_key(ex: &Exchange<'_>, upstream: &Upstream, endpoint: &Endpoint, tls: bool) -> PoolKey {
    PoolKey::new(endpoint, tls.then(|| tls_name(ex, upstream, endpoint).host))
}

/// The name to ask the endpoint's certificate for: the `Host` it will see, as APISIX does; a node that is a name
/// and not an address goes first when that is passed on from the client.
fn tls_name<'a>(ex: &'a Exchange<'_>, upstream: &'a Upstream, endpoint: &'a Endpoint) -> TlsName<'a> {
    let own = TlsName { host: endpoint.host.as_bytes(), is_asked_for: false };
    let name = match (&ex.upstream.host, &upstream.pass_host) {
        (Some(host), _) => TlsName { host: host_only(host), is_asked_for: true },
        (None, PassHost::Pass) if endpoint.host.parse::<std::net::IpAddr>().is_ok() => {
            TlsName { host: ex.request.host(), is_asked_for: true }
        }
        (None, PassHost::Rewrite(host)) => TlsName { host: host_only(host.as_bytes()), is_asked_for: false },
        (None, PassHost::Node | PassHost::Pass) => own,
    };
    if name.host.is_empty() { own } else { name }
}

fn is_tls(ex: &Exchange<'_>, upstream: &Upstream) -> bool {
    match ex.upstream.scheme {
        Some(scheme) => scheme == "https",
        None => upstream.scheme.is_tls(),
    }
}

fn host_only(authority: &[u8]) -> &[u8] {
    match authority.iter().rposition(|byte| *byte == b':') {
        Some(colon) if authority[colon + 1..].iter().all(u8::is_ascii_digit) => &authority[..colon],
        _ => authority,
    }
}
