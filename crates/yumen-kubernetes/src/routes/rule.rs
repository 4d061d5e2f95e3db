//! Rules of HTTPRoute and GRPCRoute between their two forms: objects of the API and resources.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::backends::{BackendPort, BackendTarget};
use super::path_edits::RulePathEdit;
use crate::derived::ConditionReason;
use crate::model::ObjectKey;
use crate::policy::RulePolicy;

/// One rule.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RoutedRule {
    pub(super) name: Option<Arc<str>>,
    pub(super) matches: Vec<RuleMatch>,
    pub(super) plan: RulePlan,
}

/// One match of a rule, which becomes one resource.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RuleMatch {
    /// `uri`, `methods`, `vars` and `match`.
    pub(super) members: Map<String, Value>,
    pub(super) priority: i64,
    /// The prefix that edits of paths replace.
    pub(super) prefix: Option<String>,
}

impl RuleMatch {
    /// Adds the conditions and the priority of policies.
    pub(super) fn follow(&mut self, policy: &RulePolicy) {
        self.priority += policy.priority;
        if !policy.vars.is_empty() {
            let vars = self.members.entry("vars").or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(vars) = vars {
                vars.extend(policy.vars.iter().cloned());
            }
        }
    }
}

/// The treatment of matched requests.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RulePlan {
    Forward(Box<ForwardingPlan>),
    /// The rule is broken: every request is answered with the status.
    Refuse(u16),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ForwardingPlan {
    pub(super) actions: RuleActions,
    pub(super) backends: Vec<RuleBackend>,
    /// The status if no backend has a weight.
    pub(super) empty_status: u16,
    pub(super) retry: Option<Value>,
    pub(super) session: Option<Value>,
    pub(super) timeout: Option<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct RuleBackend {
    pub(super) weight: u32,
    pub(super) target: BackendTarget,
    pub(super) edits: BackendActions,
}

/// Actions that a single backend may have.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct BackendActions {
    pub(super) request_fields: Option<Value>,
    pub(super) response_fields: Option<Value>,
    pub(super) rewrite: Option<RewritePlan>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RuleActions {
    pub(super) redirect: Option<RedirectPlan>,
    pub(super) cors: Option<Value>,
    pub(super) external_auth: Option<ReferringAction>,
    pub(super) mirrors: Vec<ReferringAction>,
    pub(super) plugins: Option<RulePlugins>,
    /// The actions that backends have, too.
    pub(super) edits: BackendActions,
}

/// The plugins of a rule, by its filters of type ExtensionRef.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RulePlugins {
    /// Those of one PluginConfig.
    Set(ObjectKey),
    /// Those of several PluginConfigs; of plugins with one name the last counts.
    Merged(Map<String, Value>),
}

/// An action with the upstream that it names.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReferringAction {
    pub(super) port: BackendPort,
    pub(super) members: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RedirectPlan {
    pub(super) members: Map<String, Value>,
    pub(super) path: Option<RulePathEdit>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RewritePlan {
    pub(super) host: Option<String>,
    pub(super) path: Option<RulePathEdit>,
}

/// Why a rule cannot be followed.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RuleDefect {
    /// A value is not supported: the rule is dropped.
    Invalid(ConditionReason),
    /// A reference does not resolve, which `ResolvedRefs` shows.
    Unresolved,
}

impl RuleDefect {
    pub(super) fn unsupported(message: impl Into<String>) -> RuleDefect {
        RuleDefect::Invalid(ConditionReason::new("UnsupportedValue", message))
    }
}
