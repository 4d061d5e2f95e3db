//! A transfer: moves one body from its source to its sink through one bounded buffer, or by splice.
//!
//! The transfer writes data from the buffer it was read into, and reads nothing while a frame is unsent. A
//! slow sink therefore slows its source down, and memory stays bounded. Independent of routes or exchanges.
//!
//! A body ends by its framing and leaves its sink open, whereas a `OneWayCopy` ends with the stream and shuts
//! its sink down. One loop for both would decode and frame every message of a tunnel, so they share their
//! steps instead: the splice path, the read-ahead, the turn budget and the backlog.

mod backlog;
mod filter;
mod frame;
mod meter;
mod splicing;
mod surplus;
mod trailers;

use std::io;
use std::task::{Context, Poll, ready};

use tokio::task::coop;
use yumen_http::{BodyError, Framing};
use yumen_plugin::{BodyChunk, BodyTap};

use crate::copy::body_edit::BodyEdit;
use crate::copy::splice::SplicePath;
use crate::fault::FaultKind;
use crate::runtime::buffer::{Buffers, Inbox};
use crate::runtime::turn_budget::{self, TurnBudget};
use crate::transport::body::{BodyDecoder, BodyEncoding};
use crate::transport::stream::TransportStream;
use filter::FilterStage;
use frame::{BodyFrame, BodyRest};
use meter::TransferMeter;
pub(crate) use meter::TransferProgress;

#[derive(Debug)]
pub(crate) enum TransferFailure {
    /// Reading failed, or the source ended before its body did.
    Read,
    /// The source's framing is invalid, or its content does not match its content coding.
    Framing(BodyError),
    Write,
    /// The body exceeds its bound.
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

/// The stream that a body is read from, and its received bytes.
pub(crate) struct BodySource<'s> {
    pub(crate) stream: &'s mut TransportStream,
    pub(crate) inbox: &'s mut Inbox,
}

/// The state of one body in transfer.
pub(crate) struct Transfer {
    /// The part of the body that the source has not delivered.
    decoder: BodyDecoder,
    filter: FilterStage,
    frame: BodyFrame,
    /// The part of the body that follows the frame.
    rest: BodyRest,
    /// Trailers are not forwarded.
    drops_trailers: bool,
    splice: SplicePath,
    meter: TransferMeter,
    /// Copies the begin of the body for loggers. Boxed, since few bodies are logged.
    pub(crate) tap: Option<Box<BodyTap>>,
}

impl Transfer {
    /// Creates a transfer that writes `prefix`, then the body of `framing`, whose end is encoded as `encoding`.
    /// A `bytes_max` of 0 sets no limit.
    #[inline]
    pub(crate) fn new(framing: Framing, encoding: BodyEncoding, prefix: Vec<u8>, bytes_max: u64) -> Transfer {
        let decoder = BodyDecoder::from(framing);
        Transfer {
            rest: if decoder.is_done() { BodyRest::Nothing } else { BodyRest::Data },
            decoder,
            filter: FilterStage::Empty,
            frame: BodyFrame::new(encoding, prefix),
            drops_trailers: false,
            splice: SplicePath::default(),
            meter: TransferMeter::new(bytes_max),
            tap: None,
        }
    }

    /// Takes the decoder state behind the bytes that were read, for [`Transfer::resume`].
    pub(crate) fn take_decoder(&mut self) -> BodyDecoder {
        std::mem::replace(&mut self.decoder, BodyDecoder::Done)
    }

    /// Continues a body that another transfer began and of which `read` was read.
    pub(crate) fn resume(&mut self, read: &[u8], decoder: BodyDecoder) {
        self.meter.read_bytes = read.len() as u64;
        self.decoder = decoder;
        // The end of an empty body is yet to be sent, by the next poll.
        self.reopen();
        if !read.is_empty() {
            if let Some(tap) = &mut self.tap {
                tap.take(read);
            }
            self.frame_data(read, self.decoder.is_done());
        }
    }

    /// Makes the next poll frame the end of the body, even if the source has ended.
    fn reopen(&mut self) {
        self.rest = BodyRest::Data;
    }

    /// Ends the body with `chunk`, although the source has not ended.
    pub(crate) fn end_with(&mut self, inbox: &mut Inbox, chunk: BodyChunk) {
        inbox.consume(inbox.len());
        self.decoder = BodyDecoder::Trailers(chunk.trailers);
        self.frame_data(&chunk.data, true);
    }

    pub(crate) fn trailers(&self) -> &[u8] {
        self.decoder.trailers()
    }

    /// Data bytes read.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.meter.read_bytes
    }

    /// Bytes written, with the head and framing.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.meter.sent_bytes
    }

    /// The number of bytes that the sink has taken.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.meter.taken_bytes()
    }

    pub(crate) fn progress(&self) -> TransferProgress {
        self.meter.progress()
    }

    /// Whether the body was read and written completely.
    pub(crate) fn is_done(&self) -> bool {
        self.rest == BodyRest::Nothing && self.frame.is_flushed() && !self.meter.is_sink_flushing
    }

    /// Whether the source was read to its end. If a filter ends the body early, the rest of the source is not
    /// read.
    pub(crate) fn is_read(&self) -> bool {
        self.decoder.is_done()
    }

    pub(crate) fn waits_for_sink(&self) -> bool {
        !self.frame.is_flushed() || self.meter.is_sink_flushing || self.splice.holds_bytes()
    }

    /// Discards data that was read and will not be written.
    pub(crate) fn discard_frame(&mut self, inbox: &mut Inbox) {
        self.frame.discard_data(inbox);
    }

    /// Returns the memory of the prefix.
    pub(crate) fn recycle(&mut self, buffers: &Buffers) {
        self.frame.recycle(buffers);
    }

    /// Moves data that has arrived into the frame, without reading from the source; returns its length in
    /// bytes.
    pub(crate) fn take_buffered(
        &mut self,
        inbox: &mut Inbox,
        edit: &mut Option<Edit<'_>>,
    ) -> Result<usize, TransferFailure> {
        let is_computing = matches!(self.filter, FilterStage::Computing(_));
        if self.rest != BodyRest::Data || self.frame.holds_data() || is_computing {
            return Ok(0);
        }
        let slice = self.decoder.decode(inbox).map_err(TransferFailure::Framing)?;
        let bytes = slice.data;
        self.meter.note_read(bytes)?;
        if let Some(tap) = &mut self.tap {
            tap.take(&inbox.bytes()[..bytes]);
        }
        match edit {
            Some(edit) => self.filter_slice(inbox, slice, edit)?,
            None => {
                self.rest = self.rest_after(self.decoder.is_done());
                self.frame.put_received(inbox, slice, self.rest);
            }
        }
        Ok(bytes)
    }

    /// Frames data that is not in the inbox; `last` if it ends the body.
    fn frame_data(&mut self, data: &[u8], last: bool) {
        self.rest = self.rest_after(last);
        self.frame.put_data(data, self.rest);
    }

    fn rest_after(&self, last: bool) -> BodyRest {
        match last {
            false => BodyRest::Data,
            true if self.frame.encoding() == BodyEncoding::Chunk && !self.trailers_to_send().is_empty() => {
                BodyRest::Trailers
            }
            true => BodyRest::Nothing,
        }
    }

    /// Writes the frame; ready when all of it is written.
    pub(crate) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        sink: &mut TransportStream,
    ) -> Poll<Result<(), TransferFailure>> {
        let is_stream = self.frame.encoding() == BodyEncoding::Stream;
        if is_stream && self.rest == BodyRest::Nothing && self.trailers_to_send().is_empty() {
            // The last DATA frame then carries END_STREAM, and no empty frame follows.
            sink.expect_end();
        }
        loop {
            while !self.frame.is_flushed() {
                match ready!(self.frame.poll_write(cx, inbox, sink)) {
                    Ok(0) | Err(_) => return Poll::Ready(Err(TransferFailure::Write)),
                    Ok(count) => self.meter.sent_bytes += count as u64,
                }
            }
            if self.rest != BodyRest::Trailers {
                return Poll::Ready(Ok(()));
            }
            self.frame.put_trailers(self.trailer_lines());
            self.rest = BodyRest::Nothing;
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
        self.poll_flush_sink(cx, sink)
    }

    /// Flushes the sink's own buffer.
    fn poll_flush_sink(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut TransportStream,
    ) -> Poll<Result<(), TransferFailure>> {
        let before = sink.taken_bytes();
        let flushed = sink.poll_flush(cx);
        self.meter.pushed_bytes += sink.taken_bytes() - before;
        self.meter.is_sink_flushing = flushed.is_pending();
        flushed.map_err(|_| TransferFailure::Write)
    }

    /// Tries to write the frame as the last bytes of the connection. Returns whether all was written.
    pub(crate) fn write_last(&mut self, inbox: &mut Inbox, sink: &mut TransportStream) -> bool {
        if self.rest != BodyRest::Nothing || !self.trailers_to_send().is_empty() {
            return false;
        }
        if !self.frame.is_flushed() {
            let Ok(count) = self.frame.write_last(inbox, sink) else { return false };
            self.meter.sent_bytes += count as u64;
        }
        self.frame.is_flushed()
    }

    /// Moves the body as far as possible; ready when it is complete or has failed.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &Buffers,
        source: BodySource<'_>,
        sink: &mut TransportStream,
        edit: &mut Option<Edit<'_>>,
    ) -> Poll<Result<(), TransferFailure>> {
        let BodySource { stream, inbox } = source;
        let mut turn = TurnBudget::default();
        loop {
            ready!(self.poll_flush(cx, inbox, sink))?;
            if self.rest == BodyRest::Nothing {
                return self.poll_end(cx, sink);
            }
            // Checked after the end: a body whose last byte has moved ends within its turn (decision 48).
            if turn.is_over(cx) {
                return Poll::Pending;
            }
            if let FilterStage::Computing(input) = self.filter {
                let Poll::Ready(computed) = self.poll_computed(cx, edit, input) else {
                    return self.poll_idle(cx, sink);
                };
                turn.edited(computed?);
                continue;
            }
            if inbox.is_empty() && !self.decoder.is_done() {
                if self.may_splice(edit) {
                    inbox.release(buffers);
                    let source = BodySource { stream, inbox };
                    if ready!(self.poll_splice(cx, &mut turn, source, sink))? {
                        continue;
                    }
                }
                match stream.poll_read_ahead(cx, inbox, buffers, self.taken_bytes()) {
                    Poll::Ready(result) => {
                        turn.copied(*result.as_ref().unwrap_or(&0));
                        self.received(result, stream, inbox.len())?;
                    }
                    // Without task budget a source is pending although it may have data: poll again.
                    Poll::Pending if self.filter == FilterStage::Fed && !coop::has_budget_remaining() => {
                        inbox.park(buffers);
                        turn_budget::yield_task(cx);
                        return Poll::Pending;
                    }
                    // The source pauses, so the filters release the data that they hold back (decision 24).
                    Poll::Pending if self.filter == FilterStage::Fed && self.frame_held_back(edit) => {
                        continue;
                    }
                    Poll::Pending => {
                        inbox.park(buffers);
                        return self.poll_idle(cx, sink);
                    }
                }
            }
            let bytes = self.take_buffered(inbox, edit)?;
            turn.piece();
            if edit.is_some() {
                turn.edited(bytes);
            }
        }
    }

    /// Ends the body at its sink, behind the last frame.
    fn poll_end(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut TransportStream,
    ) -> Poll<Result<(), TransferFailure>> {
        if self.frame.encoding() == BodyEncoding::Stream {
            return Poll::Ready(self.finish_stream(sink));
        }
        self.poll_flush_sink(cx, sink)
    }

    /// Flushes the sink while there is no data; ready only if that fails.
    fn poll_idle(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut TransportStream,
    ) -> Poll<Result<(), TransferFailure>> {
        ready!(self.poll_flush_sink(cx, sink))?;
        Poll::Pending
    }

    /// Checks a read of the source: its result, and the number of bytes that are not decoded yet.
    fn received(
        &mut self,
        result: io::Result<usize>,
        stream: &TransportStream,
        undecoded: usize,
    ) -> Result<(), TransferFailure> {
        let count = result.map_err(|_| TransferFailure::Read)?;
        match self.decoder {
            BodyDecoder::UntilClose => {
                if let Some(ended) = stream.end(count, undecoded) {
                    self.decoder = ended;
                }
            }
            _ if count == 0 => return Err(TransferFailure::Read),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
