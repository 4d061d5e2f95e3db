//! Requests of our own to upstreams: questions of plugins, and copies for mirrors.
//!
//! Knows how one is sent and its answer read, on connections shared with exchanges; not who asks.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use yumen_http::fields::write_line;
use yumen_http::parse::{self, Parsed};
use yumen_http::{Framing, Known, Method, encode};
use yumen_plugin::{Answer, AskFault, Question};
use yumen_snapshot::protection::Permit;
use yumen_snapshot::{Slot, Upstream};

use crate::body::{Ending, Rest};
use crate::buffer::Inbox;
use crate::clock;
use crate::fault::{Fault, Kind};
use crate::http2::{Duplex, StreamPermit, heads};
use crate::stream::Stream;
use crate::timers::until;
use crate::tls::{Handshake, TlsName};
use crate::transfer::Transfer;
use crate::upstream::dial::Dial;
use crate::upstream::h2_pool::StreamAcquisition;
use crate::upstream::pool::PoolKey;
use crate::worker::Worker;

/// An answer's body is read up to this many bytes, so that its connection can be used again.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Endpoints that are tried for one question.
const ATTEMPTS_MAX: usize = 3;

/// Asks an upstream of the newest snapshot.
pub(crate) async fn ask(worker: Rc<Worker>, question: Question) -> Result<Answer, AskFault> {
    let pinned = worker.pinned();
    let upstream = pinned.shared_upstream(Slot(question.upstream)).ok_or(AskFault::Nobody)?.clone();
    drop(pinned);
    let endpoints = upstream.endpoints.len();
    let first = (worker.random() as usize).checked_rem(endpoints).ok_or(AskFault::Nobody)?;
    let head = head(&question);
    // What a plugin asks is asked for an answer only: two of the same are as good as one.
    let mut subrequest = Subrequest {
        upstream,
        index: first,
        method: question.method,
        may_repeat: true,
        head,
        body: question.body,
    };
    let timer = worker.timers.timer();
    timer.set(question.timeout_ms);
    let mut answer = Answer::default();
    let asking = async {
        for at in 0..endpoints.min(ATTEMPTS_MAX) {
            subrequest.index = (first + at) % endpoints;
            match subrequest.send(&worker, Some(&mut answer)).await {
                // Whoever could not be reached has not been asked.
                Err(SubrequestError::Connect) => {}
                done => return done,
            }
        }
        Err(SubrequestError::Connect)
    };
    let asked = until(&timer, pin!(asking)).await;
    match asked {
        Some(Ok(())) => Ok(answer),
        // A head that was read is told, and what became of the body.
        Some(Err(_)) => or_head(answer, AskFault::Lost),
        None => or_head(answer, AskFault::Timeout),
    }
}

fn or_head(answer: Answer, fault: AskFault) -> Result<Answer, AskFault> {
    if answer.status == 0 { Err(fault) } else { Ok(Answer { fault: Some(fault), ..answer }) }
}

fn head(question: &Question) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(question.method.name().as_bytes());
    out.push(b' ');
    out.extend_from_slice(question.target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    write_line(&mut out, b"Host", question.authority.as_bytes());
    for (name, value) in question.fields.iter() {
        // How its end is told is decided below.
        if !matches!(Known::of(name), Known::ContentLength | Known::TransferEncoding) {
            write_line(&mut out, name, value);
        }
    }
    if !question.keeps {
        write_line(&mut out, b"Connection", b"close");
    }
    if !question.body.is_empty() || question.method == Method::Post {
        encode::framing(&mut out, Framing::Length(question.body.len() as u64));
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// A request on its way to an endpoint.
pub(crate) struct Subrequest {
    pub(crate) upstream: Arc<Upstream>,
    /// Which of its endpoints.
    pub(crate) index: usize,
    pub(crate) method: Method,
    /// Whether it may be sent again where it may have been read and nothing of an answer came.
    pub(crate) may_repeat: bool,
    /// The head as HTTP/1 has it.
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// Why an subrequest was in vain.
pub(crate) enum SubrequestError {
    /// Nobody could be reached.
    Connect,
    /// The connection ended before anything of an answer came.
    Unanswered,
    /// The endpoint says that it did not look at it.
    Unseen,
    /// The answer broke off, or could not be read.
    Underway,
}

impl Subrequest {
    fn tls(&self) -> bool {
        self.upstream.scheme.is_tls()
    }

    fn pool_key(&self) -> PoolKey {
        let endpoint = &self.upstream.endpoints[self.index];
        PoolKey::new(endpoint, self.tls().then_some(endpoint.host.as_bytes()))
    }

    /// Sends it and reads the answer, which is kept where somebody wants it.
    pub(crate) async fn send(
        &self,
        worker: &Rc<Worker>,
        mut wanted: Option<&mut Answer>,
    ) -> Result<(), SubrequestError> {
        if self.upstream.http2 {
            let (stream, requests) = self.open_on_lane(worker).await?;
            let done = self.exchange(worker, (stream, requests, None), &self.body, &mut wanted).await;
            let is_stale =
                requests > 0 && matches!(done, Err(SubrequestError::Unanswered)) && self.may_repeat;
            if !is_stale && !matches!(done, Err(SubrequestError::Unseen)) {
                return done;
            }
            let (stream, requests) = self.open_on_lane(worker).await?;
            return self.exchange(worker, (stream, requests, None), &self.body, &mut wanted).await;
        }
        let text = [&self.head[..], &self.body].concat();
        let kept = worker.pool.borrow_mut().take(self.pool_key(), None, clock::now().mono_ms());
        if let Some(kept) = kept {
            match self.exchange(worker, kept, &text, &mut wanted).await {
                // It may have been closed for its idleness.
                Err(SubrequestError::Unanswered) if self.may_repeat => {}
                done => return done,
            }
        }
        let stream = self.dial(worker)?.connect().await.map_err(|_| SubrequestError::Connect)?;
        self.exchange(worker, (stream, 0, None), &text, &mut wanted).await
    }

    async fn exchange(
        &self,
        worker: &Rc<Worker>,
        (mut stream, requests, permit): (Stream, u64, Option<Permit>),
        text: &[u8],
        wanted: &mut Option<&mut Answer>,
    ) -> Result<(), SubrequestError> {
        let lost = |_| SubrequestError::Unanswered;
        let ending = stream.ending(false);
        let mut sent = Transfer::new(Framing::None, ending, text.to_vec(), 0);
        let mut inbox = Inbox::default();
        poll_fn(|cx| sent.poll_flush(cx, &mut inbox, &mut stream))
            .await
            .map_err(|_| SubrequestError::Unanswered)?;
        poll_fn(|cx| stream.poll_flush(cx)).await.map_err(lost)?;
        if ending == Ending::Stream {
            stream.finish(b"").map_err(|_| SubrequestError::Underway)?;
        }
        let may_reuse = self.read_answer(worker, &mut stream, &mut inbox, wanted).await?;
        inbox.release(&worker.buffers);
        if may_reuse && inbox.is_empty() && !stream.is_shared() {
            let now_ms = clock::now().mono_ms();
            let keep = &self.upstream.keepalive;
            worker.pool.borrow_mut().give(self.pool_key(), (stream, permit), requests + 1, keep, now_ms);
        }
        Ok(())
    }

    fn dial(&self, worker: &Worker) -> Result<Dial, SubrequestError> {
        let endpoint = &self.upstream.endpoints[self.index];
        worker.counters.connects.add(1);
        worker.departures.connected(self.pool_key().endpoint(), &endpoint.state);
        let name = TlsName { host: endpoint.host.as_bytes(), is_asked_for: false };
        let shaking = || Handshake::new(&self.upstream, endpoint, name, self.upstream.http2);
        let handshake = self.tls().then(shaking).transpose().map_err(|_| SubrequestError::Connect)?;
        let timeout_ms = self.upstream.timeouts.connect_ms;
        Ok(Dial { address: endpoint.addr, opening: Vec::new(), handshake, timeout_ms })
    }

    /// A place on a connection that carries many, for as long as may be connected.
    async fn take_place(&self, worker: &Rc<Worker>) -> Result<StreamPermit, SubrequestError> {
        let (keep, connect_ms) = (self.upstream.keepalive, self.upstream.timeouts.connect_ms);
        loop {
            match worker.lanes.way(self.pool_key(), &keep, connect_ms) {
                StreamAcquisition::Ready(occupied) => return Ok(occupied),
                StreamAcquisition::AwaitSettings(lane) => {
                    lane.settled().await.map_err(|_| SubrequestError::Connect)?
                }
                StreamAcquisition::AwaitConnect(coming) => {
                    coming.over().await.map_err(|_| SubrequestError::Connect)?
                }
                StreamAcquisition::Connect(connecting) => connecting.begin(worker, self.dial(worker)?, keep),
            }
        }
    }

    /// A stream of HTTP/2 whose head was sent, and how many requests its connection carried before.
    async fn open_on_lane(&self, worker: &Rc<Worker>) -> Result<(Stream, u64), SubrequestError> {
        let timer = worker.timers.timer();
        timer.set(self.upstream.timeouts.connect_ms);
        let occupied =
            until(&timer, pin!(self.take_place(worker))).await.unwrap_or(Err(SubrequestError::Connect))?;
        let authority = &self.upstream.endpoints[self.index].authority;
        let request = heads::request(&self.head, self.tls(), authority, &mut heads::LastFields::default());
        let mut request = request.ok_or(SubrequestError::Underway)?;
        request.headers_mut().insert(http::header::TE, http::HeaderValue::from_static("trailers"));
        let is_whole = self.body.is_empty();
        let requests = occupied.requests_before();
        let (answer, outgoing) = occupied.send(request, is_whole).map_err(|_| SubrequestError::Underway)?;
        let limits = &worker.settings.response_head;
        let duplex = Duplex::asked(answer, outgoing, is_whole, occupied, limits);
        Ok((Stream::Http2(Box::new(duplex)), requests))
    }

    /// Reads an answer, which is thrown away unless it is wanted; says whether its connection can be used again. Of one
    /// that is wanted the head is there once it was read, and the body if it came whole and is not too long.
    async fn read_answer(
        &self,
        worker: &Rc<Worker>,
        stream: &mut Stream,
        inbox: &mut Inbox,
        wanted: &mut Option<&mut Answer>,
    ) -> Result<bool, SubrequestError> {
        let mut head = worker.take_response();
        head.clear();
        self.read_head(worker, stream, inbox, &mut head).await?;
        while head.status < 200 {
            head.clear();
            self.read_head(worker, stream, inbox, &mut head).await.map_err(|_| SubrequestError::Underway)?;
        }
        let mut rest = Rest::from(stream.incoming(head.framing));
        let persists = head.persistent();
        if let Some(answer) = wanted {
            answer.status = head.status;
            answer.fields = std::mem::take(&mut head.fields);
        }
        worker.give_response(head);
        let mut body = wanted.is_some().then(Vec::new);
        let mut read = 0;
        while !rest.is_done() && read <= ANSWER_BYTES_MAX {
            let more = poll_fn(|cx| self.poll_more(cx, worker, (stream, inbox), &mut rest, &mut body)).await;
            match more {
                Ok(count) => read += count,
                Err(()) => return Err(SubrequestError::Underway),
            }
        }
        if let (Some(answer), true) = (wanted, rest.is_done()) {
            answer.body = body;
        }
        Ok(persists && rest.is_done())
    }

    /// Decodes what is there, or reads more; gives how much that was.
    fn poll_more(
        &self,
        cx: &mut std::task::Context<'_>,
        worker: &Rc<Worker>,
        (stream, inbox): (&mut Stream, &mut Inbox),
        rest: &mut Rest,
        body: &mut Option<Vec<u8>>,
    ) -> Poll<Result<usize, ()>> {
        let piece = rest.decode(inbox).map_err(drop)?;
        if let Some(body) = body {
            body.extend_from_slice(&inbox.bytes()[..piece.data]);
        }
        inbox.consume(piece.data + piece.skip);
        if piece.data > 0 || rest.is_done() {
            return Poll::Ready(Ok(piece.data));
        }
        match stream.poll_fill(cx, inbox, &worker.buffers) {
            Poll::Pending => {
                inbox.park(&worker.buffers);
                Poll::Pending
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(())),
            Poll::Ready(Ok(count)) => {
                match rest {
                    Rest::UntilClose => {
                        if let Some(ended) = stream.end(count, inbox.len()) {
                            *rest = ended;
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
    ) -> Result<(), SubrequestError> {
        let limits = &worker.settings.response_head;
        let asked = self.method;
        if let Stream::Http2(duplex) = stream {
            let read = poll_fn(|cx| duplex.poll_head(cx, (limits, asked, head))).await;
            return read.map_err(|fault| match fault {
                Fault { unsent: true, .. } => SubrequestError::Unseen,
                Fault { kind: Kind::UpstreamClosed, .. } => SubrequestError::Unanswered,
                _ => SubrequestError::Underway,
            });
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
                        Err(_) => return Poll::Ready(Err(SubrequestError::Underway)),
                    }
                }
                match stream.poll_fill(cx, inbox, &worker.buffers) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(Ok(0) | Err(_)) if inbox.is_empty() => {
                        return Poll::Ready(Err(SubrequestError::Unanswered));
                    }
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(SubrequestError::Underway)),
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
