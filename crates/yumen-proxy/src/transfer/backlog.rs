//! What a transfer holds for its sink, and bodies that are fed to it piece by piece so that this stays little.

use bytes::Bytes;

use super::{JOINED_BYTES_MAX, Transfer};
use crate::buffer::{BUFFER_BYTES, Inbox};
use crate::stream::TransportStream;

impl Transfer {
    /// Puts the next piece of a body into the frame behind what is in it, and says how long it is.
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

    /// Bytes of memory that hold what is to be written before the data.
    pub(crate) fn prefix_bytes(&self) -> usize {
        self.prefix.capacity()
    }

    /// Bytes of memory that wait for the sink, those included that the source has sent and that were not taken; 0 where
    /// the sink does not keep the transfer waiting.
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
