//! An exchange with an endpoint: `forward` fills it in, `reply` drains it.

use yumen_http::{Framing, ResponseHead};
use yumen_snapshot::Underway;
use yumen_snapshot::protection::{Permit, Place};

use crate::body::Ending;
use crate::buffer::Inbox;
use crate::http2::Occupied;
use crate::pool::PoolKey;
use crate::stream::Stream;
use crate::transfer::Transfer;
use crate::worker::Worker;

/// A connection to an endpoint while it carries an exchange.
pub(crate) struct Link {
    pub(crate) stream: Stream,
    pub(crate) inbox: Inbox,
    /// Requests it carried before this one.
    pub(crate) requests: u64,
    /// Under which the pool knows it.
    pub(crate) pool_key: PoolKey,
}

/// An exchange with an endpoint: filled in here, drained in `reply`. It stays in one place, since all
/// of it is needed until the end and moving it would cost more than routing does.
pub(crate) struct Relay<'u> {
    /// The connection, from the first attempt on.
    pub(crate) link: Option<Link>,
    /// The place on a shared connection that the request is to be sent on.
    pub(crate) place: Option<Occupied>,
    /// The answer's head.
    pub(crate) head: Box<ResponseHead>,
    /// The request, whose body may still be on its way when the answer comes.
    pub(crate) upload: Transfer,
    /// The attempt that is under way, until its end is known.
    pub(crate) underway: Option<Underway<'u>>,
    /// Whether the client asked for another protocol and the route lets it.
    pub(crate) upgrade: bool,
    /// Leave to have the connection, where they are bounded. Given back after the connection.
    pub(crate) permit: Option<Permit>,
    /// Its place at an upstream that counts them.
    pub(crate) turn: Option<Place>,
}

impl Relay<'_> {
    pub(crate) fn new(worker: &Worker) -> Self {
        let upload = Transfer::new(Framing::None, Ending::Known, Vec::new(), 0);
        Relay {
            link: None,
            place: None,
            head: worker.take_response(),
            upload,
            underway: None,
            upgrade: false,
            permit: None,
            turn: None,
        }
    }
}
