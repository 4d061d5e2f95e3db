//! How many interim answers an endpoint may give in one exchange.
//!
//! Streams of HTTP/2 and HTTP/3 queue heads for clients that do not read, beside all flow control: the bound is here,
//! for clients of every version alike, since none has a use for more.

use yumen_http::HeadError;

use crate::fault::FaultKind;

/// An endpoint that says it is still at work does so every few seconds at most, and not for ever.
const HEADS_MAX: usize = 16;

/// The interim answers of an exchange, whichever of its attempts they came in.
#[derive(Default)]
pub(crate) struct InterimCount {
    heads: usize,
    bytes: usize,
}

impl InterimCount {
    /// Counts one of this length; all of them may take as many bytes as a final head may.
    pub(crate) fn count(&mut self, bytes: usize, bytes_max: usize) -> Result<(), FaultKind> {
        self.heads += 1;
        self.bytes += bytes;
        let fits = self.heads <= HEADS_MAX && self.bytes <= bytes_max;
        if fits { Ok(()) } else { Err(FaultKind::UpstreamHead(HeadError::TooLarge)) }
    }
}

#[cfg(test)]
mod tests;
