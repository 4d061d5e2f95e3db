//! A copy of bytes from one stream to another in bounded memory; two of them make a tunnel.
//!
//! This file must not know heads, nor the conditions that end a tunnel besides its two sides.

mod bidirectional;

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use tokio::task::coop;
use yumen_http::websocket::WebSocketFrameTracker;

use crate::copy::CopyContext;
use crate::copy::splice::{self, SplicePipe};
use crate::runtime::buffer::{BUFFER_BYTES, Inbox};
use crate::runtime::turn_budget::TurnBudget;
use crate::transport::stream::TransportStream;
pub(crate) use bidirectional::{BidirectionalCopy, CopySide};

/// Minimum size of a read that counts as large.
const LARGE_BYTES: usize = 32 * 1024;
/// Number of consecutive large reads after which the kernel splices the flow.
const LARGE_READS: u32 = 8;
/// Number of consecutive small moves after which a spliced flow is copied again.
const SMALL_MOVES: u32 = 64;

/// One direction of a copy.
#[derive(Default)]
pub(crate) struct OneWayCopy {
    inbox: Inbox,
    /// Pipe with the spliced bytes that the sink has not taken yet.
    pipe: Option<SplicePipe>,
    /// Whether the kernel splices the flow.
    is_spliced: bool,
    /// Consecutive large reads, or consecutive small moves while spliced.
    streak: u32,
    /// Whether the source has ended.
    ended: bool,
    /// Whether the source ended without close_notify, as many TLS peers do after their last byte.
    is_cut: bool,
    /// Whether the sink was shut down or takes no more bytes.
    shut: bool,
    /// Whether only the source can cause progress; the source then wakes the task.
    is_paused: bool,
    bytes: u64,
}

/// The side on which a copy failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyFailure {
    Source,
    Sink,
}

/// Tracks WebSocket frame boundaries in the copied bytes.
pub(crate) struct WatchedFrames<'f> {
    pub(crate) frames: &'f mut WebSocketFrameTracker,
    /// Whether the tunnel is ending: only the rest of a frame is forwarded.
    pub(crate) is_leaving: bool,
}

impl OneWayCopy {
    /// Creates a copy; `waiting` contains bytes already read from the source.
    pub(crate) fn new(waiting: Inbox) -> OneWayCopy {
        OneWayCopy { inbox: waiting, ..OneWayCopy::default() }
    }

    /// Returns the number of forwarded bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the copy has ended: the sink was shut down, or takes no more bytes.
    pub(crate) fn is_shut(&self) -> bool {
        self.shut
    }

    /// Whether the copy waits for the sink.
    pub(crate) fn waits_for_sink(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Returns the bytes of memory that wait for the sink.
    fn backlog_bytes(&self, source: &mut TransportStream, sink: &TransportStream) -> usize {
        if !self.waits_for_sink() {
            return 0;
        }
        self.inbox.held_bytes() + source.unread_bytes() + sink.session_bytes()
    }

    /// Ends the copy without a shutdown, since the sink takes no more bytes.
    pub(crate) fn give_up(&mut self, worker: CopyContext<'_>) {
        self.inbox.consume(self.inbox.len());
        self.inbox.release(worker.buffers);
        (self.pipe, self.is_paused, self.shut) = (None, false, true);
    }

    /// Tracks the frames in the bytes that were read before the first poll.
    pub(crate) fn consume_buffered_frames(&mut self, watched: &mut WatchedFrames<'_>) {
        consume_frames(&mut self.inbox, 0, watched);
    }

    /// Copies until it would block; ready after the shutdown of the sink, or on a failure of either side.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        worker: CopyContext<'_>,
        (source, sink): (&mut TransportStream, &mut TransportStream),
        watched: &mut Option<WatchedFrames<'_>>,
    ) -> Poll<Result<(), CopyFailure>> {
        // The other direction has woken the task; this source still has no data.
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
                self.inbox.release(worker.buffers);
                let told = if self.is_cut { sink.poll_break_off(cx) } else { sink.poll_shutdown(cx) };
                ready!(told).map_err(|_| CopyFailure::Sink)?;
                self.shut = true;
            } else {
                turn.copied(ready!(self.read(cx, worker, (source, sink), watched))?);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Writes the buffered bytes to the sink.
    fn push(&mut self, cx: &mut Context<'_>, sink: &mut TransportStream) -> Poll<Result<(), CopyFailure>> {
        while !self.inbox.is_empty() {
            let sent = ready!(sink.poll_write(cx, &[IoSlice::new(self.inbox.bytes())]));
            let count = sent.ok().filter(|count| *count > 0).ok_or(CopyFailure::Sink)?;
            self.inbox.consume(count);
            self.bytes += count as u64;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once and returns the number of bytes. While no data is available, the buffer is released and the
    /// sink flushed.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        worker: CopyContext<'_>,
        (source, sink): (&mut TransportStream, &mut TransportStream),
        watched: &mut Option<WatchedFrames<'_>>,
    ) -> Poll<Result<usize, CopyFailure>> {
        let bytes_max = worker.buffers.backlog.read_ahead(self.bytes);
        if bytes_max < BUFFER_BYTES {
            self.inbox.release(worker.buffers);
        }
        match source.poll_fill_some(cx, &mut self.inbox, worker.buffers, bytes_max) {
            Poll::Pending => {
                self.inbox.release(worker.buffers);
                let is_flushed = match sink.poll_flush(cx) {
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(CopyFailure::Sink)),
                    flushed => flushed.is_ready(),
                };
                // Without a task budget, the source may not have registered the waker.
                self.is_paused = is_flushed && coop::has_budget_remaining();
                Poll::Pending
            }
            // Truncated TLS (RFC 8446 §6.1): the sink ends in the same way, so that its peer can detect that.
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

    /// Switches a large flow between plain sockets to splicing.
    fn note_size(&mut self, count: usize, source: &mut TransportStream, sink: &mut TransportStream) {
        self.streak = if count >= LARGE_BYTES { self.streak + 1 } else { 0 };
        if self.streak >= LARGE_READS && source.socket().is_some() && sink.socket().is_some() {
            (self.streak, self.is_spliced) = (0, true);
        }
    }

    /// Splices once. A direction owns a pipe only while bytes wait for the sink, so that idle flows use none.
    fn splice(
        &mut self,
        cx: &mut Context<'_>,
        worker: CopyContext<'_>,
        turn: &mut TurnBudget,
        (source, sink): (&mut TransportStream, &mut TransportStream),
    ) -> Poll<Result<(), CopyFailure>> {
        self.inbox.release(worker.buffers);
        let pipe = self.pipe.take().or_else(SplicePipe::take);
        let (Some(mut pipe), Some(from), Some(to)) = (pipe, source.socket(), sink.socket()) else {
            self.is_spliced = false;
            return Poll::Ready(Ok(()));
        };
        if pipe.is_empty() {
            // A refusal of splice(2) moves no bytes, so the flow can be copied instead.
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

/// Tracks the frames in the inbox from position `from`. While the tunnel is ending, only the rest of a frame
/// is retained.
fn consume_frames(inbox: &mut Inbox, from: usize, watched: &mut WatchedFrames<'_>) {
    let news = &inbox.bytes()[from..];
    if !watched.is_leaving {
        watched.frames.pass(news);
        return;
    }
    let kept = if watched.frames.is_between() { 0 } else { watched.frames.pass_frame(news) };
    inbox.truncate(from + kept);
}
