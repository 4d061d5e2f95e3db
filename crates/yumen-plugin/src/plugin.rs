//! The plugin trait: few phases, each given just its state.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;

use yumen_http::{Framing, ResponseHead};

use crate::{
    BufferedBody, Exchange, ExchangeOutcome, LocalResponse, PrereadPhase, ResponseBodyPhase,
    ResponseHeadPhase, UpstreamRequestPhase,
};

/// A future that stays on its worker.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A configured plugin. All workers share it: state of one request lives in the exchange.
pub trait Plugin: Send + Sync + 'static {
    /// The phases the chain calls this plugin in; it is skipped in all others.
    fn phases(&self) -> PhaseSet;

    /// Before the consumer's own plugins are known: authenticate, rewrite, redirect.
    fn rewrite<'a>(&'a self, _ex: &'a mut Exchange<'_>) -> Step<'a> {
        Step::Continue
    }

    /// After the consumer's plugins were merged in: admit or refuse.
    fn access<'a>(&'a self, _ex: &'a mut Exchange<'_>) -> Step<'a> {
        Step::Continue
    }

    /// The first bytes of a stream, where the protocol inside lets the client speak first: asked again
    /// with more of them until it has seen enough. Runs after access, and never for a request.
    fn preread(&self, _ex: &mut PrereadPhase<'_, '_>, _bytes: &[u8]) -> PrereadStep {
        PrereadStep::Continue
    }

    /// Once per attempt, just before the request head goes to an endpoint.
    fn upstream_request(&self, _ex: &mut UpstreamRequestPhase<'_, '_>) {}

    /// When the head of the answer is known, the upstream's or the gateway's own.
    fn response_head(&self, _ex: &mut ResponseHeadPhase<'_, '_>, _head: &mut ResponseHead) {}

    /// For each piece of the answer's body, where a plugin said in the phase before that it will look
    /// ([`Exchange::edits_body`]). A piece may be held back in part or whole until the source pauses.
    fn response_body(&self, _ex: &mut ResponseBodyPhase<'_, '_>, chunk: BodyChunk) -> BodyChunk {
        chunk
    }

    /// When all is over.
    fn log(&self, _ex: &Exchange<'_>, _outcome: &ExchangeOutcome<'_>) {}

    /// Whether it stands in for a guard that is not in force, and refuses all that it sees.
    fn is_stand_in(&self) -> bool {
        false
    }

    /// What it would do in one phase of a request that is only thought through: nothing outside the
    /// exchange may change or be asked, so nothing is counted. What it would do to the request it does.
    ///
    /// A plugin whose phases change nothing but the exchange gives [`DryRunResult::by_running`], and so
    /// cannot say one thing and do another.
    fn dry_run(&self, _phase: PhaseSet, _ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::Unknown
    }
}

/// What a plugin would do.
#[derive(Debug)]
pub enum DryRunResult {
    /// Nobody can tell without doing it.
    Unknown,
    /// Go on.
    Continue,
    /// Go on, with a remark for people.
    Note(Cow<'static, str>),
    /// Answer this.
    Respond(LocalResponse),
    /// Answer this, for a reason that people should know and the client does not learn.
    Refuse(LocalResponse, Cow<'static, str>),
}

impl DryRunResult {
    /// What the phase itself comes to, for plugins whose phases change nothing but the exchange.
    pub fn by_running(plugin: &dyn Plugin, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        let needs_body = match run(plugin, phase, ex) {
            Ok(foreseen) => return foreseen,
            Err(needs_body) => needs_body,
        };
        // A request that has no body is as good as one whose body was read.
        if !needs_body || ex.body.buffered.is_some() || ex.request.framing != Framing::None {
            return DryRunResult::Unknown;
        }
        ex.body.buffered = Some(BufferedBody::default());
        DryRunResult::by_running(plugin, phase, ex)
    }
}

/// Runs a phase; `Err` where it would wait, and whether that is for the body.
fn run(plugin: &dyn Plugin, phase: PhaseSet, ex: &mut Exchange<'_>) -> Result<DryRunResult, bool> {
    let step = if phase == PhaseSet::REWRITE {
        plugin.rewrite(ex)
    } else if phase == PhaseSet::ACCESS {
        plugin.access(ex)
    } else if phase == PhaseSet::UPSTREAM_REQUEST {
        plugin.upstream_request(&mut UpstreamRequestPhase::new(ex));
        Step::Continue
    } else {
        return Ok(DryRunResult::Unknown);
    };
    match step {
        Step::Continue => Ok(DryRunResult::Continue),
        Step::Respond(response) => Ok(DryRunResult::Respond(response)),
        Step::NeedBody { .. } => Err(true),
        Step::Wait(_) => Err(false),
    }
}

/// What the chain does after a plugin has run.
pub enum Step<'a> {
    /// Go on with the next plugin.
    Continue,
    /// Answer the client now. The response phases still run, the upstream ones do not.
    Respond(LocalResponse),
    /// Buffer the request body up to so many bytes and call this plugin again; a longer body is
    /// answered 413.
    NeedBody {
        /// The most this plugin reads.
        bytes_max: usize,
    },
    /// Resume when the future is done. Only plugins that wait pay for the box.
    Wait(LocalFuture<'a, Step<'a>>),
}

/// What comes of the first bytes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrereadStep {
    /// Enough was seen: go on.
    Continue,
    /// More bytes are needed to tell.
    NeedMore,
    /// Close the connection, for this reason.
    Refuse(&'static str),
}

/// A piece of a response body.
#[derive(Debug, Default)]
pub struct BodyChunk {
    /// The bytes, which may be none.
    pub data: Vec<u8>,
    /// Whether nothing follows. A plugin that sets it ends the body here: what the source has still to say is not waited
    /// for, nor its trailers. Calls of gRPC are waited for, since their status stands there.
    pub last: bool,
    /// Whether the source has nothing more for now: whatever was held back must go, or the client of a
    /// stream of events would wait for the next one. Told before all data, too, where the source has only sent its head.
    pub pause: bool,
    /// With the last piece: the trailers behind the body, a line `name: value` with CRLF each. What is
    /// left of them goes to the client.
    pub trailers: Vec<u8>,
    /// Set by whoever finds that the body is not what its head says: the answer is broken off, as it would be if
    /// the upstream had done so.
    pub broken: bool,
}

/// A set of phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PhaseSet(u8);

impl PhaseSet {
    /// [`Plugin::rewrite`].
    pub const REWRITE: PhaseSet = PhaseSet(1);
    /// [`Plugin::access`].
    pub const ACCESS: PhaseSet = PhaseSet(2);
    /// [`Plugin::upstream_request`].
    pub const UPSTREAM_REQUEST: PhaseSet = PhaseSet(4);
    /// [`Plugin::response_head`].
    pub const RESPONSE_HEAD: PhaseSet = PhaseSet(8);
    /// [`Plugin::response_body`].
    pub const RESPONSE_BODY: PhaseSet = PhaseSet(16);
    /// [`Plugin::log`].
    pub const LOG: PhaseSet = PhaseSet(32);
    /// [`Plugin::preread`].
    pub const PREREAD: PhaseSet = PhaseSet(64);
    /// None.
    pub const NONE: PhaseSet = PhaseSet(0);

    /// Whether all of `other` are in this set.
    pub fn has(self, other: PhaseSet) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for PhaseSet {
    type Output = PhaseSet;

    fn bitor(self, other: PhaseSet) -> PhaseSet {
        PhaseSet(self.0 | other.0)
    }
}
