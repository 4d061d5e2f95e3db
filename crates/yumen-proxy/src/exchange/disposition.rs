//! Continuation of a downstream connection after an exchange.

use yumen_http::Framing;

/// Continuation of a downstream connection after an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// Another request may follow.
    Next,
    /// Another request may follow after the unread rest of the body.
    Unread(Framing),
    /// A GOAWAY is due: other streams of the connection are completed. An HTTP/1 connection closes.
    Leave,
    /// Close: everything was sent and read.
    Close,
    /// Lingering close: the client may still be sending, and a reset could destroy the response.
    Linger,
    /// Reset: the response is incomplete, and its framing cannot show that.
    Reset,
}
