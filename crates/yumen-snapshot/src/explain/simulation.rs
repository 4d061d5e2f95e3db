//! Simulates a request on its way through its plugins: in the order of serving, with a dry run of each
//! plugin.

use std::sync::Arc;

use yumen_plugin::{
    DryRunResult, Exchange, IndecisionCause, LocalResponse, PhaseSet, PluginChain, PluginInstance,
};

use super::{ExplainedStep, PluginDecision};
use crate::{Route, RouteTarget, Snapshot};

/// A response in place of an upstream's.
pub(super) struct SimulatedResponse {
    /// The plugin; `None` for the gateway itself.
    pub(super) plugin: Option<&'static str>,
    pub(super) origin: Option<Arc<str>>,
    pub(super) response: LocalResponse,
}

impl SimulatedResponse {
    pub(super) fn gateway(status: u16, message: &str) -> SimulatedResponse {
        SimulatedResponse { plugin: None, origin: None, response: LocalResponse::error_msg(status, message) }
    }
}

/// A request in simulation.
pub(super) struct RequestSimulation<'w, 's> {
    /// The global rules for this route.
    rules: &'s PluginChain,
    pub(super) ex: &'w mut Exchange<'s>,
    /// The consumer to assume for plugins that authenticate.
    assumed: Option<&'w str>,
    route: Option<&'s Route>,
    merged: Option<PluginChain>,
    pub(super) steps: Vec<ExplainedStep>,
    pub(super) answered: Option<SimulatedResponse>,
    pub(super) remarks: Vec<String>,
}

impl<'w, 's> RequestSimulation<'w, 's> {
    pub(super) fn new(
        snapshot: &'s Snapshot,
        ex: &'w mut Exchange<'s>,
        route: Option<&'s Route>,
        assumed: Option<&'w str>,
    ) -> RequestSimulation<'w, 's> {
        let (steps, remarks) = (Vec::new(), Vec::new());
        let (rules, consumers) = snapshot.terms_of_request(ex.client.connection, ex.request.host());
        let rules = snapshot.rules_for(rules, route);
        ex.consumers = consumers;
        RequestSimulation { rules, ex, assumed, route, merged: None, steps, answered: None, remarks }
    }

    /// Runs the phases up to access, and sets the response if no route matches or the route refuses.
    pub(super) fn decide(&mut self) {
        self.respond_undecided();
        // The order is that of serving: global rules precede the plugins of the route in each phase.
        self.run_global(PhaseSet::REWRITE);
        let Some(route) = self.route else {
            // Global rules run for requests without a route too, as in APISIX.
            self.run_global(PhaseSet::ACCESS);
            return self.answer_unless(SimulatedResponse::gateway(404, "404 Route Not Found"));
        };
        if let RouteTarget::Refuse { status, message } = &route.target {
            // Global rules may respond before the refusal, so they run first.
            self.run_global(PhaseSet::ACCESS);
            return self.answer_unless(SimulatedResponse::gateway(*status, message));
        }
        self.run(route.chain.rewrite(), PhaseSet::REWRITE);
        // Most consumers change no plugins; their requests use the shared chain.
        if let Some(consumer) = self.ex.consumer.filter(|consumer| consumer.changes_plugins()) {
            // Plugins of the consumer join the chain as soon as the consumer is identified.
            let merged = route.chain.with_consumer(consumer);
            self.run(merged.rewrite_in_consumer(), PhaseSet::REWRITE);
            self.merged = Some(merged);
        }
        self.run_global(PhaseSet::ACCESS);
        let access: Vec<_> = self.chain().map(|chain| chain.access().to_vec()).unwrap_or_default();
        self.run(&access, PhaseSet::ACCESS);
        if self.assumed.is_some() && self.ex.consumer.is_none() && self.answered.is_none() {
            self.remarks.push("no plugin authenticates consumers; --consumer has no effect".into());
        }
    }

    /// The same for a stream. Only its route has plugins: those that decide, those that read its first bytes,
    /// which are unknown here, and those of the log.
    pub(super) fn decide_stream(&mut self, chain: &PluginChain) {
        self.run(chain.access(), PhaseSet::ACCESS);
        for instance in chain.preread() {
            let is_reached = self.answered.is_none();
            let decision = if is_reached { PluginDecision::Unknown } else { PluginDecision::NotReached };
            self.note(instance, PhaseSet::PREREAD, decision, None);
        }
        for instance in chain.log() {
            let says = self.log_note(instance);
            self.note(instance, PhaseSet::LOG, PluginDecision::Later, says);
        }
    }

    /// Runs the phase before each attempt, then lists the plugins of the response phases.
    pub(super) fn finish(&mut self) {
        self.run_global(PhaseSet::UPSTREAM_REQUEST);
        let route: Vec<_> = self.chain().map(|chain| chain.all().to_vec()).unwrap_or_default();
        let upstream: Vec<_> =
            route.iter().filter(|one| one.phases.has(PhaseSet::UPSTREAM_REQUEST)).cloned().collect();
        self.run(&upstream, PhaseSet::UPSTREAM_REQUEST);
        for instance in self.rules.all().iter().chain(&route) {
            let later =
                [PhaseSet::RESPONSE_HEAD, PhaseSet::RESPONSE_BODY, PhaseSet::PREPARE_LOG, PhaseSet::LOG];
            // One line per plugin suffices, at its first phase of the response.
            if let Some(phase) = later.into_iter().find(|phase| instance.phases.has(*phase)) {
                let decision = if self.yields_to_route(instance) {
                    PluginDecision::StepsBack
                } else {
                    PluginDecision::Later
                };
                let says = self.log_note(instance);
                self.note(instance, phase, decision, says);
            }
        }
    }

    /// The remark of a plugin about its log phase, such as the sink of a logger.
    fn log_note(&mut self, instance: &PluginInstance) -> Option<String> {
        if !instance.phases.has(PhaseSet::LOG) {
            return None;
        }
        match instance.plugin.dry_run(PhaseSet::LOG, self.ex) {
            DryRunResult::Note(note) => Some(note.into_owned()),
            _ => None,
        }
    }

    fn chain(&self) -> Option<&PluginChain> {
        self.merged.as_ref().or(self.route.map(|route| &*route.chain))
    }

    fn yields_to_route(&self, instance: &PluginInstance) -> bool {
        let is_global = instance.origin.starts_with("global_rules/");
        is_global && instance.prefers_route && self.chain().is_some_and(|chain| chain.has(instance.name))
    }

    fn answer_unless(&mut self, answered: SimulatedResponse) {
        // The first response stands, as in serving.
        self.answered.get_or_insert(answered);
    }

    fn run_global(&mut self, phase: PhaseSet) {
        for instance in self.rules.all().iter().filter(|instance| instance.phases.has(phase)) {
            if self.yields_to_route(instance) {
                self.note(instance, phase, PluginDecision::StepsBack, None);
            } else {
                self.run_one(instance, phase);
            }
        }
    }

    fn run(&mut self, list: &[Arc<PluginInstance>], phase: PhaseSet) {
        for instance in list {
            self.run_one(instance, phase);
        }
    }

    fn run_one(&mut self, instance: &Arc<PluginInstance>, phase: PhaseSet) {
        if self.answered.is_some() {
            // The remaining plugins are listed nevertheless, to show which ones the response bypasses.
            return self.note(instance, phase, PluginDecision::NotReached, None);
        }
        // The evaluation of the filter may itself abort a pattern.
        let admits = self.ex.admits(instance);
        if self.respond_undecided() {
            let says = Some("_meta.filter: its pattern took too long".to_owned());
            return self.note(instance, phase, PluginDecision::Unknown, says);
        }
        if !admits {
            let failing =
                instance.meta.filter.as_ref().and_then(|filter| self.ex.aside(|ex| filter.failing(ex)));
            let says = failing.map(|failing| format!("_meta.filter: {failing}"));
            return self.note(instance, phase, PluginDecision::Skipped, says);
        }
        // A dry run cannot check credentials that the question does not have.
        if instance.is_auth && self.assume_consumer(instance, phase) {
            return;
        }
        match instance.plugin.dry_run(phase, self.ex) {
            DryRunResult::Continue => {
                let says = instance.is_auth.then(|| self.identified()).flatten();
                self.note(instance, phase, PluginDecision::Continues, says);
            }
            DryRunResult::Note(says) => {
                let says = Some(says.into_owned()).filter(|says| !says.is_empty());
                self.note(instance, phase, PluginDecision::Continues, says);
            }
            DryRunResult::Unknown => {
                self.note(instance, phase, PluginDecision::Unknown, None);
                let name = instance.name;
                self.remarks.push(format!(
                    "the decision of {name} cannot be predicted; the rest assumes that it continues"
                ));
            }
            DryRunResult::Respond(response) => self.answer(instance, phase, response),
            DryRunResult::Refuse(response, reason) => {
                self.answer(instance, phase, response);
                self.remarks.push(format!("{}: {reason}", instance.origin));
            }
        }
        self.respond_undecided();
    }

    fn answer(&mut self, instance: &Arc<PluginInstance>, phase: PhaseSet, response: LocalResponse) {
        // `_meta.error_response` replaces the body of the plugin, as in serving.
        let response = instance.apply_error_response(response);
        let says = format!("status {}", response.status);
        self.note(instance, phase, PluginDecision::Answers, Some(says));
        let origin = Some(instance.origin.clone());
        self.answered = Some(SimulatedResponse { plugin: Some(instance.name), origin, response });
    }

    /// Responds as serving does after an aborted pattern, in place of a plugin's response; returns whether
    /// there was one.
    fn respond_undecided(&mut self) -> bool {
        let Some(cause) = self.ex.indecision() else { return false };
        // A response of the gateway is final; only a plugin's is replaced.
        let is_refused = self.answered.as_ref().is_some_and(|answered| answered.plugin.is_none());
        if !is_refused {
            let (status, message, remark) = match cause {
                IndecisionCause::UnreadableBody => (
                    400,
                    "the request body does not follow its Content-Type",
                    "a condition depends on a value of the body, which is malformed or ambiguous: the request is refused",
                ),
                IndecisionCause::BacktrackLimit => (
                    500,
                    "a pattern took too long to match the request",
                    "a pattern took too long: the route or the decision of a guard is unknown, and so the \
                     request is refused",
                ),
            };
            self.answered = Some(SimulatedResponse::gateway(status, message));
            self.remarks.push(remark.into());
        }
        true
    }

    /// Identifies the client as the consumer of the question; false if the question names none.
    fn assume_consumer(&mut self, instance: &PluginInstance, phase: PhaseSet) -> bool {
        let Some(name) = self.assumed else { return false };
        let consumers = self.ex.consumers;
        let Some(consumer) = consumers.named(name) else {
            let remark = format!("consumer {name} does not exist or is not active");
            // Each plugin that authenticates gets here; one remark is enough.
            if !self.remarks.contains(&remark) {
                self.remarks.push(remark);
            }
            return false;
        };
        self.ex.identify(consumer, None);
        self.note(instance, phase, PluginDecision::Assumed, Some(format!("the client is {name}")));
        true
    }

    fn identified(&self) -> Option<String> {
        self.ex.consumer.map(|consumer| format!("the client is {}", consumer.username))
    }

    fn note(
        &mut self,
        instance: &PluginInstance,
        phase: PhaseSet,
        decision: PluginDecision,
        says: Option<String>,
    ) {
        self.steps.push(ExplainedStep {
            plugin: instance.name,
            origin: instance.origin.clone(),
            phase: phase_name(phase),
            priority: instance.priority,
            decision,
            says,
        });
    }
}

fn phase_name(phase: PhaseSet) -> &'static str {
    match phase {
        PhaseSet::REWRITE => "rewrite",
        PhaseSet::ACCESS => "access",
        PhaseSet::PREREAD => "preread",
        PhaseSet::UPSTREAM_REQUEST => "upstream_request",
        PhaseSet::RESPONSE_HEAD => "response_head",
        PhaseSet::RESPONSE_BODY => "response_body",
        PhaseSet::PREPARE_LOG => "prepare_log",
        _ => "log",
    }
}
