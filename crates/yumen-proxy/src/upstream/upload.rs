//! The body of a request on its way to endpoints, across all attempts of its exchange.

use std::rc::Rc;
use std::task::{Context, Poll};

use yumen_http::Framing;

use crate::copy::transfer::{BodySource, Transfer, TransferFailure};
use crate::runtime::buffer::Buffers;
use crate::transport::body::BodyEncoding;
use crate::transport::stream::TransportStream;
use crate::upstream::replay::{ReplayBudget, RequestReplay};

/// The body of a request on its way to an endpoint. It may still be sent when the response arrives.
pub(crate) struct RequestUpload {
    pub(crate) transfer: Transfer,
    /// The replay buffer of the body.
    pub(crate) replay: RequestReplay,
}

impl RequestUpload {
    #[inline]
    pub(crate) fn new() -> RequestUpload {
        let transfer = Transfer::new(Framing::None, BodyEncoding::Known, Vec::new(), 0);
        RequestUpload { transfer, replay: RequestReplay::Off }
    }

    /// Starts to send the body to another endpoint. `transfer` begins with the head, unless that was sent,
    /// and continues with the bytes that the client sends.
    #[inline]
    pub(crate) fn begin(&mut self, transfer: Transfer, budget: &Rc<ReplayBudget>) {
        let begun = match &mut self.replay {
            RequestReplay::Off => None,
            replay => replay.begin(&mut self.transfer, budget),
        };
        self.transfer = transfer;
        // Plugins edit only the head: a trailer could contradict a field that they have set or removed.
        self.transfer.drop_trailers();
        if let Some(rest) = begun {
            self.replay.send_again(&mut self.transfer, rest);
        }
    }

    /// Sends more of the body. Ready when the body was sent completely or has failed.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &Buffers,
        source: BodySource<'_>,
        sink: &mut TransportStream,
    ) -> Poll<Result<(), TransferFailure>> {
        match &mut self.replay {
            RequestReplay::Off => self.transfer.poll(cx, buffers, source, sink, &mut None),
            replay => replay.poll(cx, buffers, source, sink, &mut self.transfer),
        }
    }
}
