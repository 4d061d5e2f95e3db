//! HTTP/2 client under load: many streams per connection, one per request loop.
//! Independent of the schedule of requests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::Request;
use tokio::sync::Mutex;
use tokio::task::spawn_local;

use crate::alarm::AlarmTimer;
use crate::prepared::PreparedRequest;
use crate::stream::{CountedStream, connect};
use crate::tally::{ErrorClass, RequestFailure};
use crate::worker::{LoadWorker, RequestLoop};

/// Receive windows large enough never to throttle the server.
const STREAM_WINDOW_BYTES: u32 = 16 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;

/// Connections of one thread.
pub(crate) struct Http2Sessions(Vec<Rc<Http2Session>>);

/// Lazily opened connections, one per origin, shared by several request loops.
pub(crate) struct Http2Session {
    origins: Vec<Rc<OriginSession>>,
    number: Cell<usize>,
}

#[derive(Default)]
struct OriginSession {
    sender: RefCell<Option<SendRequest<Bytes>>>,
    /// Number of the connection that the sender belongs to.
    generation: Cell<u64>,
    /// Locked by the request loop that connects, so that the others wait for its connection.
    connecting: Mutex<()>,
}

impl Http2Sessions {
    pub(crate) fn new(worker: &Rc<LoadWorker>, loops: usize) -> Self {
        let connections = loops / worker.prepared.plan.streams;
        let session = |index| {
            let origins = worker.prepared.origins.iter().map(|_| Rc::default()).collect();
            Rc::new(Http2Session {
                origins,
                number: Cell::new(worker.thread + index * worker.prepared.plan.threads),
            })
        };
        Self((0..connections).map(session).collect())
    }

    pub(crate) fn of_loop(&self, worker: &LoadWorker, number: usize) -> Rc<Http2Session> {
        self.0[number / worker.prepared.plan.streams].clone()
    }

    /// Connects before the first request. Failures are repeated and counted at that request.
    pub(crate) async fn prepare(&self, worker: &Rc<LoadWorker>) {
        let timer = worker.alarm.timer();
        for session in &self.0 {
            for origin in 0..session.origins.len() {
                let _ = session.sender(worker, origin, &timer).await;
            }
        }
    }
}

impl Http2Session {
    /// Sends one request and reads its response; returns the status.
    pub(crate) async fn exchange(
        &self,
        worker: &Rc<LoadWorker>,
        target: &PreparedRequest,
        request_loop: &RequestLoop,
        timer: &AlarmTimer,
    ) -> Result<u16, RequestFailure> {
        let sender = self.sender(worker, target.origin, timer).await?;
        let request = target.request.as_ref().expect("plans of HTTP/2 have requests prepared");
        let started = worker.clock.now_ns();
        request_loop.sent_ns.set(Some(started));
        let timeout_ms = worker.prepared.plan.response_timeout_ms;
        let body = worker.prepared.body.clone();
        let answer =
            // The drop of the future resets the stream, so a late response costs nothing.
            timer.within(started + timeout_ms * 1_000_000, answer(sender, request.clone(), body)).await;
        // After the exchange; the plan allows one stream only, so no other request loses its connection.
        if worker.prepared.plan.new_connection {
            self.origins[target.origin].forget();
        }
        match answer {
            None => {
                let message = format!("no whole response within {timeout_ms} ms");
                Err(RequestFailure::new(ErrorClass::ResponseTimeout, message))
            }
            Some(Ok(status)) => Ok(status),
            Some(Err(error)) => Err(failure(&error)),
        }
    }

    /// Returns the sender of the open connection, or connects.
    async fn sender(
        &self,
        worker: &Rc<LoadWorker>,
        origin: usize,
        timer: &AlarmTimer,
    ) -> Result<SendRequest<Bytes>, RequestFailure> {
        let session = &self.origins[origin];
        if let Some(sender) = session.sender.borrow().as_ref() {
            return Ok(sender.clone());
        }
        let _connecting = session.connecting.lock().await;
        // Another request loop may have connected during the wait for the lock.
        if let Some(sender) = session.sender.borrow().as_ref() {
            return Ok(sender.clone());
        }
        let number = self.number.get();
        self.number.set(number + worker.prepared.plan.connections);
        let stream = connect(worker, &worker.prepared.origins[origin], number, timer).await?;
        session.start_http2(worker, stream).await
    }
}

impl OriginSession {
    /// Starts HTTP/2 on a new connection.
    async fn start_http2(
        self: &Rc<Self>,
        worker: &Rc<LoadWorker>,
        stream: CountedStream,
    ) -> Result<SendRequest<Bytes>, RequestFailure> {
        if stream.agreed_protocol().is_some_and(|agreed| agreed != b"h2") {
            // HTTP/2 over TLS needs ALPN (RFC 9113 §3.2).
            return Err(RequestFailure::new(ErrorClass::Protocol, "the server did not agree to h2 by ALPN"));
        }
        let (sender, connection) = Builder::new()
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .enable_push(false)
            .handshake::<_, Bytes>(stream)
            .await
            .map_err(|error| failure(&error))?;
        let generation = self.generation.get() + 1;
        self.generation.set(generation);
        *self.sender.borrow_mut() = Some(sender.clone());
        let (session, worker) = (self.clone(), worker.clone());
        spawn_local(async move {
            let ended = connection.await;
            // A newer connection may have replaced this one; only the current one counts as closed by the
            // server.
            if session.generation.get() == generation
                && session.sender.borrow_mut().take().is_some()
                && ended.is_ok()
            {
                worker.tally.borrow_mut().connections.closed_by_server += 1;
            }
        });
        Ok(sender)
    }

    fn forget(&self) {
        self.sender.borrow_mut().take();
    }
}

async fn answer(sender: SendRequest<Bytes>, request: Request<()>, body: Bytes) -> Result<u16, h2::Error> {
    // Waits for a free stream within the server's SETTINGS_MAX_CONCURRENT_STREAMS (RFC 9113 §5.1.2).
    let mut sender = sender.ready().await?;
    let (response, mut stream) = sender.send_request(request, body.is_empty())?;
    if !body.is_empty() {
        stream.send_data(body, true)?;
    }
    let response = response.await?;
    let status = response.status().as_u16();
    let mut body = response.into_body();
    // The latency ends with the last byte, so the body is read to its end.
    while let Some(chunk) = body.data().await {
        let length = chunk?.len();
        body.flow_control().release_capacity(length)?;
    }
    Ok(status)
}

/// A stream that ends with its connection is a read error; a stream refused or reset alone is a protocol
/// error.
fn failure(error: &h2::Error) -> RequestFailure {
    let ended = error.is_io() || (error.is_go_away() && error.is_remote());
    RequestFailure::new(if ended { ErrorClass::Read } else { ErrorClass::Protocol }, error)
}
