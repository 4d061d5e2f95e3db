//! Attachment of routes to the listeners of their parents.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::host_names::intersects;
use crate::derived::{ConditionReason, ParentOutput, SectionKey, SectionOutput, SectionProtocol};
use crate::engine::TrackedView;
use crate::model::{ClusterKind, ObjectKey, ParentReference};

/// The members of a route that decide on its attachment.
#[derive(Debug, Clone, Copy)]
pub(super) struct RouteClaim<'r> {
    pub(super) route: &'r ObjectKey,
    pub(super) parents: &'r [ParentReference],
    pub(super) hostnames: &'r [Arc<str>],
}

/// A parent of this controller that the route names.
#[derive(Debug, Clone)]
pub(super) struct ParentVerdict {
    /// The reference as `status.parents` has it.
    pub(super) reference: Value,
    /// The sections to which the route attaches, or the reason why there is none.
    pub(super) sections: Result<Vec<AttachedSection>, ConditionReason>,
}

/// A section to which a route attaches.
#[derive(Debug, Clone)]
pub(super) struct AttachedSection {
    pub(super) key: SectionKey,
    pub(super) protocol: SectionProtocol,
    /// Absent if the section is not served.
    pub(super) scope: Option<Arc<str>>,
    pub(super) gateway: ObjectKey,
    /// Whether the Gateway has a certificate for backends.
    pub(super) has_client_certificate: bool,
}

/// Judges the parents of a route, in its order.
pub(super) fn attach(view: &TrackedView<'_>, claim: RouteClaim<'_>) -> Vec<ParentVerdict> {
    let mut verdicts: Vec<ParentVerdict> = Vec::new();
    for reference in claim.parents {
        let Some(key) = reference.key(&claim.route.namespace) else { continue };
        let Some(parent) = view.parent(&key) else { continue };
        let written = reference_value(reference);
        // One entry per reference: the API server refuses two.
        if verdicts.iter().all(|verdict| verdict.reference != written) {
            verdicts.push(ParentVerdict {
                reference: written,
                sections: sections_of(view, claim, reference, &key, parent),
            });
        }
    }
    verdicts
}

/// The sections of all accepted parents, without repetition.
pub(super) fn attached_sections(verdicts: &[ParentVerdict]) -> Vec<&AttachedSection> {
    let mut seen = BTreeSet::new();
    let all = verdicts.iter().filter_map(|verdict| verdict.sections.as_ref().ok()).flatten();
    all.filter(|section| seen.insert(&section.key)).collect()
}

fn sections_of(
    view: &TrackedView<'_>,
    claim: RouteClaim<'_>,
    reference: &ParentReference,
    key: &ObjectKey,
    parent: &ParentOutput,
) -> Result<Vec<AttachedSection>, ConditionReason> {
    if !parent.is_accepted {
        let message = format!("{} {}/{} is not accepted.", key.kind, key.namespace, key.name);
        return Err(ConditionReason::new("NoMatchingParent", message));
    }
    let named: Vec<&SectionOutput> =
        parent.sections.iter().filter(|section| names_section(reference, section)).collect();
    if named.is_empty() {
        return Err(ConditionReason::new("NoMatchingParent", no_section_message(reference, key)));
    }
    let kind = claim.route.kind;
    let namespace = &claim.route.namespace;
    let labels = || view.namespace_labels(namespace).cloned();
    let allowed: Vec<&SectionOutput> = named
        .into_iter()
        .filter(|section| section.kinds.contains(&kind) && section.namespaces.admits(namespace, labels))
        .collect();
    if allowed.is_empty() {
        let message =
            format!("No listener of {} allows {kind}s of namespace {namespace}.", describe(reference, key));
        return Err(ConditionReason::new("NotAllowedByListeners", message));
    }
    let attached =
        allowed.into_iter().filter(|section| intersects(section.hostname.as_deref(), claim.hostnames));
    let attached: Vec<&SectionOutput> = attached.collect();
    if attached.is_empty() {
        let message = format!("No listener of {} has a host name of the route.", describe(reference, key));
        return Err(ConditionReason::new("NoMatchingListenerHostname", message));
    }
    let is_rival = matches!(kind, ClusterKind::HttpRoute | ClusterKind::GrpcRoute);
    let conflicts = is_rival.then(|| view.route_kind_conflicts(key)).flatten();
    let mut rival = None;
    let attached: Vec<AttachedSection> = attached
        .into_iter()
        .filter(|section| {
            let place = (section.name.clone(), claim.route.clone());
            let found = conflicts.and_then(|conflicts| conflicts.rivals.get(&place));
            let is_free = found.is_none();
            rival = rival.take().or(found);
            is_free
        })
        .map(|section| AttachedSection {
            key: SectionKey { parent: key.clone(), name: section.name.clone() },
            protocol: section.protocol,
            scope: section.scope.clone(),
            gateway: parent.gateway.clone(),
            has_client_certificate: parent.client_certificate.is_some(),
        })
        .collect();
    match rival {
        Some(rival) if attached.is_empty() => {
            let message = format!(
                "{} {}/{} is older and has a host name of the route on {}: HTTPRoutes and GRPCRoutes cannot share one.",
                rival.kind,
                rival.namespace,
                rival.name,
                describe(reference, key)
            );
            Err(ConditionReason::new("RouteConflict", message))
        }
        _ => Ok(attached),
    }
}

/// Whether a reference to the parent of a section names the section.
pub(super) fn names_section(reference: &ParentReference, section: &SectionOutput) -> bool {
    reference.section_name.as_ref().is_none_or(|name| *name == section.name)
        && reference.port.is_none_or(|port| port == section.port)
}

fn no_section_message(reference: &ParentReference, key: &ObjectKey) -> String {
    let section = reference.section_name.as_ref().map(|name| format!("name {name}"));
    let port = reference.port.map(|port| format!("port {port}"));
    let wanted: Vec<String> = section.into_iter().chain(port).collect();
    match wanted.is_empty() {
        true => format!("{} {}/{} has no listener.", key.kind, key.namespace, key.name),
        false => {
            let wanted = wanted.join(" and ");
            format!("{} {}/{} has no listener with {wanted}.", key.kind, key.namespace, key.name)
        }
    }
}

fn describe(reference: &ParentReference, key: &ObjectKey) -> String {
    let section = reference.section_name.as_ref().map(|name| format!(", section {name}"));
    let port = reference.port.map(|port| format!(", port {port}"));
    let (section, port) = (section.unwrap_or_default(), port.unwrap_or_default());
    format!("{} {}/{}{section}{port}", key.kind, key.namespace, key.name)
}

/// The reference as written, with the defaults of group and kind.
fn reference_value(reference: &ParentReference) -> Value {
    let mut members = Map::new();
    members.insert("group".to_owned(), reference.group().into());
    members.insert("kind".to_owned(), reference.kind().into());
    if let Some(namespace) = &reference.namespace {
        members.insert("namespace".to_owned(), (&**namespace).into());
    }
    members.insert("name".to_owned(), (&*reference.name).into());
    if let Some(section) = &reference.section_name {
        members.insert("sectionName".to_owned(), (&**section).into());
    }
    if let Some(port) = reference.port {
        members.insert("port".to_owned(), port.into());
    }
    members.into()
}
