//! An exchange with an endpoint: `forward` fills it in, `reply` drains it.

use yumen_http::{Framing, ResponseHead};

use crate::buffer::Inbox;
use crate::stream::Stream;
use crate::transfer::{Ending, Transfer};
use crate::worker::Worker;

/// A connection to an endpoint while it carries an exchange.
pub(crate) struct Link {
    pub(crate) stream: Stream,
    pub(crate) inbox: Inbox,
    /// Requests it carried before this one.
    pub(crate) requests: u64,
    /// Under which the pool knows it.
    pub(crate) pool_key: u64,
}

/// An exchange with an endpoint: filled in here, drained in `reply`. It stays in one place, since all
/// of it is needed until the end and moving it would cost more than routing does.
pub(crate) struct Relay {
    /// The connection, from the first attempt on.
    pub(crate) link: Option<Link>,
    /// The answer's head.
    pub(crate) head: Box<ResponseHead>,
    /// The request, whose body may still be on its way when the answer comes.
    pub(crate) upload: Transfer,
    /// Which of the upstream's endpoints.
    pub(crate) index: usize,
    /// Whether the client asked for another protocol and the route lets it.
    pub(crate) upgrade: bool,
}

impl Relay {
    pub(crate) fn new(worker: &Worker) -> Relay {
        let upload = Transfer::new(Framing::None, Ending::Known, Vec::new(), 0);
        Relay { link: None, head: worker.take_response(), upload, index: 0, upgrade: false }
    }
}
