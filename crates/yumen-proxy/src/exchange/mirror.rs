//! Mirrors: copies of requests, sent beside the exchange within bounds; their responses are discarded.
//!
//! No exchange waits for its mirror. A copy above the bounds is dropped and counted.

use std::pin::pin;
use std::rc::Rc;

use yumen_http::fields::write_line;
use yumen_http::{Framing, KnownField, encode};
use yumen_plugin::{Exchange, MirrorTarget, forwarding};
use yumen_snapshot::{HostRewrite, Snapshot, Upstream, UpstreamSlotId};

use crate::exchange::connection::DownstreamConnection;
use crate::exchange::forwarded;
use crate::runtime::timers::until;
use crate::upstream::UpstreamClient;
use crate::upstream::mirror_limit::MirrorPermit;
use crate::upstream::subrequest::{ConnectionReuse, ResponseBodyUse, Subrequest};
use crate::worker::Worker;

/// Timeout of a copy, over all its steps, in milliseconds.
const COPY_TIMEOUT_MS: u64 = 60_000;

const ANSWERED: usize = 0;
const FAILED: usize = 1;
const DROPPED: usize = 2;

/// Sends a copy of a request to `main` to each of its mirrors.
#[cold]
pub(crate) fn send_all(
    conn: &DownstreamConnection,
    ex: &mut Exchange<'_>,
    snapshot: &Snapshot,
    main: &Upstream,
) {
    for mirror in std::mem::take(&mut ex.upstream.mirrors) {
        send(conn, ex, snapshot, main, &mirror);
    }
}

/// Sends a copy of a request to `main` to the mirror, within the bounds.
fn send(
    conn: &DownstreamConnection,
    ex: &Exchange<'_>,
    snapshot: &Snapshot,
    main: &Upstream,
    mirror: &MirrorTarget,
) {
    let worker = &conn.worker;
    let copy = || {
        // An unbuffered body is still to be read and cannot go to two destinations.
        if ex.body.buffered.is_none() && ex.request.framing != Framing::None {
            return None;
        }
        let upstream = snapshot.shared_upstream(UpstreamSlotId(mirror.upstream.get()?))?.clone();
        let index = worker.upstream.mirror_limiter.turn(upstream.endpoints.len())?;
        let body_bytes = ex.body.buffered.as_ref().map_or(0, |body| body.len());
        let permit = worker.upstream.mirror_limiter.take(body_bytes)?;
        let head = head(ex, main, mirror);
        // A copy, because the exchange itself still sends the body.
        let body = ex.body.buffered.as_deref().unwrap_or_default().to_vec();
        let method = ex.request.method();
        let reuse = if method.is_idempotent() { ConnectionReuse::Repeat } else { ConnectionReuse::Once };
        let subrequest = Subrequest { upstream, method, reuse, head, body };
        Some(MirroredRequest { subrequest, index, _permit: permit })
    };
    match copy() {
        Some(copy) => drop(tokio::task::spawn_local(run(worker.clone(), copy))),
        None => worker.counters.requests.mirrored[DROPPED].add(1),
    }
}

/// Writes the request head of the copy.
fn head(ex: &Exchange<'_>, main: &Upstream, mirror: &MirrorTarget) -> Vec<u8> {
    let request = &ex.request;
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(request.method_name());
    out.push(b' ');
    out.extend_from_slice(&target(request.upstream_target(), mirror));
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let host: &[u8] = match (&ex.upstream.host, &main.pass_host) {
        (Some(host), _) => host,
        (None, HostRewrite::Rewrite(host)) => host.as_bytes(),
        (None, _) => request.authority(),
    };
    write_line(&mut out, b"Host", host);
    forwarding::write_addresses(ex, ex.client.ip.to_string().as_bytes(), &mut out);
    encode::request_fields(&mut out, request, |field| match field.known() {
        KnownField::Host | KnownField::XRealIp | KnownField::XForwardedFor => true,
        // The body is buffered: its length follows below, and neither 100 (Continue) nor trailers are sent.
        KnownField::ContentLength | KnownField::Expect | KnownField::Trailer => true,
        KnownField::Other => forwarded::is_false(&request.fields, field),
        _ => false,
    });
    if let Some(body) = &ex.body.buffered {
        encode::framing(&mut out, Framing::Length(body.len() as u64));
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// Returns the request target for the mirror.
fn target(target: &[u8], mirror: &MirrorTarget) -> Vec<u8> {
    let Some(path) = &mirror.path else { return target.to_vec() };
    let query = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
    let suffix = if mirror.is_prefix { target } else { &target[query..] };
    [path.as_bytes(), suffix].concat()
}

/// A copy of a request with its permit.
struct MirroredRequest {
    subrequest: Subrequest,
    /// Index of the receiving endpoint.
    index: usize,
    _permit: MirrorPermit,
}

impl MirroredRequest {
    /// Sends the copy and drops the response. Returns whether there was one.
    async fn send(&self, client: &Rc<UpstreamClient>) -> bool {
        let Ok(attempt) = self.subrequest.send(client, self.index).await else { return false };
        let keepalive = &self.subrequest.upstream.keepalive;
        attempt.read_body(client, keepalive, ResponseBodyUse::Discard).await.is_ok()
    }
}

/// Sends a copy within `COPY_TIMEOUT_MS`.
async fn run(worker: Rc<Worker>, copy: MirroredRequest) {
    let timer = worker.timers.timer();
    timer.set(COPY_TIMEOUT_MS);
    let is_answered = until(&timer, pin!(copy.send(&worker.upstream))).await == Some(true);
    worker.counters.requests.mirrored[if is_answered { ANSWERED } else { FAILED }].add(1);
    if !is_answered {
        tracing::debug!(upstream = %copy.subrequest.upstream.origin, "mirrored request failed");
    }
}

#[cfg(test)]
mod tests;
