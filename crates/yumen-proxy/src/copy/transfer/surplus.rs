//! The surplus of a source: the data behind the end that a filter has set.

use std::task::{Context, Poll};

use yumen_http::Framing;

use super::{BodySource, Transfer, TransferFailure};
use crate::runtime::buffer::Buffers;
use crate::transport::body::BodyEncoding;

impl Transfer {
    /// The surplus of this transfer, of which at most `bytes_max` bytes are read.
    pub(crate) fn take_surplus(&mut self, bytes_max: u64) -> Transfer {
        let mut surplus = Transfer::new(Framing::None, BodyEncoding::Known, Vec::new(), bytes_max);
        surplus.decoder = self.take_decoder();
        surplus
    }

    /// Reads and discards a surplus; ready when it has ended or failed.
    pub(crate) fn poll_surplus(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &Buffers,
        source: BodySource<'_>,
    ) -> Poll<Result<(), TransferFailure>> {
        let BodySource { stream, inbox } = source;
        loop {
            let slice = self.decoder.decode(inbox).map_err(TransferFailure::Framing)?;
            inbox.consume(slice.data + slice.skip);
            // Framing counts like data: one-byte chunks would exceed the bound several times otherwise.
            let counted = self.meter.note_read(slice.data + slice.skip);
            // A surplus that ends with the read that exceeds the bound is still complete.
            if self.decoder.is_done() {
                return Poll::Ready(Ok(()));
            }
            counted?;
            let Poll::Ready(filled) = stream.poll_fill(cx, inbox, buffers) else {
                inbox.park(buffers);
                return Poll::Pending;
            };
            self.received(filled, stream, inbox.len())?;
        }
    }
}
