//! Routes of a location.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::backends::{LocationBackends, backends_of};
use super::effects::{
    HostContext, LocationDraft, app_root_route, client_certificate, fixed_redirect, plugin_set,
    slash_redirect,
};
use super::location_path::{flaw_of_pattern, literal_match, match_of_broken, pattern_match};
use super::locations::{HostLocation, LocationTarget, SnippetUse};
use super::members::first_of_service;
use super::relocation::{relocated, relocating_edit};
use super::sessions::session_value;
use super::snippet_branches::{branches_of, conditions_value};
use crate::derived::ParsedIngress;
use crate::engine::{TrackedView, UnitOutput};
use crate::ingress_nginx::ServerSnippet;
use crate::resources::{SpecDefect, TranslatedKind, mark_broken};
use crate::settings::IngressCounting;

use yumen_base::problem::Problem;

/// The answer without a default backend.
const NOT_FOUND: &str = "default backend - 404\n";

/// Writes the routes of all locations of a host.
pub(super) struct RouteWriter<'w, 'h, 't> {
    pub(super) view: &'w TrackedView<'t>,
    pub(super) context: &'w HostContext<'h, 't>,
    /// Whether every request of the host is answered with 403.
    pub(super) is_denied: bool,
    pub(super) output: UnitOutput,
}

impl<'t> RouteWriter<'_, '_, 't> {
    pub(super) fn write(&mut self, location: &HostLocation<'t>, all: &[HostLocation<'t>], rank: usize) {
        let backends = backends_of(self.view, self.context.defaults, location);
        if let Some(backends) = &backends {
            let missing = backends.missing.iter().map(|(owner, message)| {
                Problem::warning(
                    owner.to_string(),
                    "spec.rules",
                    format!("{message}: requests are answered 503"),
                )
            });
            self.output.problems.extend(missing);
        }
        let branches = match branches_of(self.context, location) {
            Ok(branches) => branches,
            // Without their snippets requests might pass that one of them refuses.
            Err(reason) => {
                let (id, priority) = (location.id.clone(), (rank + 1) * 1000);
                return self.write_relocated(location, Err(reason), &SnippetUse::default(), id, priority);
            }
        };
        let count = branches.len();
        for (at, branch) in branches.iter().enumerate() {
            // The first branch whose conditions hold answers.
            let priority = (rank + 1) * 1000 + (count - at) * 10;
            let id = if at + 1 == count { location.id.clone() } else { format!("{}!if.{at}", location.id) };
            match relocating_edit(branch) {
                None => self.write_branch(location, location, backends.as_ref(), branch, id, priority),
                Some(edit) => {
                    let found = relocated(self.context, location, all, branch, edit);
                    let found =
                        found.map(|(target, uses)| (target, SnippetUse { relocation: Some(edit), ..uses }));
                    self.write_relocated(location, found, branch, id, priority);
                }
            }
        }
        let extra =
            [app_root_route(self.context, location, all), slash_redirect(self.context, location, all)];
        for (id, value) in extra.into_iter().flatten() {
            let Value::Object(members) = value else { continue };
            self.finish(id, members, location.owner, &[]);
        }
    }

    /// Writes the branch of a location whose requests another one serves, or none.
    fn write_relocated(
        &mut self,
        matched: &HostLocation<'t>,
        found: Result<(&HostLocation<'t>, SnippetUse<'t>), String>,
        branch: &SnippetUse<'t>,
        id: String,
        priority: usize,
    ) {
        let conditions = branch.conditions.clone();
        match found {
            Ok((location, uses)) => {
                let backends = backends_of(self.view, self.context.defaults, location);
                let uses = SnippetUse { conditions, ..uses };
                self.write_branch(matched, location, backends.as_ref(), &uses, id, priority);
            }
            Err(reason) => {
                if let Some(owner) = matched.owner {
                    let message = format!("{reason}: these requests are answered 503");
                    self.output.problems.push(Problem::error(owner.key.to_string(), "snippet", message));
                }
                let mut members = base_members(self.context, matched);
                members.insert("priority".to_owned(), priority.into());
                if !conditions.is_empty() {
                    members.insert("vars".to_owned(), conditions_value(&conditions));
                }
                members.insert("actions".to_owned(), respond(503));
                self.finish(id, members, matched.owner, &[]);
            }
        }
    }

    /// Writes a branch: the requests that `matched` has, as `location` serves them.
    fn write_branch(
        &mut self,
        matched: &HostLocation<'t>,
        location: &HostLocation<'t>,
        backends: Option<&LocationBackends>,
        branch: &SnippetUse<'t>,
        id: String,
        priority: usize,
    ) {
        let mut draft = LocationDraft::new(self.view, self.context, location);
        let service = backends.and_then(|backends| backends.service.clone());
        draft.add_all(service.as_ref(), branch);
        self.output.problems.append(&mut draft.problems);
        let mut members = base_members(self.context, matched);
        // Literal paths have one route each, unless branches compete.
        if self.context.has_patterns || priority % 1000 > 10 {
            members.insert("priority".to_owned(), priority.into());
        }
        if !branch.conditions.is_empty() {
            members.insert("vars".to_owned(), conditions_value(&branch.conditions));
        }
        let refusal = location.owner.and_then(|owner| owner.refusal.as_ref());
        let mut defects = draft.defects;
        // The defect is in the actions: the last good version stays, and without one the matched requests get 503. A
        // defect of the whole route would leave them to a wider path of the host.
        let refusal = refusal.or(location.flaw.as_ref());
        defects.extend(refusal.map(|reason| SpecDefect::new("actions", reason.clone())));
        let denied = draft.settings.auth.denial.as_ref().map(|reason| reason.to_string()).or(draft.denial);
        let denied = denied.or(location.flaw.clone());
        // The server snippet of an older Ingress is that of the host; the own paths stay closed all the same.
        let is_unguarded = matches!(draft.settings.snippets.server, Some(ServerSnippet::Denying));
        if self.is_denied {
            members.insert("actions".to_owned(), respond(403));
        } else if denied.is_some() || is_unguarded {
            members.insert("actions".to_owned(), respond(503));
        } else if let Some(redirect) = &draft.settings.redirects.fixed {
            members.insert("actions".to_owned(), fixed_redirect(redirect).into());
        } else {
            for (id, value) in draft.own_upstreams {
                self.output.add_resource(TranslatedKind::Upstreams, id, &value);
            }
            self.output.upstreams.extend(draft.upstreams);
            let has_answer = draft.actions.contains_key("respond")
                || draft.actions.get("redirect").is_some_and(|redirect| redirect.get("when").is_none());
            members.extend(draft.members);
            if !has_answer {
                self.add_backends(location, backends, &mut members, &mut draft.actions);
            } else {
                remove_forwarding(&mut members, &mut draft.actions);
            }
            members.insert("actions".to_owned(), draft.actions.into());
        }
        let defaults = self.context.defaults;
        if let Some(owner) = location.owner.filter(|owner| plugin_set(owner, defaults).is_some()) {
            members.insert("plugin_config_id".to_owned(), plugin_set_id(owner).into());
        }
        if draft.settings.cors.is_some() && !self.is_denied {
            self.write_options(&id, &members, location.owner, priority);
        }
        self.finish(id, members, location.owner, &defects);
    }

    /// Writes a route that answers every request itself.
    pub(super) fn write_answer(
        &mut self,
        location: &HostLocation<'t>,
        branch: &SnippetUse<'t>,
        matching: Value,
        id: String,
        priority: usize,
    ) {
        let mut draft = LocationDraft::new(self.view, self.context, location);
        draft.add_snippets(branch);
        self.output.problems.append(&mut draft.problems);
        let mut members = Map::from_iter([("uri".to_owned(), "/*".into()), ("match".to_owned(), matching)]);
        members.insert("priority".to_owned(), priority.into());
        if !branch.conditions.is_empty() {
            members.insert("vars".to_owned(), conditions_value(&branch.conditions));
        }
        let has_answer = draft.actions.contains_key("respond") || draft.actions.contains_key("redirect");
        if self.is_denied {
            draft.actions = Map::from_iter([("respond".to_owned(), json!({ "status": 403 }))]);
        } else if !has_answer {
            let body = json!({ "status": 404, "body": NOT_FOUND });
            draft.actions.insert("respond".to_owned(), body);
        }
        members.insert("actions".to_owned(), draft.actions.into());
        // Fields for some statuses are edited by a plugin.
        members.extend(draft.members.shift_remove("plugins").map(|plugins| ("plugins".to_owned(), plugins)));
        self.finish(id, members, location.owner, &draft.defects);
    }

    fn add_backends(
        &mut self,
        location: &HostLocation<'t>,
        backends: Option<&LocationBackends>,
        members: &mut Map<String, Value>,
        actions: &mut Map<String, Value>,
    ) {
        let Some(backends) = backends else {
            remove_forwarding(members, actions);
            let fields = json!([["Content-Type", "text/plain; charset=utf-8"]]);
            actions
                .insert("respond".to_owned(), json!({ "status": 404, "body": NOT_FOUND, "fields": fields }));
            return;
        };
        members.insert("backends".to_owned(), backends.value.clone().into());
        members.insert("enable_websocket".to_owned(), true.into());
        self.output.upstreams.extend(backends.upstreams.iter().cloned());
        // The first Ingress of a Service decides about sessions, for all that name it.
        if let (LocationTarget::Service(service), Some(owner)) = (&location.target, location.owner) {
            let has_session = owner.settings.upstream.session.is_some();
            let first = has_session
                .then(|| first_of_service(self.view, &owner.key.namespace, &service.name))
                .flatten();
            if let Some(session) = first.and_then(|first| first.settings.upstream.session.as_ref()) {
                let value = session_value(session, &location.path, self.context.has_patterns);
                members.insert("session".to_owned(), value);
            }
        }
        if !members.contains_key("session") {
            drop_session_rule(members);
        }
    }

    /// Every OPTIONS request of a location with CORS is answered, also one that is no preflight request.
    fn write_options(
        &mut self,
        id: &str,
        members: &Map<String, Value>,
        owner: Option<&'t Arc<ParsedIngress>>,
        priority: usize,
    ) {
        let Some(Value::Object(actions)) = members.get("actions") else { return };
        let Some(cors) = actions.get("cors") else { return };
        let mut own = Map::new();
        for name in ["uri", "match", "scopes", "vars", "plugin_config_id"] {
            own.extend(members.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        own.insert("methods".to_owned(), json!(["OPTIONS"]));
        own.insert("priority".to_owned(), (priority + 1).into());
        let mut answer = Map::new();
        for name in ["redirect", "hsts"] {
            let kept = actions.get(name).filter(|value| name != "redirect" || value.get("when").is_some());
            answer.extend(kept.map(|value| (name.to_owned(), value.clone())));
        }
        answer.insert("cors".to_owned(), cors.clone());
        answer.insert("respond".to_owned(), json!({ "status": 204 }));
        own.insert("actions".to_owned(), answer.into());
        self.finish(format!("{id}!options"), own, owner, &[]);
    }

    /// Adds the members of all routes, and the resource.
    fn finish(
        &mut self,
        id: String,
        mut members: Map<String, Value>,
        owner: Option<&'t Arc<ParsedIngress>>,
        defects: &[SpecDefect],
    ) {
        members.insert("scopes".to_owned(), json!([self.context.scope]));
        // The handshake admits certificates that are not valid, so that each route must judge them.
        if let Some(conditions) = self.context.client.and_then(client_certificate) {
            let actions = members.entry("actions").or_insert_with(|| json!({}));
            actions["access"]["client_certificate"] = conditions;
        }
        if let Some(owner) = owner {
            if self.view.settings().ingress.counting == IngressCounting::PerRoute {
                let plugins = members.entry("plugins").or_insert_with(|| json!({}));
                plugins["prometheus"] = json!({});
            }
            members.insert("create_time".to_owned(), owner.object.meta.created_s.into());
        }
        let origin = owner.map_or_else(|| "Ingress".to_owned(), |owner| owner.key.origin_label());
        members.insert("labels".to_owned(), json!({ "origin": origin }));
        mark_broken(&mut members, defects);
        self.output.add_resource(TranslatedKind::Routes, id, &members.into());
    }
}

/// The id of the plugins that the routes of an Ingress share.
pub(super) fn plugin_set_id(owner: &ParsedIngress) -> String {
    format!("{}/{}!ingress!plugins", owner.key.namespace, owner.key.name)
}

fn base_members(context: &HostContext<'_, '_>, location: &HostLocation<'_>) -> Map<String, Value> {
    let matching = match context.has_patterns {
        true if location.flaw.is_none() || flaw_of_pattern(&location.path).is_none() => {
            pattern_match(&location.path)
        }
        true => match_of_broken(&location.path),
        false => literal_match(&location.path, location.form),
    };
    Map::from_iter([("uri".to_owned(), "/*".into()), ("match".to_owned(), matching)])
}

fn respond(status: u16) -> Value {
    json!({ "respond": { "status": status }, "errors": { "format": "html" } })
}

/// Removes members that have no effect on requests that reach no upstream.
fn remove_forwarding(members: &mut Map<String, Value>, actions: &mut Map<String, Value>) {
    for unused in ["timeout", "retry"] {
        members.shift_remove(unused);
    }
    for unused in ["rewrite", "mirrors", "forwarded_fields", "request_fields", "limits"] {
        actions.shift_remove(unused);
    }
}

/// Removes the rule about sessions of a canary of a route without sessions.
fn drop_session_rule(members: &mut Map<String, Value>) {
    let backends = members.get_mut("backends").and_then(Value::as_array_mut);
    for backend in backends.into_iter().flatten() {
        if let Some(Value::Object(canary)) = backend.get_mut("canary") {
            canary.shift_remove("ignores_session");
        }
    }
}
