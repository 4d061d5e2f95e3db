//! Fields of requests and responses, the host for the service, copies of requests, the access log.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::host_names::is_inner;
use super::{LocationDraft, split_url};
use crate::ingress_nginx::{HstsSettings, IngressMirror, renamed_variables};

pub(super) fn add(draft: &mut LocationDraft<'_, '_, '_>, service: Option<&Arc<str>>) {
    add_request_fields(draft, service);
    add_response_fields(draft);
    if let Some(hsts) = &draft.context.defaults.tls.hsts {
        draft.actions.insert("hsts".to_owned(), hsts_value(*hsts));
    }
    if let Some(mirror) = &draft.settings.mirror {
        add_mirror(draft, mirror);
    }
    let log = &draft.context.defaults.log;
    let is_skipped = log.skipped_paths.iter().any(|path| draft.location.path.starts_with(&**path));
    if !draft.settings.log.access || log.is_off || is_skipped {
        draft.actions.insert("access_log".to_owned(), false.into());
    }
}

fn hsts_value(hsts: HstsSettings) -> Value {
    json!({
        "max_age_s": hsts.max_age_s,
        "include_subdomains": hsts.include_subdomains,
        "preload": hsts.preload,
    })
}

fn add_request_fields(draft: &mut LocationDraft<'_, '_, '_>, service: Option<&Arc<str>>) {
    let defaults = draft.context.defaults;
    let form = if defaults.client.appends { "nginx_append" } else { "nginx" };
    draft.actions.insert("forwarded_fields".to_owned(), form.into());
    if let Some(host) = &draft.settings.upstream.host {
        let text = draft.settled_text(host, service.map(|service| &**service));
        match text.as_literal() {
            Some("") => {}
            Some(host) => {
                let host = host.to_owned();
                draft.set_action("rewrite", "host", host.into());
            }
            None if matches!(&*text.to_string(), "${host}" | "${http_host}" | "${best_http_host}") => {}
            None => draft.warn("upstream-vhost", format!("{text}: this variable is not known in advance")),
        }
    }
    if let Some(key) = &defaults.headers.set_upstream
        && let Some(object) = draft.required_map("proxy-set-headers", key)
    {
        for (name, value) in &object.data {
            draft.push_action("request_fields", "set", json!([&**name, renamed_variables(value)]));
        }
        draft.set_action("request_fields", "variables", true.into());
    }
    if defaults.headers.adds_original_uri {
        draft.push_action("request_fields", "set", json!(["X-Original-Uri", "$real_request_uri"]));
        draft.set_action("request_fields", "variables", true.into());
    }
}

fn add_response_fields(draft: &mut LocationDraft<'_, '_, '_>) {
    let headers = &draft.context.defaults.headers;
    if !headers.keeps_server {
        draft.push_action("response_fields", "remove", "Server".into());
    }
    for name in &headers.hidden {
        draft.push_action("response_fields", "remove", (&**name).into());
    }
    let maps = [("add-headers", &headers.add), ("custom-headers", &draft.settings.headers.custom)];
    for (key, map) in maps {
        let Some(map) = map else { continue };
        let Some(object) = draft.required_map(key, map) else { continue };
        let allowed = &draft.context.defaults.policy.response_headers;
        for (name, value) in &object.data {
            let is_allowed = allowed.iter().any(|one| one.eq_ignore_ascii_case(name));
            if key == "custom-headers" && !is_allowed {
                let reason = format!("field {name} is not in global-allowed-response-headers");
                draft.deny(key, reason);
                break;
            }
            draft.push_action("response_fields", "set", json!([&**name, &**value]));
        }
    }
}

fn add_mirror(draft: &mut LocationDraft<'_, '_, '_>, mirror: &IngressMirror) {
    let target = draft.settled_text(&mirror.target, None).to_string();
    // A copy has the path and query of the request in any case.
    let target = target.strip_suffix("${request_uri}").unwrap_or(&target);
    let Some(parts) = split_url(target) else {
        return draft.warn("mirror-target", format!("{target:?} is no URL with a constant host"));
    };
    if is_inner(parts.host) {
        let reason = format!("{:?} is the machine of the gateway or its link: no copy is sent", parts.host);
        return draft.warn("mirror-target", reason);
    }
    let host = mirror.host.as_ref().and_then(|host| host.as_literal().map(str::to_owned));
    let host = host.unwrap_or_else(|| parts.host.to_owned());
    let address = parts.host.trim_start_matches('[').trim_end_matches(']');
    let mut members = Map::new();
    members.insert("scheme".to_owned(), if parts.is_tls { "https" } else { "http" }.into());
    let node = json!({ "host": address, "port": parts.port, "weight": 1, "excludes_local": true });
    members.insert("nodes".to_owned(), json!([node]));
    members.insert("pass_host".to_owned(), "rewrite".into());
    members.insert("upstream_host".to_owned(), host.into());
    if let Some(owner) = draft.owner() {
        members.insert("labels".to_owned(), json!({ "origin": owner.key.origin_label() }));
    }
    let id = draft.own_upstream_id("mirror");
    let mut value = json!({ "upstream_id": id });
    if !mirror.has_body {
        value["body_bytes_max"] = 0.into();
    }
    draft.own_upstreams.push((id, members.into()));
    draft.actions.insert("mirrors".to_owned(), json!([value]));
}
