//! A copy of bytes from one stream to another in bounded memory; two of them make a tunnel.
//!
//! This file must not know heads, nor the conditions that end a tunnel besides its two sides. `transfer.rs`
//! has the reasons why bodies are copied by a loop of their own.

mod bidirectional;

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use tokio::task::coop;
use yumen_http::websocket::WebSocketFrameTracker;

use crate::copy::CopyContext;
use crate::copy::splice::{CopyFailure, SplicePath, SpliceStep};
use crate::runtime::buffer::Inbox;
use crate::runtime::turn_budget::TurnBudget;
use crate::transport::stream::TransportStream;
pub(crate) use bidirectional::{BidirectionalCopy, CopySide, WatchedTunnel};

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
    state: CopyState,
    bytes: u64,
}

/// The phase of a copy.
enum CopyState {
    /// Bytes pass through the inbox.
    Copying {
        /// Consecutive large reads.
        large_reads: u32,
        /// Whether only the source can cause progress; the source then wakes the task.
        is_paused: bool,
    },
    /// Bytes pass through a pipe of the kernel.
    Splicing {
        path: SplicePath,
        /// Consecutive small moves.
        small_moves: u32,
    },
    /// The source has ended; its last bytes may wait in the inbox.
    Ending(SourceEnd),
    /// The sink was shut down, or takes no more bytes.
    Shut,
}

/// The way in which a source ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SourceEnd {
    Closed,
    /// Without close_notify, as many TLS peers do after their last byte.
    Truncated,
}

/// Tracks WebSocket frame boundaries in the copied bytes.
pub(crate) struct WatchedFrames<'f> {
    pub(crate) frames: &'f mut WebSocketFrameTracker,
    /// Whether the tunnel is ending: only the rest of a frame is forwarded.
    pub(crate) is_leaving: bool,
}

impl Default for CopyState {
    fn default() -> CopyState {
        CopyState::Copying { large_reads: 0, is_paused: false }
    }
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
        matches!(self.state, CopyState::Shut)
    }

    /// Whether the copy waits for the sink.
    pub(crate) fn waits_for_sink(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Returns the bytes of memory that wait for the sink.
    fn backlog_bytes(&self, source: &mut TransportStream, sink: &TransportStream) -> usize {
        if self.waits_for_sink() { source.backlog_bytes(&self.inbox, sink) } else { 0 }
    }

    /// Ends the copy without a shutdown, since the sink takes no more bytes.
    pub(crate) fn give_up(&mut self, worker: CopyContext<'_>) {
        self.inbox.consume(self.inbox.len());
        self.inbox.release(worker.buffers);
        self.state = CopyState::Shut;
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
        source: &mut TransportStream,
        sink: &mut TransportStream,
        watched: &mut Option<WatchedFrames<'_>>,
    ) -> Poll<Result<(), CopyFailure>> {
        if let CopyState::Copying { is_paused, .. } = &mut self.state {
            // The other direction has woken the task; this source still has no data.
            if *is_paused && source.is_asleep() {
                return Poll::Pending;
            }
            *is_paused = false;
        }
        let mut turn = TurnBudget::default();
        loop {
            if turn.is_over(cx) {
                return Poll::Pending;
            }
            // Nothing is read while bytes wait for the sink, so one buffer bounds the memory.
            ready!(self.push(cx, sink))?;
            match &mut self.state {
                CopyState::Copying { .. } => {
                    turn.copied(ready!(self.read(cx, worker, source, sink, watched))?);
                }
                CopyState::Splicing { .. } => ready!(self.splice(cx, worker, &mut turn, source, sink))?,
                CopyState::Ending(end) => {
                    self.inbox.release(worker.buffers);
                    let shut = match end {
                        SourceEnd::Closed => sink.poll_shutdown(cx),
                        // The sink ends in the same way, so that its peer can detect the truncation
                        // (RFC 8446 §6.1).
                        SourceEnd::Truncated => sink.poll_break_off(cx),
                    };
                    ready!(shut).map_err(|_| CopyFailure::Sink)?;
                    self.state = CopyState::Shut;
                    return Poll::Ready(Ok(()));
                }
                CopyState::Shut => return Poll::Ready(Ok(())),
            }
        }
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
        source: &mut TransportStream,
        sink: &mut TransportStream,
        watched: &mut Option<WatchedFrames<'_>>,
    ) -> Poll<Result<usize, CopyFailure>> {
        match source.poll_read_ahead(cx, &mut self.inbox, worker.buffers, self.bytes) {
            Poll::Pending => {
                self.inbox.release(worker.buffers);
                let is_flushed = match sink.poll_flush(cx) {
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(CopyFailure::Sink)),
                    flushed => flushed.is_ready(),
                };
                if let CopyState::Copying { is_paused, .. } = &mut self.state {
                    // Without a task budget, the source may not have registered the waker.
                    *is_paused = is_flushed && coop::has_budget_remaining();
                }
                Poll::Pending
            }
            // rustls reports an end without close_notify as `UnexpectedEof`. Many libraries end a stream like
            // that (decision 46).
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.state = CopyState::Ending(SourceEnd::Truncated);
                Poll::Ready(Ok(0))
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(CopyFailure::Source)),
            Poll::Ready(Ok(count)) => {
                let has_ended = source.end(count, self.inbox.len()).is_some();
                if let Some(watched) = watched {
                    let from = self.inbox.len() - count;
                    consume_frames(&mut self.inbox, from, watched);
                } else {
                    // A watched tunnel is never spliced: its frames must be read.
                    self.note_size(count, source, sink);
                }
                if has_ended {
                    self.state = CopyState::Ending(SourceEnd::Closed);
                }
                Poll::Ready(Ok(count))
            }
        }
    }

    /// Switches a large flow between plain sockets to splicing.
    fn note_size(&mut self, count: usize, source: &mut TransportStream, sink: &mut TransportStream) {
        let CopyState::Copying { large_reads, .. } = &mut self.state else { return };
        *large_reads = if count >= LARGE_BYTES { *large_reads + 1 } else { 0 };
        if *large_reads >= LARGE_READS && source.socket().is_some() && sink.socket().is_some() {
            self.state = CopyState::Splicing { path: SplicePath::default(), small_moves: 0 };
        }
    }

    /// Splices once. A refusal moves no bytes, so the flow can be copied instead.
    fn splice(
        &mut self,
        cx: &mut Context<'_>,
        worker: CopyContext<'_>,
        turn: &mut TurnBudget,
        source: &mut TransportStream,
        sink: &mut TransportStream,
    ) -> Poll<Result<(), CopyFailure>> {
        let CopyState::Splicing { path, small_moves } = &mut self.state else { return Poll::Ready(Ok(())) };
        self.inbox.release(worker.buffers);
        match ready!(path.poll_step(cx, source, sink, u64::MAX))? {
            SpliceStep::Filled(_) => {}
            SpliceStep::Drained(moved) => {
                turn.spliced(moved);
                self.bytes += moved as u64;
                worker.counters.streams.spliced_bytes.add(moved as u64);
                *small_moves = if moved >= LARGE_BYTES { 0 } else { *small_moves + 1 };
                // Bytes in the pipe cannot be copied, so the pipe is drained first.
                if *small_moves >= SMALL_MOVES && !path.holds_bytes() {
                    self.state = CopyState::default();
                }
            }
            SpliceStep::SourceEnded => self.state = CopyState::Ending(SourceEnd::Closed),
            SpliceStep::Refused => self.state = CopyState::default(),
        }
        Poll::Ready(Ok(()))
    }
}

/// Tracks the frames in the inbox from position `from`. While the tunnel is ending, only the rest of a frame
/// is retained.
fn consume_frames(inbox: &mut Inbox, from: usize, watched: &mut WatchedFrames<'_>) {
    let received = &inbox.bytes()[from..];
    if !watched.is_leaving {
        watched.frames.pass(received);
        return;
    }
    let remaining = if watched.frames.is_between() { 0 } else { watched.frames.pass_frame(received) };
    inbox.truncate(from + remaining);
}
