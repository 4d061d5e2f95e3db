//! Output of edits, whether it is ready at once or computed on another thread.

use std::task::{Context, Poll, ready};

use yumen_http::BodyError;
use yumen_plugin::BodyChunk;

use super::{Edit, Transfer, TransferFailure};
use crate::copy::body_edit::DeferredPart;
use crate::runtime::buffer::Inbox;
use crate::transport::body::BodyDecoder;

impl Transfer {
    /// Puts an edited chunk into the frame; `last` if the source has ended.
    pub(super) fn take_edited(
        &mut self,
        inbox: &mut Inbox,
        edited: BodyChunk,
        last: bool,
    ) -> Result<(), TransferFailure> {
        if edited.broken {
            return Err(TransferFailure::Framing(BodyError::Coding));
        }
        if last {
            self.rest = BodyDecoder::Trailers(edited.trailers);
        }
        self.frame_edited(inbox, &edited.data, last || edited.last);
        Ok(())
    }

    /// Takes the next part of a deferred chunk; ready with its length in bytes.
    #[cold]
    pub(super) fn poll_deferred(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        edit: &mut Option<Edit<'_>>,
        last: bool,
    ) -> Poll<Result<usize, TransferFailure>> {
        let Some(edit) = edit else { return Poll::Ready(Err(TransferFailure::Read)) };
        let DeferredPart { chunk, has_more } = ready!(edit.poll_deferred(cx));
        self.deferred = has_more.then_some(last);
        let bytes = chunk.data.len();
        Poll::Ready(self.take_edited(inbox, chunk, last && !has_more).map(|()| bytes))
    }
}
