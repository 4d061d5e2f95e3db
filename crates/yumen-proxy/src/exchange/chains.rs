//! Plugin chains of one exchange: global rules first, then the route's, with the consumer's plugins merged
//! in.
//!
//! Owns the order of plugins per phase. Must not depend on the effect of a plugin.

use std::ops::Deref;
use std::rc::Rc;

use yumen_actions::BackendEdits;
use yumen_http::ResponseHead;
use yumen_plugin::{
    BodyChunk, Exchange, Phase, Plugin, PluginChain, PluginInstance, ResponseBodyPhase, ResponseHeadPhase,
};
use yumen_snapshot::Upstream;

use crate::debug;
use crate::exchange::body_piece::{BodyPiece, DeferredPiece};
use crate::exchange::session::ExchangeSession;
use crate::grpc;
use crate::observe::{self, ExchangeStopwatch};
use crate::transport::http2::heads::{self, NO_TUNNEL};

/// Plugin chains of an exchange.
pub(crate) struct ExchangeChains<'s> {
    pub(crate) global: &'s PluginChain,
    pub(crate) route: RouteChain<'s>,
    /// The selected upstream.
    pub(crate) upstream: Option<&'s Upstream>,
    /// The session, at routes with session persistence.
    pub(crate) session: Option<Box<ExchangeSession<'s>>>,
    /// Edits of the selected backend, for its response.
    pub(crate) edits: Option<&'s BackendEdits>,
    /// Stopwatch of a sampled, explained or traced exchange.
    pub(crate) watch: Option<Rc<ExchangeStopwatch>>,
}

/// Chain of the route.
pub(crate) enum RouteChain<'s> {
    /// No route matched.
    None,
    /// Plugins of the route.
    Route(&'s PluginChain),
    /// Plugins of route and consumer.
    Merged(Rc<PluginChain>),
}

impl Deref for RouteChain<'_> {
    type Target = PluginChain;

    fn deref(&self) -> &PluginChain {
        static EMPTY: std::sync::OnceLock<PluginChain> = std::sync::OnceLock::new();
        match self {
            RouteChain::None => EMPTY.get_or_init(PluginChain::default),
            RouteChain::Route(chain) => chain,
            RouteChain::Merged(chain) => chain,
        }
    }
}

impl<'s> ExchangeChains<'s> {
    /// Chains before routing: global rules only.
    pub(crate) fn new(global: &'s PluginChain, watch: Option<Rc<ExchangeStopwatch>>) -> ExchangeChains<'s> {
        ExchangeChains { global, route: RouteChain::None, upstream: None, session: None, edits: None, watch }
    }

    /// Stopwatch, if the exchange is explained.
    pub(crate) fn explaining(&self) -> Option<&ExchangeStopwatch> {
        self.watch.as_deref().filter(|watch| watch.explains)
    }

    /// Stopwatch, if attempts are recorded.
    #[inline]
    pub(crate) fn recording_attempts(&self) -> Option<&ExchangeStopwatch> {
        self.watch.as_deref().filter(|watch| watch.records_attempts())
    }

    /// Whether a plugin of a global rule is replaced by the same plugin of the route.
    pub(crate) fn yields_to_route(&self, instance: &PluginInstance) -> bool {
        instance.prefers_route && self.route.has(instance.name)
    }

    /// Whether no plugin runs. Consumers need no check: only a plugin can identify one.
    pub(crate) fn are_empty(&self) -> bool {
        self.global.is_empty() && self.route.is_empty()
    }

    /// Calls `each` for the plugins of a phase, global rules first.
    pub(crate) fn each(
        &self,
        ex: &mut Exchange<'_>,
        phase: Phase,
        mut each: impl FnMut(&dyn Plugin, &mut Exchange<'_>),
    ) {
        self.instances(phase, |instance| self.run(instance, ex, phase, &mut each));
    }

    fn instances(&self, phase: Phase, mut each: impl FnMut(&PluginInstance)) {
        if self.are_empty() {
            return;
        }
        for instance in self.global.of(phase).iter().filter(|instance| !self.yields_to_route(instance)) {
            each(instance);
        }
        for instance in self.route.of(phase) {
            each(instance);
        }
    }

    /// Calls one plugin, if its filter admits the exchange.
    fn run(
        &self,
        instance: &PluginInstance,
        ex: &mut Exchange<'_>,
        phase: Phase,
        call: impl FnOnce(&dyn Plugin, &mut Exchange<'_>),
    ) {
        if !ex.admits(instance) {
            return;
        }
        match &self.watch {
            None => call(&*instance.plugin, ex),
            Some(watch) => watch.run(instance, phase, || call(&*instance.plugin, ex)),
        }
    }

    /// Whether a plugin reads response fields after the head was sent.
    pub(crate) fn read_sent_head(&self) -> bool {
        !self.are_empty() && (self.global.reads_sent_head() || self.route.reads_sent_head())
    }

    /// Passes a chunk through the plugins that have not edited it, then through the content coding. `Err` if
    /// a plugin computes its result in another thread.
    pub(crate) fn edit(
        &self,
        ex: &mut Exchange<'_>,
        mut piece: BodyPiece,
    ) -> Result<BodyChunk, Box<DeferredPiece>> {
        let (seen, mut index, mut computing) = (piece.plugins, 0, None);
        self.instances(Phase::ResponseBody, |instance| {
            index += 1;
            if index <= seen || computing.is_some() {
                return;
            }
            self.run(instance, ex, Phase::ResponseBody, |plugin, ex| {
                let chunk =
                    plugin.response_body(&mut ResponseBodyPhase::new(ex), std::mem::take(&mut piece.chunk));
                // A plugin may end a body early, except that of a gRPC call, which ends with its trailers.
                piece.last = piece.last || (chunk.last && !grpc::is_call(ex));
                piece.chunk = BodyChunk { last: piece.last, pause: piece.pause, ..chunk };
            });
            computing = ex.response.take_deferred_body();
            piece.plugins = index;
        });
        if let Some(computing) = computing {
            return Err(Box::new(DeferredPiece::new(piece, computing)));
        }
        let BodyPiece { mut chunk, last, pause, .. } = piece;
        let trailers = std::mem::take(&mut chunk.trailers);
        let broken = chunk.broken;
        ex.tap_response_data(&chunk.data);
        Ok(BodyChunk { data: ex.code(chunk), last, pause, trailers, broken })
    }
}

/// Runs the response head phase: fields set by earlier phases, then plugins, content coding, and the
/// explanation if requested.
pub(crate) fn respond_head(ex: &mut Exchange<'_>, chains: &ExchangeChains<'_>, head: &mut ResponseHead) {
    ex.response.status = head.status;
    if !ex.response.fields.is_empty() {
        head.fields.replace(&ex.response.fields);
    }
    let phase = Phase::ResponseHead;
    chains.instances(phase, |instance| {
        // Each plugin sees the changes of those before it.
        if instance.reads.answer {
            // The copy is made only for plugins that read response fields.
            ex.response.expose_fields(head.fields.clone());
        }
        chains.run(instance, ex, phase, |plugin, ex| {
            plugin.response_head(&mut ResponseHeadPhase::new(ex), head)
        });
    });
    if let Some(edits) = chains.edits {
        edits.response.apply_to_response(ex, head);
    }
    if let Some(session) = &chains.session {
        session.end(ex, chains.upstream, head);
    }
    // Decision 24: the coding is chosen after all plugins have seen the head.
    ex.choose_coding(head);
    if matches!(head.status, 200..=299) && heads::is_tunnel_request(&ex.request) {
        // The status is set here, so that log and metrics record the one that the client receives.
        head.set_status(NO_TUNNEL);
    }
    ex.response.status = head.status;
    if let Some(watch) = chains.explaining() {
        let upstream = chains.upstream.map(|upstream| &*upstream.origin);
        head.fields.set(debug::RESPONSE_FIELD, observe::explain(watch, ex, upstream).as_bytes());
    }
}
