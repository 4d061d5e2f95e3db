//! BackendTrafficPolicy: the policy that holds for a port of a Service, and the status.

use std::sync::Arc;

use super::status::ancestors_draft;
use crate::engine::{IndexKey, TrackedView, UnitOutput};
use crate::model::{
    BackendTrafficPolicyObject, ClusterKind, ObjectKey, PolicyTargetReference, ServiceObject,
};
use crate::overrides::settings_defects;
use crate::status::ConditionDraft;

type NamedPolicy<'t> = (&'t ObjectKey, &'t Arc<BackendTrafficPolicyObject>);

/// The policy that holds for a port: one for the port before one for the whole Service, then the oldest, then the first
/// name.
pub(crate) fn traffic_policy<'t>(
    view: &TrackedView<'t>,
    namespace: &Arc<str>,
    service: &Arc<str>,
    port_name: &str,
) -> Option<NamedPolicy<'t>> {
    traffic_policies(view, namespace, service, port_name).into_iter().next()
}

/// The policies that target a port, the one that holds first.
pub(crate) fn traffic_policies<'t>(
    view: &TrackedView<'t>,
    namespace: &Arc<str>,
    service: &Arc<str>,
    port_name: &str,
) -> Vec<NamedPolicy<'t>> {
    let fits = |target: &PolicyTargetReference| match target.section_name.as_deref() {
        None | Some("") => Some(1),
        Some(name) => (name == port_name).then_some(0),
    };
    let mut ranked: Vec<(i32, NamedPolicy<'t>)> = targeting(view, namespace, service)
        .filter_map(|(key, policy)| {
            let rank = targets_of(policy, service).filter_map(fits).min()?;
            Some((rank, (key, policy)))
        })
        .collect();
    ranked.sort_by_key(|(rank, (key, policy))| (*rank, policy.meta.created_s, *key));
    ranked.into_iter().map(|(_, policy)| policy).collect()
}

pub(super) fn translate_status(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let Some(policy) = view.get::<BackendTrafficPolicyObject>(key) else { return output };
    let mut gateways = view.policy_users(key).peekable();
    if gateways.peek().is_none() {
        return output;
    }
    let losses: Vec<Option<(&'static str, String)>> =
        policy.spec.target_refs.iter().map(|target| loss_at(view, key, target)).collect();
    let is_effective = losses.iter().any(Option::is_none);
    let defects = settings_defects(&policy.spec.settings);
    let accepted = match (defects.first(), losses.into_iter().flatten().next()) {
        (Some(defect), _) => {
            let message = format!("{}: {}", defect.path, defect.message);
            ConditionDraft::fixed("Accepted", false, "Invalid", message)
        }
        (None, None) => ConditionDraft::fixed("Accepted", true, "Accepted", ""),
        (None, Some((_, message))) if is_effective => {
            ConditionDraft::fixed("Accepted", true, "Accepted", message)
        }
        (None, Some((reason, message))) => ConditionDraft::fixed("Accepted", false, reason, message),
    };
    let draft = ancestors_draft(policy.meta.generation, gateways, &[accepted]);
    output.statuses.insert(key.clone(), draft);
    output
}

/// Why the policy does not hold at a target.
fn loss_at(
    view: &TrackedView<'_>,
    key: &ObjectKey,
    target: &PolicyTargetReference,
) -> Option<(&'static str, String)> {
    let name = format!("Service {}/{}", key.namespace, target.name);
    if !target.is_service() {
        let message =
            format!("Target {:?} has kind {}/{}; allowed: Service.", target.name, target.group, target.kind);
        return Some(("Invalid", message));
    }
    let section = target.section_name.as_deref().filter(|section| !section.is_empty());
    let service =
        ObjectKey { kind: ClusterKind::Service, namespace: key.namespace.clone(), name: target.name.clone() };
    let has_target = view.get::<ServiceObject>(&service).is_some_and(|service| {
        section.is_none_or(|section| service.spec.ports.iter().any(|port| *port.name == *section))
    });
    if !has_target {
        let port = section.map(|section| format!(", port {section}")).unwrap_or_default();
        return Some(("TargetNotFound", format!("{name}{port} does not exist.")));
    }
    let same_form = |other: &BackendTrafficPolicyObject| {
        targets_of(other, &target.name)
            .any(|theirs| theirs.section_name.as_deref().filter(|name| !name.is_empty()) == section)
    };
    let rivals = targeting(view, &key.namespace, &target.name).filter(|(_, other)| same_form(other));
    let (first, _) = rivals.min_by_key(|(other, object)| (object.meta.created_s, *other))?;
    (first != key)
        .then(|| ("Conflicted", format!("{name} has the policy {}, which takes precedence.", first.name)))
}

fn targeting<'t>(
    view: &TrackedView<'t>,
    namespace: &Arc<str>,
    service: &Arc<str>,
) -> impl Iterator<Item = NamedPolicy<'t>> {
    let index = IndexKey::TrafficPoliciesOf { namespace: namespace.clone(), service: service.clone() };
    let policies = view.index_in(ClusterKind::BackendTrafficPolicy, namespace, index);
    policies.filter_map(move |key| Some((key, view.get::<BackendTrafficPolicyObject>(key)?)))
}

fn targets_of<'p>(
    policy: &'p BackendTrafficPolicyObject,
    service: &'p str,
) -> impl Iterator<Item = &'p PolicyTargetReference> {
    policy.spec.target_refs.iter().filter(move |target| target.is_service() && &*target.name == service)
}
