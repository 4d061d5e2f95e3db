//! Bytes both ways between two streams, each way in bounded memory, until both have ended.
//!
//! What is at its end in one direction is ended there only; the other goes on.

use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;

use super::Fault;
use super::splice::{Failed, Moved, Pipe};
use crate::buffer::Inbox;
use crate::stream::{Stream, Tcp};
use crate::ties::Tie;
use crate::timers::Timer;
use crate::worker::Worker;

/// A read of this many bytes is one of a large flow.
const LARGE_BYTES: usize = 32 * 1024;
/// So many of them in a row, and the flow is left to the system; so many small ones, and it comes back.
const LARGE_READS: u32 = 8;
const SMALL_MOVES: u32 = 64;

/// Both directions of a stream.
pub(super) struct Relay {
    up: Flow,
    down: Flow,
    idle_ms: u64,
    tie: Option<Rc<Tie>>,
    progress: u64,
}

/// One direction.
#[derive(Default)]
struct Flow {
    inbox: Inbox,
    pipe: Option<Pipe>,
    /// Large reads in a row, or small moves while there is a pipe.
    streak: u32,
    /// Whether the source has ended.
    ended: bool,
    /// Whether the sink has been told.
    shut: bool,
    bytes: u64,
}

/// Which side of a direction failed.
enum Broken {
    Source,
    Sink,
}

impl Relay {
    /// `waiting` was read of the client and goes to the endpoint first.
    pub(super) fn new(waiting: Inbox, idle_ms: u64, tie: Option<Rc<Tie>>) -> Relay {
        let up = Flow { inbox: waiting, ..Flow::default() };
        Relay { up, down: Flow::default(), idle_ms, tie, progress: u64::MAX }
    }

    /// Bytes from the client and to the client.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.up.bytes, self.down.bytes)
    }

    /// Runs until both directions have ended, a side fails, nothing moves for too long, or what it is tied to
    /// changes.
    pub(super) async fn run(
        &mut self,
        worker: &Worker,
        timer: &Timer,
        client: &mut Stream,
        endpoint: &mut Stream,
    ) -> Result<(), Fault> {
        poll_fn(|cx| self.poll(cx, worker, timer, client, endpoint)).await
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        timer: &Timer,
        client: &mut Stream,
        endpoint: &mut Stream,
    ) -> Poll<Result<(), Fault>> {
        let up = match self.up.poll(cx, worker, client, endpoint) {
            Poll::Ready(Err(Broken::Source)) => return Poll::Ready(Err(Fault::ClientReset)),
            Poll::Ready(Err(Broken::Sink)) => return Poll::Ready(Err(Fault::UpstreamReset)),
            up => up.is_ready(),
        };
        let down = match self.down.poll(cx, worker, endpoint, client) {
            Poll::Ready(Err(Broken::Source)) => return Poll::Ready(Err(Fault::UpstreamReset)),
            Poll::Ready(Err(Broken::Sink)) => return Poll::Ready(Err(Fault::ClientReset)),
            down => down.is_ready(),
        };
        if up && down {
            return Poll::Ready(Ok(()));
        }
        let progress = self.up.bytes + self.down.bytes;
        if progress != self.progress {
            self.progress = progress;
            timer.set(self.idle_ms);
        }
        if self.tie.as_ref().is_some_and(|tie| tie.is_over(cx)) {
            return Poll::Ready(Err(Fault::Changed));
        }
        if timer.is_over(cx) { Poll::Ready(Err(Fault::Idle)) } else { Poll::Pending }
    }
}

impl Flow {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        source: &mut Stream,
        sink: &mut Stream,
    ) -> Poll<Result<(), Broken>> {
        while !self.shut {
            ready!(self.push(cx, sink))?;
            if self.pipe.is_some() {
                ready!(self.splice(cx, worker, source, sink))?;
            } else if self.ended {
                self.inbox.release(&worker.buffers);
                ready!(sink.poll_shutdown(cx)).map_err(|_| Broken::Sink)?;
                self.shut = true;
            } else {
                ready!(self.read(cx, worker, source, sink))?;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Passes on what was read.
    fn push(&mut self, cx: &mut Context<'_>, sink: &mut Stream) -> Poll<Result<(), Broken>> {
        while !self.inbox.is_empty() {
            let sent = ready!(sink.poll_write(cx, &[IoSlice::new(self.inbox.bytes())]));
            let count = sent.ok().filter(|count| *count > 0).ok_or(Broken::Sink)?;
            self.inbox.consume(count);
            self.bytes += count as u64;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once; while there is nothing, no buffer is held and nothing is held back.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        source: &mut Stream,
        sink: &mut Stream,
    ) -> Poll<Result<(), Broken>> {
        match source.poll_fill(cx, &mut self.inbox, &worker.buffers) {
            Poll::Pending => {
                self.inbox.release(&worker.buffers);
                if let Poll::Ready(Err(_)) = sink.poll_flush(cx) {
                    return Poll::Ready(Err(Broken::Sink));
                }
                Poll::Pending
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(Broken::Source)),
            Poll::Ready(Ok(0)) => {
                self.ended = true;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Ok(count)) => {
                self.streak = if count >= LARGE_BYTES { self.streak + 1 } else { 0 };
                if self.streak >= LARGE_READS && sockets(source, sink).is_some() {
                    self.streak = 0;
                    self.pipe = Pipe::take();
                }
                Poll::Ready(Ok(()))
            }
        }
    }

    fn splice(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        source: &mut Stream,
        sink: &mut Stream,
    ) -> Poll<Result<(), Broken>> {
        self.inbox.release(&worker.buffers);
        let (Some(pipe), Some((from, to))) = (&mut self.pipe, sockets(source, sink)) else {
            self.pipe = None;
            return Poll::Ready(Ok(()));
        };
        let moved = match ready!(pipe.poll(cx, from, to)) {
            Err(Failed::Source) => return Poll::Ready(Err(Broken::Source)),
            Err(Failed::Sink) => return Poll::Ready(Err(Broken::Sink)),
            Ok(Moved::End) => {
                self.ended = true;
                self.pipe = None;
                return Poll::Ready(Ok(()));
            }
            Ok(Moved::Bytes(count)) => count,
        };
        self.bytes += moved as u64;
        worker.counters.streams.spliced_bytes.add(moved as u64);
        self.streak = if moved >= LARGE_BYTES { 0 } else { self.streak + u32::from(moved > 0) };
        if self.streak >= SMALL_MOVES && pipe.is_empty() {
            self.streak = 0;
            self.pipe = None;
        }
        Poll::Ready(Ok(()))
    }
}

/// The sockets, where both sides are nothing but that.
fn sockets<'s>(source: &'s Stream, sink: &'s Stream) -> Option<(&'s TcpStream, &'s TcpStream)> {
    match (source, sink) {
        (Stream::Tcp(Tcp::Registered(source)), Stream::Tcp(Tcp::Registered(sink))) => Some((source, sink)),
        _ => None,
    }
}
