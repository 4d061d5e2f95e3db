//! TLSRoute, TCPRoute, UDPRoute.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::attach::{AttachedSection, ParentVerdict, RouteClaim, attach, attached_sections};
use super::backends::{BackendResolver, BackendTarget};
use super::report::{RuleFindings, status_draft};
use super::rule_writer::{ScopeGroup, scope_groups};
use crate::derived::{
    ConditionReason, SectionKey, SectionProtocol, StreamRouteCandidate, UpstreamFlavor, UpstreamKey,
};
use crate::engine::{DerivedOutput, TrackedView, UnitOutput};
use crate::model::{ClusterKind, ObjectKey, StreamRouteObject};
use crate::resources::{ResourceName, TranslatedKind};

/// A TCPRoute or UDPRoute, whose resource is that of a section.
pub(super) fn translate_candidate(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let Some(object) = view.get::<StreamRouteObject>(key) else { return UnitOutput::default() };
    let claim = RouteClaim { route: key, parents: &object.spec.parent_refs, hostnames: &[] };
    let verdicts = attach(view, claim);
    if verdicts.is_empty() {
        return UnitOutput::default();
    }
    let sections = attached_sections(&verdicts);
    let mut resolver = BackendResolver::new(view, key, &sections);
    let flavor = match key.kind {
        ClusterKind::UdpRoute => UpstreamFlavor::Udp,
        _ => UpstreamFlavor::Tcp,
    };
    let backends = resolve_backends(&mut resolver, object, flavor);
    let mut output = UnitOutput::default();
    let findings = stream_findings(object, &mut resolver);
    if findings.refusal().is_none() {
        // The candidate is one for all sections: a certificate counts if all belong to one Gateway.
        let gateways: BTreeSet<&ObjectKey> = sections.iter().map(|section| &section.gateway).collect();
        let only = gateways.first().filter(|_| gateways.len() == 1);
        let with_certificate = sections.iter().any(|section| section.has_client_certificate);
        let gateway = only.filter(|_| with_certificate).copied();
        let mut members = Map::new();
        members.insert("backends".to_owned(), backends_value(&backends, gateway, &mut output.upstreams));
        add_origin(&mut members, key, object.meta.created_s);
        let members: Arc<str> = Value::from(members).to_string().into();
        let candidate = StreamRouteCandidate { created_s: object.meta.created_s, members };
        output.derived = Some(DerivedOutput::Stream(Arc::new(candidate)));
        output.attachments = sections.iter().map(|section| section.key.clone()).collect();
    }
    finish(output, key, object, &verdicts, resolver, findings)
}

pub(super) fn translate_tls(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let Some(object) = view.get::<StreamRouteObject>(key) else { return UnitOutput::default() };
    let spec = &object.spec;
    let claim = RouteClaim { route: key, parents: &spec.parent_refs, hostnames: &spec.hostnames };
    let verdicts = attach(view, claim);
    if verdicts.is_empty() {
        return UnitOutput::default();
    }
    let sections = attached_sections(&verdicts);
    let mut resolver = BackendResolver::new(view, key, &sections);
    let mut output = UnitOutput::default();
    let mut writer = TlsRouteWriter { key, object, names: Vec::new(), output: &mut output };
    let sealed = |section: &&&AttachedSection| section.protocol == SectionProtocol::TlsPassthrough;
    let passing: Vec<&AttachedSection> = sections.iter().filter(sealed).copied().collect();
    let ending: Vec<&AttachedSection> = sections.iter().filter(|section| !sealed(section)).copied().collect();
    // Without a section the references are judged all the same.
    if !passing.is_empty() || ending.is_empty() {
        let backends = resolve_backends(&mut resolver, object, UpstreamFlavor::Sealed);
        writer.write("sealed", &scope_groups(&passing, false), &backends);
    }
    if !ending.is_empty() {
        let backends = resolve_backends(&mut resolver, object, UpstreamFlavor::Tcp);
        writer.write("tls", &scope_groups(&ending, resolver.has_policy), &backends);
    }
    let needs = writer.names;
    let mut findings = stream_findings(object, &mut resolver);
    if findings.refusal().is_some() {
        output = UnitOutput::default();
    } else {
        output.attachments = sections.iter().map(|section| section.key.clone()).collect();
        findings.needs = needs;
    }
    finish(output, key, object, &verdicts, resolver, findings)
}

/// The stream route of a section: that of the oldest attached route.
pub(crate) fn translate_stream_section(view: &TrackedView<'_>, section: &SectionKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let parent = view.parent(&section.parent);
    let found = parent.and_then(|parent| parent.sections.iter().find(|one| one.name == section.name));
    let Some(scope) = found.and_then(|found| found.scope.as_ref()) else { return output };
    let candidates = view.attached(section).filter_map(|route| Some((view.stream_candidate(route)?, route)));
    let oldest = candidates
        .min_by_key(|(candidate, route)| (candidate.created_s, route.namespace.clone(), route.name.clone()));
    let Some((candidate, _)) = oldest else { return output };
    let Ok(mut members) = serde_json::from_str::<Map<String, Value>>(&candidate.members) else {
        return output;
    };
    members.insert("scopes".to_owned(), json!([&**scope]));
    // A ListenerSet may have the name of a Gateway.
    let part = if section.parent.kind == ClusterKind::ListenerSet { "setstream" } else { "stream" };
    let SectionKey { parent, name } = section;
    let id = format!("{}/{}!{part}!{name}", parent.namespace, parent.name);
    output.add_resource(TranslatedKind::StreamRoutes, id, &members.into());
    output
}

type WeightedBackend = (u32, BackendTarget);

fn resolve_backends(
    resolver: &mut BackendResolver<'_, '_>,
    object: &StreamRouteObject,
    flavor: UpstreamFlavor,
) -> Vec<WeightedBackend> {
    let references = object.spec.rules.first().map(|rule| &*rule.backend_refs).unwrap_or_default();
    let target = references.iter().map(|reference| {
        let weight = reference.weight.unwrap_or(1);
        (weight, resolver.resolve(reference, flavor))
    });
    target.collect()
}

/// The member `backends`. A share without an upstream closes the connection; so does an empty list.
fn backends_value(
    backends: &[WeightedBackend],
    gateway: Option<&ObjectKey>,
    upstreams: &mut BTreeSet<UpstreamKey>,
) -> Value {
    let backend = |(weight, target): &WeightedBackend| match target {
        BackendTarget::Status(status) => json!({ "weight": weight, "status": status }),
        BackendTarget::Port(port) => {
            let key = port.upstream(gateway);
            let value = json!({ "weight": weight, "upstream_id": key.to_string() });
            upstreams.insert(key);
            value
        }
    };
    backends.iter().map(backend).collect()
}

fn add_origin(members: &mut Map<String, Value>, key: &ObjectKey, created_s: i64) {
    members.insert("create_time".to_owned(), created_s.into());
    members.insert("labels".to_owned(), json!({ "origin": key.origin_label() }));
}

/// Findings about the rules. The API allows one rule; more would compete for the same connections.
fn stream_findings(object: &StreamRouteObject, resolver: &mut BackendResolver<'_, '_>) -> RuleFindings {
    let further = (1..object.spec.rules.len()).map(|position| {
        let message = "a route of this kind has one rule; further ones are not supported";
        (position, ConditionReason::new("UnsupportedValue", message))
    });
    RuleFindings {
        dropped: further.collect(),
        has_sound_rule: true,
        unresolved: resolver.unresolved.take(),
        needs: Vec::new(),
    }
}

fn finish(
    mut output: UnitOutput,
    key: &ObjectKey,
    object: &StreamRouteObject,
    verdicts: &[ParentVerdict],
    resolver: BackendResolver<'_, '_>,
    findings: RuleFindings,
) -> UnitOutput {
    output.policies = resolver.policies;
    let draft = status_draft(object.meta.generation, verdicts, &findings);
    output.statuses.extend(draft.map(|draft| (key.clone(), draft)));
    output
}

/// Writes one stream route per host name.
struct TlsRouteWriter<'w> {
    key: &'w ObjectKey,
    object: &'w StreamRouteObject,
    names: Vec<ResourceName>,
    output: &'w mut UnitOutput,
}

impl TlsRouteWriter<'_> {
    fn write(&mut self, part: &str, groups: &[ScopeGroup], backends: &[WeightedBackend]) {
        for group in groups {
            let mut base = Map::new();
            let gateway = group.gateway.as_ref();
            base.insert("backends".to_owned(), backends_value(backends, gateway, &mut self.output.upstreams));
            base.insert(
                "scopes".to_owned(),
                group.scopes.iter().map(|scope| Value::from(&**scope)).collect(),
            );
            add_origin(&mut base, self.key, self.object.meta.created_s);
            let mut seen = HashSet::new();
            let hostnames = self.object.spec.hostnames.iter().map(|host| host.to_ascii_lowercase());
            let mut hostnames: Vec<Option<String>> =
                hostnames.filter(|host| seen.insert(host.clone())).map(Some).collect();
            if hostnames.is_empty() {
                hostnames.push(None);
            }
            for (position, host) in hostnames.into_iter().enumerate() {
                let mut members = base.clone();
                members.extend(host.map(|host| ("sni".to_owned(), host.into())));
                let (namespace, name) = (&self.key.namespace, &self.key.name);
                let mut id = format!("{namespace}/{name}!{part}!{position:04}");
                if let Some(gateway) = gateway {
                    id.push_str(&format!("!{}.{}", gateway.namespace, gateway.name));
                }
                let name = ResourceName::new(TranslatedKind::StreamRoutes, id);
                self.output.add_resource(name.kind, name.id.clone(), &members.into());
                self.names.push(name);
            }
        }
    }
}
