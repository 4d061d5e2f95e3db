//! Moves a body from one side to the other, through one bounded buffer, or uncopied where it is long and both are sockets.
//!
//! Data is written from where it was read. Nothing is read while something waits to be written, so
//! a slow reader slows its writer down and memory stays bounded.

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

use crate::body::{BodyDecoder, BodyEncoding, BodySlice};
use crate::body_edit::BodyEdit;
use crate::buffer::{BUFFER_BYTES, Buffers, Inbox};
use crate::fault::FaultKind;
use crate::splice::{self, SplicePipe};
use crate::stream::TransportStream;
use crate::turn_budget::{self, TurnBudget};

/// Why a transfer stopped.
#[derive(Debug)]
pub(crate) enum TransferFailure {
    /// Reading failed, or the source ended before its body did.
    Read,
    /// The source's framing is wrong, or its content is not in the coding it says.
    Framing(BodyError),
    /// The sink failed.
    Write,
    /// The body is longer than allowed.
    TooLarge,
}

impl TransferFailure {
    /// What a client did whose body broke; `None` where it was the endpoint that took no more of it, which may still
    /// answer.
    pub(crate) fn of_client(&self) -> Option<FaultKind> {
        match self {
            TransferFailure::Read => Some(FaultKind::ClientGone),
            TransferFailure::Framing(error) => Some(FaultKind::Body(*error)),
            TransferFailure::TooLarge => Some(FaultKind::BodyTooLarge),
            TransferFailure::Write => None,
        }
    }
}

/// The plugins that a body goes through on its way.
pub(crate) type Edit<'e> = &'e mut dyn BodyEdit;

/// One body on its way.
pub(crate) struct Transfer {
    rest: BodyDecoder,
    ending: BodyEncoding,
    /// What comes behind the body goes no further.
    drops_trailers: bool,
    /// Bytes to write before the data: a head, a chunk's size line.
    prefix: Vec<u8>,
    prefix_sent: usize,
    /// Data at the front of the inbox, to write and consume.
    data: usize,
    /// Framing behind it, to consume.
    skip: usize,
    suffix: Range<usize>,
    /// Trailers and the last chunk were put into a frame.
    ended: bool,
    /// The sink was given all there is, and holds some of it back until the socket takes more, as TLS does.
    is_held_back: bool,
    /// How much of that the socket has taken.
    pushed_bytes: u64,
    /// The edit got data since it was last told of a pause, or was told of none yet, and may hold something back.
    held: bool,
    /// The edit still owes a piece, and whether that ends the body.
    deferred: Option<bool>,
    /// Data bytes read so far.
    pub(crate) read_bytes: u64,
    /// Bytes written so far, framing and head included.
    pub(crate) sent_bytes: u64,
    bytes_max: u64,
    /// Holds what the sink did not take yet of the part that goes from socket to socket.
    pipe: Option<SplicePipe>,
}

/// Bodies with so much left go on from socket to socket. For 24 KB in all that costs what copying does, for 100 KB
/// two thirds of it, for 200 KB half.
const SPLICED_BYTES_MIN: u64 = 8 * 1024;
/// And no more of them at once, as much may wait for a slow reader.
const SPLICED_BYTES_MAX: u64 = 256 * 1024;

/// Data up to this length is written from beside its head.
const JOINED_BYTES_MAX: usize = 2048;

const CRLF_LAST: &[u8] = b"\r\n0\r\n\r\n";

impl Transfer {
    /// A transfer that first writes `prefix`, then the body of `framing`; `ending` says how the sink is
    /// told of its end. 0 for `bytes_max` is no bound.
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

    /// Says that trailers are not passed on.
    pub(crate) fn drop_trailers(&mut self) {
        self.drops_trailers = true;
    }

    /// Also passes an empty body through the edit that a later poll brings, and tells it of a pause before all data: it
    /// may have something to say without any.
    pub(crate) fn expect_edit(&mut self) {
        self.ended = false;
        self.held = true;
    }

    /// How the body goes on behind what was read, for whoever resumes it.
    pub(crate) fn take_rest(&mut self) -> BodyDecoder {
        std::mem::replace(&mut self.rest, BodyDecoder::Done)
    }

    /// Goes on with a body that another transfer began: `read` is what that one read of it.
    pub(crate) fn resume(&mut self, inbox: &mut Inbox, read: &[u8], rest: BodyDecoder) {
        self.read_bytes = read.len() as u64;
        self.rest = rest;
        // Of a body of nothing the end is still to be told, by the next poll.
        self.ended = false;
        if !read.is_empty() {
            self.frame_edited(inbox, read, self.rest.is_done());
        }
    }

    /// The trailers that came behind the body, as field lines.
    pub(crate) fn trailers(&self) -> &[u8] {
        self.rest.trailers()
    }

    /// Whether everything was read and written.
    pub(crate) fn is_done(&self) -> bool {
        self.ended && self.is_flushed() && !self.is_held_back
    }

    /// Whether everything was read, though not yet written. Where an edit ended the body before its source did, the
    /// rest of that never is.
    pub(crate) fn is_read(&self) -> bool {
        self.rest.is_done()
    }

    fn is_flushed(&self) -> bool {
        self.prefix_sent == self.prefix.len() && self.data == 0 && self.suffix.is_empty()
    }

    /// Whether it is the sink that keeps it waiting.
    pub(crate) fn waits_for_sink(&self) -> bool {
        !self.is_flushed() || self.is_held_back || self.pipe.is_some()
    }

    /// Changes whenever something has moved, and whoever is waited for.
    pub(crate) fn progress(&self) -> (u64, bool) {
        (self.taken_bytes() + self.read_bytes, self.is_held_back)
    }

    /// Grows with what its sink takes.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.sent_bytes + self.pushed_bytes
    }

    /// Drops what was read and will not be written.
    pub(crate) fn discard_frame(&mut self, inbox: &mut Inbox) {
        inbox.consume(std::mem::take(&mut self.data) + std::mem::take(&mut self.skip));
    }

    /// Gives the prefix's memory back.
    pub(crate) fn recycle(&mut self, buffers: &Buffers) {
        buffers.put_text(std::mem::take(&mut self.prefix));
        self.prefix_sent = 0;
    }

    /// Reads what has already arrived into the frame, without touching the source.
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

    /// Puts a piece into the frame to be written next.
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

    /// Puts what an edit made of a piece into the frame.
    fn frame_edited(&mut self, inbox: &mut Inbox, edited: &[u8], last: bool) {
        self.begin_frame(edited.len());
        self.prefix.extend_from_slice(edited);
        self.end_frame(inbox, edited.len(), last);
    }

    /// Ends the body here, with this behind what was sent, though its source had more to say.
    pub(crate) fn end_with(&mut self, inbox: &mut Inbox, chunk: BodyChunk) {
        inbox.consume(inbox.len());
        self.rest = BodyDecoder::Trailers(chunk.trailers);
        self.frame_edited(inbox, &chunk.data, true);
    }

    /// What the edit held back, now that the source has nothing more for a while; whether there was any.
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

    /// Before the data: the chunk's size.
    fn begin_frame(&mut self, size: usize) {
        if self.prefix_sent == self.prefix.len() {
            self.prefix.clear();
            self.prefix_sent = 0;
        }
        if self.ending == BodyEncoding::Chunk && size > 0 {
            self.prefix.extend_from_slice(ChunkSizeLine::new(size).as_bytes());
        }
    }

    /// Behind the data: the chunk's CRLF, and after the last one the end and the trailers.
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
            // Rare: the end is written apart, behind the data.
            self.suffix.end = self.suffix.end.min(CRLF_LAST.len() - 2);
        }
    }

    /// Writes the frame; ready when it is all gone.
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

    /// Writes the frame as the last bytes of the connection, if it all goes at once; says whether it did.
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

    /// Moves the body on as far as it goes; ready when it is complete or broken.
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
                    // Without a budget left some sources were not asked, and others were: the next poll tells.
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

    /// Writes the frame; ready when the sink holds nothing of it back.
    pub(crate) fn poll_flush_through(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        sink: &mut TransportStream,
    ) -> Poll<Result<(), TransferFailure>> {
        ready!(self.poll_flush(cx, inbox, sink))?;
        self.poll_push_out(cx, sink)
    }

    /// Has the sink send what it holds back.
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

    /// Moves what is left of the body from socket to socket; `None` where the sides are not just that, or there is no
    /// pipe. While the source has nothing to say, no pipe is held.
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
                    // Whoever keeps the connection asks whether it is quiet.
                    splice::probe_readable(from);
                    break Poll::Ready(Ok(()));
                }
                // Not at the end: a body of which nothing is left is not waited for.
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

/// The slices from the first to the last that hold something; `None` where all are empty.
fn some_of(slices: &[IoSlice<'_>]) -> Option<Range<usize>> {
    let first = slices.iter().position(|slice| !slice.is_empty())?;
    let last = slices.iter().rposition(|slice| !slice.is_empty())?;
    Some(first..last + 1)
}

#[cfg(test)]
mod tests;
