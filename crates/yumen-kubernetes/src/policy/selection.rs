//! The policy that holds for a port of a Service, among those that target it.

use std::sync::Arc;

use crate::derived::{BackendTlsRules, PolicyVerdict};
use crate::engine::{IndexKey, TrackedView};
use crate::model::{BackendTlsPolicyObject, ClusterKind, ObjectKey, PolicyTargetReference};

/// Policies of a port of a Service.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PortPolicy {
    pub(crate) tls: PortTls,
    /// All policies that target the port, the one that holds first.
    pub(crate) policies: Vec<ObjectKey>,
}

/// TLS towards the endpoints of a port.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PortTls {
    /// No policy targets the port.
    Absent,
    Verified(Arc<BackendTlsRules>),
    /// The policy cannot be followed, so no request may be sent.
    Refused,
}

/// The policy that holds for a port: one for the port before one for the whole Service, then the oldest, then the first
/// name.
pub(crate) fn port_policy(
    view: &TrackedView<'_>,
    namespace: &Arc<str>,
    service: &Arc<str>,
    port_name: &str,
) -> PortPolicy {
    let mut ranked = Vec::new();
    for (key, policy) in targeting(view, namespace, service) {
        let sections = targets_of(policy, service).map(|target| target.section_name.as_deref());
        let fits = |section: Option<&str>| match section {
            Some(name) => (name == port_name).then_some(0),
            None => Some(1),
        };
        if let Some(rank) = sections.filter_map(fits).min() {
            ranked.push((rank, policy.meta.created_s, key));
        }
    }
    ranked.sort();
    let policies: Vec<ObjectKey> = ranked.into_iter().map(|(_, _, key)| key.clone()).collect();
    let tls = match policies.first() {
        None => PortTls::Absent,
        // A verdict may be missing while a certificate is read for the first time.
        Some(first) => match view.policy(first).map(|output| &output.verdict) {
            Some(PolicyVerdict::Valid(rules)) => PortTls::Verified(rules.clone()),
            Some(PolicyVerdict::Invalid(_)) | None => PortTls::Refused,
        },
    };
    PortPolicy { tls, policies }
}

/// The policy that takes precedence over that of `key` at one of its targets; `None` if there is none.
pub(super) fn rival_of<'t>(
    view: &TrackedView<'t>,
    key: &ObjectKey,
    target: &PolicyTargetReference,
) -> Option<&'t ObjectKey> {
    let same_form = |other: &BackendTlsPolicyObject| {
        targets_of(other, &target.name).any(|theirs| theirs.section_name == target.section_name)
    };
    // The policy is among them.
    let rivals = targeting(view, &key.namespace, &target.name).filter(|(_, other)| same_form(other));
    let first = rivals.min_by_key(|(other, object)| (object.meta.created_s, *other));
    first.map(|(other, _)| other).filter(|other| **other != *key)
}

/// Whether a target is a Service.
pub(super) fn is_service(target: &PolicyTargetReference) -> bool {
    target.group.is_empty() && &*target.kind == ClusterKind::Service.name()
}

fn targeting<'t>(
    view: &TrackedView<'t>,
    namespace: &Arc<str>,
    service: &Arc<str>,
) -> impl Iterator<Item = (&'t ObjectKey, &'t Arc<BackendTlsPolicyObject>)> {
    let index = IndexKey::PoliciesOf { namespace: namespace.clone(), service: service.clone() };
    view.index(index).filter_map(move |key| Some((key, view.get::<BackendTlsPolicyObject>(key)?)))
}

fn targets_of<'p>(
    policy: &'p BackendTlsPolicyObject,
    service: &'p str,
) -> impl Iterator<Item = &'p PolicyTargetReference> {
    policy.spec.target_refs.iter().filter(move |target| is_service(target) && &*target.name == service)
}
