//! Status of Gateways and ListenerSets.

use serde_json::{Map, Value, json};

use super::addresses;
use super::service::{is_own_service, service_key};
use crate::derived::{ConditionReason, GatewayReport, SectionKey, SectionReport};
use crate::engine::{TrackedView, UnitOutput};
use crate::gateway_proxy::proxy_of_gateway;
use crate::model::{
    ClusterKind, GatewayObject, GatewayProxyObject, ListenerSetObject, ObjectKey, ServiceObject,
};
use crate::resources::{ResourceName, TranslatedKind};
use crate::settings::GatewayMode;
use crate::status::{ConditionDraft, ConditionValue, StatusDraft, StatusEntry, StatusPlace};

pub(crate) fn translate_gateway_status(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let (Some(gateway), Some(report)) = (view.get::<GatewayObject>(key), view.gateway_report(key)) else {
        return output;
    };
    let found = found_addresses(view, key, gateway);
    let mut draft = StatusDraft { generation: gateway.meta.generation, ..StatusDraft::default() };
    draft.entries.push(StatusEntry {
        place: StatusPlace::Root,
        conditions: gateway_conditions(view, key, gateway, report, &found),
        fields: Map::new(),
    });
    let own = report.sections_of(key).iter();
    draft.entries.extend(own.map(|section| listener_entry(view, key, section, report)));
    let accepted_sets = report.sets.iter().filter(|(set, refusal)| {
        refusal.is_none() && report.refusal.is_none() && report.has_servable_section(set)
    });
    draft.fields.insert("attachedListenerSets".to_owned(), accepted_sets.count().into());
    let addresses = if report.refusal.is_none() && !found.is_empty() { found.into() } else { Value::Null };
    draft.fields.insert("addresses".to_owned(), addresses);
    output.statuses.insert(key.clone(), draft);
    output
}

pub(crate) fn translate_listener_set_status(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let Some(set) = view.get::<ListenerSetObject>(key) else { return output };
    let parent = set.spec.parent_ref.key(&key.namespace);
    let Some(gateway) = parent.filter(|parent| parent.kind == ClusterKind::Gateway) else { return output };
    let Some(report) = view.gateway_report(&gateway) else { return output };
    let Some(refusal) = report.sets.get(key) else { return output };
    let mut draft = StatusDraft { generation: set.meta.generation, ..StatusDraft::default() };
    draft.entries.push(StatusEntry {
        place: StatusPlace::Root,
        conditions: set_conditions(key, report, refusal.as_ref()),
        fields: Map::new(),
    });
    let own = report.sections_of(key).iter();
    draft.entries.extend(own.map(|section| listener_entry(view, key, section, report)));
    output.statuses.insert(key.clone(), draft);
    output
}

fn found_addresses(view: &TrackedView<'_>, key: &ObjectKey, gateway: &GatewayObject) -> Vec<Value> {
    let settings = view.settings();
    if let Some(found) = proxy_of_gateway(view, gateway).and_then(|proxy| of_proxy(view, proxy)) {
        return found;
    }
    match settings.mode {
        GatewayMode::Service => {
            let service = view.get::<ServiceObject>(&service_key(key));
            let own = service.filter(|service| is_own_service(service, gateway));
            own.map(|service| addresses::of_service(service, &settings.publish_addresses)).unwrap_or_default()
        }
        GatewayMode::Host if addresses::requested(gateway).next().is_some() => {
            let requested: Vec<_> = addresses::requested(gateway).map(Into::into).collect();
            addresses::of_node(&requested)
        }
        GatewayMode::Host | GatewayMode::Merged => addresses::of_node(&settings.publish_addresses),
    }
}

/// The addresses that a GatewayProxy publishes; `None` if it publishes none.
fn of_proxy(view: &TrackedView<'_>, proxy: &GatewayProxyObject) -> Option<Vec<Value>> {
    let spec = &proxy.spec;
    if !spec.status_address.is_empty() {
        return Some(addresses::of_node(&spec.status_address));
    }
    let (namespace, name) = spec.publish_service.as_ref()?.split_once('/')?;
    let service = view.get::<ServiceObject>(&ObjectKey::new(ClusterKind::Service, namespace, name))?;
    Some(addresses::of_service(service, &view.settings().publish_addresses))
}

fn gateway_conditions(
    view: &TrackedView<'_>,
    key: &ObjectKey,
    gateway: &GatewayObject,
    report: &GatewayReport,
    found: &[Value],
) -> Vec<ConditionDraft> {
    let own = report.sections_of(key);
    let accepted = match &report.refusal {
        Some(reason) => no("Accepted", reason),
        None if own.iter().all(|section| section.is_accepted()) => yes("Accepted", "Accepted"),
        None => {
            let message = "Some listeners are not valid; see the conditions of each.";
            ConditionDraft::fixed("Accepted", true, "ListenersNotValid", message)
        }
    };
    let mut conditions = vec![accepted, programmed(view, gateway, report, found)];
    conditions.push(match &report.unresolved {
        Some(reason) => no("ResolvedRefs", reason),
        None if own.iter().all(|section| section.unresolved.is_none()) => yes("ResolvedRefs", "ResolvedRefs"),
        None => {
            let message = "References of some listeners do not resolve; see the conditions of each.";
            ConditionDraft::fixed("ResolvedRefs", false, "ListenersNotResolved", message)
        }
    });
    if report.is_insecure {
        let message = "Clients without a valid certificate are served (AllowInsecureFallback).";
        let kind = "InsecureFrontendValidationMode";
        conditions.push(ConditionDraft::fixed(kind, true, "ConfigurationChanged", message));
    }
    conditions
}

fn programmed(
    view: &TrackedView<'_>,
    gateway: &GatewayObject,
    report: &GatewayReport,
    found: &[Value],
) -> ConditionDraft {
    let invalid = |reason, message: &str| ConditionDraft::fixed("Programmed", false, reason, message);
    if report.refusal.is_some() {
        return invalid("Invalid", "The Gateway is not accepted.");
    }
    if let Some(reason) = &report.blocked {
        return no("Programmed", reason);
    }
    if report.ports.iter().any(|port| port.target.is_none()) {
        return invalid("NoResources", "No target port is free in the range `kubernetes.ports`.");
    }
    let needs: Vec<ResourceName> = report
        .sections
        .values()
        .flatten()
        .flat_map(|section| section.needs.iter().flatten())
        .filter(|name| name.kind == TranslatedKind::Listeners)
        .cloned()
        .collect();
    if needs.is_empty() {
        return invalid("Invalid", "No listener is served; see the conditions of each.");
    }
    let requested: Vec<&str> = addresses::requested(gateway).collect();
    let is_assigned = view.settings().mode == GatewayMode::Service;
    match addresses::judge(&requested, found).filter(|_| is_assigned) {
        Some(reason) => no("Programmed", &reason),
        None => ConditionDraft::depending("Programmed", ConditionValue::WhenAnyApplied, "Programmed", needs),
    }
}

fn set_conditions(
    key: &ObjectKey,
    report: &GatewayReport,
    refusal: Option<&ConditionReason>,
) -> Vec<ConditionDraft> {
    let parent = ConditionReason::new("ParentNotAccepted", "The Gateway is not accepted.");
    let invalid =
        ConditionReason::new("ListenersNotValid", "No listener is valid; see the conditions of each.");
    let refusal = match refusal {
        Some(reason) => Some(reason),
        None if report.refusal.is_some() => Some(&parent),
        None => (!report.has_servable_section(key)).then_some(&invalid),
    };
    if let Some(reason) = refusal {
        return vec![no("Accepted", reason), no("Programmed", reason)];
    }
    let sections = report.sections_of(key);
    let all_valid = sections.iter().all(|section| section.is_accepted());
    let reason = if all_valid { "Accepted" } else { "ListenersNotValid" };
    let message = if all_valid { "" } else { "Some listeners are not valid; see the conditions of each." };
    let needs: Vec<ResourceName> =
        sections.iter().flat_map(|section| section.needs.iter().flatten()).cloned().collect();
    let programmed = if needs.is_empty() {
        ConditionDraft::fixed(
            "Programmed",
            false,
            "Invalid",
            "No listener is served; see the conditions of each.",
        )
    } else {
        ConditionDraft::depending("Programmed", ConditionValue::WhenAnyApplied, "Programmed", needs)
    };
    vec![ConditionDraft::fixed("Accepted", true, reason, message), programmed]
}

fn listener_entry(
    view: &TrackedView<'_>,
    parent: &ObjectKey,
    section: &SectionReport,
    report: &GatewayReport,
) -> StatusEntry {
    let key = SectionKey { parent: parent.clone(), name: section.name.clone() };
    let kinds: Vec<Value> = (section.kinds.iter())
        .map(|kind| json!({ "group": kind.api().group, "kind": kind.name() }))
        .collect();
    let mut fields = Map::new();
    fields.insert("supportedKinds".to_owned(), kinds.into());
    fields.insert("attachedRoutes".to_owned(), view.attached(&key).len().into());
    StatusEntry {
        place: StatusPlace::Listener(section.name.to_string()),
        conditions: listener_conditions(section, report),
        fields,
    }
}

fn listener_conditions(section: &SectionReport, report: &GatewayReport) -> Vec<ConditionDraft> {
    let needs = section.needs.clone().unwrap_or_default();
    let refusal = section.conflict.as_ref().or(section.refusal.as_ref());
    let accepted = match refusal {
        Some(reason) => no("Accepted", reason),
        None => {
            ConditionDraft::depending("Accepted", ConditionValue::UnlessFailed, "Accepted", needs.clone())
        }
    };
    let not_programmed = |message: &str| ConditionDraft::fixed("Programmed", false, "Invalid", message);
    let programmed = match (&section.conflict, &section.needs) {
        (Some(reason), _) => no("Programmed", reason),
        (None, Some(_)) => {
            ConditionDraft::depending("Programmed", ConditionValue::WhenApplied, "Programmed", needs)
        }
        (None, None) if report.refusal.is_some() => not_programmed("The Gateway is not accepted."),
        (None, None) if refusal.is_some() => not_programmed("The listener is not accepted."),
        (None, None) => not_programmed("The listener has no certificate to serve."),
    };
    let mut conditions = vec![accepted, programmed];
    conditions.push(match &section.unresolved {
        Some(reason) => no("ResolvedRefs", reason),
        None => yes("ResolvedRefs", "ResolvedRefs"),
    });
    conditions.push(match &section.conflict {
        Some(reason) => ConditionDraft::fixed("Conflicted", true, reason.reason, reason.message.clone()),
        None => ConditionDraft::fixed("Conflicted", false, "NoConflicts", ""),
    });
    if let Some(reason) = &section.overlap {
        let kind = "OverlappingTLSConfig";
        conditions.push(ConditionDraft::fixed(kind, true, reason.reason, reason.message.clone()));
    }
    conditions
}

fn yes(kind: &'static str, reason: &'static str) -> ConditionDraft {
    ConditionDraft::fixed(kind, true, reason, "")
}

fn no(kind: &'static str, reason: &ConditionReason) -> ConditionDraft {
    ConditionDraft::fixed(kind, false, reason.reason, reason.message.clone())
}
