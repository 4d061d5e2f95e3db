//! The unit of a host: from its Ingresses to a scope, certificates and routes.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use yumen_base::problem::Problem;

use super::certificates::{HostClientRules, HostTls, certificate_value, client_rules, tls_of};
use super::effects::{HostContext, annotation_path};
use super::host_names::scope_id;
use super::listeners;
use super::locations::{HostLocation, LocationTarget, locations_of};
use super::members::{HostMembers, aliases_of, members_of};
use super::passthrough;
use super::redirect_hosts::add_redirect_host;
use super::route_writer::RouteWriter;
use super::snippet_locations::add_snippet_locations;
use crate::derived::IngressGroup;
use crate::engine::{TrackedView, UnitOutput};
use crate::ingress_nginx::{ControllerSettings, ServerSnippet};
use crate::resources::TranslatedKind;

pub(crate) fn translate_host(view: &TrackedView<'_>, host: &Arc<str>) -> UnitOutput {
    let Some(defaults) = view.ingress_defaults() else { return UnitOutput::default() };
    let members = members_of(view, &IngressGroup::Host(host.clone()));
    if members.primary.is_empty() && !host.is_empty() {
        return orphans(host, &members);
    }
    let scope = scope_id(host);
    let mut locations = locations_of(host, &members, &defaults.policy);
    let tls = tls_of(view, host, &members, defaults);
    let (aliases, findings) = aliases_of(view, host, &members);
    let mut hosts: Vec<String> = Vec::new();
    if !host.is_empty() {
        hosts.push(host.to_string());
        hosts.extend(aliases);
    }
    let client = client_rules(view, &members, defaults);
    let (client_value, client_settings, client_problem) = match client {
        None => (None, None, None),
        Some(HostClientRules::Verified(value, settings)) => (Some(value), Some(settings), None),
        Some(HostClientRules::Denied(problem)) => (None, None, Some(problem)),
    };
    let is_denied = client_problem.is_some() || is_denied(&members, defaults);
    let context = HostContext {
        host,
        scope: &scope,
        has_patterns: locations.has_patterns,
        tls: &tls,
        client: client_settings,
        server_snippet: members.server_plan().map(|(_, plan)| plan),
        defaults,
    };
    let mut output = UnitOutput::default();
    output.problems.append(&mut locations.problems);
    output.problems.extend(tls.problems.iter().cloned());
    output.problems.extend(client_problem);
    output.problems.extend(controller_problem(&members, defaults));
    let alias_problem = |(owner, message): (&Arc<crate::derived::ParsedIngress>, String)| {
        Problem::warning(owner.key.to_string(), annotation_path(defaults, "server-alias"), message)
    };
    output.problems.extend(findings.into_iter().map(alias_problem));
    let mut writer = RouteWriter { view, context: &context, is_denied, output };
    sort_patterns(&mut locations.all, context.has_patterns);
    let count = locations.all.len();
    for (at, location) in locations.all.iter().enumerate() {
        writer.write(location, &locations.all, count - at);
    }
    add_snippet_locations(&mut writer, &members);
    let mut output = writer.output;
    let passing = passing_location(view, &members, &locations.all);
    let passes = passing.and_then(|root| passthrough::add_stream(view, &scope, &hosts, root, &mut output));
    let has_passthrough = passes.is_some();
    if let Some((id, value)) = passes {
        output.add_resource(TranslatedKind::Scopes, id, &value);
    }
    let value = scope_value(&members, &hosts, client_value, has_passthrough, defaults);
    output.add_resource(TranslatedKind::Scopes, scope.clone(), &value);
    add_certificate(&scope, &members, &tls, has_passthrough, &mut output);
    add_redirect_host(view, host, &members, &tls, defaults, &mut output);
    // Each path of an Ingress has the finding about a Secret that they share.
    let problems = std::mem::take(&mut output.problems);
    for problem in problems {
        if !output.problems.contains(&problem) {
            output.problems.push(problem);
        }
    }
    output
}

/// Whether a server snippet or a key of the ConfigMap protects the host and cannot be followed.
fn is_denied(members: &HostMembers<'_>, defaults: &ControllerSettings) -> bool {
    matches!(members.server_snippet(), Some((_, ServerSnippet::Denying))) || defaults.blocked.all.is_some()
}

/// The problem of the ConfigMap, for the first Ingress of each host that it closes.
fn controller_problem(members: &HostMembers<'_>, defaults: &ControllerSettings) -> Option<Problem> {
    let (key, first) = (defaults.blocked.all.as_ref()?, members.primary.first()?);
    let message = format!("the ConfigMap's {key} protects and cannot be followed: every host answers 403");
    Some(Problem::error(first.key.to_string(), "spec.rules", message))
}

/// Canaries of a host that no other Ingress has.
fn orphans(host: &str, members: &HostMembers<'_>) -> UnitOutput {
    let mut output = UnitOutput::default();
    output.problems.extend(members.canaries.iter().map(|canary| {
        let message = format!("the canary of host {host} has no Ingress to belong to and is ignored");
        Problem::warning(canary.key.to_string(), "spec.rules", message)
    }));
    output
}

/// Sorts patterns as NGINX tries them: the longest first, and of equal length the last by text.
fn sort_patterns(all: &mut [HostLocation<'_>], has_patterns: bool) {
    if has_patterns {
        all.sort_by(|a, b| (b.path.len(), &b.path).cmp(&(a.path.len(), &a.path)));
    }
}

/// The location whose service ends TLS, if the first Ingress of the host asks for it and passing through is switched on.
fn passing_location<'l, 't>(
    view: &TrackedView<'_>,
    members: &HostMembers<'_>,
    all: &'l [HostLocation<'t>],
) -> Option<&'l HostLocation<'t>> {
    let first = members.primary.first()?;
    let is_allowed = view.settings().ingress.controller.flags.is_set("enable-ssl-passthrough");
    if !first.settings.server.ssl_passthrough || !is_allowed {
        return None;
    }
    all.iter().find(|one| &*one.path == "/" && matches!(one.target, LocationTarget::Service(_)))
}

fn scope_value(
    members: &HostMembers<'_>,
    hosts: &[String],
    client: Option<Value>,
    has_passthrough: bool,
    defaults: &ControllerSettings,
) -> Value {
    let first = members.primary.first();
    let mut value = Map::new();
    let on = if has_passthrough { json!([listeners::HTTP]) } else { listeners::both() };
    value.insert("listeners".to_owned(), on);
    if !hosts.is_empty() {
        value.insert("hosts".to_owned(), json!(hosts));
    }
    value.insert("wildcard".to_owned(), "one".into());
    if !has_passthrough {
        let rejects = hosts.is_empty() && defaults.tls.rejects_unknown_names;
        let mut tls = json!({ "mode": "terminate", "default_certificate": !rejects });
        // NGINX chooses the host of a request by its Host alone.
        tls["any_server_name"] = client.is_none().into();
        if let Some(client) = client {
            tls["client"] = client;
        }
        let own = members.primary.iter().find_map(|one| one.settings.server.ciphers.as_ref());
        let ciphers = own.unwrap_or(&defaults.tls.ciphers);
        if !ciphers.is_empty() {
            tls["ciphers"] = ciphers.iter().map(|cipher| Value::from(&**cipher)).collect();
        }
        if !defaults.tls.versions.is_empty() {
            tls["versions"] = defaults.tls.versions.iter().map(|one| Value::from(&**one)).collect();
        }
        value.insert("tls".to_owned(), tls);
    }
    if let Some(first) = first {
        value.insert("create_time".to_owned(), first.object.meta.created_s.into());
    }
    let origin = first.map_or_else(|| "Ingress".to_owned(), |first| first.key.origin_label());
    value.insert("labels".to_owned(), json!({ "origin": origin }));
    value.into()
}

fn add_certificate(
    scope: &str,
    members: &HostMembers<'_>,
    tls: &HostTls,
    has_passthrough: bool,
    output: &mut UnitOutput,
) {
    let Some(pair) = tls.pair.as_ref().filter(|_| !has_passthrough) else { return };
    let origin = members.primary.first().map_or_else(|| "Ingress".to_owned(), |one| one.key.origin_label());
    // The scope has no other names, so that one entry serves all of them and clients without a name.
    let value = certificate_value(pair, scope, &["*".to_owned()], &origin);
    output.add_resource(TranslatedKind::Ssls, scope, &value);
}
