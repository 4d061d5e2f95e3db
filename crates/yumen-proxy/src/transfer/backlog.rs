//! The memory that a transfer holds for its sink. Bodies from memory are fed to it chunk by chunk to bound
//! that memory.

use bytes::Bytes;

use super::{BodyRest, Transfer};
use crate::buffer::Inbox;
use crate::stream::TransportStream;

impl Transfer {
    /// Appends the next chunk of `body` to the frame and returns its length in bytes.
    pub(crate) fn refill(&mut self, body: &mut Bytes) -> usize {
        if body.is_empty() {
            return 0;
        }
        let count = body.len().min(self.frame.capacity_left());
        self.frame.append(&body.split_to(count));
        self.rest = if body.is_empty() { BodyRest::Nothing } else { BodyRest::Data };
        count
    }

    /// Bytes of memory allocated for the prefix.
    pub(crate) fn prefix_bytes(&self) -> usize {
        self.frame.prefix_capacity()
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
        self.frame.prefix_capacity() + source.backlog_bytes(inbox, sink)
    }
}
