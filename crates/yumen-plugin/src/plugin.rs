//! The plugin trait: one method per phase, each with the state that the phase can still change.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;

use yumen_http::{Framing, ResponseHead};

use crate::{
    BufferedBody, Exchange, ExchangeOutcome, LocalResponse, PrereadPhase, ResponseBodyPhase,
    ResponseHeadPhase, UpstreamRequestPhase,
};

/// A future that is polled on the thread that made it.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A configured plugin, shared by all workers. State of one request is kept in the exchange.
pub trait Plugin: Send + Sync + 'static {
    /// The phases in which the chain calls the plugin.
    fn phases(&self) -> PhaseSet;

    /// Runs before the plugins of the consumer are known: authenticate, rewrite, redirect.
    fn rewrite<'a>(&'a self, _ex: &'a mut Exchange<'_>) -> Step<'a> {
        Step::Continue
    }

    /// Runs after the plugins of the consumer were merged in: admit or refuse.
    fn access<'a>(&'a self, _ex: &'a mut Exchange<'_>) -> Step<'a> {
        Step::Continue
    }

    /// Inspects the first bytes of a stream if the client speaks first in its protocol. Called again with
    /// more bytes until the plugin needs no more. Runs after access, and never for a request.
    fn preread(&self, _ex: &mut PrereadPhase<'_, '_>, _bytes: &[u8]) -> PrereadStep {
        PrereadStep::Continue
    }

    /// Runs once per attempt, just before the request head is sent to an endpoint.
    fn upstream_request(&self, _ex: &mut UpstreamRequestPhase<'_, '_>) {}

    /// Runs when the head of the response is known, of the upstream or of the gateway.
    fn response_head(&self, _ex: &mut ResponseHeadPhase<'_, '_>, _head: &mut ResponseHead) {}

    /// Runs for each chunk of the response body, if a plugin required it ([`ResponseHeadPhase::edit_body`]).
    /// The plugin may retain data until the source pauses.
    fn response_body(&self, _ex: &mut ResponseBodyPhase<'_, '_>, chunk: BodyChunk) -> BodyChunk {
        chunk
    }

    /// Runs when the exchange has ended.
    fn log(&self, _ex: &Exchange<'_>, _outcome: &ExchangeOutcome<'_>) {}

    /// Whether the plugin replaces a guard that is not in force, and refuses every request.
    fn is_stand_in(&self) -> bool {
        false
    }

    /// Simulates one phase of a request for `explain`. The exchange is changed as in the phase; nothing
    /// outside of it is changed, asked or counted.
    ///
    /// A plugin whose phases change only the exchange returns [`DryRunResult::by_running`], so that the
    /// simulation cannot differ from the phase.
    fn dry_run(&self, _phase: PhaseSet, _ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::Unknown
    }
}

/// The result of a simulated phase.
#[derive(Debug)]
pub enum DryRunResult {
    /// The result depends on state outside the exchange.
    Unknown,
    /// The next plugin runs.
    Continue,
    /// The next plugin runs; the remark is shown to the operator.
    Note(Cow<'static, str>),
    /// The plugin responds.
    Respond(LocalResponse),
    /// The plugin responds; the reason is shown to the operator and not to the client.
    Refuse(LocalResponse, Cow<'static, str>),
}

impl DryRunResult {
    /// Runs the phase itself, for plugins whose phases change only the exchange.
    pub fn by_running(plugin: &dyn Plugin, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        let needs_body = match run(plugin, phase, ex) {
            Ok(foreseen) => return foreseen,
            Err(needs_body) => needs_body,
        };
        // A request without a body equals one whose body was read.
        if !needs_body || ex.body.buffered.is_some() || ex.request.framing != Framing::None {
            return DryRunResult::Unknown;
        }
        ex.body.buffered = Some(BufferedBody::default());
        DryRunResult::by_running(plugin, phase, ex)
    }
}

/// Runs a phase. `Err` if the plugin waits: true for the body, false for a future.
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

/// The step of the chain after a plugin.
pub enum Step<'a> {
    /// Run the next plugin.
    Continue,
    /// Respond to the client. The response phases still run, the upstream phases do not.
    Respond(LocalResponse),
    /// Buffer the request body up to `bytes_max` and call this plugin again; a longer body is refused with
    /// 413.
    NeedBody {
        /// Maximum number of bytes that the plugin reads.
        bytes_max: usize,
    },
    /// Continue with the result of the future. Only plugins that wait allocate.
    Wait(LocalFuture<'a, Step<'a>>),
}

/// The result of inspecting the first bytes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrereadStep {
    /// The plugin needs no more bytes.
    Continue,
    /// The plugin needs more bytes.
    NeedMore,
    /// The connection is closed for this reason.
    Refuse(&'static str),
}

/// A chunk of a response body.
#[derive(Debug, Default)]
pub struct BodyChunk {
    /// The bytes; possibly none.
    pub data: Vec<u8>,
    /// Whether the body ends with this chunk. A plugin that sets it ends the body early: the rest of the
    /// source and its trailers are not awaited. The rest of a gRPC call is, since its status is in the
    /// trailers.
    pub last: bool,
    /// Whether the source has no more data for now. Plugins must release retained data, or the client of an
    /// event stream would wait for the next event. Also set before any data while the source has sent only
    /// its head.
    pub pause: bool,
    /// The trailers, with the last chunk: one line `name: value` with CRLF each. The client receives those
    /// that plugins leave.
    pub trailers: Vec<u8>,
    /// Set by a plugin if the body contradicts its head. The response is aborted, as if the upstream had
    /// aborted it.
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
    /// No phase.
    pub const NONE: PhaseSet = PhaseSet(0);

    /// Whether the set contains all phases of `other`.
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
