//! The surplus of a source: the data behind the end that an edit has set.

use std::task::{Context, Poll};

use yumen_http::Framing;

use super::{Transfer, TransferFailure};
use crate::runtime::buffer::{Buffers, Inbox};
use crate::transport::body::BodyEncoding;
use crate::transport::stream::TransportStream;

impl Transfer {
    /// The surplus of this transfer, of which at most `bytes_max` bytes are read.
    pub(crate) fn take_surplus(&mut self, bytes_max: u64) -> Transfer {
        let mut surplus = Transfer::new(Framing::None, BodyEncoding::Known, Vec::new(), bytes_max);
        surplus.rest = self.take_rest();
        surplus
    }

    /// Reads and discards a surplus; ready when it has ended or failed.
    pub(crate) fn poll_surplus(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &Buffers,
        (source, inbox): (&mut TransportStream, &mut Inbox),
    ) -> Poll<Result<(), TransferFailure>> {
        loop {
            let piece = self.rest.decode(inbox).map_err(TransferFailure::Framing)?;
            // Framing counts like data: one-byte chunks would exceed the bound several times otherwise.
            self.read_bytes += (piece.data + piece.skip) as u64;
            inbox.consume(piece.data + piece.skip);
            if self.rest.is_done() {
                return Poll::Ready(Ok(()));
            }
            if self.read_bytes > self.bytes_max {
                return Poll::Ready(Err(TransferFailure::TooLarge));
            }
            let Poll::Ready(filled) = source.poll_fill(cx, inbox, buffers) else {
                inbox.park(buffers);
                return Poll::Pending;
            };
            self.received(filled, source, inbox.len())?;
        }
    }
}
