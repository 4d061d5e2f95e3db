//! The plugins of one exchange: global rules, then the route's, with the consumer's merged in.

use std::ops::Deref;
use std::rc::Rc;

use yumen_http::ResponseHead;
use yumen_plugin::{BodyChunk, Exchange, Phase, Plugin, PluginChain, PluginInstance};
use yumen_snapshot::Upstream;

use crate::body_edit::{BodyPiece, DeferredPiece};
use crate::debug;
use crate::grpc;
use crate::http2::heads::{self, NO_TUNNEL};
use crate::observe::{self, ExchangeStopwatch};

/// The plugins of an exchange.
pub(crate) struct ExchangeChains<'s> {
    pub(crate) global: &'s PluginChain,
    pub(crate) route: RouteChain<'s>,
    /// The upstream that was chosen, once one was.
    pub(crate) upstream: Option<&'s Upstream>,
    /// Measures what they do, where the exchange is sampled or explains itself.
    pub(crate) watch: Option<Rc<ExchangeStopwatch>>,
}

/// The route's part of them.
pub(crate) enum RouteChain<'s> {
    /// No route matched.
    None,
    /// The route's own.
    Route(&'s PluginChain),
    /// With the consumer's plugins merged in.
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
    /// The global rules, before a route is known.
    pub(crate) fn new(global: &'s PluginChain, watch: Option<Rc<ExchangeStopwatch>>) -> ExchangeChains<'s> {
        ExchangeChains { global, route: RouteChain::None, upstream: None, watch }
    }

    /// The stopwatch of an exchange that explains itself.
    pub(crate) fn explaining(&self) -> Option<&ExchangeStopwatch> {
        self.watch.as_deref().filter(|watch| watch.explains)
    }

    /// Whether a plugin of a global rule steps back for the route's own.
    pub(crate) fn yields_to_route(&self, instance: &PluginInstance) -> bool {
        instance.prefers_route && self.route.has(instance.name)
    }

    /// Whether no plugin has anything to do. A consumer can only be found by one.
    pub(crate) fn are_empty(&self) -> bool {
        self.global.is_empty() && self.route.is_empty()
    }

    /// Calls `each` for the plugins of a phase: global rules first.
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

    /// Calls one plugin, where its filter lets it run.
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

    /// Whether a plugin that runs after the head was sent looks into the fields of that.
    pub(crate) fn read_sent_head(&self) -> bool {
        !self.are_empty() && (self.global.reads_sent_head() || self.route.reads_sent_head())
    }

    /// A piece of body through all plugins that want to see it and have not, and coded behind them; `Err` where one of
    /// them computes its part of it beside the worker.
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
                let chunk = plugin.response_body(ex, std::mem::take(&mut piece.chunk));
                piece.last = piece.last || (chunk.last && !grpc::is_call(ex));
                piece.chunk = BodyChunk { last: piece.last, pause: piece.pause, ..chunk };
            });
            computing = ex.take_deferred_body();
            piece.plugins = index;
        });
        if let Some(computing) = computing {
            return Err(Box::new(DeferredPiece::new(piece, computing)));
        }
        let BodyPiece { mut chunk, last, pause, .. } = piece;
        let trailers = std::mem::take(&mut chunk.trailers);
        let broken = chunk.broken;
        Ok(BodyChunk { data: ex.code(chunk), last, pause, trailers, broken })
    }
}

/// The response phases: what was left for the answer, then the plugins, then the explanation if one was
/// asked for.
pub(crate) fn respond_head(ex: &mut Exchange<'_>, chains: &ExchangeChains<'_>, head: &mut ResponseHead) {
    ex.status = head.status;
    if !ex.response_fields.is_empty() {
        head.fields.replace(&ex.response_fields);
    }
    let phase = Phase::ResponseHead;
    chains.instances(phase, |instance| {
        if instance.reads.answer {
            ex.show_answer(head.fields.clone());
        }
        chains.run(instance, ex, phase, |plugin, ex| plugin.response_head(ex, head));
    });
    ex.choose_coding(head);
    if matches!(head.status, 200..=299) && heads::asks_for_tunnel(&ex.request) {
        // What is told, and so what is noted.
        head.set_status(NO_TUNNEL);
    }
    ex.status = head.status;
    if let Some(watch) = chains.explaining() {
        let upstream = chains.upstream.map(|upstream| &*upstream.origin);
        head.fields.set(debug::RESPONSE_FIELD, observe::explain(watch, ex, upstream).as_bytes());
    }
}
