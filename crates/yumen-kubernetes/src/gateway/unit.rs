//! The unit of a Gateway: from its listeners and ListenerSets to resources, the Service, and the parents of routes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::addresses;
use super::certificates::{CertificatePair, resolve_certificates, resolve_client_certificate};
use super::class::{has_proxy, is_own_class};
use super::client_rules::{ResolvedClientRules, resolve_client_rules, validation_of};
use super::conflicts::mark_conflicts;
use super::overlap::mark_overlaps;
use super::resources::{ResourceWriter, client_certificate_id};
use super::sections::{ListenerSection, namespaces_of};
use super::service::{GatewayPortPlan, allocate_ports, foreign_service, has_service, service_object};
use super::shared_ports::mark_foreign_ports;
use crate::derived::{ConditionReason, GatewayReport, ParentOutput, SectionProtocol};
use crate::engine::{DerivedOutput, IndexKey, TrackedView, UnitOutput};
use crate::gateway_proxy::key_of_gateway;
use crate::model::{GatewayObject, ListenerSetObject, ObjectKey};
use crate::settings::GatewayMode;

pub(crate) fn translate_gateway(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let Some(gateway) = view.get::<GatewayObject>(key) else { return UnitOutput::default() };
    if !is_own_class(view, &gateway.spec.gateway_class_name) {
        return UnitOutput::default();
    }
    let sets = listener_sets(view, key, gateway);
    let sections = judged_sections(view, key, gateway, &sets);
    let refusal = refusal_of(view, gateway, &sections);
    let client_certificate = gateway.spec.tls.backend.client_certificate_ref.as_ref();
    let client_certificate =
        client_certificate.map(|reference| resolve_client_certificate(view, key, reference)).transpose();
    // The Service of a Gateway that is refused for now stays, and with it the address of its load balancer.
    let blocked = foreign_service(view, key, gateway);
    let ports = match refusal {
        Some(_) if !has_service(view, key, gateway) => GatewayPortPlan::default(),
        _ if blocked.is_some() => GatewayPortPlan::default(),
        _ => allocate_ports(view, key, &sections),
    };
    let findings = GatewayFindings { sets, sections, refusal, client_certificate, ports, blocked };
    write_output(view, key, gateway, findings)
}

/// Everything that is known about a Gateway before its output is written.
struct GatewayFindings<'t> {
    sets: Vec<NamedSet<'t>>,
    sections: Vec<ListenerSection<'t>>,
    refusal: Option<ConditionReason>,
    client_certificate: Result<Option<CertificatePair>, ConditionReason>,
    ports: GatewayPortPlan,
    /// Why the Gateway can have no Service.
    blocked: Option<ConditionReason>,
}

fn write_output(
    view: &TrackedView<'_>,
    key: &ObjectKey,
    gateway: &GatewayObject,
    findings: GatewayFindings<'_>,
) -> UnitOutput {
    let GatewayFindings { sets, sections, refusal, client_certificate, ports, blocked } = findings;
    let mut output = UnitOutput::default();
    let is_accepted = refusal.is_none();
    if view.settings().mode == GatewayMode::Service {
        output.objects.extend(service_object(view, key, gateway, &ports.ports));
    }
    let mut writer = ResourceWriter::new(view, key, gateway, &ports);
    let mut parents: BTreeMap<ObjectKey, ParentOutput> = BTreeMap::new();
    let certificate_id = matches!(client_certificate, Ok(Some(_))).then(|| client_certificate_id(key));
    let parent = |is_accepted: bool| ParentOutput {
        gateway: key.clone(),
        is_accepted,
        client_certificate: certificate_id.clone(),
        sections: Vec::new(),
    };
    parents.insert(key.clone(), parent(is_accepted));
    for set in &sets {
        parents.insert(set.key.clone(), parent(is_accepted && set.refusal.is_none()));
    }
    let mut report = GatewayReport {
        is_insecure: sections
            .iter()
            .any(|section| section.client.as_ref().is_some_and(|client| client.is_insecure)),
        ports: ports.ports.clone(),
        sets: sets.into_iter().map(|set| (set.key, set.refusal)).collect(),
        refusal,
        blocked,
        ..GatewayReport::default()
    };
    for section in &sections {
        let needs = (is_accepted && section.is_served()).then(|| writer.add_section(section));
        if let Some(parent) = parents.get_mut(&section.parent) {
            parent.sections.push(section.output(needs.is_some()));
        }
        report.sections.entry(section.parent.clone()).or_default().push(section.report(needs));
    }
    match client_certificate {
        Ok(Some(pair)) => writer.add_client_certificate(&pair),
        Ok(None) => {}
        Err(reason) => report.unresolved = Some(reason),
    }
    output.resources = writer.finish();
    output.parents = parents.into_iter().map(|(key, parent)| (key, Arc::new(parent))).collect();
    output.derived = Some(DerivedOutput::Gateway(Arc::new(report)));
    output
}

/// A ListenerSet that names the Gateway.
pub(super) struct NamedSet<'t> {
    pub(super) key: ObjectKey,
    pub(super) object: &'t Arc<ListenerSetObject>,
    pub(super) refusal: Option<ConditionReason>,
}

/// The ListenerSets of a Gateway, in the order of precedence: oldest first, then by namespace and name.
pub(super) fn listener_sets<'t>(
    view: &TrackedView<'t>,
    key: &ObjectKey,
    gateway: &'t GatewayObject,
) -> Vec<NamedSet<'t>> {
    let allowed = namespaces_of(&gateway.spec.allowed_listeners.namespaces, "None", &key.namespace);
    let named = view.index(IndexKey::ListenerSetsOf(key.clone()));
    let set = |key: &ObjectKey| {
        let object = view.get::<ListenerSetObject>(key)?;
        let labels = || view.namespace_labels(&key.namespace).cloned();
        let is_allowed = allowed.admits(&key.namespace, labels);
        let message =
            format!("spec.allowedListeners of the Gateway does not admit namespace {}.", key.namespace);
        let refusal = (!is_allowed).then(|| ConditionReason::new("NotAllowed", message));
        Some(NamedSet { key: key.clone(), object, refusal })
    };
    let mut sets: Vec<NamedSet<'t>> = named.filter_map(set).collect();
    // The index is in order of namespace and name already; the sort is stable.
    sets.sort_by_key(|set| set.object.meta.created_s);
    sets
}

fn judged_sections<'t>(
    view: &TrackedView<'t>,
    key: &ObjectKey,
    gateway: &'t GatewayObject,
    sets: &[NamedSet<'t>],
) -> Vec<ListenerSection<'t>> {
    let own = gateway.spec.listeners.iter().map(|spec| ListenerSection::new(key, spec));
    let admitted = sets.iter().filter(|set| set.refusal.is_none());
    let of_sets = admitted.flat_map(|set| {
        let listeners = set.object.spec.listeners.iter();
        listeners.map(|spec| ListenerSection::new(&set.key, spec))
    });
    let mut sections: Vec<ListenerSection<'t>> = own.chain(of_sets).collect();
    mark_conflicts(&mut sections);
    if view.settings().mode == GatewayMode::Merged {
        mark_foreign_ports(view, key, &mut sections);
    }
    for section in &mut sections {
        resolve_certificates(view, section);
    }
    apply_client_rules(view, key, gateway, &mut sections);
    mark_overlaps(&mut sections);
    sections
}

/// Adds the rules for client certificates to HTTPS sections. Each port's references are resolved once.
fn apply_client_rules(
    view: &TrackedView<'_>,
    key: &ObjectKey,
    gateway: &GatewayObject,
    sections: &mut [ListenerSection<'_>],
) {
    let mut by_port: BTreeMap<u16, ResolvedClientRules> = BTreeMap::new();
    for section in sections.iter_mut().filter(|section| section.protocol == SectionProtocol::Https) {
        let port = section.spec.port;
        let Some(validation) = validation_of(gateway, port) else { continue };
        let resolved = by_port.entry(port).or_insert_with(|| resolve_client_rules(view, key, validation));
        if resolved.rules.is_none() && section.refusal.is_none() {
            let message = "No reference of the client certificate validation resolves.";
            section.refusal = Some(ConditionReason::new("NoValidCACertificate", message));
        }
        section.client = resolved.rules.clone();
        if let Some(reason) = &resolved.unresolved {
            section.mark_unresolved(reason.clone());
        }
    }
}

/// Why the Gateway is not accepted.
fn refusal_of(
    view: &TrackedView<'_>,
    gateway: &GatewayObject,
    sections: &[ListenerSection<'_>],
) -> Option<ConditionReason> {
    if let Some(reason) = refusal_by_members(view, gateway) {
        return Some(reason);
    }
    // A Gateway without listeners of its own may live from its ListenerSets.
    let has_valid = sections.iter().any(ListenerSection::is_valid);
    (!sections.is_empty() && !has_valid).then(|| {
        ConditionReason::new("ListenersNotValid", "No listener is valid; see the conditions of each.")
    })
}

/// Why the Gateway is not accepted, whatever its listeners are.
pub(super) fn refusal_by_members(view: &TrackedView<'_>, gateway: &GatewayObject) -> Option<ConditionReason> {
    let parameters = gateway.spec.infrastructure.parameters_ref.as_ref();
    if let Some(reference) = parameters.filter(|_| !has_proxy(view, key_of_gateway(gateway))) {
        let message = format!(
            "infrastructure.parametersRef {}/{} {:?} is no GatewayProxy of apisix.apache.org that exists; correct or \
             remove it.",
            reference.group, reference.kind, reference.name
        );
        return Some(ConditionReason::new("InvalidParameters", message));
    }
    addresses::refusal_of(&gateway.spec.addresses)
}
