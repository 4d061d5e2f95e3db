//! The plugin trait and its phases.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;

use yumen_http::{Framing, ResponseHead};

use crate::{
    BufferedBody, ConsumerIndex, Exchange, ExchangeOutcome, LocalResponse, LogPreparation, PrereadPhase,
    ResponseBodyPhase, ResponseHeadPhase, UpstreamRequestPhase, VarInputs,
};

/// A future that is polled on the thread that made it.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A configured plugin. All workers share it; the state of a request is in the exchange.
pub trait Plugin: Send + Sync + 'static {
    /// The phases in which the chain runs this plugin.
    fn phases(&self) -> PhaseSet;

    /// Runs before the plugins of the consumer are merged: authentication, rewriting, redirection.
    fn rewrite<'a>(&'a self, _ex: &'a mut Exchange<'_>) -> Step<'a> {
        Step::Continue
    }

    /// Runs after the plugins of the consumer are merged: admission.
    fn access<'a>(&'a self, _ex: &'a mut Exchange<'_>) -> Step<'a> {
        Step::Continue
    }

    /// Inspects the first bytes of a stream if the client speaks first in its protocol. Called again with
    /// more bytes until the plugin needs no more. Runs after access, and never for a request.
    fn preread(&self, _ex: &mut PrereadPhase<'_, '_>, _bytes: &[u8]) -> PrereadStep {
        PrereadStep::Continue
    }

    /// Runs once per attempt, when its endpoint is chosen and before a connection is taken or opened. A repeat on
    /// another connection to the same endpoint does not run it again.
    fn upstream_request(&self, _ex: &mut UpstreamRequestPhase<'_, '_>) {}

    /// Runs when the head of the response is known, of the upstream or of the gateway.
    fn response_head(&self, _ex: &mut ResponseHeadPhase<'_, '_>, _head: &mut ResponseHead) {}

    /// Runs for each chunk of the response body, if a plugin required it ([`ResponseHeadPhase::edit_body`]).
    /// The plugin may retain data until the source pauses.
    fn response_body(&self, _ex: &mut ResponseBodyPhase<'_, '_>, chunk: BodyChunk) -> BodyChunk {
        chunk
    }

    /// Runs when the exchange has ended, before the log phase of any plugin, and edits the values that loggers read.
    fn prepare_log(&self, _ex: &mut LogPreparation<'_, '_>) {}

    /// Runs when the exchange has ended.
    fn log(&self, _ex: &Exchange<'_>, _outcome: &ExchangeOutcome<'_>) {}

    /// Inputs that the plugin reads without naming a variable in its settings.
    fn reads(&self) -> VarInputs {
        VarInputs::default()
    }

    /// Names of the request fields with an identity that the plugin sets: a client must not send them. `multi-auth`
    /// removes those of each plugin that has not accepted the request.
    fn vouched_fields<'s>(&'s self, _consumers: &'s ConsumerIndex) -> Vec<&'s str> {
        Vec::new()
    }

    /// The request field with the credential by which the plugin accepts requests that have the field.
    fn credential_field(&self) -> Option<&str> {
        None
    }

    /// Whether the plugin replaces a guard that is not in force, and refuses every request.
    fn is_stand_in(&self) -> bool {
        false
    }

    /// The phase in which the plugin responds to every request that reaches it, without `_meta.filter`; `None` if some
    /// requests continue.
    fn responds_always_in(&self) -> Option<PhaseSet> {
        None
    }

    /// The effect of one phase in a dry run. The plugin may change the exchange, but nothing outside of it:
    /// no counter, no subrequest.
    ///
    /// A plugin whose phases only change the exchange uses [`DryRunResult::by_running`], which keeps both in
    /// step.
    fn dry_run(&self, _phase: PhaseSet, _ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::Unknown
    }
}

/// The result of a dry run.
#[derive(Debug)]
pub enum DryRunResult {
    /// Unknown without side effects.
    Unknown,
    /// Continue.
    Continue,
    /// Continue, with a remark for the operator.
    Note(Cow<'static, str>),
    /// Respond locally.
    Respond(LocalResponse),
    /// Respond locally, with a reason for the operator that the response does not contain.
    Refuse(LocalResponse, Cow<'static, str>),
}

impl DryRunResult {
    /// Runs the phase itself, for plugins that only change the exchange.
    pub fn by_running(plugin: &dyn Plugin, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        let needs_body = match run(plugin, phase, ex) {
            Ok(result) => return result,
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

/// Runs a phase; `Err` if it would wait, with true if it would wait for the body.
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

/// The action of the chain after a plugin has run.
pub enum Step<'a> {
    /// Continue with the next plugin.
    Continue,
    /// Send this local response. The response phases still run, the upstream phases do not.
    Respond(LocalResponse),
    /// Buffer the request body and call this plugin again; a body beyond the bound is refused with 413.
    NeedBody {
        /// Largest body in bytes that the plugin accepts.
        bytes_max: usize,
    },
    /// Continue when the future is ready. Only plugins that wait allocate.
    Wait(LocalFuture<'a, Step<'a>>),
}

/// The result of inspecting the first bytes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrereadStep {
    /// Continue.
    Continue,
    /// More bytes are needed.
    NeedMore,
    /// Close the connection for this reason.
    Refuse(&'static str),
}

/// A chunk of a response body.
#[derive(Debug, Default)]
pub struct BodyChunk {
    /// The bytes; may be empty.
    pub data: Vec<u8>,
    /// Whether this is the last chunk. A plugin that sets it ends the body: the rest of the source and its
    /// trailers are not awaited, except for gRPC calls, because their status is in the trailers.
    pub last: bool,
    /// Whether the source has no more bytes for now. Buffered bytes must be sent then, or the client of an
    /// event stream would wait for the next event. Also set before the first chunk if the source has only
    /// sent its head.
    pub pause: bool,
    /// With the last chunk: the trailers as lines `name: value` with CRLF. The client gets the rest of
    /// them.
    pub trailers: Vec<u8>,
    /// Set if the body does not match its head: the response is aborted, as after an incomplete upstream
    /// response.
    pub broken: bool,
}

/// A set of phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PhaseSet(u16);

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
    /// [`Plugin::prepare_log`].
    pub const PREPARE_LOG: PhaseSet = PhaseSet(128);
    /// The empty set.
    pub const NONE: PhaseSet = PhaseSet(0);

    /// Whether all phases of `other` are in this set.
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
