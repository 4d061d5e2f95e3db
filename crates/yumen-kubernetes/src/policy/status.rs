//! Status of policies, by Gateway.

use serde_json::json;

use super::judgment::judge;
use super::selection::{is_service, rival_of};
use crate::derived::ConditionReason;
use crate::engine::{TrackedView, UnitOutput};
use crate::model::{BackendTlsPolicyObject, ClusterKind, ObjectKey, PolicyTargetReference, ServiceObject};
use crate::status::{ConditionDraft, StatusDraft, StatusEntry, StatusPlace};

pub(super) fn translate_status(view: &TrackedView<'_>, policy: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let Some(object) = view.get::<BackendTlsPolicyObject>(policy) else { return output };
    let mut gateways = view.policy_users(policy).peekable();
    if gateways.peek().is_none() {
        return output;
    }
    let conditions = conditions(view, policy, object);
    let draft = ancestors_draft(object.meta.generation, gateways, &conditions);
    output.statuses.insert(policy.clone(), draft);
    output
}

/// A draft with one entry per Gateway.
pub(super) fn ancestors_draft<'k>(
    generation: i64,
    gateways: impl Iterator<Item = &'k ObjectKey>,
    conditions: &[ConditionDraft],
) -> StatusDraft {
    let entry = |gateway: &ObjectKey| StatusEntry {
        place: StatusPlace::Ancestor(json!({
            "group": ClusterKind::Gateway.api().group,
            "kind": ClusterKind::Gateway.name(),
            "namespace": gateway.namespace,
            "name": gateway.name,
        })),
        conditions: conditions.to_vec(),
        fields: serde_json::Map::new(),
    };
    StatusDraft { generation, entries: gateways.map(entry).collect(), fields: serde_json::Map::new() }
}

fn conditions(
    view: &TrackedView<'_>,
    policy: &ObjectKey,
    object: &BackendTlsPolicyObject,
) -> Vec<ConditionDraft> {
    let judgment = judge(view, object);
    let targets: Vec<TargetVerdict> =
        object.spec.target_refs.iter().map(|target| target_verdict(view, policy, target)).collect();
    let is_effective = targets.iter().any(|verdict| verdict.is_none());
    let mut losses = targets.into_iter().flatten();
    let accepted = match (losses.next(), is_effective, judgment.refusal) {
        (Some(reason), false, _) | (_, _, Some(reason)) => {
            ConditionDraft::fixed("Accepted", false, reason.reason, reason.message)
        }
        (Some(partial), true, None) => ConditionDraft::fixed("Accepted", true, "Accepted", partial.message),
        (None, ..) => ConditionDraft::fixed("Accepted", true, "Accepted", ""),
    };
    let resolved = match judgment.unresolved {
        Some(reason) => ConditionDraft::fixed("ResolvedRefs", false, reason.reason, reason.message),
        None => ConditionDraft::fixed("ResolvedRefs", true, "ResolvedRefs", ""),
    };
    vec![accepted, resolved]
}

/// Why the policy does not hold at one of its targets.
type TargetVerdict = Option<ConditionReason>;

fn target_verdict(
    view: &TrackedView<'_>,
    policy: &ObjectKey,
    target: &PolicyTargetReference,
) -> TargetVerdict {
    if !is_service(target) {
        let message = format!(
            "Target {:?} has kind {}/{}; allowed: Service of the core group.",
            target.name, target.group, target.kind
        );
        return Some(ConditionReason::new("Invalid", message));
    }
    let name = match &target.section_name {
        Some(section) => format!("Service {}/{}, port {section}", policy.namespace, target.name),
        None => format!("Service {}/{}", policy.namespace, target.name),
    };
    let key = ObjectKey {
        kind: ClusterKind::Service,
        namespace: policy.namespace.clone(),
        name: target.name.clone(),
    };
    let has_target = view.get::<ServiceObject>(&key).is_some_and(|service| {
        let mut ports = service.spec.ports.iter();
        target.section_name.as_ref().is_none_or(|section| ports.any(|port| port.name == *section))
    });
    if !has_target {
        return Some(ConditionReason::new("TargetNotFound", format!("{name} does not exist.")));
    }
    let rival = rival_of(view, policy, target)?;
    let message = format!("{name} has the policy {}, which takes precedence.", rival.name);
    Some(ConditionReason::new("Conflicted", message))
}
