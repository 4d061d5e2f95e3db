//! Source of a request body for a further attempt.

use yumen_http::Framing;

use crate::buffer::InboxMark;
use crate::connection::DownstreamConnection;
use crate::exchange_stats::RequestBodyState;
use crate::proxied::ProxiedExchange;
use crate::upstream::replay::RequestReplay;
use crate::upstream::upload::RequestUpload;

/// Source of the complete request body for a retry.
#[derive(Clone, Copy)]
pub(super) enum ResendSource {
    /// The inbox: there is no body, it is buffered, or nothing beyond the first receive was read.
    Inbox,
    /// The replay buffer.
    Replay,
}

impl ResendSource {
    /// Source for the request of the exchange, if its body is still available. `mark` is the start of the
    /// body. Has no side effects.
    pub(super) fn of(proxied: &ProxiedExchange<'_, '_>, mark: InboxMark) -> Option<ResendSource> {
        let ProxiedExchange { conn, ex, upload, .. } = proxied;
        let is_in_inbox = match &upload.replay {
            RequestReplay::Kept(_) => return Some(ResendSource::Replay),
            // Without a replay buffer, the body may still be in the inbox.
            RequestReplay::Off | RequestReplay::Wanted | RequestReplay::TooMuch => match ex.request.framing {
                Framing::None => true,
                // The decoder moves chunk data in place, so a chunked body cannot be rewound once it was
                // read.
                Framing::Chunked if !conn.stream.is_shared() => conn.inbox.mark() == mark,
                _ => conn.inbox.can_rewind(mark),
            },
        };
        is_in_inbox.then_some(ResendSource::Inbox)
    }

    /// Rewinds to the start of the body.
    pub(super) fn rewind(self, proxied: &mut ProxiedExchange<'_, '_>, mark: InboxMark) {
        proxied.flow.body = match self {
            ResendSource::Inbox => {
                proxied.conn.inbox.rewind(mark);
                RequestBodyState::Whole
            }
            // The replay buffer feeds the part that was read; the inbox keeps its position.
            ResendSource::Replay => left_of_body(proxied.conn, &mut proxied.upload, mark),
        };
    }
}

/// State of the request body after an attempt; `mark` is its start.
pub(super) fn left_of_body(
    conn: &mut DownstreamConnection,
    upload: &mut RequestUpload,
    mark: InboxMark,
) -> RequestBodyState {
    let RequestUpload { transfer, replay } = upload;
    if transfer.is_read() {
        // The frame of the last chunk is discarded, so that the inbox begins with the next request.
        transfer.discard_frame(&mut conn.inbox);
        return RequestBodyState::Read;
    }
    // An attempt has begun to read the body if the replay buffer holds some of it.
    let is_begun = transfer.read_bytes() > 0 || matches!(replay, RequestReplay::Kept(_));
    if !is_begun && conn.inbox.mark() == mark { RequestBodyState::Whole } else { RequestBodyState::Partial }
}
