//! Edits of a body on its way from a source to a sink.
//!
//! Must not depend on plugins.

use std::task::{Context, Poll};

use yumen_plugin::BodyChunk;

/// Editor of a body, chunk by chunk.
pub(crate) trait BodyEdit {
    /// Edits a chunk; pending if [`BodyEdit::poll_deferred`] returns it.
    fn edit(&mut self, chunk: BodyChunk) -> Poll<BodyChunk>;

    /// Next part of the deferred chunk.
    fn poll_deferred(&mut self, cx: &mut Context<'_>) -> Poll<DeferredPart>;
}

/// Part of a deferred chunk.
pub(crate) struct DeferredPart {
    pub(crate) chunk: BodyChunk,
    /// Whether another part follows.
    pub(crate) has_more: bool,
}

/// A closure edits without deferring.
impl<F: FnMut(BodyChunk) -> BodyChunk> BodyEdit for F {
    fn edit(&mut self, chunk: BodyChunk) -> Poll<BodyChunk> {
        Poll::Ready(self(chunk))
    }

    fn poll_deferred(&mut self, _: &mut Context<'_>) -> Poll<DeferredPart> {
        Poll::Ready(DeferredPart { chunk: BodyChunk::default(), has_more: false })
    }
}
