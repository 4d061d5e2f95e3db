//! How a client connection goes on after an exchange.

use yumen_http::Framing;

/// How a connection goes on after an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// Another request may follow.
    Next,
    /// The same, behind what is left of this one's body, which nobody wanted.
    Unread(Framing),
    /// The streams beside it go on to their ends, and the client is told to ask for more elsewhere.
    Leave,
    /// Everything was said and read.
    Close,
    /// The client may still be sending: its answer must not be destroyed by a reset.
    Linger,
    /// Only a reset tells the client that its answer is not whole.
    Reset,
}
