//! Connects a stream to an endpoint of its upstream, with retries on other endpoints.

use yumen_http::proxy_protocol::{self, ProxyAddresses};
use yumen_plugin::{ClientInfo, Exchange};
use yumen_snapshot::{Endpoint, HostRewrite, TriedEndpoints, Upstream, UpstreamScheme};

use super::{StreamFault, Tally};
use crate::fault::FaultKind;
use crate::runtime::clock;
use crate::runtime::timers::Timer;
use crate::tls::TlsName;
use crate::upstream::health;
use crate::upstream::stream_attempt::{EndpointStream, StreamAttempt};
use crate::upstream::target::EndpointTarget;
use crate::worker::Worker;

/// Connects to an endpoint, and to others after a failure, within the retry limits of the upstream.
pub(super) async fn connect<'u>(
    worker: &Worker,
    ex: &mut Exchange<'_>,
    upstream: &'u Upstream,
    timer: &Timer,
    tally: &mut Tally,
) -> Result<EndpointStream<'u>, StreamFault> {
    let mut attempts = StreamAttempts::new(upstream, tally);
    let mut index = attempts.next(ex)?;
    loop {
        let attempt = StreamAttempt::begin(upstream, index);
        let target = target(ex.client.connection, upstream, index);
        let opening = opening(ex.client.connection, upstream);
        match attempt.connect(&worker.upstream, &target, opening, &mut &*timer).await {
            Ok(stream) => return Ok(stream),
            Err(kind) => {
                attempts.failed(index, kind)?;
                // Chosen before the count: an attempt that never begins is no retry.
                index = attempts.next(ex)?;
                worker.counters.upstream.retries.add(1);
            }
        }
    }
}

/// The endpoints tried so far, and the limits of further attempts.
pub(super) struct StreamAttempts<'a> {
    upstream: &'a Upstream,
    tally: &'a mut Tally,
    tried: TriedEndpoints,
    began_ms: u64,
    last: StreamFault,
}

impl<'a> StreamAttempts<'a> {
    pub(super) fn new(upstream: &'a Upstream, tally: &'a mut Tally) -> StreamAttempts<'a> {
        let now = clock::now();
        tally.first_attempt_us = Some(now.mono_us);
        StreamAttempts {
            upstream,
            tally,
            tried: TriedEndpoints::default(),
            began_ms: now.mono_ms(),
            last: StreamFault::NoEndpoint,
        }
    }

    /// Picks the endpoint of the next attempt.
    pub(super) fn next(&mut self, ex: &mut Exchange<'_>) -> Result<usize, StreamFault> {
        let index = self.upstream.pick(ex, &self.tried).ok_or(self.last)?;
        let address = self.upstream.endpoints[index].addr;
        ex.endpoint.address = Some(address);
        self.tally.endpoint = Some(address);
        self.tally.attempts += 1;
        Ok(index)
    }

    /// Records a failed attempt.
    ///
    /// # Errors
    ///
    /// The fault, if no further attempt is permitted.
    pub(super) fn failed(&mut self, index: usize, kind: FaultKind) -> Result<(), StreamFault> {
        let fault = match kind {
            FaultKind::ConnectTimeout => StreamFault::ConnectTimeout,
            FaultKind::UpstreamTls | FaultKind::RequestedTls => StreamFault::UpstreamTls,
            FaultKind::RequestedName => StreamFault::UpstreamName,
            _ => StreamFault::Connect,
        };
        health::observe_fault(self.upstream, index, kind, None);
        self.tried.push(index);
        self.last = fault;
        let bound_ms = self.upstream.retry.timeout_ms;
        let is_late = bound_ms != 0 && clock::now().mono_ms().saturating_sub(self.began_ms) >= bound_ms;
        let is_last =
            self.tried.count() > self.upstream.retry.retries_max || is_late || !kind.is_worth_retrying();
        if is_last { Err(fault) } else { Ok(()) }
    }
}

/// Returns the connection target for the endpoint with this index.
fn target<'a>(client: &'a ClientInfo, upstream: &'a Upstream, index: usize) -> EndpointTarget<'a> {
    let endpoint = &upstream.endpoints[index];
    // Only the scheme `tls` selects TLS: an upstream that also serves requests may have an HTTP scheme.
    let is_tls = matches!(upstream.protocol.scheme, UpstreamScheme::Tls);
    EndpointTarget {
        upstream,
        index,
        tls_name: is_tls.then(|| tls_name(client, upstream, endpoint)),
        is_http2: false,
        protection: None,
        connect_ms: upstream.timeouts.connect_ms,
    }
}

/// Returns the PROXY header for the endpoint; empty if the upstream does not use one.
fn opening(client: &ClientInfo, upstream: &Upstream) -> Vec<u8> {
    let mut header = Vec::new();
    if let Some(version) = upstream.streams.proxy_protocol {
        let ends = ProxyAddresses { source: client.peer, destination: client.local };
        proxy_protocol::write(&mut header, version, &ends);
    }
    header
}

/// Returns the server name for the endpoint's certificate: the configured one, the endpoint's host name, or
/// the client's SNI if the endpoint is an IP address.
fn tls_name<'n>(client: &'n ClientInfo, upstream: &'n Upstream, endpoint: &'n Endpoint) -> TlsName<'n> {
    if let Some(name) = TlsName::of_settings(upstream) {
        return name;
    }
    let sni = client.tls.as_ref().and_then(|tls| tls.sni.as_deref());
    let is_address = endpoint.host.parse::<std::net::IpAddr>().is_ok();
    let (host, is_explicit) = match (&upstream.pass_host, sni) {
        (HostRewrite::Rewrite(host), _) => (host.as_ref(), false),
        (HostRewrite::Pass, Some(sni)) if is_address => (sni, true),
        _ => (endpoint.host.as_ref(), false),
    };
    TlsName { host: host.as_bytes(), is_explicit }
}
