//! The plugins of one exchange: global rules, then the route's, with the consumer's merged in.

use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use yumen_http::ResponseHead;
use yumen_plugin::{Chain, Chunk, Exchange, Instance, Plugin};

/// The plugins of an exchange.
pub(crate) struct Chains<'s> {
    pub(crate) global: &'s Chain,
    pub(crate) route: RouteChain<'s>,
}

/// The route's part of them.
pub(crate) enum RouteChain<'s> {
    /// No route matched.
    None,
    /// The route's own.
    Route(&'s Chain),
    /// With the consumer's plugins merged in.
    Merged(Rc<Chain>),
}

impl Deref for RouteChain<'_> {
    type Target = Chain;

    fn deref(&self) -> &Chain {
        static EMPTY: std::sync::OnceLock<Chain> = std::sync::OnceLock::new();
        match self {
            RouteChain::None => EMPTY.get_or_init(Chain::default),
            RouteChain::Route(chain) => chain,
            RouteChain::Merged(chain) => chain,
        }
    }
}

impl Chains<'_> {
    /// Whether a plugin of a global rule steps back for the route's own.
    pub(crate) fn steps_back(&self, instance: &Instance) -> bool {
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
        list: fn(&Chain) -> &[Arc<Instance>],
        mut each: impl FnMut(&dyn Plugin, &mut Exchange<'_>),
    ) {
        if self.are_empty() {
            return;
        }
        for instance in list(self.global).iter().filter(|instance| !self.steps_back(instance)) {
            if ex.admits(instance) {
                each(&*instance.plugin, ex);
            }
        }
        for instance in list(&self.route) {
            if ex.admits(instance) {
                each(&*instance.plugin, ex);
            }
        }
    }

    /// Whether a plugin wants to see response bodies.
    pub(crate) fn edits_body(&self) -> bool {
        !self.global.response_body().is_empty() || !self.route.response_body().is_empty()
    }

    /// A piece of body through all plugins that want to see it.
    pub(crate) fn edit(&self, ex: &mut Exchange<'_>, data: &[u8], last: bool) -> Vec<u8> {
        let mut chunk = Chunk { data: data.to_vec(), last };
        self.each(ex, Chain::response_body, |plugin, ex| {
            chunk = plugin.response_body(ex, std::mem::take(&mut chunk));
            chunk.last = last;
        });
        chunk.data
    }
}

/// The response phases: what was left for the answer, then the plugins.
pub(crate) fn respond_head(ex: &mut Exchange<'_>, chains: &Chains<'_>, head: &mut ResponseHead) {
    ex.status = head.status;
    if !ex.response_fields.is_empty() {
        for (name, _) in ex.response_fields.iter() {
            head.fields.remove(&String::from_utf8_lossy(name));
        }
        for (name, value) in ex.response_fields.iter() {
            head.fields.add(&String::from_utf8_lossy(name), value);
        }
    }
    chains.each(ex, Chain::response_head, |plugin, ex| plugin.response_head(ex, head));
    ex.status = head.status;
}
