//! Subrequests of plugins to a configured upstream.

use std::pin::pin;
use std::rc::Rc;

use yumen_http::fields::write_line;
use yumen_http::{Framing, KnownField, Method, encode};
use yumen_plugin::{SubrequestFault, SubrequestResponse, SubrequestSpec};
use yumen_snapshot::{Upstream, UpstreamSlotId, UpstreamTunnel};

use crate::observe::call_counters::{CallResult, PluginCalls};
use crate::runtime::clock;
use crate::runtime::timers::until;
use crate::upstream::UpstreamClient;
use crate::upstream::attempt::{Attempt, ResponseStarted};
use crate::upstream::call_limit::CallEnd;
use crate::upstream::subrequest::{ConnectionReuse, ResponseBodyUse, Subrequest, SubrequestError};
use crate::worker::Worker;

/// Maximum number of endpoints tried for one subrequest.
const ATTEMPTS_MAX: usize = 3;

/// Sends a subrequest to an upstream of the current snapshot, within the bounds on calls to it.
///
/// # Errors
///
/// `NoEndpoint`, `ConnectionLost` or `Timeout` if no response head arrives within `timeout_ms`; `Busy` if too many
/// subrequests are in flight, or if the last ones timed out.
pub(super) async fn run(
    worker: Rc<Worker>,
    spec: SubrequestSpec,
) -> Result<SubrequestResponse, SubrequestFault> {
    let calls = worker.counters.calls.of(spec.plugin);
    let limiter = &worker.upstream.call_limiter;
    let Some(permit) = limiter.begin(spec.upstream, spec.in_flight_max, clock::now().mono_ms()) else {
        calls.count(CallResult::Busy);
        return Err(SubrequestFault::Busy);
    };
    let in_flight = InFlightCall::begin(&calls);
    let result = exchange(&worker, spec).await;
    drop(in_flight);
    let (end, counted) = match &result {
        // A head without its body may be a slow service, but the service responds.
        Ok(_) => (CallEnd::Answered, CallResult::Answered),
        Err(SubrequestFault::Timeout) => (CallEnd::TimedOut, CallResult::TimedOut),
        Err(_) => (CallEnd::Failed, CallResult::Failed),
    };
    permit.finish(end, clock::now().mono_ms());
    calls.count(counted);
    result
}

/// Counts a call as in flight until it is dropped, also by a client that left.
struct InFlightCall<'c>(&'c PluginCalls);

impl InFlightCall<'_> {
    fn begin(calls: &PluginCalls) -> InFlightCall<'_> {
        calls.in_flight.add(1);
        InFlightCall(calls)
    }
}

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        self.0.in_flight.add(-1);
    }
}

async fn exchange(worker: &Worker, spec: SubrequestSpec) -> Result<SubrequestResponse, SubrequestFault> {
    let pinned = worker.pinned();
    let upstream =
        pinned.shared_upstream(UpstreamSlotId(spec.upstream)).ok_or(SubrequestFault::NoEndpoint)?.clone();
    // The subrequest must not keep the snapshot alive while it waits.
    drop(pinned);
    // Subrequests bypass the balancer; a random start spreads them over the endpoints.
    let first = (worker.random() as usize)
        .checked_rem(upstream.endpoints.len())
        .ok_or(SubrequestFault::NoEndpoint)?;
    let timer = worker.timers.timer();
    timer.set(spec.timeout_ms);
    let head = head(&spec, http_proxy(&upstream));
    let subrequest = Subrequest {
        upstream: upstream.clone(),
        method: spec.method,
        reuse: if spec.may_repeat { ConnectionReuse::Repeat } else { ConnectionReuse::Fresh },
        head,
        body: spec.body,
    };
    let client = &worker.upstream;
    let mut attempt = match until(&timer, pin!(send(client, &subrequest, first))).await {
        Some(Ok(attempt)) => attempt,
        Some(Err(_)) => return Err(SubrequestFault::ConnectionLost),
        None => return Err(SubrequestFault::Timeout),
    };
    let (_, head) = attempt.parts();
    let mut answer = SubrequestResponse {
        status: head.status,
        fields: std::mem::take(&mut head.fields),
        ..SubrequestResponse::default()
    };
    let body_use = ResponseBodyUse::Collect { bytes_max: spec.response_bytes_max };
    let reading = attempt.read_body(client, &upstream.keepalive, body_use);
    match until(&timer, pin!(reading)).await {
        Some(Ok(read)) => (answer.body, answer.trailers) = (read.data, read.trailers),
        // The response head may suffice for the plugin.
        Some(Err(_)) => answer.fault = Some(SubrequestFault::ConnectionLost),
        None => answer.fault = Some(SubrequestFault::Timeout),
    }
    Ok(answer)
}

/// Sends the subrequest to one endpoint after the other until a connection succeeds, beginning with `first`.
async fn send<'r>(
    client: &Rc<UpstreamClient>,
    subrequest: &'r Subrequest,
    first: usize,
) -> Result<Attempt<'r, ResponseStarted>, SubrequestError> {
    let endpoints = subrequest.upstream.endpoints.len();
    for at in 0..endpoints.min(ATTEMPTS_MAX) {
        match subrequest.send(client, (first + at) % endpoints).await {
            // Only a failed connect proves that the endpoint has not received the request.
            Err(SubrequestError::Connect) => {}
            done => return done,
        }
    }
    Err(SubrequestError::Connect)
}

/// The proxy that forwards requests by their target in absolute form.
fn http_proxy(upstream: &Upstream) -> Option<&UpstreamTunnel> {
    upstream.protocol.tunnel.as_deref().filter(|_| !upstream.protocol.scheme.is_tls())
}

fn head(spec: &SubrequestSpec, proxy: Option<&UpstreamTunnel>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(spec.method.name().as_bytes());
    out.push(b' ');
    if proxy.is_some() {
        // RFC 9112 §3.2.2.
        out.extend_from_slice(b"http://");
        out.extend_from_slice(spec.authority.as_bytes());
    }
    out.extend_from_slice(spec.target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if let Some(authorization) = proxy.and_then(|proxy| proxy.authorization.as_deref()) {
        write_line(&mut out, b"Proxy-Authorization", authorization.as_bytes());
    }
    write_line(&mut out, b"Host", spec.authority.as_bytes());
    for (name, value) in spec.fields.iter() {
        // The framing is derived from the body below.
        if !matches!(KnownField::of(name), KnownField::ContentLength | KnownField::TransferEncoding) {
            write_line(&mut out, name, value);
        }
    }
    if !spec.keeps {
        write_line(&mut out, b"Connection", b"close");
    }
    // RFC 9110 §8.6: a POST without a body carries `Content-Length: 0`.
    if !spec.body.is_empty() || spec.method == Method::Post {
        encode::framing(&mut out, Framing::Length(spec.body.len() as u64));
    }
    out.extend_from_slice(b"\r\n");
    out
}
