//! Trailers at the end of a transfer (RFC 9110 §6.5).

use std::task::{Context, Poll};

use yumen_http::KnownField;

use super::{Transfer, TransferFailure};
use crate::runtime::buffer::Inbox;
use crate::transport::body::{BodyDecoder, BodyEncoding};
use crate::transport::stream::TransportStream;

impl Transfer {
    /// The trailers to forward; empty if there are none.
    pub(super) fn trailers_to_send(&self) -> &[u8] {
        if self.drops_trailers { &[] } else { self.rest.trailers() }
    }

    /// The trailers that may be forwarded (RFC 9110 §6.5.1), and the empty line after them.
    pub(super) fn trailer_lines(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for line in self.trailers_to_send().split_inclusive(|byte| *byte == b'\n') {
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            if KnownField::of(name).may_trail() {
                out.extend_from_slice(line);
            }
        }
        out.extend_from_slice(b"\r\n");
        out
    }

    pub(super) fn finish_trailers(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        sink: &mut TransportStream,
    ) -> Poll<Result<(), TransferFailure>> {
        if self.ending == BodyEncoding::Chunk && self.ended && !self.trailers_to_send().is_empty() {
            self.prefix = self.trailer_lines();
            self.prefix_sent = 0;
            self.rest = BodyDecoder::Done;
            return self.poll_flush(cx, inbox, sink);
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn finish_stream(&self, sink: &mut TransportStream) -> Result<(), TransferFailure> {
        let has_trailers = !self.trailers_to_send().is_empty();
        let trailers = if has_trailers { self.trailer_lines() } else { Vec::new() };
        sink.finish(&trailers).map_err(|_| TransferFailure::Write)
    }
}
