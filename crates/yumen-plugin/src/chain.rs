//! The ordered plugins of a route, flattened per phase when the configuration is compiled.

use std::sync::Arc;

use serde_json::Value;

use crate::{Consumer, Expr, Phases, Plugin, Reads, Response};

/// The object a plugin's settings stand in, as `kind/id`: `routes/1`, `services/a`, `consumers/bob`.
pub type Origin = Arc<str>;

/// The `_meta` of a plugin's settings, common to all plugins.
#[derive(Debug, Default)]
pub struct Meta {
    /// Run only where this holds.
    pub filter: Option<Expr>,
    /// Replaces the body of the plugin's own answers.
    pub error_response: Option<Value>,
    /// Replaces the plugin's own priority.
    pub priority: Option<i32>,
}

/// One configured plugin with its place in the order.
pub struct Instance {
    /// The plugin.
    pub plugin: Arc<dyn Plugin>,
    /// Its name.
    pub name: &'static str,
    /// Higher runs first.
    pub priority: i32,
    /// The phases it takes part in.
    pub phases: Phases,
    /// Its `_meta`.
    pub meta: Meta,
    /// Where its settings stand.
    pub origin: Origin,
    /// Whether it finds out who the consumer is; such plugins of a consumer hold keys and do not run.
    pub is_auth: bool,
    /// Whether an instance on the route makes the one of a global rule step back.
    pub prefers_route: bool,
    /// What the variables that its settings or its filter name are in.
    pub reads: Reads,
}

impl Instance {
    fn reads_what_was_sent(&self) -> bool {
        let runs_later = self.phases.has(Phases::RESPONSE_BODY) || self.phases.has(Phases::LOG);
        self.reads.answer && runs_later
    }

    /// The plugin's answer with the body `_meta.error_response` asks for, and the type of that: a text as it
    /// was written, an object as JSON with a line end.
    pub fn dress(&self, response: Response) -> Response {
        let (content_type, body) = match &self.meta.error_response {
            None => return response,
            Some(Value::String(text)) => ("text/plain; charset=utf-8", text.clone()),
            Some(value) => ("application/json", format!("{value}\n")),
        };
        let mut response = response.body(body);
        response.fields_mut().set("Content-Type", content_type.as_bytes());
        response
    }
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance")
            .field("name", &self.name)
            .field("priority", &self.priority)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

/// A moment of an exchange in which plugins run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Phase {
    Rewrite,
    Access,
    UpstreamRequest,
    ResponseHead,
    ResponseBody,
    Log,
}

impl Phase {
    /// The name of the trait's method.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Rewrite => "rewrite",
            Phase::Access => "access",
            Phase::UpstreamRequest => "upstream_request",
            Phase::ResponseHead => "response_head",
            Phase::ResponseBody => "response_body",
            Phase::Log => "log",
        }
    }
}

/// What running a phase came to.
pub enum Verdict {
    /// Go on.
    Continue,
    /// Answer this.
    Respond(Response),
}

type List = Box<[Arc<Instance>]>;

/// Plugins in order, and for each phase just those that take part. An empty phase costs nothing.
#[derive(Debug, Default)]
pub struct Chain {
    all: List,
    rewrite: List,
    rewrite_in_consumer: List,
    access: List,
    preread: List,
    upstream_request: List,
    response_head: List,
    response_body: List,
    log: List,
    needs_body: bool,
    reads_what_was_sent: bool,
}

impl Chain {
    /// A chain of these plugins, ordered by priority; equal priorities by name.
    pub fn new(instances: impl IntoIterator<Item = Arc<Instance>>) -> Chain {
        let mut all: Vec<Arc<Instance>> = instances.into_iter().collect();
        all.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(b.name)));
        Chain::of_sorted(all, Box::default())
    }

    /// Chains one after another, each keeping its own order: how several global rules run.
    pub fn concat(instances: Vec<Arc<Instance>>) -> Chain {
        Chain::of_sorted(instances, Box::default())
    }

    fn of_sorted(all: Vec<Arc<Instance>>, rewrite_in_consumer: List) -> Chain {
        let in_phase =
            |phase| -> List { all.iter().filter(|instance| instance.phases.has(phase)).cloned().collect() };
        Chain {
            rewrite: in_phase(Phases::REWRITE),
            rewrite_in_consumer,
            access: in_phase(Phases::ACCESS),
            preread: in_phase(Phases::PREREAD),
            upstream_request: in_phase(Phases::UPSTREAM_REQUEST),
            response_head: in_phase(Phases::RESPONSE_HEAD),
            response_body: in_phase(Phases::RESPONSE_BODY),
            log: in_phase(Phases::LOG),
            needs_body: all.iter().any(|instance| instance.reads.body),
            reads_what_was_sent: all.iter().any(|instance| instance.reads_what_was_sent()),
            all: all.into_boxed_slice(),
        }
    }

    /// This chain with a consumer's plugins, which win by name, without those it switches off. Those the
    /// route does not have also run their rewrite phase, late: [`Chain::rewrite_in_consumer`].
    pub fn with_consumer(&self, consumer: &Consumer) -> Chain {
        let plugins = &consumer.plugins;
        let absent = |instance: &Arc<Instance>| !self.has(instance.name);
        let late: List = plugins
            .iter()
            .filter(|instance| absent(instance) && instance.phases.has(Phases::REWRITE))
            .cloned()
            .collect();
        let hides = |name: &str| {
            plugins.iter().any(|theirs| theirs.name == name)
                || consumer.switched_off.iter().any(|off| **off == *name)
        };
        let kept = self.all.iter().filter(|own| !hides(own.name));
        let mut all: Vec<Arc<Instance>> = kept.chain(plugins).cloned().collect();
        all.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(b.name)));
        Chain::of_sorted(all, late)
    }

    /// Whether there is no plugin.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether the request body must be read before its plugins can be asked.
    #[inline]
    pub fn needs_body(&self) -> bool {
        self.needs_body
    }

    /// Whether the fields of the answer must be kept once its head is sent, for plugins that run later.
    #[inline]
    pub fn reads_what_was_sent(&self) -> bool {
        self.reads_what_was_sent
    }

    /// Whether a plugin of this name is in the chain.
    pub fn has(&self, name: &str) -> bool {
        self.all.iter().any(|instance| instance.name == name)
    }

    /// All plugins, in order.
    pub fn all(&self) -> &[Arc<Instance>] {
        &self.all
    }

    /// Those of a phase.
    #[inline]
    pub fn of(&self, phase: Phase) -> &[Arc<Instance>] {
        match phase {
            Phase::Rewrite => &self.rewrite,
            Phase::Access => &self.access,
            Phase::UpstreamRequest => &self.upstream_request,
            Phase::ResponseHead => &self.response_head,
            Phase::ResponseBody => &self.response_body,
            Phase::Log => &self.log,
        }
    }

    /// Those of the rewrite phase.
    pub fn rewrite(&self) -> &[Arc<Instance>] {
        &self.rewrite
    }

    /// Those only the consumer has, for their rewrite phase.
    pub fn rewrite_in_consumer(&self) -> &[Arc<Instance>] {
        &self.rewrite_in_consumer
    }

    /// Those of the access phase.
    pub fn access(&self) -> &[Arc<Instance>] {
        &self.access
    }

    /// Those that look at the first bytes of a stream.
    pub fn preread(&self) -> &[Arc<Instance>] {
        &self.preread
    }

    /// Those of the upstream request phase.
    pub fn upstream_request(&self) -> &[Arc<Instance>] {
        &self.upstream_request
    }

    /// Those of the response head phase.
    pub fn response_head(&self) -> &[Arc<Instance>] {
        &self.response_head
    }

    /// Those of the response body phase.
    pub fn response_body(&self) -> &[Arc<Instance>] {
        &self.response_body
    }

    /// Those of the log phase.
    pub fn log(&self) -> &[Arc<Instance>] {
        &self.log
    }
}

#[cfg(test)]
mod tests;
