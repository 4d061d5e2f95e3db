//! Trailers at the end of a transfer (RFC 9110 §6.5).

use yumen_http::KnownField;

use super::{Transfer, TransferFailure};
use crate::stream::TransportStream;

impl Transfer {
    /// Does not forward trailers.
    pub(crate) fn drop_trailers(&mut self) {
        self.drops_trailers = true;
    }

    /// The trailers to forward; empty if there are none.
    pub(super) fn trailers_to_send(&self) -> &[u8] {
        if self.drops_trailers { &[] } else { self.decoder.trailers() }
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

    /// Ends an HTTP/2 or HTTP/3 stream, with the trailers if there are any.
    pub(super) fn finish_stream(&self, sink: &mut TransportStream) -> Result<(), TransferFailure> {
        let has_trailers = !self.trailers_to_send().is_empty();
        let trailers = if has_trailers { self.trailer_lines() } else { Vec::new() };
        sink.finish(&trailers).map_err(|_| TransferFailure::Write)
    }
}
