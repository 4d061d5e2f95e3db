//! Effects of translated snippets on one branch of a location.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::location_path::searching;
use super::super::locations::SnippetUse;
use super::redirects::text_redirect;
use super::{LocationDraft, proxying};
use crate::ingress_nginx::{
    AccessRule, NginxText, RequestFieldEdit, RequestFieldValue, ResponseFieldEdit, ResponseFieldVerb,
    SnippetAnswer, SnippetEffects, SnippetPathEdit, TextPart,
};

/// Applies the effects of snippets, in their order: those of the controller, the host, the path.
pub(super) fn add(draft: &mut LocationDraft<'_, '_, '_>, uses: &SnippetUse<'_>, service: Option<&Arc<str>>) {
    for effects in &uses.effects {
        apply(draft, effects, service.map(|service| &**service));
    }
    apply_access(draft, uses);
    // The first rewrite or answer ends the directives of its block; that of the host comes before those of paths.
    let edit = uses.relocation.or_else(|| uses.effects.iter().find_map(|effects| effects.path.as_ref()));
    if let Some(edit) = edit {
        draft.set_action("rewrite", "path", json!({ "regex": path_edit(edit) }));
    }
    if let Some(answer) = uses.effects.iter().find_map(|effects| effects.answer.as_ref()) {
        apply_answer(draft, answer);
    }
    if !uses.effects.is_empty() {
        drop_lone_satisfy(draft);
    }
}

/// Removes `satisfy` from fewer than two rules, between which it would choose.
fn drop_lone_satisfy(draft: &mut LocationDraft<'_, '_, '_>) {
    let has_service = draft.actions.contains_key("external_auth");
    let Some(Value::Object(access)) = draft.actions.get_mut("access") else { return };
    let has_lists = access.contains_key("allow") || access.contains_key("deny");
    let rules = [has_lists, access.contains_key("basic_auth_file"), has_service];
    if rules.into_iter().filter(|is_written| *is_written).count() < 2 {
        access.shift_remove("satisfy");
    }
    if access.is_empty() {
        draft.actions.shift_remove("access");
    }
}

fn apply(draft: &mut LocationDraft<'_, '_, '_>, effects: &SnippetEffects, service: Option<&str>) {
    for edit in &effects.request_fields {
        apply_request_field(draft, edit, service);
    }
    for edit in &effects.response_fields {
        apply_response_field(draft, edit, service);
    }
    for setting in &effects.settings {
        proxying::apply_setting(draft, setting);
    }
}

fn apply_request_field(
    draft: &mut LocationDraft<'_, '_, '_>,
    edit: &RequestFieldEdit,
    service: Option<&str>,
) {
    match &edit.value {
        RequestFieldValue::Text(text) if edit.name.eq_ignore_ascii_case("host") => match text.as_literal() {
            Some(host) => draft.set_action("rewrite", "host", host.into()),
            None => draft.warn("snippet", format!("Host {text} is not known in advance")),
        },
        RequestFieldValue::Text(text) if text.parts.is_empty() => {
            draft.push_action("request_fields", "remove", (&*edit.name).into());
        }
        RequestFieldValue::Text(text) => {
            let text = draft.settled_text(text, service);
            draft.push_action("request_fields", "set", json!([&*edit.name, text.to_string()]));
            if text.as_literal().is_none() {
                draft.set_action("request_fields", "variables", true.into());
            }
        }
        RequestFieldValue::AuthAnswer(text) => apply_answer_field(draft, &edit.name, text),
    }
}

/// A field of the auth service's answer. Without the service it is empty, and never the client's to choose.
fn apply_answer_field(draft: &mut LocationDraft<'_, '_, '_>, name: &str, text: &NginxText) {
    if !draft.actions.contains_key("external_auth") {
        let constant: String = text.parts.iter().filter_map(|part| part.as_literal()).collect();
        return match constant.is_empty() {
            true => draft.push_action("request_fields", "remove", name.into()),
            false => draft.push_action("request_fields", "set", json!([name, constant])),
        };
    }
    match &text.parts[..] {
        [TextPart::Variable(field)] if field.eq_ignore_ascii_case(name) => {
            draft.push_action("external_auth", "allowed_response_headers", name.into());
        }
        _ => {
            let part = |part: &TextPart| match part {
                TextPart::Variable(field) => format!("${{upstream_http_{}}}", field.replace('-', "_")),
                other => other.as_literal().unwrap_or_default().to_owned(),
            };
            let value: String = text.parts.iter().map(part).collect();
            let pair = json!([name, value]);
            let fields = &mut draft.actions["external_auth"]["nginx"]["answer_fields"];
            match fields.as_array_mut() {
                Some(fields) => fields.push(pair),
                None => *fields = json!([pair]),
            }
        }
    }
}

fn apply_response_field(
    draft: &mut LocationDraft<'_, '_, '_>,
    edit: &ResponseFieldEdit,
    service: Option<&str>,
) {
    if edit.name.contains('*') {
        return draft.warn("snippet", format!("{}: fields are removed by their whole name", edit.name));
    }
    let text = draft.settled_text(&edit.value, service);
    if !edit.statuses.is_empty() {
        return apply_by_status(draft, edit, &text.to_string());
    }
    let value = json!([&*edit.name, text.to_string()]);
    match edit.verb {
        ResponseFieldVerb::Add => draft.push_action("response_fields", "add", value),
        ResponseFieldVerb::Set => draft.push_action("response_fields", "set", value),
        ResponseFieldVerb::Remove => draft.push_action("response_fields", "remove", (&*edit.name).into()),
    }
    if text.as_literal().is_none() {
        draft.set_action("response_fields", "variables", true.into());
    }
}

/// An edit for some statuses only, as `add_header` without `always`: the plugin has conditions on the response. A route
/// has one list of statuses.
fn apply_by_status(draft: &mut LocationDraft<'_, '_, '_>, edit: &ResponseFieldEdit, value: &str) {
    let statuses: Vec<String> = edit.statuses.iter().map(u16::to_string).collect();
    let vars = json!([["status", "in", statuses]]);
    let plugins = draft.members.entry("plugins").or_insert_with(|| Map::new().into());
    let plugin = &mut plugins["response-rewrite"];
    if plugin.is_null() {
        *plugin = json!({ "vars": vars, "headers": {} });
    } else if plugin["vars"] != vars {
        let reason = format!("{}: fields of a path are edited for one list of statuses", edit.name);
        return draft.warn("snippet", reason);
    }
    let headers = &mut plugin["headers"];
    match edit.verb {
        ResponseFieldVerb::Set => headers["set"][&*edit.name] = value.into(),
        verb => {
            let (list, entry) = match verb {
                ResponseFieldVerb::Remove => ("remove", edit.name.to_string()),
                _ => ("add", format!("{}: {value}", edit.name)),
            };
            match headers[list].as_array_mut() {
                Some(entries) => entries.push(entry.into()),
                None => headers[list] = json!([entry]),
            }
        }
    }
}

/// Adds the rules of snippets after the lists of annotations, as ingress-nginx writes them. A location with rules of its own
/// inherits none of its host.
fn apply_access(draft: &mut LocationDraft<'_, '_, '_>, uses: &SnippetUse<'_>) {
    let lists = &draft.settings.access;
    if !lists.allow.is_empty() {
        // Their `deny all` comes before the rules.
        return;
    }
    let rules_of = |effects: &[&SnippetEffects]| -> Vec<AccessRule> {
        effects.iter().flat_map(|one| one.access.clone()).collect()
    };
    let (of_host, of_path) = uses.effects.split_at(uses.of_host);
    let mut rules = rules_of(of_path);
    if rules.is_empty() && lists.deny.is_empty() {
        rules = rules_of(of_host);
    }
    if !rules.is_empty() {
        apply_rules(draft, &rules);
    }
}

/// Rules that end with `deny all` are a list of admitted networks, those without one a list of refused ones.
fn apply_rules(draft: &mut LocationDraft<'_, '_, '_>, rules: &[AccessRule]) {
    let end = rules.iter().position(|rule| rule.network.is_none());
    let (listed, is_closed) = match end {
        Some(end) => (&rules[..end], !rules[end].allows),
        None => (rules, false),
    };
    // Rules of the same kind as the end have no effect before it only if no rule of the other kind follows.
    let is_mixed = listed.iter().any(|rule| rule.allows != is_closed);
    if is_mixed {
        return draft.deny("snippet", "allow and deny in turns have no equal list of networks".to_owned());
    }
    let networks: Vec<Value> =
        listed.iter().filter_map(|rule| rule.network.as_deref()).map(Value::from).collect();
    match (is_closed, networks.is_empty()) {
        (true, false) => draft.set_action("access", "allow", networks.into()),
        (true, true) => draft.set_action("access", "deny", json!(["0.0.0.0/0", "::/0"])),
        (false, false) => {
            networks.into_iter().for_each(|network| draft.push_action("access", "deny", network))
        }
        (false, true) => {}
    }
}

/// A replacement as the member `path.regex`.
fn path_edit(edit: &SnippetPathEdit) -> Value {
    json!({ "pattern": searching(&edit.pattern), "to": edit.to.to_string() })
}

/// The response of the gateway. NGINX sends it before it checks anything.
fn apply_answer(draft: &mut LocationDraft<'_, '_, '_>, answer: &SnippetAnswer) {
    for checked in ["access", "external_auth", "rewrite", "mirrors"] {
        draft.actions.shift_remove(checked);
    }
    draft.actions.shift_remove("redirect");
    match answer {
        SnippetAnswer::Respond { status, body, media_type } => {
            let mut respond = json!({ "status": status });
            match body.as_ref().map(|body| body.as_literal()) {
                Some(Some(body)) => respond["body"] = body.into(),
                Some(None) => draft.warn("snippet", "the body of return has variables and is left out"),
                None => {}
            }
            if let Some(media_type) = media_type {
                respond["fields"] = json!([["Content-Type", &**media_type]]);
            }
            draft.actions.insert("respond".to_owned(), respond);
        }
        SnippetAnswer::Redirect { status, location } => {
            let location = location.to_string();
            let url = match location.starts_with('/') {
                true => format!("$scheme://$http_host{location}"),
                false => location,
            };
            draft.actions.extend(text_redirect(*status, &url));
        }
        SnippetAnswer::RewriteRedirect { status, edit } => {
            let redirect = json!({
                "stage": "first", "status": status, "path": { "regex": path_edit(edit) },
                "keep_query": edit.keep_query,
            });
            draft.actions.insert("redirect".to_owned(), redirect);
        }
    }
}
