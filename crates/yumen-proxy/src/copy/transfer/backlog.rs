//! The memory that a transfer holds for its sink. Bodies from memory are fed to it chunk by chunk to bound
//! that memory.

use bytes::Bytes;

use super::{JOINED_BYTES_MAX, Transfer};
use crate::runtime::buffer::{BUFFER_BYTES, Inbox};
use crate::transport::stream::TransportStream;

impl Transfer {
    /// Appends the next chunk of `body` to the frame and returns its length in bytes.
    pub(crate) fn refill(&mut self, body: &mut Bytes) -> usize {
        if body.is_empty() {
            return 0;
        }
        self.begin_frame(0);
        let count = body.len().min(BUFFER_BYTES.saturating_sub(self.prefix.len()).max(JOINED_BYTES_MAX));
        self.prefix.extend_from_slice(&body.split_to(count));
        self.ended = body.is_empty();
        count
    }

    /// Bytes of memory allocated for the prefix.
    pub(crate) fn prefix_bytes(&self) -> usize {
        self.prefix.capacity()
    }

    /// Bytes of memory that wait for the sink, with bytes of the source that were received and not read; 0
    /// unless the transfer waits for its sink.
    pub(crate) fn backlog_bytes(
        &self,
        source: &mut TransportStream,
        inbox: &Inbox,
        sink: &TransportStream,
    ) -> usize {
        if !self.waits_for_sink() {
            return 0;
        }
        self.prefix.capacity() + inbox.held_bytes() + source.unread_bytes() + sink.session_bytes()
    }
}
