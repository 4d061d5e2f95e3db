//! HTTPRoutePolicy: priority and conditions of the rules of HTTPRoutes, and the status.

use std::sync::Arc;

use serde_json::Value;

use super::status::ancestors_draft;
use crate::engine::{IndexKey, TrackedView, UnitOutput};
use crate::model::{ClusterKind, HttpRouteObject, HttpRoutePolicyObject, ObjectKey};
use crate::status::ConditionDraft;

/// The step between two priorities of policies: more than the precedence of the API below the path.
const PRIORITY_STEP: i64 = 4_096;
/// Keeps the product within 32 bits.
const PRIORITY_MAX: i64 = 500_000;

/// The policies that target an HTTPRoute, by namespace and name.
pub(crate) struct RoutePolicies<'t> {
    policies: Vec<(&'t ObjectKey, &'t Arc<HttpRoutePolicyObject>)>,
}

/// The additions of policies to a rule.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RulePolicy {
    /// Added to the priority of the rule's own conditions.
    pub(crate) priority: i64,
    pub(crate) vars: Vec<Value>,
}

pub(crate) fn route_policies<'t>(view: &TrackedView<'t>, route: &ObjectKey) -> RoutePolicies<'t> {
    let index = IndexKey::RoutePoliciesOf { namespace: route.namespace.clone(), route: route.name.clone() };
    let keys = view.index_in(ClusterKind::HttpRoutePolicy, &route.namespace, index);
    let policies = keys.filter_map(|key| Some((key, view.get::<HttpRoutePolicyObject>(key)?)));
    RoutePolicies { policies: policies.collect() }
}

impl<'t> RoutePolicies<'t> {
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'t ObjectKey> {
        self.policies.iter().map(|(key, _)| *key)
    }

    /// The additions to a rule. Of policies with different priorities none holds, as in APISIX.
    pub(crate) fn of_rule(&self, route: &str, rule: Option<&str>) -> RulePolicy {
        let own: Vec<_> = self.for_rule(route, rule).collect();
        if has_conflict(&own) {
            return RulePolicy::default();
        }
        let priority = own.first().and_then(|policy| policy.spec.priority).unwrap_or_default();
        RulePolicy {
            priority: priority.clamp(-PRIORITY_MAX, PRIORITY_MAX) * PRIORITY_STEP,
            vars: own.iter().flat_map(|policy| policy.spec.vars.iter().cloned()).collect(),
        }
    }

    fn for_rule(
        &self,
        route: &str,
        rule: Option<&str>,
    ) -> impl Iterator<Item = &'t Arc<HttpRoutePolicyObject>> {
        self.policies.iter().map(|(_, policy)| *policy).filter(move |policy| targets(policy, route, rule))
    }
}

fn targets(policy: &HttpRoutePolicyObject, route: &str, rule: Option<&str>) -> bool {
    policy.spec.target_refs.iter().any(|target| {
        let section = target.section_name.as_deref().filter(|section| !section.is_empty());
        target.is_http_route() && &*target.name == route && (section.is_none() || section == rule)
    })
}

fn has_conflict(policies: &[&Arc<HttpRoutePolicyObject>]) -> bool {
    policies.windows(2).any(|two| two[0].spec.priority != two[1].spec.priority)
}

pub(super) fn translate_status(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let Some(policy) = view.get::<HttpRoutePolicyObject>(key) else { return output };
    let mut gateways = view.policy_users(key).peekable();
    if gateways.peek().is_none() {
        return output;
    }
    let conflict =
        policy.spec.target_refs.iter().filter(|target| target.is_http_route()).find_map(|target| {
            let route = ObjectKey {
                kind: ClusterKind::HttpRoute,
                namespace: key.namespace.clone(),
                name: target.name.clone(),
            };
            let object = view.get::<HttpRouteObject>(&route)?;
            let policies = route_policies(view, &route);
            let mut rules = object.spec.rules.iter().map(|rule| rule.name.as_deref());
            rules
                .any(|rule| {
                    targets(policy, &route.name, rule)
                        && has_conflict(&policies.for_rule(&route.name, rule).collect::<Vec<_>>())
                })
                .then_some(route)
        });
    let accepted = match conflict {
        None => ConditionDraft::fixed("Accepted", true, "Accepted", ""),
        Some(route) => {
            let message =
                format!("Another policy gives a rule of {route} another priority; neither holds for it.");
            ConditionDraft::fixed("Accepted", false, "Conflicted", message)
        }
    };
    output.statuses.insert(key.clone(), ancestors_draft(policy.meta.generation, gateways, &[accepted]));
    output
}
