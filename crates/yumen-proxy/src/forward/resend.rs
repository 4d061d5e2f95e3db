//! Where the body of a request is found again, for another attempt.

use yumen_http::Framing;

use crate::buffer::InboxMark;
use crate::connection::DownstreamConnection;
use crate::exchange_stats::RequestBodyState;
use crate::proxied::ProxiedExchange;
use crate::upstream::replay::RequestReplay;
use crate::upstream::upload::RequestUpload;

/// The source of a request body that is sent again, all of it.
#[derive(Clone, Copy)]
pub(super) enum ResendSource {
    /// The inbox: there is no body, it was buffered, or nothing was read beyond what had arrived with the head.
    Inbox,
    /// The replay buffer.
    Replay,
}

impl ResendSource {
    /// The source for the request of an exchange, if there is one. `mark` is where the body began. Changes nothing.
    pub(super) fn of(proxied: &ProxiedExchange<'_, '_>, mark: InboxMark) -> Option<ResendSource> {
        let ProxiedExchange { conn, ex, upload, .. } = proxied;
        let is_in_inbox = match &upload.replay {
            RequestReplay::Kept(_) => return Some(ResendSource::Replay),
            // A body that is not kept may still lie in the inbox.
            RequestReplay::Off | RequestReplay::Wanted | RequestReplay::TooMuch => match ex.request.framing {
                Framing::None => true,
                // Decoding chunks moves them in place.
                Framing::Chunked if !conn.stream.is_shared() => conn.inbox.mark() == mark,
                _ => conn.inbox.can_rewind(mark),
            },
        };
        is_in_inbox.then_some(ResendSource::Inbox)
    }

    /// Goes back to where the body began.
    pub(super) fn rewind(self, proxied: &mut ProxiedExchange<'_, '_>, mark: InboxMark) {
        proxied.flow.body = match self {
            ResendSource::Inbox => {
                proxied.conn.inbox.rewind(mark);
                RequestBodyState::Whole
            }
            // The part that was read does not come back to the inbox.
            ResendSource::Replay => left_of_body(proxied.conn, &mut proxied.upload, mark),
        };
    }
}

/// The part of the request body that an attempt left to be read; `mark` is where the body began.
pub(super) fn left_of_body(
    conn: &mut DownstreamConnection,
    upload: &mut RequestUpload,
    mark: InboxMark,
) -> RequestBodyState {
    let RequestUpload { transfer, replay } = upload;
    if transfer.is_read() {
        // The bytes behind it in the inbox are the next request.
        transfer.discard_frame(&mut conn.inbox);
        return RequestBodyState::Read;
    }
    // A body that is kept was begun by some attempt.
    let is_begun = transfer.read_bytes > 0 || matches!(replay, RequestReplay::Kept(_));
    if !is_begun && conn.inbox.mark() == mark { RequestBodyState::Whole } else { RequestBodyState::Partial }
}
