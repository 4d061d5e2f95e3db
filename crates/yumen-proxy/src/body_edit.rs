//! Response bodies on their way through plugins: chunk by chunk, and across computations in other threads.
//!
//! Owns the position of a chunk in the chain. Must not depend on the effect of a plugin.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use yumen_plugin::{BodyChunk, DeferredBody, Exchange};

use crate::chains::ExchangeChains;
use crate::grpc;

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

    /// Next part, and whether another one follows.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<(BodyPiece, bool)> {
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

/// Editor that runs the plugins of an exchange.
pub(crate) struct PluginEdit<'a, 's> {
    ex: &'a mut Exchange<'s>,
    chains: &'a ExchangeChains<'a>,
    deferred: Option<DeferredPiece>,
    /// `grpc-status` of the trailers before the plugins, which may remove it.
    pub(crate) grpc_status: Option<u8>,
}

impl<'a, 's> PluginEdit<'a, 's> {
    pub(crate) fn new(ex: &'a mut Exchange<'s>, chains: &'a ExchangeChains<'a>) -> PluginEdit<'a, 's> {
        PluginEdit { ex, chains, deferred: None, grpc_status: None }
    }

    /// Edits a body that is completely buffered, in turns.
    pub(crate) async fn whole(mut self, body: &[u8]) -> Vec<u8> {
        let chunk = BodyChunk { last: true, ..BodyChunk::default() };
        let data = DeferredData::Computed(body.to_vec(), 0);
        self.deferred = Some(DeferredPiece { piece: BodyPiece::new(chunk), data });
        let mut data = Vec::new();
        loop {
            let part = poll_fn(|cx| self.poll_deferred(cx)).await;
            data.extend_from_slice(&part.chunk.data);
            if !part.has_more {
                return data;
            }
            // Other connections are served between two parts.
            tokio::task::yield_now().await;
        }
    }
}

impl BodyEdit for PluginEdit<'_, '_> {
    fn edit(&mut self, chunk: BodyChunk) -> Poll<BodyChunk> {
        self.grpc_status = self.grpc_status.or(grpc::status_of_lines(&chunk.trailers));
        match self.chains.edit(self.ex, BodyPiece::new(chunk)) {
            Ok(edited) => Poll::Ready(edited),
            Err(deferred) => {
                self.deferred = Some(*deferred);
                Poll::Pending
            }
        }
    }

    fn poll_deferred(&mut self, cx: &mut Context<'_>) -> Poll<DeferredPart> {
        loop {
            let Some(mut deferred) = self.deferred.take() else {
                return Poll::Ready(DeferredPart { chunk: BodyChunk::default(), has_more: false });
            };
            let polled = deferred.poll_part(cx);
            let Poll::Ready((piece, has_more)) = polled else {
                self.deferred = Some(deferred);
                return Poll::Pending;
            };
            match self.chains.edit(self.ex, piece) {
                Ok(chunk) => {
                    // A plugin that ends the body drops the rest of the computed data.
                    let has_more = has_more && !chunk.last;
                    self.deferred = has_more.then_some(deferred);
                    return Poll::Ready(DeferredPart { chunk, has_more });
                }
                // The plugin has buffered the body up to its end or its limit, and computes.
                Err(next) => self.deferred = Some(*next),
            }
        }
    }
}
