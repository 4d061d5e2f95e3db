//! The body of a call as far as it was read, so that it can be sent again when it is gone from the inbox.
//!
//! Knows bodies; whether anybody else is asked is decided elsewhere.

use std::task::{Context, Poll};

use yumen_http::Framing;
use yumen_plugin::{Chunk, Exchange};
use yumen_snapshot::Upstream;

use crate::body::Rest;
use crate::buffer::{Buffers, Inbox};
use crate::grpc;
use crate::stream::Stream;
use crate::transfer::{Broken, Transfer};

/// The longest body that is kept: messages of unary calls are seldom longer, and a stream of them may have no end.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Whether a request body is kept until the head of the answer has come, and what was read of it.
pub(crate) enum Replay {
    /// It is not: only what lies in the inbox untouched can be sent again.
    Off,
    /// It is, and none of it was sent yet.
    Wanted,
    /// All that was read of it is here; its transfer knows what is still to come.
    Kept(Box<Kept>),
    /// It was too long.
    TooLong,
}

#[derive(Default)]
pub(crate) struct Kept {
    data: Vec<u8>,
    /// What came behind it, as field lines.
    trailers: Vec<u8>,
}

impl Replay {
    /// Calls are kept where their upstream names statuses after which they are made again.
    #[inline]
    pub(super) fn of(ex: &Exchange<'_>, upstream: &Upstream) -> Replay {
        if upstream.grpc_retry_statuses.is_empty() { Replay::Off } else { Replay::of_call(ex) }
    }

    #[cold]
    fn of_call(ex: &Exchange<'_>) -> Replay {
        let is_to_be_read = ex.body.is_none() && ex.request.framing != Framing::None;
        if is_to_be_read && grpc::is_grpc(&ex.request) { Replay::Wanted } else { Replay::Off }
    }

    /// An attempt begins to send the body: how it goes on behind what is kept, where another attempt had begun.
    #[cold]
    pub(super) fn begin(&mut self, upload: &mut Transfer) -> Option<Rest> {
        match self {
            Replay::Kept(_) => return Some(upload.take_rest()),
            Replay::Wanted => *self = Replay::Kept(Box::default()),
            Replay::Off | Replay::TooLong => {}
        }
        None
    }

    /// Sends what is kept, and then what is still to come.
    #[cold]
    pub(super) fn send_again(&self, upload: &mut Transfer, inbox: &mut Inbox, rest: Rest) {
        let Replay::Kept(kept) = self else { return };
        // What was sent of them is forgotten.
        let rest = if rest.is_done() { Rest::Trailers(kept.trailers.clone()) } else { rest };
        upload.resume(inbox, &kept.data, rest);
    }

    /// [`Transfer::poll`] that keeps what it reads.
    #[cold]
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &Buffers,
        source: (&mut Stream, &mut Inbox),
        sink: &mut Stream,
        upload: &mut Transfer,
    ) -> Poll<Result<(), Broken>> {
        if !matches!(self, Replay::Kept(_)) {
            return upload.poll(cx, buffers, source, sink, &mut None);
        }
        let mut keep = |chunk: Chunk| {
            self.keep(&chunk);
            chunk
        };
        upload.poll(cx, buffers, source, sink, &mut Some(&mut keep))
    }

    fn keep(&mut self, chunk: &Chunk) {
        let Replay::Kept(kept) = self else { return };
        if kept.data.len() + chunk.data.len() > KEPT_BYTES_MAX {
            *self = Replay::TooLong;
            return;
        }
        kept.data.extend_from_slice(&chunk.data);
        if chunk.last {
            kept.trailers.clone_from(&chunk.trailers);
        }
    }
}
