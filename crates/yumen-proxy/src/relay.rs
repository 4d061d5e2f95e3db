//! An exchange with an endpoint: `forward` fills it in, `reply` drains it.

use std::rc::Rc;

use yumen_http::{Framing, ResponseHead};
use yumen_snapshot::Underway;
use yumen_snapshot::protection::{Permit, Place, Retry};

use crate::body::Ending;
use crate::clock;
use crate::fault::Kind;
use crate::fault::SharedFailure;
use crate::forward::Interim;
use crate::http2::StreamPermit;
use crate::transfer::Transfer;
use crate::upstream::connection::UpstreamConnection;
use crate::upstream::replay::RequestReplay;
use crate::worker::Worker;

/// An exchange with an endpoint: filled in here, drained in `reply`. It stays in one place, since all
/// of it is needed until the end and moving it would cost more than routing does.
pub(crate) struct Relay<'u> {
    /// The connection, from the first attempt on.
    pub(crate) link: Option<UpstreamConnection>,
    /// The place on a shared connection that the request is to be sent on.
    pub(crate) place: Option<StreamPermit>,
    /// The answer's head.
    pub(crate) head: Box<ResponseHead>,
    /// What was said before it.
    pub(crate) interim: Interim,
    /// The request, whose body may still be on its way when the answer comes.
    pub(crate) upload: Transfer,
    /// What is kept of its body.
    pub(crate) replay: RequestReplay,
    /// The attempt that is under way, until its end is known.
    pub(crate) underway: Option<Underway<'u>>,
    /// Whether the client asked for another protocol and the route lets it.
    pub(crate) upgrade: bool,
    /// Leave to have the connection, where they are bounded. Given back after the connection.
    pub(crate) permit: Option<Permit>,
    /// Its place at an upstream that counts them.
    pub(crate) turn: Option<Place>,
    /// What the attempt failed by, where it waited for it with others.
    pub(crate) shared: Option<Rc<SharedFailure>>,
}

impl Relay<'_> {
    pub(crate) fn new(worker: &Worker) -> Self {
        let upload = Transfer::new(Framing::None, Ending::Known, Vec::new(), 0);
        Relay {
            link: None,
            place: None,
            head: worker.take_response(),
            interim: Interim::default(),
            upload,
            replay: RequestReplay::Off,
            underway: None,
            upgrade: false,
            permit: None,
            turn: None,
            shared: None,
        }
    }

    /// The attempt ended without an answer for the client.
    pub(crate) fn end_attempt(&mut self) {
        self.head.clear();
        if let Some(underway) = self.underway.take() {
            underway.end_now(clock::now().mono_us);
        }
    }

    /// Another attempt is made, with this leave where they are counted.
    pub(crate) fn note_retry(&mut self, leave: Option<Retry>) {
        if let Some(turn) = &mut self.turn {
            turn.note_retry(leave);
        }
    }

    /// Tells a connection that others share of a failure that may be the connection's: nothing was heard in time.
    #[cold]
    pub(crate) fn note_fault(&self, kind: Kind) {
        if kind.is_silence()
            && let Some(link) = &self.link
        {
            link.stream.doubt();
        }
    }
}
