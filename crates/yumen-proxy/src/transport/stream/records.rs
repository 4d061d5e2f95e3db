//! A TCP connection below TLS that tracks record boundaries.
//!
//! rustls does not expose a partial record in its buffer. Without this check, an idle connection would be
//! reused in the middle of a record, and its rest would be read as the next response.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::transport::tcp::TcpConnection;

/// Size of a record header: type, version, length (RFC 8446 §5.1).
const HEADER_BYTES: u8 = 5;

/// A TCP connection that carries TLS records.
pub(crate) struct RecordStream {
    tcp: TcpConnection,
    read: RecordBoundary,
}

/// Position of the read side within a record.
#[derive(Debug, Default)]
struct RecordBoundary {
    /// Number of header bytes read.
    header_bytes: u8,
    /// While the header is read, the length so far; then the remaining bytes of the record.
    left_bytes: u16,
}

impl RecordBoundary {
    fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.header_bytes < HEADER_BYTES {
                // The length is in the last two bytes of a header.
                if self.header_bytes >= HEADER_BYTES - 2 {
                    self.left_bytes = self.left_bytes << 8 | u16::from(*first);
                }
                self.header_bytes += 1;
                bytes = rest;
            } else {
                let count = bytes.len().min(self.left_bytes.into());
                self.left_bytes -= count as u16;
                bytes = &bytes[count..];
            }
            // A record without content ends with its header.
            if self.header_bytes == HEADER_BYTES && self.left_bytes == 0 {
                *self = RecordBoundary::default();
            }
        }
    }
}

impl RecordStream {
    pub(crate) fn new(tcp: TcpConnection) -> RecordStream {
        RecordStream { tcp, read: RecordBoundary::default() }
    }

    pub(crate) fn tcp(&self) -> &TcpConnection {
        &self.tcp
    }

    /// Whether the bytes read so far end with a complete record.
    pub(crate) fn is_between(&self) -> bool {
        self.read.header_bytes == 0
    }
}

impl AsyncRead for RecordStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.tcp).poll_read(cx, buffer))?;
        this.read.pass(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RecordStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tcp).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tcp).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::RecordBoundary;

    #[test]
    fn a_record_is_known_to_end_however_it_is_cut() {
        let record = |length: u16| [&[23, 3, 3], &length.to_be_bytes()[..], &vec![7; length.into()]].concat();
        let (all, ends) = ([record(3), record(0), record(300), record(1)].concat(), [8, 13, 318, 324]);
        for step in 1..=all.len() {
            let (mut boundary, mut read) = (RecordBoundary::default(), 0);
            for piece in all.chunks(step) {
                boundary.pass(piece);
                read += piece.len();
                assert_eq!(boundary.header_bytes == 0, ends.contains(&read), "{read} by {step}");
            }
        }
    }
}
