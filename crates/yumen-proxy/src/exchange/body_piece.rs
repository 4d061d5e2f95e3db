//! Chunks of a response body between two plugins, and chunks that wait for a computation in another thread.
//!
//! Owns the position of a chunk in the chain. Must not depend on the chain.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use yumen_plugin::{BodyChunk, DeferredBody};

/// A chunk between two plugins.
pub(crate) struct BodyPiece {
    pub(crate) chunk: BodyChunk,
    /// Whether no chunk follows.
    pub(crate) last: bool,
    pub(crate) pause: bool,
    /// Number of plugins of the phase that have edited the chunk.
    pub(crate) plugins: usize,
}

impl BodyPiece {
    pub(crate) fn new(chunk: BodyChunk) -> BodyPiece {
        BodyPiece { last: chunk.last, pause: chunk.pause, chunk, plugins: 0 }
    }
}

/// A chunk whose data is being computed or waits for its turn.
pub(crate) struct DeferredPiece {
    piece: BodyPiece,
    data: DeferredData,
}

enum DeferredData {
    Computing(DeferredBody),
    /// Result, and the number of bytes passed on.
    Computed(Vec<u8>, usize),
}

/// Bytes of computed data that the next plugins receive per turn: 64 MiB at once would block the worker for
/// seconds in a content coding.
const PART_BYTES: usize = 64 * 1024;

impl DeferredPiece {
    pub(crate) fn new(piece: BodyPiece, computing: DeferredBody) -> DeferredPiece {
        DeferredPiece { piece, data: DeferredData::Computing(computing) }
    }

    /// A chunk with known data, which the plugins receive in parts.
    pub(crate) fn computed(piece: BodyPiece, data: Vec<u8>) -> DeferredPiece {
        DeferredPiece { piece, data: DeferredData::Computed(data, 0) }
    }

    /// Next part, and whether another one follows.
    pub(crate) fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<(BodyPiece, bool)> {
        if let DeferredData::Computing(computing) = &mut self.data {
            let computed = ready!(Pin::new(computing).poll(cx));
            // Without a result the body is incomplete, and must not be sent as if it were complete.
            self.piece.chunk.broken |= computed.is_none();
            self.data = DeferredData::Computed(computed.unwrap_or_default(), 0);
        }
        let DeferredData::Computed(data, passed) = &mut self.data else { return Poll::Pending };
        let end = data.len().min(*passed + PART_BYTES);
        let part = data[*passed..end].to_vec();
        *passed = end;
        let has_more = end < data.len();
        let (plugins, broken) = (self.piece.plugins, self.piece.chunk.broken);
        let chunk = if has_more {
            BodyChunk { data: part, broken, ..BodyChunk::default() }
        } else {
            BodyChunk { data: part, ..std::mem::take(&mut self.piece.chunk) }
        };
        let is_end = !has_more;
        let (last, pause) = (is_end && self.piece.last, is_end && self.piece.pause);
        let chunk = BodyChunk { last, pause, ..chunk };
        Poll::Ready((BodyPiece { chunk, last, pause, plugins }, has_more))
    }
}
