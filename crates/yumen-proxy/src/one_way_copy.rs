//! Bytes one way from a stream to another, in bounded memory; two of them make a tunnel.
//!
//! Knows neither heads nor what ends a tunnel beside its two sides.

mod bidirectional;

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use tokio::task::coop;
use yumen_http::websocket::WebSocketFrameTracker;

use crate::buffer::{BUFFER_BYTES, Inbox};
use crate::splice::{self, SplicePipe};
use crate::stream::TransportStream;
use crate::turn_budget::TurnBudget;
use crate::worker::Worker;
pub(crate) use bidirectional::{BidirectionalCopy, CopySide};

/// A read of this many bytes is one of a large flow.
const LARGE_BYTES: usize = 32 * 1024;
/// So many of them in a row, and the flow is left to the system; so many small ones, and it comes back.
const LARGE_READS: u32 = 8;
const SMALL_MOVES: u32 = 64;

/// One direction.
#[derive(Default)]
pub(crate) struct OneWayCopy {
    inbox: Inbox,
    /// Holds what the sink did not take yet of what goes from socket to socket.
    pipe: Option<SplicePipe>,
    /// The flow is left to the system.
    is_spliced: bool,
    /// Large reads in a row, or small moves while it is spliced.
    streak: u32,
    /// Whether the source has ended.
    ended: bool,
    /// Whether it broke off without TLS' goodbye, as many do that have said all they had to say.
    is_cut: bool,
    /// Whether the sink has been told, or takes no more.
    shut: bool,
    /// Whether only the source can move it on, which will wake the task.
    is_paused: bool,
    bytes: u64,
}

/// Which side of a direction failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyFailure {
    Source,
    Sink,
}

/// Frames whose ends must be known, as they pass.
pub(crate) struct WatchedFrames<'f> {
    pub(crate) frames: &'f mut WebSocketFrameTracker,
    /// Whether nothing goes on any more but what completes a frame.
    pub(crate) is_leaving: bool,
}

impl OneWayCopy {
    /// `waiting` was read of the source and goes first.
    pub(crate) fn new(waiting: Inbox) -> OneWayCopy {
        OneWayCopy { inbox: waiting, ..OneWayCopy::default() }
    }

    /// Bytes that went on.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is over: the sink was told of the end, or takes no more.
    pub(crate) fn is_shut(&self) -> bool {
        self.shut
    }

    /// Whether it is the sink that keeps it waiting.
    pub(crate) fn waits_for_sink(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Bytes of memory that wait for the sink.
    fn backlog_bytes(&self, source: &mut TransportStream, sink: &TransportStream) -> usize {
        if !self.waits_for_sink() {
            return 0;
        }
        self.inbox.held_bytes() + source.unread_bytes() + sink.session_bytes()
    }

    /// Passes nothing on any more, as the sink takes nothing.
    pub(crate) fn give_up(&mut self, worker: &Worker) {
        self.inbox.consume(self.inbox.len());
        self.inbox.release(&worker.buffers);
        (self.pipe, self.is_paused, self.shut) = (None, false, true);
    }

    /// Lets what was read before the first poll pass.
    pub(crate) fn consume_buffered_frames(&mut self, watched: &mut WatchedFrames<'_>) {
        consume_frames(&mut self.inbox, 0, watched);
    }

    /// Moves bytes on as far as it goes; ready when both sides know of the end, or one fails.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        (source, sink): (&mut TransportStream, &mut TransportStream),
        watched: &mut Option<WatchedFrames<'_>>,
    ) -> Poll<Result<(), CopyFailure>> {
        // The other direction woke the task: this one is asleep as it was.
        if self.is_paused && source.is_asleep() {
            return Poll::Pending;
        }
        self.is_paused = false;
        let mut turn = TurnBudget::default();
        while !self.shut {
            if turn.is_over(cx) {
                return Poll::Pending;
            }
            ready!(self.push(cx, sink))?;
            if self.is_spliced {
                ready!(self.splice(cx, worker, &mut turn, (source, sink)))?;
            } else if self.ended {
                self.inbox.release(&worker.buffers);
                let told = if self.is_cut { sink.poll_break_off(cx) } else { sink.poll_shutdown(cx) };
                ready!(told).map_err(|_| CopyFailure::Sink)?;
                self.shut = true;
            } else {
                turn.copied(ready!(self.read(cx, worker, (source, sink), watched))?);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Passes on what was read.
    fn push(&mut self, cx: &mut Context<'_>, sink: &mut TransportStream) -> Poll<Result<(), CopyFailure>> {
        while !self.inbox.is_empty() {
            let sent = ready!(sink.poll_write(cx, &[IoSlice::new(self.inbox.bytes())]));
            let count = sent.ok().filter(|count| *count > 0).ok_or(CopyFailure::Sink)?;
            self.inbox.consume(count);
            self.bytes += count as u64;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once, and says how much; while there is nothing, no buffer is held and nothing is held back.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        (source, sink): (&mut TransportStream, &mut TransportStream),
        watched: &mut Option<WatchedFrames<'_>>,
    ) -> Poll<Result<usize, CopyFailure>> {
        let bytes_max = worker.buffers.backlog.read_ahead(self.bytes);
        if bytes_max < BUFFER_BYTES {
            self.inbox.release(&worker.buffers);
        }
        match source.poll_fill_some(cx, &mut self.inbox, &worker.buffers, bytes_max) {
            Poll::Pending => {
                self.inbox.release(&worker.buffers);
                let is_flushed = match sink.poll_flush(cx) {
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(CopyFailure::Sink)),
                    flushed => flushed.is_ready(),
                };
                // Without a budget the source may not have been asked to wake the task.
                self.is_paused = is_flushed && coop::has_budget_remaining();
                Poll::Pending
            }
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                (self.ended, self.is_cut) = (true, true);
                Poll::Ready(Ok(0))
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(CopyFailure::Source)),
            Poll::Ready(Ok(count)) => {
                self.ended = source.end(count, self.inbox.len()).is_some();
                if let Some(watched) = watched {
                    let from = self.inbox.len() - count;
                    consume_frames(&mut self.inbox, from, watched);
                } else {
                    self.note_size(count, source, sink);
                }
                Poll::Ready(Ok(count))
            }
        }
    }

    /// Leaves a large flow between sockets to the system.
    fn note_size(&mut self, count: usize, source: &mut TransportStream, sink: &mut TransportStream) {
        self.streak = if count >= LARGE_BYTES { self.streak + 1 } else { 0 };
        if self.streak >= LARGE_READS && source.socket().is_some() && sink.socket().is_some() {
            (self.streak, self.is_spliced) = (0, true);
        }
    }

    /// Moves once. Only what waits for the sink holds a pipe: while the source has nothing to say, others use it.
    fn splice(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        turn: &mut TurnBudget,
        (source, sink): (&mut TransportStream, &mut TransportStream),
    ) -> Poll<Result<(), CopyFailure>> {
        self.inbox.release(&worker.buffers);
        let pipe = self.pipe.take().or_else(SplicePipe::take);
        let (Some(mut pipe), Some(from), Some(to)) = (pipe, source.socket(), sink.socket()) else {
            self.is_spliced = false;
            return Poll::Ready(Ok(()));
        };
        if pipe.is_empty() {
            match ready!(pipe.poll_fill(cx, from, u64::MAX)) {
                Err(error) if !splice::is_refusal(&error) => return Poll::Ready(Err(CopyFailure::Source)),
                Ok(count) if count > 0 => {}
                ended => {
                    (self.ended, self.is_spliced) = (ended.is_ok(), false);
                    return Poll::Ready(Ok(()));
                }
            }
        }
        let drained = pipe.poll_drain(cx, to);
        if !pipe.is_empty() {
            self.pipe = Some(pipe);
        }
        let moved = ready!(drained).map_err(|_| CopyFailure::Sink)?;
        turn.spliced(moved);
        self.bytes += moved as u64;
        worker.counters.streams.spliced_bytes.add(moved as u64);
        self.streak = if moved >= LARGE_BYTES { 0 } else { self.streak + 1 };
        if self.streak >= SMALL_MOVES && self.pipe.is_none() {
            (self.streak, self.is_spliced) = (0, false);
        }
        Poll::Ready(Ok(()))
    }
}

/// Follows the frames in what an inbox holds from there on; once the tunnel ends, only what completes a frame
/// stays in it.
fn consume_frames(inbox: &mut Inbox, from: usize, watched: &mut WatchedFrames<'_>) {
    let news = &inbox.bytes()[from..];
    if !watched.is_leaving {
        watched.frames.pass(news);
        return;
    }
    let kept = if watched.frames.is_between() { 0 } else { watched.frames.pass_frame(news) };
    inbox.truncate(from + kept);
}
