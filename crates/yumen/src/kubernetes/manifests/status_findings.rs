//! Problems by the statuses that a translation yields.

use std::collections::BTreeMap;

use serde_json::Value;
use yumen_base::Problem;
use yumen_kubernetes::status::{
    ConditionDraft, ConditionState, ConditionValue, StatusDraft, StatusEntry, StatusPlace,
};
use yumen_kubernetes::{ClusterKind, ObjectKey};

use super::ManifestObjects;

/// Conditions that hold if something is wrong. All others hold if all is well.
const NEGATIVE: [&str; 4] =
    ["Conflicted", "OverlappingTLSConfig", "InsecureFrontendValidationMode", "PartiallyInvalid"];
/// The version of the installed API is unknown without a cluster.
const UNKNOWN_OFFLINE: &str = "SupportedVersion";

/// Conditions that report a defect, and objects that nothing serves.
pub(super) fn status_findings(
    manifests: &ManifestObjects,
    statuses: &BTreeMap<ObjectKey, StatusDraft>,
    controller: &str,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (key, draft) in statuses.iter().filter(|(key, _)| manifests.objects.contains_key(key)) {
        let of_listener = |entry: &&StatusEntry| matches!(entry.place, StatusPlace::Listener(_));
        let has_listener_defect =
            draft.entries.iter().filter(of_listener).any(|entry| entry.conditions.iter().any(is_defect));
        for entry in &draft.entries {
            // Conditions of the whole repeat that a listener has a defect.
            if entry.place == StatusPlace::Root && has_listener_defect {
                continue;
            }
            let defects = || entry.conditions.iter().filter(|one| is_defect(one));
            // A listener that is not programmed has another condition with the cause.
            let has_cause = defects().any(|one| one.kind != "Programmed");
            let shown = defects().filter(|one| one.kind != "Programmed" || !has_cause);
            for condition in shown {
                let problem = Problem::warning(key.to_string(), path(&entry.place), text(condition));
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
        }
    }
    let unserved = manifests.objects.keys().filter(|key| !statuses.contains_key(key));
    problems.extend(unserved.filter_map(|key| unserved_finding(key, controller)));
    problems
}

fn is_defect(condition: &ConditionDraft) -> bool {
    let bad = match NEGATIVE.contains(&condition.kind) {
        true => ConditionState::True,
        false => ConditionState::False,
    };
    condition.kind != UNKNOWN_OFFLINE && condition.value == ConditionValue::Fixed(bad)
}

fn text(condition: &ConditionDraft) -> String {
    let state = if NEGATIVE.contains(&condition.kind) { "true" } else { "false" };
    let message = condition.message.trim_end_matches('.');
    let colon = if message.is_empty() { "" } else { ": " };
    format!("condition {} is {state}, {}{colon}{message}", condition.kind, condition.reason)
}

fn path(place: &StatusPlace) -> String {
    let reference = |list: &str, reference: &Value| {
        let name = reference["name"].as_str().unwrap_or_default();
        let section = reference["sectionName"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
        format!("status.{list}[{name}{section}]")
    };
    match place {
        StatusPlace::Root => String::new(),
        StatusPlace::Listener(name) => format!("spec.listeners[{name}]"),
        StatusPlace::Parent(parent) => reference("parents", parent),
        StatusPlace::Ancestor(ancestor) => reference("ancestors", ancestor),
    }
}

fn unserved_finding(key: &ObjectKey, controller: &str) -> Option<Problem> {
    let (message, hint) = match key.kind {
        ClusterKind::Gateway => (
            format!("not served: its GatewayClass is not among the manifests, or is not of {controller}"),
            "add the manifest of the class by a further -f",
        ),
        ClusterKind::ListenerSet
        | ClusterKind::HttpRoute
        | ClusterKind::GrpcRoute
        | ClusterKind::TlsRoute
        | ClusterKind::TcpRoute
        | ClusterKind::UdpRoute => (
            "not served: none of its parents is a Gateway of this gateway among the manifests".to_owned(),
            "add the manifests of the Gateway and its class by a further -f",
        ),
        _ => return None,
    };
    Some(Problem::warning(key.to_string(), "", message).hint(hint))
}
