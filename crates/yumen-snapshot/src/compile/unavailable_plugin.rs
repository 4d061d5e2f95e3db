//! The plugin that stands in for a guard that is not in force: it refuses.

use std::borrow::Cow;
use std::sync::Arc;

use yumen_plugin::{
    DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, PluginInstance, PluginKind, PluginMeta, Step,
    VarInputs,
};

use super::missing_plugins;
use super::plugin_settings::PluginOwner;
use super::plugins::PluginEntry;

/// Refuses every request it sees with 503; closes every stream.
pub(super) struct UnavailablePlugin {
    /// The message to the client.
    message: &'static str,
    /// The reason in an explanation; empty if the message has it.
    reason: Cow<'static, str>,
}

impl Plugin for UnavailablePlugin {
    fn phases(&self) -> PhaseSet {
        // The access phase as well: a filter may depend on the consumer, and streams have no other phase.
        PhaseSet::REWRITE | PhaseSet::ACCESS
    }

    fn rewrite<'a>(&'a self, _ex: &'a mut Exchange<'_>) -> Step<'a> {
        Step::Respond(self.response())
    }

    fn access<'a>(&'a self, _ex: &'a mut Exchange<'_>) -> Step<'a> {
        Step::Respond(self.response())
    }

    fn is_stand_in(&self) -> bool {
        true
    }

    fn dry_run(&self, _phase: PhaseSet, _ex: &mut Exchange<'_>) -> DryRunResult {
        match self.reason.is_empty() {
            true => DryRunResult::Respond(self.response()),
            false => DryRunResult::Refuse(self.response(), self.reason.clone()),
        }
    }
}

impl UnavailablePlugin {
    fn response(&self) -> LocalResponse {
        LocalResponse::error_msg(503, self.message)
    }

    /// Stands in for plugins of a broken global rule.
    pub(super) fn of_rule() -> UnavailablePlugin {
        UnavailablePlugin { message: "a global rule is misconfigured", reason: Cow::Borrowed("") }
    }

    /// Stands in for a plugin that this version does not run. The client does not see the name.
    pub(super) fn of_missing(plugin: &str) -> UnavailablePlugin {
        let reason = Cow::Owned(missing_plugins::reason(plugin));
        UnavailablePlugin { message: "a plugin that guards access is not available", reason }
    }

    /// Stands in for a consumer's plugins if its group is missing. No plugin has the name of this instance, so no route
    /// overrides it, and it runs as soon as the consumer is known.
    pub(super) fn of_group(origin: Arc<str>) -> PluginInstance {
        let refusal =
            UnavailablePlugin { message: "the consumer group is not in force", reason: Cow::Borrowed("") };
        refusal.instance("consumer group", i32::MAX, PluginMeta::default(), origin, VarInputs::default())
    }

    /// Stands in for a plugin that is built when the values of its secrets arrive. Other plugins are left out.
    pub(super) fn awaiting(kind: &PluginKind, origin: &Arc<str>, owner: PluginOwner) -> PluginEntry {
        let is_credential = matches!(owner, PluginOwner::Consumer | PluginOwner::Credential);
        if is_credential || !kind.role.guards() {
            return PluginEntry::Off(kind.name.into());
        }
        let refusal = UnavailablePlugin { message: "a secret is not available", reason: Cow::Borrowed("") };
        let (meta, reads) = (PluginMeta::default(), VarInputs::default());
        PluginEntry::On(Arc::new(refusal.instance(kind.name, kind.priority, meta, origin.clone(), reads)))
    }

    /// An instance in place of the plugin called `name`.
    pub(super) fn instance(
        self,
        name: &'static str,
        priority: i32,
        meta: PluginMeta,
        origin: Arc<str>,
        reads: VarInputs,
    ) -> PluginInstance {
        PluginInstance {
            phases: self.phases(),
            plugin: Arc::new(self),
            name,
            priority,
            meta,
            origin,
            is_auth: false,
            prefers_route: false,
            reads,
        }
    }
}
