//! Pieces that were edited, at once or beside the worker.

use std::task::{Context, Poll, ready};

use yumen_http::BodyError;
use yumen_plugin::Chunk;

use super::{Broken, Edit, Transfer};
use crate::body::Rest;
use crate::body_edit::DeferredPart;
use crate::buffer::Inbox;

impl Transfer {
    /// Puts a piece that was edited into the frame; `last` where its source has ended.
    pub(super) fn take_edited(&mut self, inbox: &mut Inbox, edited: Chunk, last: bool) -> Result<(), Broken> {
        if edited.broken {
            return Err(Broken::Framing(BodyError::Coding));
        }
        if last {
            self.rest = Rest::Trailers(edited.trailers);
        }
        self.frame_edited(inbox, &edited.data, last || edited.last);
        Ok(())
    }

    /// Takes the next part of a piece that was deferred; ready with its length.
    #[cold]
    pub(super) fn poll_deferred(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        edit: &mut Option<Edit<'_>>,
        last: bool,
    ) -> Poll<Result<usize, Broken>> {
        let Some(edit) = edit else { return Poll::Ready(Err(Broken::Read)) };
        let DeferredPart { chunk, has_more } = ready!(edit.poll_deferred(cx));
        self.deferred = has_more.then_some(last);
        let bytes = chunk.data.len();
        Poll::Ready(self.take_edited(inbox, chunk, last && !has_more).map(|()| bytes))
    }
}
