//! The frame of a transfer: the bytes to write next, in the encoding of the sink.
//!
//! Owns the chunked coding (RFC 9112 §7.1). Must not know sources or filters.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::task::{Context, Poll};

use yumen_http::body::ChunkSizeLine;

use crate::runtime::buffer::{BUFFER_BYTES, Buffers, Inbox};
use crate::transport::body::{BodyEncoding, BodySlice};
use crate::transport::stream::TransportStream;

/// Data up to this length, in bytes, is copied behind its head: a copy this small costs less than a second
/// slice of a vectored write.
const JOINED_BYTES_MAX: usize = 2048;

/// The end of a chunk, followed by the last chunk and the end of the trailer section.
const CHUNK_END: &[u8] = b"\r\n0\r\n\r\n";
/// Length of the CRLF that ends the data of a chunk.
const DATA_END_BYTES: usize = 2;
/// Length of the CRLF that ends the trailer section.
const TRAILERS_END_BYTES: usize = 2;

/// The part of the body that follows the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyRest {
    /// More data, or the end of the body.
    Data,
    /// Only trailers of the chunked coding.
    Trailers,
    /// Nothing: the frame ends the body.
    Nothing,
}

/// The bytes to write next: a prefix from memory, data at the front of the inbox, and a suffix of framing.
pub(super) struct BodyFrame {
    encoding: BodyEncoding,
    /// A head, a chunk-size line, or data that is not in the inbox.
    prefix: Vec<u8>,
    prefix_sent: usize,
    /// Length of the data in the inbox, to write and consume.
    data_bytes: usize,
    /// Length of the source's framing behind the data, to consume.
    skip_bytes: usize,
    /// A range of [`CHUNK_END`].
    suffix: Range<usize>,
}

impl BodyFrame {
    #[inline]
    pub(super) fn new(encoding: BodyEncoding, prefix: Vec<u8>) -> BodyFrame {
        BodyFrame { encoding, prefix, prefix_sent: 0, data_bytes: 0, skip_bytes: 0, suffix: 0..0 }
    }

    pub(super) fn encoding(&self) -> BodyEncoding {
        self.encoding
    }

    #[inline]
    pub(super) fn is_flushed(&self) -> bool {
        self.prefix_sent == self.prefix.len() && !self.holds_data() && self.suffix.is_empty()
    }

    /// Whether the inbox begins with data of the frame.
    #[inline]
    pub(super) fn holds_data(&self) -> bool {
        self.data_bytes != 0
    }

    /// Adds received data, which stays in the inbox until it is written.
    #[inline]
    pub(super) fn put_received(&mut self, inbox: &mut Inbox, slice: BodySlice, rest: BodyRest) {
        self.begin_chunk(slice.data);
        if slice.data <= JOINED_BYTES_MAX && self.prefix.len() > self.prefix_sent {
            self.prefix.extend_from_slice(&inbox.bytes()[..slice.data]);
            inbox.consume(slice.data + slice.skip);
        } else if slice.data == 0 {
            inbox.consume(slice.skip);
        } else {
            (self.data_bytes, self.skip_bytes) = (slice.data, slice.skip);
        }
        self.end_chunk(slice.data, rest);
    }

    /// Adds data that is not in the inbox.
    pub(super) fn put_data(&mut self, data: &[u8], rest: BodyRest) {
        self.begin_chunk(data.len());
        self.prefix.extend_from_slice(data);
        self.end_chunk(data.len(), rest);
    }

    /// Adds trailers, as the lines that follow the last chunk.
    pub(super) fn put_trailers(&mut self, lines: Vec<u8>) {
        (self.prefix, self.prefix_sent) = (lines, 0);
    }

    /// Returns the length, in bytes, up to which [`BodyFrame::append`] keeps the frame within a buffer.
    pub(super) fn capacity_left(&mut self) -> usize {
        self.drop_sent_prefix();
        BUFFER_BYTES.saturating_sub(self.prefix.len()).max(JOINED_BYTES_MAX)
    }

    /// Adds bytes without framing.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.prefix.extend_from_slice(bytes);
    }

    fn drop_sent_prefix(&mut self) {
        if self.prefix_sent == self.prefix.len() {
            self.prefix.clear();
            self.prefix_sent = 0;
        }
    }

    /// Writes the chunk-size line (RFC 9112 §7.1).
    #[inline]
    fn begin_chunk(&mut self, data_bytes: usize) {
        self.drop_sent_prefix();
        if self.encoding == BodyEncoding::Chunk && data_bytes > 0 {
            self.prefix.extend_from_slice(ChunkSizeLine::new(data_bytes).as_bytes());
        }
    }

    /// Ends the chunk and, at the end of the body, adds the last chunk. A chunk of length 0 would end the
    /// body, so empty data is written as none.
    #[inline]
    fn end_chunk(&mut self, data_bytes: usize, rest: BodyRest) {
        if self.encoding != BodyEncoding::Chunk {
            return;
        }
        // Without data there is no open chunk whose CRLF would be due.
        let start = if data_bytes == 0 { DATA_END_BYTES } else { 0 };
        let end = match rest {
            BodyRest::Data => DATA_END_BYTES,
            BodyRest::Trailers => CHUNK_END.len() - TRAILERS_END_BYTES,
            BodyRest::Nothing => CHUNK_END.len(),
        };
        self.suffix = start..end;
    }

    /// Writes some bytes of the frame, which is not flushed, and returns their number.
    #[inline]
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        sink: &mut TransportStream,
    ) -> Poll<io::Result<usize>> {
        let written = if !self.holds_data() && self.suffix.is_empty() {
            sink.poll_write(cx, &[IoSlice::new(&self.prefix[self.prefix_sent..])])
        } else {
            let slices = self.slices(inbox);
            sink.poll_write(cx, &slices[filled(&slices)])
        };
        written.map_ok(|count| self.advance(inbox, count))
    }

    /// Writes the frame as the last bytes of the connection, as far as that is possible without waiting;
    /// returns the number of bytes.
    pub(super) fn write_last(&mut self, inbox: &mut Inbox, sink: &mut TransportStream) -> io::Result<usize> {
        let slices = self.slices(inbox);
        let count = sink.write_last(&slices[filled(&slices)])?;
        Ok(self.advance(inbox, count))
    }

    fn slices<'f>(&'f self, inbox: &'f Inbox) -> [IoSlice<'f>; 3] {
        [
            IoSlice::new(&self.prefix[self.prefix_sent..]),
            IoSlice::new(&inbox.bytes()[..self.data_bytes]),
            IoSlice::new(&CHUNK_END[self.suffix.clone()]),
        ]
    }

    /// Removes `count` written bytes, and returns their number.
    fn advance(&mut self, inbox: &mut Inbox, count: usize) -> usize {
        let prefix = count.min(self.prefix.len() - self.prefix_sent);
        self.prefix_sent += prefix;
        let data = (count - prefix).min(self.data_bytes);
        inbox.consume(data);
        self.data_bytes -= data;
        self.suffix.start += count - prefix - data;
        if !self.holds_data() {
            inbox.consume(std::mem::take(&mut self.skip_bytes));
        }
        count
    }

    /// Removes the data of the frame, unwritten, from the inbox.
    pub(super) fn discard_data(&mut self, inbox: &mut Inbox) {
        inbox.consume(std::mem::take(&mut self.data_bytes) + std::mem::take(&mut self.skip_bytes));
    }

    /// Returns the memory of the prefix.
    #[inline]
    pub(super) fn recycle(&mut self, buffers: &Buffers) {
        buffers.put_text(std::mem::take(&mut self.prefix));
        self.prefix_sent = 0;
    }

    /// Bytes of memory allocated for the prefix.
    pub(super) fn prefix_capacity(&self) -> usize {
        self.prefix.capacity()
    }
}

/// The range from the first to the last slice with data.
fn filled(slices: &[IoSlice<'_>]) -> Range<usize> {
    let first = slices.iter().position(|slice| !slice.is_empty()).unwrap_or(0);
    let end = slices.iter().rposition(|slice| !slice.is_empty()).map_or(0, |last| last + 1);
    first..end
}

#[cfg(test)]
mod tests;
