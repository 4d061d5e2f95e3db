//! The bound of interim responses in one exchange.
//!
//! HTTP/2 and HTTP/3 streams queue heads outside flow control, so a client that does not read would
//! accumulate them. The bound holds for all versions alike.

use yumen_http::HeadError;

use crate::fault::FaultKind;

/// The most interim responses per exchange. Endpoints send them every few seconds at most.
const HEADS_MAX: usize = 16;

/// The interim responses of an exchange, over all attempts.
#[derive(Default)]
pub(crate) struct InterimCount {
    heads: usize,
    bytes: usize,
}

impl InterimCount {
    /// Counts an interim head. All of them together may be as long as one final head.
    pub(crate) fn count(&mut self, bytes: usize, bytes_max: usize) -> Result<(), FaultKind> {
        self.heads += 1;
        self.bytes += bytes;
        let fits = self.heads <= HEADS_MAX && self.bytes <= bytes_max;
        if fits { Ok(()) } else { Err(FaultKind::UpstreamHead(HeadError::TooLarge)) }
    }
}

#[cfg(test)]
mod tests;
