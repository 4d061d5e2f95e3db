//! The bytes that a transfer has read and written.

use super::TransferFailure;

/// Progress of a transfer. Two values differ after any progress, and when the transfer begins or ceases to
/// wait for the sink's own buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TransferProgress {
    moved_bytes: u64,
    is_sink_flushing: bool,
}

impl TransferProgress {
    /// Adds bytes that another transfer has moved.
    pub(crate) fn plus(self, bytes: u64) -> TransferProgress {
        TransferProgress { moved_bytes: self.moved_bytes + bytes, ..self }
    }
}

/// Counts of one transfer.
pub(super) struct TransferMeter {
    /// Data bytes read from the source.
    pub(super) read_bytes: u64,
    /// Bound of `read_bytes`; 0 means none.
    read_bytes_max: u64,
    /// Bytes written to the sink, with the head and framing.
    pub(super) sent_bytes: u64,
    /// Bytes that the socket has taken from the sink's own buffer while the transfer waited for it.
    pub(super) pushed_bytes: u64,
    /// Whether the sink buffers written bytes until its socket is writable, as TLS does.
    pub(super) is_sink_flushing: bool,
}

impl TransferMeter {
    #[inline]
    pub(super) fn new(read_bytes_max: u64) -> TransferMeter {
        TransferMeter {
            read_bytes: 0,
            read_bytes_max,
            sent_bytes: 0,
            pushed_bytes: 0,
            is_sink_flushing: false,
        }
    }

    /// Counts data that was read.
    ///
    /// # Errors
    ///
    /// The body exceeds its bound.
    #[inline]
    pub(super) fn note_read(&mut self, bytes: usize) -> Result<(), TransferFailure> {
        self.read_bytes += bytes as u64;
        if self.read_bytes_max != 0 && self.read_bytes > self.read_bytes_max {
            return Err(TransferFailure::TooLarge);
        }
        Ok(())
    }

    /// The number of bytes that the sink has taken.
    #[inline]
    pub(super) fn taken_bytes(&self) -> u64 {
        self.sent_bytes + self.pushed_bytes
    }

    #[inline]
    pub(super) fn progress(&self) -> TransferProgress {
        let moved_bytes = self.taken_bytes() + self.read_bytes;
        TransferProgress { moved_bytes, is_sink_flushing: self.is_sink_flushing }
    }
}
