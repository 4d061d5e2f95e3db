//! A transfer: moves one body from its source to its sink through one bounded buffer, or by splice.
//!
//! The transfer writes data from the buffer it was read into, and reads nothing while a frame is unsent. A
//! slow sink therefore slows its source down, and memory stays bounded. Independent of routes or exchanges.

mod backlog;
mod deferred;
mod surplus;
mod trailers;

use std::io::{self, IoSlice};
use std::ops::Range;
use std::task::{Context, Poll, ready};

use tokio::task::coop;
use yumen_http::body::ChunkSizeLine;
use yumen_http::{BodyError, Framing};
use yumen_plugin::BodyChunk;

use crate::copy::body_edit::BodyEdit;
use crate::copy::splice::{self, SplicePipe};
use crate::fault::FaultKind;
use crate::runtime::buffer::{BUFFER_BYTES, Buffers, Inbox};
use crate::runtime::turn_budget::{self, TurnBudget};
use crate::transport::body::{BodyDecoder, BodyEncoding, BodySlice};
use crate::transport::stream::TransportStream;

#[derive(Debug)]
pub(crate) enum TransferFailure {
    /// Reading failed, or the source ended before its body did.
    Read,
    /// The source's framing is invalid, or its content does not match its content coding.
    Framing(BodyError),
    Write,
    /// The body exceeds `bytes_max`.
    TooLarge,
}

impl TransferFailure {
    /// The fault of the client whose request body failed; `None` if the endpoint stopped reading, which may
    /// still respond.
    pub(crate) fn of_client(&self) -> Option<FaultKind> {
        match self {
            TransferFailure::Read => Some(FaultKind::ClientGone),
            TransferFailure::Framing(error) => Some(FaultKind::Body(*error)),
            TransferFailure::TooLarge => Some(FaultKind::BodyTooLarge),
            TransferFailure::Write => None,
        }
    }
}

/// The body filters of the plugins of an exchange.
pub(crate) type Edit<'e> = &'e mut dyn BodyEdit;

/// The state of one body in transfer.
pub(crate) struct Transfer {
    rest: BodyDecoder,
    ending: BodyEncoding,
    /// Trailers are not forwarded.
    drops_trailers: bool,
    /// Bytes to write before the data: a head, or a chunk-size line.
    prefix: Vec<u8>,
    prefix_sent: usize,
    /// Length of the data at the front of the inbox, to write and consume.
    data: usize,
    /// Length of the framing behind the data, to consume.
    skip: usize,
    suffix: Range<usize>,
    /// The end of the body is in the frame.
    ended: bool,
    /// The sink has accepted all data and buffers some of it until the socket is writable, as TLS does.
    is_held_back: bool,
    /// Bytes of the buffered data that the socket has taken since.
    pushed_bytes: u64,
    /// The edit may hold data back: it has received data since its last pause, or no pause yet.
    held: bool,
    /// The edit is still working on a chunk; the value is true if that chunk ends the body.
    deferred: Option<bool>,
    /// Data bytes read.
    pub(crate) read_bytes: u64,
    /// Bytes written, with the head and framing.
    pub(crate) sent_bytes: u64,
    bytes_max: u64,
    /// The pipe of a splice, with bytes that the sink has not taken yet.
    pipe: Option<SplicePipe>,
}

/// The shortest rest of a body that is spliced. Measured cost against copying: equal for 24 KB in all, two
/// thirds for 100 KB, half for 200 KB.
const SPLICED_BYTES_MIN: u64 = 8 * 1024;
/// The most bytes in the pipe of one splice; as many may wait for a slow sink.
const SPLICED_BYTES_MAX: u64 = 256 * 1024;

/// Data up to this length, in bytes, is copied behind its head.
const JOINED_BYTES_MAX: usize = 2048;

const CRLF_LAST: &[u8] = b"\r\n0\r\n\r\n";

impl Transfer {
    /// Creates a transfer that writes `prefix`, then the body of `framing`, whose end is encoded as `ending`.
    /// A `bytes_max` of 0 sets no limit.
    #[inline(always)]
    pub(crate) fn new(framing: Framing, ending: BodyEncoding, prefix: Vec<u8>, bytes_max: u64) -> Transfer {
        let rest = BodyDecoder::from(framing);
        Transfer {
            ended: rest.is_done(),
            is_held_back: false,
            pushed_bytes: 0,
            rest,
            ending,
            drops_trailers: false,
            prefix,
            prefix_sent: 0,
            data: 0,
            skip: 0,
            suffix: 0..0,
            held: false,
            deferred: None,
            read_bytes: 0,
            sent_bytes: 0,
            bytes_max,
            pipe: None,
        }
    }

    pub(crate) fn drop_trailers(&mut self) {
        self.drops_trailers = true;
    }

    /// Passes even an empty body through the edit of the next poll, after a pause: the edit may insert data
    /// without any input.
    pub(crate) fn expect_edit(&mut self) {
        self.ended = false;
        self.held = true;
    }

    /// Takes the decoder state behind the bytes that were read, for [`Transfer::resume`].
    pub(crate) fn take_rest(&mut self) -> BodyDecoder {
        std::mem::replace(&mut self.rest, BodyDecoder::Done)
    }

    /// Continues a body that another transfer began and of which `read` was read.
    pub(crate) fn resume(&mut self, inbox: &mut Inbox, read: &[u8], rest: BodyDecoder) {
        self.read_bytes = read.len() as u64;
        self.rest = rest;
        // The end of an empty body is yet to be sent, by the next poll.
        self.ended = false;
        if !read.is_empty() {
            self.frame_edited(inbox, read, self.rest.is_done());
        }
    }

    pub(crate) fn trailers(&self) -> &[u8] {
        self.rest.trailers()
    }

    /// Whether the body was read and written completely.
    pub(crate) fn is_done(&self) -> bool {
        self.ended && self.is_flushed() && !self.is_held_back
    }

    /// Whether the source was read to its end. If an edit ends the body early, the rest of the source is not
    /// read.
    pub(crate) fn is_read(&self) -> bool {
        self.rest.is_done()
    }

    fn is_flushed(&self) -> bool {
        self.prefix_sent == self.prefix.len() && self.data == 0 && self.suffix.is_empty()
    }

    pub(crate) fn waits_for_sink(&self) -> bool {
        !self.is_flushed() || self.is_held_back || self.pipe.is_some()
    }

    /// A value that changes with any progress, and when the side that is waited for changes.
    pub(crate) fn progress(&self) -> (u64, bool) {
        (self.taken_bytes() + self.read_bytes, self.is_held_back)
    }

    /// The number of bytes that the sink has taken.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.sent_bytes + self.pushed_bytes
    }

    /// Discards data that was read and will not be written.
    pub(crate) fn discard_frame(&mut self, inbox: &mut Inbox) {
        inbox.consume(std::mem::take(&mut self.data) + std::mem::take(&mut self.skip));
    }

    /// Returns the memory of the prefix.
    pub(crate) fn recycle(&mut self, buffers: &Buffers) {
        buffers.put_text(std::mem::take(&mut self.prefix));
        self.prefix_sent = 0;
    }

    /// Moves data that has arrived into the frame, without reading from the source.
    pub(crate) fn take_buffered(
        &mut self,
        inbox: &mut Inbox,
        edit: &mut Option<Edit<'_>>,
    ) -> Result<(), TransferFailure> {
        if self.ended || self.data != 0 || self.deferred.is_some() {
            return Ok(());
        }
        let piece = self.rest.decode(inbox).map_err(TransferFailure::Framing)?;
        self.read_bytes += piece.data as u64;
        if self.bytes_max != 0 && self.read_bytes > self.bytes_max {
            return Err(TransferFailure::TooLarge);
        }
        self.frame(inbox, piece, edit)
    }

    /// Puts a chunk of the body into the frame.
    fn frame(
        &mut self,
        inbox: &mut Inbox,
        piece: BodySlice,
        edit: &mut Option<Edit<'_>>,
    ) -> Result<(), TransferFailure> {
        let last = self.rest.is_done();
        if let Some(edit) = edit {
            let data = inbox.bytes()[..piece.data].to_vec();
            inbox.consume(piece.data + piece.skip);
            self.held |= !data.is_empty();
            if last || !data.is_empty() {
                let trailers = if last { self.rest.trailers().to_vec() } else { Vec::new() };
                match edit.edit(BodyChunk { data, last, trailers, ..BodyChunk::default() }) {
                    Poll::Ready(edited) => self.take_edited(inbox, edited, last)?,
                    Poll::Pending => self.deferred = Some(last),
                }
            }
            return Ok(());
        }
        self.begin_frame(piece.data);
        // A copy this small costs less than a second slice of a vectored write.
        if piece.data <= JOINED_BYTES_MAX && self.prefix.len() > self.prefix_sent {
            self.prefix.extend_from_slice(&inbox.bytes()[..piece.data]);
            inbox.consume(piece.data + piece.skip);
        } else {
            self.data = piece.data;
            self.skip = piece.skip;
        }
        self.end_frame(inbox, piece.data, last);
        Ok(())
    }

    /// Puts the output of an edit into the frame.
    fn frame_edited(&mut self, inbox: &mut Inbox, edited: &[u8], last: bool) {
        self.begin_frame(edited.len());
        self.prefix.extend_from_slice(edited);
        self.end_frame(inbox, edited.len(), last);
    }

    /// Ends the body with `chunk`, although the source has not ended.
    pub(crate) fn end_with(&mut self, inbox: &mut Inbox, chunk: BodyChunk) {
        inbox.consume(inbox.len());
        self.rest = BodyDecoder::Trailers(chunk.trailers);
        self.frame_edited(inbox, &chunk.data, true);
    }

    /// Frames the data that the edit has held back, as the source pauses; false if there was none.
    #[cold]
    fn frame_held(&mut self, inbox: &mut Inbox, edit: &mut Option<Edit<'_>>) -> bool {
        self.held = false;
        let Some(edit) = edit else { return false };
        let Poll::Ready(edited) = edit.edit(BodyChunk { pause: true, ..BodyChunk::default() }) else {
            self.deferred = Some(false);
            return true;
        };
        let has_more = edited.last || !edited.data.is_empty();
        if has_more {
            self.frame_edited(inbox, &edited.data, edited.last);
        }
        has_more
    }

    /// Writes the chunk-size line (RFC 9112 §7.1).
    fn begin_frame(&mut self, size: usize) {
        if self.prefix_sent == self.prefix.len() {
            self.prefix.clear();
            self.prefix_sent = 0;
        }
        if self.ending == BodyEncoding::Chunk && size > 0 {
            self.prefix.extend_from_slice(ChunkSizeLine::new(size).as_bytes());
        }
    }

    /// Writes the CRLF behind the chunk's data; at the end of the body, also the last chunk and the trailers.
    fn end_frame(&mut self, inbox: &mut Inbox, size: usize, last: bool) {
        self.ended = last;
        if self.data == 0 {
            inbox.consume(std::mem::take(&mut self.skip));
        }
        if self.ending != BodyEncoding::Chunk {
            return;
        }
        let has_trailers = last && !self.trailers_to_send().is_empty();
        self.suffix = match (size, last) {
            (0, false) => 0..0,
            (0, true) => 2..CRLF_LAST.len(),
            (_, false) => 0..2,
            (_, true) => 0..CRLF_LAST.len(),
        };
        if has_trailers {
            // Trailers are rare: they are written apart, behind the data.
            self.suffix.end = self.suffix.end.min(CRLF_LAST.len() - 2);
        }
    }

    /// Writes the frame; ready when all of it is written.
    pub(crate) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        sink: &mut TransportStream,
    ) -> Poll<Result<(), TransferFailure>> {
        if self.ending == BodyEncoding::Stream && self.ended && self.trailers_to_send().is_empty() {
            sink.expect_end();
        }
        while !self.is_flushed() {
            let sent = if self.data == 0 && self.suffix.is_empty() {
                ready!(sink.poll_write(cx, &[IoSlice::new(&self.prefix[self.prefix_sent..])]))
            } else {
                let slices = [
                    IoSlice::new(&self.prefix[self.prefix_sent..]),
                    IoSlice::new(&inbox.bytes()[..self.data]),
                    IoSlice::new(&CRLF_LAST[self.suffix.clone()]),
                ];
                match some_of(&slices) {
                    None => break,
                    Some(range) => ready!(sink.poll_write(cx, &slices[range])),
                }
            };
            self.advance(inbox, written(sent)?);
        }
        self.finish_trailers(cx, inbox, sink)
    }

    /// Tries to write the frame as the last bytes of the connection. Returns whether all was written.
    pub(crate) fn write_last(&mut self, inbox: &mut Inbox, sink: &mut TransportStream) -> bool {
        if !self.ended || !self.trailers_to_send().is_empty() {
            return false;
        }
        let slices = [
            IoSlice::new(&self.prefix[self.prefix_sent..]),
            IoSlice::new(&inbox.bytes()[..self.data]),
            IoSlice::new(&CRLF_LAST[self.suffix.clone()]),
        ];
        let Some(range) = some_of(&slices) else { return true };
        match sink.write_last(&slices[range]) {
            Ok(count) => {
                self.advance(inbox, count);
                self.is_flushed()
            }
            Err(_) => false,
        }
    }

    fn advance(&mut self, inbox: &mut Inbox, mut count: usize) {
        self.sent_bytes += count as u64;
        let prefix = count.min(self.prefix.len() - self.prefix_sent);
        self.prefix_sent += prefix;
        count -= prefix;
        let data = count.min(self.data);
        inbox.consume(data);
        self.data -= data;
        count -= data;
        self.suffix.start += count;
        if self.data == 0 {
            inbox.consume(std::mem::take(&mut self.skip));
        }
    }

    /// Moves the body as far as possible; ready when it is complete or has failed.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &Buffers,
        source: (&mut TransportStream, &mut Inbox),
        sink: &mut TransportStream,
        edit: &mut Option<Edit<'_>>,
    ) -> Poll<Result<(), TransferFailure>> {
        let (stream, inbox) = source;
        let mut turn = TurnBudget::default();
        loop {
            ready!(self.poll_flush(cx, inbox, sink))?;
            if self.ended {
                if self.ending == BodyEncoding::Stream {
                    return Poll::Ready(self.finish_stream(sink));
                }
                return self.poll_push_out(cx, sink);
            }
            if turn.is_over(cx) {
                return Poll::Pending;
            }
            if let Some(last) = self.deferred {
                match self.poll_deferred(cx, inbox, edit, last) {
                    Poll::Pending => {
                        ready!(self.poll_push_out(cx, sink))?;
                        return Poll::Pending;
                    }
                    Poll::Ready(bytes) => turn.edited(bytes?),
                }
                continue;
            }
            if inbox.is_empty() && !self.rest.is_done() {
                if self.may_splice(edit) {
                    inbox.release(buffers);
                    if let Some(spliced) = self.poll_splice(cx, &mut turn, (stream, inbox), sink) {
                        ready!(spliced)?;
                        continue;
                    }
                }
                let bytes_max = buffers.backlog.read_ahead(self.taken_bytes());
                if bytes_max < BUFFER_BYTES {
                    inbox.release(buffers);
                }
                match stream.poll_fill_some(cx, inbox, buffers, bytes_max) {
                    // Without task budget a source is pending although it may have data: poll again.
                    Poll::Pending if self.held && !coop::has_budget_remaining() => {
                        inbox.park(buffers);
                        turn_budget::give_way(cx);
                        return Poll::Pending;
                    }
                    Poll::Pending if self.held && self.frame_held(inbox, edit) => continue,
                    Poll::Pending => {
                        inbox.park(buffers);
                        ready!(self.poll_push_out(cx, sink))?;
                        return Poll::Pending;
                    }
                    Poll::Ready(result) => {
                        turn.copied(*result.as_ref().unwrap_or(&0));
                        self.received(result, stream, inbox.len())?;
                    }
                }
            }
            let before = self.read_bytes;
            self.take_buffered(inbox, edit)?;
            turn.piece();
            if edit.is_some() {
                turn.edited((self.read_bytes - before) as usize);
            }
        }
    }

    /// Writes the frame; ready when the sink buffers nothing.
    pub(crate) fn poll_flush_through(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        sink: &mut TransportStream,
    ) -> Poll<Result<(), TransferFailure>> {
        ready!(self.poll_flush(cx, inbox, sink))?;
        self.poll_push_out(cx, sink)
    }

    /// Flushes the sink's own buffer.
    fn poll_push_out(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut TransportStream,
    ) -> Poll<Result<(), TransferFailure>> {
        let before = sink.taken_bytes();
        let pushed = sink.poll_flush(cx);
        self.pushed_bytes += sink.taken_bytes() - before;
        self.is_held_back = pushed.is_pending();
        pushed.map_err(|_| TransferFailure::Write)
    }

    fn may_splice(&self, edit: &Option<Edit<'_>>) -> bool {
        let is_long = matches!(self.rest, BodyDecoder::Length(left) if left >= SPLICED_BYTES_MIN || self.pipe.is_some());
        is_long && self.ending == BodyEncoding::Known && edit.is_none()
    }

    /// Splices the rest of the body; `None` unless both sides are plain sockets and a pipe is free. The
    /// transfer holds no pipe while it waits for the source.
    fn poll_splice(
        &mut self,
        cx: &mut Context<'_>,
        turn: &mut TurnBudget,
        (source, inbox): (&mut TransportStream, &mut Inbox),
        sink: &mut TransportStream,
    ) -> Option<Poll<Result<(), TransferFailure>>> {
        let (from, to) = (source.socket()?, sink.socket()?);
        let mut pipe = self.pipe.take().or_else(SplicePipe::take)?;
        let moved = loop {
            if pipe.is_empty() {
                let BodyDecoder::Length(left) = &mut self.rest else { return None };
                if *left == 0 {
                    self.rest = BodyDecoder::Done;
                    self.ended = true;
                    // The pool checks for surplus bytes before it reuses the connection.
                    splice::probe_readable(from);
                    break Poll::Ready(Ok(()));
                }
                // Checked after the end: a complete body must not wait for another turn.
                if turn.is_over(cx) {
                    break Poll::Pending;
                }
                match pipe.poll_fill(cx, from, (*left).min(SPLICED_BYTES_MAX)) {
                    Poll::Pending => break Poll::Pending,
                    Poll::Ready(Err(error)) if splice::is_refusal(&error) => return None,
                    Poll::Ready(Ok(0) | Err(_)) => break Poll::Ready(Err(TransferFailure::Read)),
                    Poll::Ready(Ok(count)) => {
                        *left -= count as u64;
                        self.read_bytes += count as u64;
                        inbox.mark_bypassed();
                    }
                }
            }
            match pipe.poll_drain(cx, to) {
                Poll::Pending => {
                    self.pipe = Some(pipe);
                    break Poll::Pending;
                }
                Poll::Ready(Ok(0) | Err(_)) => break Poll::Ready(Err(TransferFailure::Write)),
                Poll::Ready(Ok(count)) => {
                    turn.spliced(count);
                    self.sent_bytes += count as u64;
                }
            }
        };
        Some(moved)
    }

    fn received(
        &mut self,
        result: io::Result<usize>,
        stream: &mut TransportStream,
        waiting: usize,
    ) -> Result<(), TransferFailure> {
        let count = result.map_err(|_| TransferFailure::Read)?;
        match self.rest {
            BodyDecoder::UntilClose => {
                if let Some(ended) = stream.end(count, waiting) {
                    self.rest = ended;
                }
            }
            _ if count == 0 => return Err(TransferFailure::Read),
            _ => {}
        }
        Ok(())
    }
}

fn written(result: io::Result<usize>) -> Result<usize, TransferFailure> {
    match result {
        Ok(0) | Err(_) => Err(TransferFailure::Write),
        Ok(count) => Ok(count),
    }
}

/// The range from the first to the last slice with data; `None` if all are empty.
fn some_of(slices: &[IoSlice<'_>]) -> Option<Range<usize>> {
    let first = slices.iter().position(|slice| !slice.is_empty())?;
    let last = slices.iter().rposition(|slice| !slice.is_empty())?;
    Some(first..last + 1)
}

#[cfg(test)]
mod tests;
