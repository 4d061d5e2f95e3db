//! What a source still has to say behind an end that an edit made.

use std::task::{Context, Poll};

use yumen_http::Framing;

use super::{Transfer, TransferFailure};
use crate::body::BodyEncoding;
use crate::buffer::{Buffers, Inbox};
use crate::stream::TransportStream;

impl Transfer {
    /// What its source still has to say behind an end that an edit made, no more than so much of it.
    pub(crate) fn take_surplus(&mut self, bytes_max: u64) -> Transfer {
        let mut surplus = Transfer::new(Framing::None, BodyEncoding::Known, Vec::new(), bytes_max);
        surplus.rest = self.take_rest();
        surplus
    }

    /// Reads such a surplus and drops it; ready when that is all, or broken.
    pub(crate) fn poll_surplus(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &Buffers,
        (source, inbox): (&mut TransportStream, &mut Inbox),
    ) -> Poll<Result<(), TransferFailure>> {
        loop {
            let piece = self.rest.decode(inbox).map_err(TransferFailure::Framing)?;
            // Framing is read as data is.
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
