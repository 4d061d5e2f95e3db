//! The body filters of a transfer: their input, and their output whether it is ready at once or computed on
//! another thread.

use std::task::{Context, Poll, ready};

use yumen_http::BodyError;
use yumen_plugin::BodyChunk;

use super::{Edit, Transfer, TransferFailure};
use crate::copy::body_edit::DeferredPart;
use crate::runtime::buffer::Inbox;
use crate::transport::body::{BodyDecoder, BodySlice};

/// The data that the filters hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilterStage {
    /// None.
    Empty,
    /// They may hold data back: they have received some since their last pause, or had no pause yet.
    Fed,
    /// They compute their output of an input on another thread.
    Computing(FilterInput),
}

/// The chunk that the filters received last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilterInput {
    Data,
    /// The end of the body, with its last data.
    End,
    /// The source pauses: the filters return the bytes they hold back.
    Pause,
}

impl Transfer {
    /// Passes even an empty body through the filters of the next poll, after a pause: they may insert data
    /// without any input.
    pub(crate) fn expect_edit(&mut self) {
        self.reopen();
        self.filter = FilterStage::Fed;
    }

    /// Passes decoded data through the filters.
    pub(super) fn filter_slice(
        &mut self,
        inbox: &mut Inbox,
        slice: BodySlice,
        edit: &mut Edit<'_>,
    ) -> Result<(), TransferFailure> {
        let last = self.decoder.is_done();
        let data = inbox.bytes()[..slice.data].to_vec();
        inbox.consume(slice.data + slice.skip);
        if !data.is_empty() {
            self.filter = FilterStage::Fed;
        } else if !last {
            // An empty chunk matters to filters only as the end of the body.
            return Ok(());
        }
        let trailers = if last { self.decoder.trailers().to_vec() } else { Vec::new() };
        match edit.edit(BodyChunk { data, last, trailers, ..BodyChunk::default() }) {
            Poll::Ready(edited) => self.frame_filtered(edited, last),
            Poll::Pending => {
                let input = if last { FilterInput::End } else { FilterInput::Data };
                self.filter = FilterStage::Computing(input);
                Ok(())
            }
        }
    }

    /// Frames the data that the filters hold back, as the source pauses; false if there is none.
    #[cold]
    pub(super) fn frame_held_back(&mut self, edit: &mut Option<Edit<'_>>) -> bool {
        self.filter = FilterStage::Empty;
        let Some(edit) = edit else { return false };
        let Poll::Ready(edited) = edit.edit(BodyChunk { pause: true, ..BodyChunk::default() }) else {
            self.filter = FilterStage::Computing(FilterInput::Pause);
            return true;
        };
        let has_more = edited.last || !edited.data.is_empty();
        if has_more {
            self.frame_data(&edited.data, edited.last);
        }
        has_more
    }

    /// Frames the output of the filters; `last` if the source has ended.
    fn frame_filtered(&mut self, edited: BodyChunk, last: bool) -> Result<(), TransferFailure> {
        if edited.broken {
            return Err(TransferFailure::Framing(BodyError::Coding));
        }
        if last {
            self.decoder = BodyDecoder::Trailers(edited.trailers);
        }
        self.frame_data(&edited.data, last || edited.last);
        Ok(())
    }

    /// Frames the next part of the output that is computed from `input`; ready with its length in bytes.
    #[cold]
    pub(super) fn poll_computed(
        &mut self,
        cx: &mut Context<'_>,
        edit: &mut Option<Edit<'_>>,
        input: FilterInput,
    ) -> Poll<Result<usize, TransferFailure>> {
        let Some(edit) = edit else { return Poll::Ready(Err(TransferFailure::Read)) };
        let DeferredPart { chunk, has_more } = ready!(edit.poll_deferred(cx));
        if !has_more {
            // Data may be held back by filters behind the one that has computed.
            self.filter = match input {
                FilterInput::Data => FilterStage::Fed,
                FilterInput::Pause | FilterInput::End => FilterStage::Empty,
            };
        }
        let bytes = chunk.data.len();
        let last = input == FilterInput::End && !has_more;
        Poll::Ready(self.frame_filtered(chunk, last).map(|()| bytes))
    }
}
