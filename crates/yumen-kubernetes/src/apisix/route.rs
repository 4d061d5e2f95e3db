//! ApisixRoute: HTTP rules and stream rules.

use std::collections::BTreeSet;

use serde_json::{Map, json};

use super::http_rule::{RuleMembers, rule_members};
use super::plugins::plugins_value;
use super::route_backends::stream_backend;
use super::{class, finish_members, report};
use crate::engine::{TrackedView, UnitOutput};
use crate::model::{ApisixRouteObject, ApisixStreamRule, ObjectKey};
use crate::resources::{ResourceName, SpecDefect, TranslatedKind};

pub(super) fn translate(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let Some(object) = view.get::<ApisixRouteObject>(key) else { return output };
    if !class::is_served(view, object.spec.ingress_class_name.as_deref()) {
        return output;
    }
    let mut findings = RouteFindings::default();
    for (position, rule) in object.spec.http.iter().enumerate() {
        let found = rule_members(view, key, rule, &mut output);
        let RuleMembers { mut members, mut defects, missing, plugin_set, denied } = found;
        findings.check_name(&rule.name, &mut defects);
        finish_members(&mut members, key, object.meta.created_s, &defects);
        let id = format!("{}/{}!apisix!{position:02}", key.namespace, key.name);
        let name = ResourceName::new(TranslatedKind::Routes, id);
        output.add_resource(name.kind, name.id.clone(), &members.into());
        findings.needs.extend(plugin_set);
        defects.extend(denied);
        findings.add(name, format!("http[{position}]"), defects, missing);
        if rule
            .backends
            .iter()
            .any(|backend| backend.subset.as_ref().is_some_and(|subset| !subset.is_empty()))
        {
            report::warn_without_effect(&mut output, key, &format!("spec.http[{position}].backends.subset"));
        }
    }
    for (position, rule) in object.spec.stream.iter().enumerate() {
        let (mut members, mut defects, missing) = stream_members(view, key, rule, &mut output);
        findings.check_name(&rule.name, &mut defects);
        finish_members(&mut members, key, object.meta.created_s, &defects);
        let id = format!("{}/{}!apisix!{position:02}", key.namespace, key.name);
        let name = ResourceName::new(TranslatedKind::StreamRoutes, id);
        output.add_resource(name.kind, name.id.clone(), &members.into());
        findings.add(name, format!("stream[{position}]"), defects, missing);
    }
    for (place, message) in &findings.missing {
        report::warn(&mut output, key, &format!("spec.{place}"), message.as_str());
    }
    report::add_status(&mut output, key, object.meta.generation, &findings.defects, findings.needs);
    output
}

/// Findings over all rules.
#[derive(Default)]
struct RouteFindings {
    names: BTreeSet<String>,
    needs: Vec<ResourceName>,
    defects: Vec<SpecDefect>,
    missing: Vec<(String, String)>,
}

impl RouteFindings {
    fn check_name(&mut self, name: &str, defects: &mut Vec<SpecDefect>) {
        if !self.names.insert(name.to_owned()) {
            defects.push(SpecDefect::new("name", format!("another rule has the name {name:?}")));
        }
    }

    fn add(&mut self, name: ResourceName, place: String, defects: Vec<SpecDefect>, missing: Vec<String>) {
        self.needs.push(name);
        self.missing.extend(missing.into_iter().map(|message| (place.clone(), message)));
        let placed = defects
            .into_iter()
            .map(|defect| SpecDefect { path: format!("{place}.{}", defect.path), ..defect });
        self.defects.extend(placed);
    }
}

type StreamMembers = (Map<String, serde_json::Value>, Vec<SpecDefect>, Vec<String>);

fn stream_members(
    view: &TrackedView<'_>,
    key: &ObjectKey,
    rule: &ApisixStreamRule,
    output: &mut UnitOutput,
) -> StreamMembers {
    let (mut members, mut defects, mut missing) = (Map::new(), Vec::new(), Vec::new());
    if !rule.name.is_empty() {
        members.insert("name".to_owned(), rule.name.as_str().into());
    }
    members.insert("server_port".to_owned(), rule.matching.ingress_port.into());
    if let Some(host) = rule.matching.host.as_ref().filter(|host| !host.is_empty()) {
        members.insert("sni".to_owned(), host.to_ascii_lowercase().into());
    }
    let is_udp = rule.protocol.eq_ignore_ascii_case("UDP");
    if !is_udp && !rule.protocol.eq_ignore_ascii_case("TCP") {
        let message = format!("protocol {:?} is not supported; allowed: TCP, UDP", rule.protocol);
        defects.push(SpecDefect::new("protocol", message));
    }
    let backends = match stream_backend(view, key, &rule.backend, is_udp) {
        Ok(upstream) => {
            let value = json!([{ "weight": 1, "upstream_id": upstream.to_string() }]);
            output.upstreams.insert(upstream);
            value
        }
        Err(message) => {
            missing.push(message);
            json!([])
        }
    };
    members.insert("backends".to_owned(), backends);
    let plugins = plugins_value(view, key, &rule.plugins, &mut defects);
    if !plugins.is_empty() {
        members.insert("plugins".to_owned(), plugins.into());
    }
    (members, defects, missing)
}
