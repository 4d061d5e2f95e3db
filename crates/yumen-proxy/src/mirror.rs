//! Copies of requests for mirrors: sent beside the exchange, bounded, and their answers thrown away.
//!
//! Nothing here is waited for by a request. What would be too much is dropped, and counted.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use yumen_http::fields::write_line;
use yumen_http::parse::{self, Parsed};
use yumen_http::{Framing, Known, Method, encode};
use yumen_plugin::{Exchange, Mirror};
use yumen_snapshot::{PassHost, Slot, Snapshot, Upstream};

use crate::buffer::Inbox;
use crate::clock;
use crate::connection::Connection;
use crate::http2::{self, Duplex, Way};
use crate::stream::{Stream, Tcp};
use crate::timers::until;
use crate::tls;
use crate::transfer::{Ending, Source, Transfer};
use crate::worker::Worker;

/// Copies of one worker that may be under way at once, and what they may hold together.
const COPIES_MAX: usize = 256;
const COPIED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// An answer is read up to this many bytes, so that its connection can be used again.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// A copy is given up after this time, whatever it waits for.
const COPY_TIMEOUT_MS: u64 = 60_000;

const ANSWERED: usize = 0;
const FAILED: usize = 1;
const DROPPED: usize = 2;

/// What copies of a worker hold.
#[derive(Default)]
pub(crate) struct Mirrors {
    copies: Cell<usize>,
    bytes: Cell<usize>,
    next: Cell<usize>,
}

/// A place among the copies.
struct Place {
    worker: Rc<Worker>,
    bytes: usize,
}

impl Place {
    fn take(worker: &Rc<Worker>, bytes: usize) -> Option<Place> {
        let mirrors = &worker.mirrors;
        if mirrors.copies.get() >= COPIES_MAX || mirrors.bytes.get() + bytes > COPIED_BYTES_MAX {
            return None;
        }
        mirrors.copies.set(mirrors.copies.get() + 1);
        mirrors.bytes.set(mirrors.bytes.get() + bytes);
        Some(Place { worker: worker.clone(), bytes })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mirrors = &self.worker.mirrors;
        mirrors.copies.set(mirrors.copies.get() - 1);
        mirrors.bytes.set(mirrors.bytes.get() - self.bytes);
    }
}

/// Sends a copy of a request that goes to `main`, unless there is no room for it.
#[cold]
pub(crate) fn send(
    conn: &Connection,
    ex: &Exchange<'_>,
    snapshot: &Snapshot,
    main: &Upstream,
    mirror: &Mirror,
) {
    let worker = &conn.worker;
    let copy = || {
        // A body that was not buffered is still to be read, and cannot be in two places.
        if ex.body.is_none() && ex.request.framing != Framing::None {
            return None;
        }
        let upstream = snapshot.shared_upstream(Slot(mirror.upstream.get()?))?.clone();
        let index = worker.mirrors.next.get().checked_rem(upstream.endpoints.len())?;
        worker.mirrors.next.set(worker.mirrors.next.get().wrapping_add(1));
        let place = Place::take(worker, ex.body.as_ref().map_or(0, Vec::len))?;
        let tls = upstream.scheme.is_tls();
        let pool_key = upstream.endpoints[index].state.id * 2 + u64::from(tls);
        let head = head(ex, main, mirror);
        let body = ex.body.clone().unwrap_or_default();
        Some(Copy { place, upstream, index, tls, pool_key, method: ex.request.method(), head, body })
    };
    match copy() {
        Some(copy) => drop(tokio::task::spawn_local(copy.run())),
        None => worker.counters.mirrored[DROPPED].add(1),
    }
}

/// The copy's head.
fn head(ex: &Exchange<'_>, main: &Upstream, mirror: &Mirror) -> Vec<u8> {
    let request = &ex.request;
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(request.method_name());
    out.push(b' ');
    out.extend_from_slice(&target(request.upstream_target(), mirror));
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let host: &[u8] = match (&ex.upstream.host, &main.pass_host) {
        (Some(host), _) => host,
        (None, PassHost::Rewrite(host)) => host.as_bytes(),
        (None, _) => request.authority(),
    };
    write_line(&mut out, b"Host", host);
    write_line(&mut out, b"X-Real-IP", ex.remote_ip.to_string().as_bytes());
    out.extend_from_slice(b"X-Forwarded-For: ");
    for hop in request.fields.all_known(Known::XForwardedFor) {
        out.extend_from_slice(hop);
        out.extend_from_slice(b", ");
    }
    out.extend_from_slice(ex.remote_ip.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
    encode::request_fields(&mut out, request, |field| {
        matches!(
            field.known(),
            Known::Host | Known::XRealIp | Known::XForwardedFor | Known::ContentLength | Known::Expect
        )
    });
    if let Some(body) = &ex.body {
        encode::framing(&mut out, Framing::Length(body.len() as u64));
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// Path and query the mirror is asked for.
fn target(asked: &[u8], mirror: &Mirror) -> Vec<u8> {
    let Some(path) = &mirror.path else { return asked.to_vec() };
    let query = asked.iter().position(|byte| *byte == b'?').unwrap_or(asked.len());
    let kept = if mirror.is_prefix { asked } else { &asked[query..] };
    [path.as_bytes(), kept].concat()
}

/// One copy on its way.
struct Copy {
    place: Place,
    upstream: Arc<Upstream>,
    index: usize,
    tls: bool,
    pool_key: u64,
    method: Method,
    head: Vec<u8>,
    body: Vec<u8>,
}

/// Why a copy was not answered; nobody asks for more.
struct Lost;

impl Copy {
    async fn run(mut self) {
        let worker = self.place.worker.clone();
        let timer = worker.timers.timer();
        timer.set(COPY_TIMEOUT_MS);
        let delivered = until(&timer, pin!(self.deliver(&worker))).await;
        let outcome = if matches!(delivered, Some(Ok(()))) { ANSWERED } else { FAILED };
        worker.counters.mirrored[outcome].add(1);
        if outcome == FAILED {
            tracing::debug!(upstream = %self.upstream.origin, "a mirrored request was not answered");
        }
    }

    async fn deliver(&mut self, worker: &Rc<Worker>) -> Result<(), Lost> {
        let (mut stream, requests, permit) = if self.upstream.http2 {
            (self.open_on_lane(worker).await?, 0, None)
        } else {
            let kept = worker.pool.borrow_mut().take(self.pool_key, clock::now().mono_ms());
            match kept {
                Some(kept) => kept,
                None => (self.connect().await?, 0, None),
            }
        };
        let ending = stream.ending(false);
        let mut text = std::mem::take(&mut self.head);
        text.extend_from_slice(&self.body);
        self.body = Vec::new();
        let mut sent = Transfer::new(Framing::None, ending, text, 0);
        let mut inbox = Inbox::default();
        poll_fn(|cx| sent.poll_flush(cx, &mut inbox, &mut stream)).await.map_err(|_| Lost)?;
        poll_fn(|cx| stream.poll_flush(cx)).await.map_err(|_| Lost)?;
        if ending == Ending::Stream {
            stream.finish(b"").map_err(|_| Lost)?;
        }
        let may_reuse = self.read_answer(worker, &mut stream, &mut inbox).await?;
        inbox.release(&worker.buffers);
        if may_reuse && inbox.is_empty() && !stream.is_shared() {
            let now_ms = clock::now().mono_ms();
            let keep = &self.upstream.keepalive;
            worker.pool.borrow_mut().give(self.pool_key, (stream, permit), requests + 1, keep, now_ms);
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Stream, Lost> {
        let endpoint = &self.upstream.endpoints[self.index];
        let tcp = Tcp::connect(endpoint.addr).await.map_err(|_| Lost)?;
        if !self.tls {
            return Ok(Stream::Tcp(tcp));
        }
        let config = tls::client_config(&self.upstream, self.upstream.http2).map_err(|_| Lost)?;
        let name = tls::server_name(&endpoint.host).map_err(|_| Lost)?;
        let connected = tokio_rustls::TlsConnector::from(config).connect(name, tcp).await;
        Ok(Stream::Connected(Box::new(connected.map_err(|_| Lost)?)))
    }

    /// A stream of HTTP/2 whose head was sent.
    async fn open_on_lane(&mut self, worker: &Rc<Worker>) -> Result<Stream, Lost> {
        let keep = self.upstream.keepalive;
        let occupied = loop {
            match worker.lanes.way(self.pool_key, &keep) {
                Way::Lane(occupied) => break occupied,
                Way::Wait(connected) => connected.notified().await,
                Way::Connect(connecting) => {
                    let stream = self.connect().await?;
                    break connecting.establish(worker, stream, keep).await.map_err(|_| Lost)?;
                }
            }
        };
        let authority = &self.upstream.endpoints[self.index].authority;
        let head = std::mem::take(&mut self.head);
        let mut request = http2::request(&head, self.tls, authority).ok_or(Lost)?;
        request.headers_mut().insert(http::header::TE, http::HeaderValue::from_static("trailers"));
        let is_whole = self.body.is_empty();
        let (answer, outgoing) = occupied.send(request, is_whole).map_err(|_| Lost)?;
        Ok(Stream::Http2(Box::new(Duplex::asked(answer, outgoing, is_whole, occupied))))
    }

    /// Reads an answer and throws it away; says whether all of it came.
    async fn read_answer(
        &self,
        worker: &Rc<Worker>,
        stream: &mut Stream,
        inbox: &mut Inbox,
    ) -> Result<bool, Lost> {
        let mut head = worker.take_response();
        loop {
            head.clear();
            self.read_head(worker, stream, inbox, &mut head).await?;
            if head.status >= 200 {
                break;
            }
        }
        let mut source = Source::from(stream.incoming(head.framing));
        let persists = head.persistent();
        worker.give_response(head);
        let mut read = 0;
        while !source.is_done() && read <= ANSWER_BYTES_MAX {
            let count = poll_fn(|cx| self.poll_more(cx, worker, stream, inbox, &mut source))
                .await
                .map_err(|()| Lost)?;
            read += count;
        }
        Ok(persists && source.is_done())
    }

    /// Decodes what is there, or reads more; gives how much was thrown away.
    fn poll_more(
        &self,
        cx: &mut std::task::Context<'_>,
        worker: &Rc<Worker>,
        stream: &mut Stream,
        inbox: &mut Inbox,
        source: &mut Source,
    ) -> Poll<Result<usize, ()>> {
        let piece = source.decode(inbox).map_err(drop)?;
        inbox.consume(piece.data + piece.skip);
        if piece.data > 0 || source.is_done() {
            return Poll::Ready(Ok(piece.data));
        }
        match stream.poll_fill(cx, inbox, &worker.buffers) {
            Poll::Pending => {
                inbox.park(&worker.buffers);
                Poll::Pending
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(())),
            Poll::Ready(Ok(count)) => {
                match source {
                    Source::UntilClose => {
                        if let Some(ended) = stream.end(count, inbox.len()) {
                            *source = ended;
                        }
                    }
                    _ if count == 0 => return Poll::Ready(Err(())),
                    _ => {}
                }
                Poll::Ready(Ok(0))
            }
        }
    }

    async fn read_head(
        &self,
        worker: &Rc<Worker>,
        stream: &mut Stream,
        inbox: &mut Inbox,
        head: &mut yumen_http::ResponseHead,
    ) -> Result<(), Lost> {
        let limits = &worker.settings.response_head;
        let asked = self.method;
        if let Stream::Http2(duplex) = stream {
            let read = poll_fn(|cx| duplex.poll_head(cx, (limits, asked, head))).await;
            return read.map_err(|_| Lost);
        }
        let mut scanned = 0;
        poll_fn(|cx| {
            loop {
                if inbox.len() > scanned {
                    match parse::response(inbox.bytes(), scanned, limits, asked, head) {
                        Ok(Parsed::Head(used)) => {
                            inbox.consume(used);
                            return Poll::Ready(Ok(()));
                        }
                        Ok(Parsed::Partial) => scanned = inbox.len(),
                        Err(_) => return Poll::Ready(Err(Lost)),
                    }
                }
                match stream.poll_fill(cx, inbox, &worker.buffers) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(Lost)),
                    Poll::Pending => {
                        inbox.park(&worker.buffers);
                        return Poll::Pending;
                    }
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests;
