//! Response bodies on their way through plugins: chunk by chunk, and across computations in other threads.
//!
//! Must not depend on the effect of a plugin.

use std::future::poll_fn;
use std::task::{Context, Poll};

use yumen_plugin::{BodyChunk, Exchange};

use crate::copy::body_edit::{BodyEdit, DeferredPart};
use crate::exchange::body_piece::{BodyPiece, DeferredPiece};
use crate::exchange::chains::ExchangeChains;
use crate::grpc;

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

    /// The exchange.
    pub(crate) fn exchange(&self) -> &Exchange<'s> {
        self.ex
    }

    /// Edits a body that is completely buffered, in turns.
    pub(crate) async fn whole(mut self, body: &[u8]) -> Vec<u8> {
        let chunk = BodyChunk { last: true, ..BodyChunk::default() };
        self.deferred = Some(DeferredPiece::computed(BodyPiece::new(chunk), body.to_vec()));
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
