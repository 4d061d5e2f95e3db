//! Plugin chains: the sorted plugins of a route, split by phase at compile time.

use std::sync::Arc;

use serde_json::Value;

use crate::{ConditionExpr, Consumer, LocalResponse, PhaseSet, Plugin, VarInputs};

/// The object with a plugin's settings, as `kind/id`: `routes/1`, `services/a`, `consumers/bob`.
pub type Origin = Arc<str>;

/// The `_meta` settings, common to all plugins.
#[derive(Debug, Default)]
pub struct PluginMeta {
    /// Condition for running the plugin.
    pub filter: Option<ConditionExpr>,
    /// Replacement for the body of the plugin's local responses.
    pub error_response: Option<Value>,
    /// Replacement for the priority of the plugin.
    pub priority: Option<i32>,
}

/// A configured plugin with its position in the chain.
pub struct PluginInstance {
    /// The plugin.
    pub plugin: Arc<dyn Plugin>,
    /// Name of the plugin.
    pub name: &'static str,
    /// Priority; higher runs first.
    pub priority: i32,
    /// Phases in which the plugin runs.
    pub phases: PhaseSet,
    /// The `_meta` of the settings.
    pub meta: PluginMeta,
    /// The object with the settings.
    pub origin: Origin,
    /// Whether the plugin identifies the consumer. In a consumer, such settings are credentials and do not
    /// run.
    pub is_auth: bool,
    /// Whether an instance on the route suppresses that of a global rule.
    pub prefers_route: bool,
    /// Inputs of the variables in the settings and the filter.
    pub reads: VarInputs,
}

impl PluginInstance {
    fn reads_sent_head(&self) -> bool {
        let runs_later = self.phases.has(PhaseSet::RESPONSE_BODY) || self.phases.has(PhaseSet::LOG);
        self.reads.answer && runs_later
    }

    /// Applies `_meta.error_response` to a local response: text as it is, an object as JSON with a line end.
    pub fn apply_error_response(&self, response: LocalResponse) -> LocalResponse {
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

impl std::fmt::Debug for PluginInstance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance")
            .field("name", &self.name)
            .field("priority", &self.priority)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

/// A phase of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Phase {
    Rewrite,
    Access,
    UpstreamRequest,
    ResponseHead,
    ResponseBody,
    PrepareLog,
    Log,
}

impl Phase {
    /// The name of the trait method.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Rewrite => "rewrite",
            Phase::Access => "access",
            Phase::UpstreamRequest => "upstream_request",
            Phase::ResponseHead => "response_head",
            Phase::ResponseBody => "response_body",
            Phase::PrepareLog => "prepare_log",
            Phase::Log => "log",
        }
    }
}

/// The result of a phase.
pub enum ChainVerdict {
    /// Continue with the next phase.
    Continue,
    /// Send this local response.
    Respond(LocalResponse),
}

type List = Box<[Arc<PluginInstance>]>;

/// Plugins sorted by priority, with a list per phase. An empty phase costs nothing.
#[derive(Debug, Default)]
pub struct PluginChain {
    all: List,
    rewrite: List,
    rewrite_in_consumer: List,
    access: List,
    preread: List,
    upstream_request: List,
    response_head: List,
    response_body: List,
    prepare_log: List,
    log: List,
    needs_body: bool,
    reads_sent_head: bool,
}

impl PluginChain {
    /// A chain sorted by priority; equal priorities by name.
    pub fn new(instances: impl IntoIterator<Item = Arc<PluginInstance>>) -> PluginChain {
        let mut all: Vec<Arc<PluginInstance>> = instances.into_iter().collect();
        // The name makes the order of equal priorities independent of the order of the settings.
        all.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(b.name)));
        PluginChain::of_sorted(all, Box::default())
    }

    /// A concatenation of chains that keep their order, for several global rules.
    pub fn concat(instances: Vec<Arc<PluginInstance>>) -> PluginChain {
        PluginChain::of_sorted(instances, Box::default())
    }

    fn of_sorted(all: Vec<Arc<PluginInstance>>, rewrite_in_consumer: List) -> PluginChain {
        let in_phase =
            |phase| -> List { all.iter().filter(|instance| instance.phases.has(phase)).cloned().collect() };
        PluginChain {
            rewrite: in_phase(PhaseSet::REWRITE),
            rewrite_in_consumer,
            access: in_phase(PhaseSet::ACCESS),
            preread: in_phase(PhaseSet::PREREAD),
            upstream_request: in_phase(PhaseSet::UPSTREAM_REQUEST),
            response_head: in_phase(PhaseSet::RESPONSE_HEAD),
            response_body: in_phase(PhaseSet::RESPONSE_BODY),
            prepare_log: in_phase(PhaseSet::PREPARE_LOG),
            log: in_phase(PhaseSet::LOG),
            needs_body: all.iter().any(|instance| instance.reads.body),
            reads_sent_head: all.iter().any(|instance| instance.reads_sent_head()),
            all: all.into_boxed_slice(),
        }
    }

    /// This chain merged with the plugins of a consumer, which take precedence by name, and without those
    /// that the consumer disables. Plugins that are not on the route run their rewrite phase late:
    /// [`PluginChain::rewrite_in_consumer`].
    pub fn with_consumer(&self, consumer: &Consumer) -> PluginChain {
        let plugins = &consumer.plugins;
        let absent = |instance: &Arc<PluginInstance>| !self.has(instance.name);
        let late: List = plugins
            .iter()
            .filter(|instance| absent(instance) && instance.phases.has(PhaseSet::REWRITE))
            .cloned()
            .collect();
        let hides = |name: &str| {
            plugins.iter().any(|other| other.name == name)
                || consumer.switched_off.iter().any(|off| **off == *name)
        };
        let shown = self.all.iter().filter(|own| !hides(own.name));
        let mut all: Vec<Arc<PluginInstance>> = shown.chain(plugins).cloned().collect();
        all.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(b.name)));
        PluginChain::of_sorted(all, late)
    }

    /// The plugin that responds to every request, and the plugins that therefore never run. A plugin that also runs for
    /// responses is not among them.
    pub fn never_run(&self) -> Option<(&PluginInstance, Vec<&PluginInstance>)> {
        /// The phases of a request in their order.
        const ORDER: [PhaseSet; 3] = [PhaseSet::REWRITE, PhaseSet::ACCESS, PhaseSet::UPSTREAM_REQUEST];
        let rank = |phase: PhaseSet| ORDER.iter().position(|other| *other == phase);
        let responding = |(at, one): (usize, &Arc<PluginInstance>)| {
            let phase = one.plugin.responds_always_in().filter(|_| one.meta.filter.is_none())?;
            Some((rank(phase)?, at))
        };
        let first = self.all.iter().enumerate().filter_map(responding).min()?;
        let is_late = |at: usize, one: &PluginInstance| {
            let ranks = (0..ORDER.len()).filter(|rank| one.phases.has(ORDER[*rank]));
            let is_of_requests = (ORDER[0] | ORDER[1] | ORDER[2]).has(one.phases);
            is_of_requests
                && one.phases != PhaseSet::NONE
                && ranks.map(|rank| (rank, at)).all(|it| it > first)
        };
        let late = self.all.iter().enumerate().filter(|(at, one)| is_late(*at, one));
        Some((&self.all[first.1], late.map(|(_, one)| &**one).collect()))
    }

    /// Whether the chain is empty.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether the request body must be buffered before plugins run.
    #[inline]
    pub fn needs_body(&self) -> bool {
        self.needs_body
    }

    /// Whether the response fields must be kept after the head is sent, for plugins of later phases.
    #[inline]
    pub fn reads_sent_head(&self) -> bool {
        self.reads_sent_head
    }

    /// Whether the chain has a plugin with this name.
    pub fn has(&self, name: &str) -> bool {
        self.all.iter().any(|instance| instance.name == name)
    }

    /// All plugins, in order.
    pub fn all(&self) -> &[Arc<PluginInstance>] {
        &self.all
    }

    /// The plugins of a phase.
    #[inline]
    pub fn of(&self, phase: Phase) -> &[Arc<PluginInstance>] {
        match phase {
            Phase::Rewrite => &self.rewrite,
            Phase::Access => &self.access,
            Phase::UpstreamRequest => &self.upstream_request,
            Phase::ResponseHead => &self.response_head,
            Phase::ResponseBody => &self.response_body,
            Phase::PrepareLog => &self.prepare_log,
            Phase::Log => &self.log,
        }
    }

    /// The plugins of the rewrite phase.
    pub fn rewrite(&self) -> &[Arc<PluginInstance>] {
        &self.rewrite
    }

    /// The plugins that only the consumer has, for their late rewrite phase.
    pub fn rewrite_in_consumer(&self) -> &[Arc<PluginInstance>] {
        &self.rewrite_in_consumer
    }

    /// The plugins of the access phase.
    pub fn access(&self) -> &[Arc<PluginInstance>] {
        &self.access
    }

    /// The plugins that inspect the first bytes of a stream.
    pub fn preread(&self) -> &[Arc<PluginInstance>] {
        &self.preread
    }

    /// The plugins of the upstream request phase.
    pub fn upstream_request(&self) -> &[Arc<PluginInstance>] {
        &self.upstream_request
    }

    /// The plugins of the response head phase.
    pub fn response_head(&self) -> &[Arc<PluginInstance>] {
        &self.response_head
    }

    /// The plugins of the response body phase.
    pub fn response_body(&self) -> &[Arc<PluginInstance>] {
        &self.response_body
    }

    /// The plugins of the log phase.
    pub fn log(&self) -> &[Arc<PluginInstance>] {
        &self.log
    }
}

#[cfg(test)]
mod tests;
