//! The service that decides about requests (`auth-url`).

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::super::host_names::is_inner;
use super::{LocationDraft, UrlParts, split_url};
use crate::ingress_nginx::{AuthServiceSettings, NginxText, RequestFieldValue, SnippetPlan, TextPart};

/// Statuses of a duration without statuses, as of NGINX's `proxy_cache_valid`.
const CACHED_STATUSES: [u16; 3] = [200, 301, 302];

pub(super) fn add(draft: &mut LocationDraft<'_, '_, '_>) {
    let settings = draft.settings;
    let own = settings.auth.service.as_ref();
    let Some(service) = own.filter(|service| !is_exempt(draft, service)) else { return };
    let host = draft.context.host;
    let url = with_host(&service.url, host);
    let Some(parts) = split_url(&url) else {
        let reason = format!("the host of auth-url {:?} is not known in advance", service.url.to_string());
        return draft.deny("auth-url", reason);
    };
    // The service of the ConfigMap is the choice of the operator.
    if is_inner(parts.host) && !is_of_controller(draft, service) {
        let reason = format!("{:?} of auth-url is the machine of the gateway or its link", parts.host);
        return draft.deny("auth-url", reason);
    }
    let id = draft.own_upstream_id("auth");
    let mut upstream = upstream_value(&parts, service.keepalive, draft);
    if !is_of_controller(draft, service) {
        upstream["nodes"][0]["excludes_local"] = true.into();
    }
    let mut request = Map::new();
    request.insert("url".to_owned(), path_of(parts.rest).into());
    let is_default_port = parts.port == if parts.is_tls { 443 } else { 80 };
    let authority =
        if is_default_port { parts.host.to_owned() } else { format!("{}:{}", parts.host, parts.port) };
    request.insert("host".to_owned(), authority.into());
    if let Some(method) = &service.method {
        request.insert("method".to_owned(), (&**method).into());
    }
    add_signin(service, &mut request);
    let fields = request_fields(draft, service);
    if !fields.is_empty() {
        request.insert("fields".to_owned(), fields.into());
    }
    if let Some(text) = &service.request_redirect {
        request.insert("redirect_field".to_owned(), text.to_string().into());
    }
    if service.always_sets_cookie {
        request.insert("always_set_cookie".to_owned(), true.into());
    }
    if let Some(cache) = &service.cache {
        let rules = cache.rules.iter().map(|rule| {
            let statuses = if rule.statuses.is_empty() { &CACHED_STATUSES[..] } else { &rule.statuses };
            json!({ "statuses": statuses, "seconds": rule.seconds.max(1) })
        });
        let durations: Vec<Value> = rules.collect();
        request.insert("cache".to_owned(), json!({ "key": cache.key.to_string(), "durations": durations }));
    }
    let mut auth = json!({ "upstream_id": id, "nginx": request });
    if !service.response_headers.is_empty() {
        auth["allowed_response_headers"] =
            service.response_headers.iter().map(|name| Value::from(&**name)).collect();
    }
    draft.own_upstreams.push((id, upstream));
    draft.actions.insert("external_auth".to_owned(), auth);
}

/// Whether the service is that of the controller, and the path is exempt from it.
fn is_exempt(draft: &LocationDraft<'_, '_, '_>, service: &AuthServiceSettings) -> bool {
    let exempt = draft.context.defaults.auth.iter().flat_map(|(_, exempt)| exempt);
    is_of_controller(draft, service)
        && exempt.into_iter().any(|prefix| draft.location.path.starts_with(&**prefix))
}

fn is_of_controller(draft: &LocationDraft<'_, '_, '_>, service: &AuthServiceSettings) -> bool {
    draft.context.defaults.auth.as_ref().is_some_and(|(global, _)| global == service)
}

/// The URL with the variables that are the host's name, if the host has only one.
fn with_host(url: &NginxText, host: &str) -> String {
    let is_known = !host.is_empty() && !host.starts_with('*');
    let part = |part: &TextPart| match part {
        TextPart::Literal(text) => text.to_string(),
        TextPart::Group(number) => format!("${number}"),
        TextPart::Variable(name)
            if is_known && matches!(&**name, "host" | "http_host" | "best_http_host") =>
        {
            host.to_owned()
        }
        TextPart::Variable(name) => format!("${{{name}}}"),
    };
    // Only the authority must be constant.
    let text: String = url.parts.iter().map(part).collect();
    text.strip_prefix("${scheme}://").map_or_else(|| text.clone(), |rest| format!("http://{rest}"))
}

fn path_of(rest: &str) -> String {
    match rest.starts_with('/') {
        true => rest.to_owned(),
        false => format!("/{rest}"),
    }
}

fn upstream_value(parts: &UrlParts<'_>, keepalive: Option<u32>, draft: &LocationDraft<'_, '_, '_>) -> Value {
    let mut members = Map::new();
    let host = parts.host.trim_start_matches('[').trim_end_matches(']');
    members.insert("scheme".to_owned(), if parts.is_tls { "https" } else { "http" }.into());
    members.insert("nodes".to_owned(), json!([{ "host": host, "port": parts.port, "weight": 1 }]));
    if parts.is_tls {
        let mut tls = json!({ "verify": false });
        if host.parse::<IpAddr>().is_err() {
            tls["server_name"] = host.into();
        }
        members.insert("tls".to_owned(), tls);
    }
    if let Some(size) = keepalive.filter(|size| *size > 0) {
        members.insert("keepalive_pool".to_owned(), json!({ "size": size }));
    }
    if let Some(owner) = draft.owner() {
        members.insert("labels".to_owned(), json!({ "origin": owner.key.origin_label() }));
    }
    members.into()
}

fn add_signin(service: &AuthServiceSettings, request: &mut Map<String, Value>) {
    let Some(signin) = &service.signin else { return };
    request.insert("signin".to_owned(), signin.url.to_string().into());
    if !signin.redirect_param.is_empty() {
        request.insert("signin_parameter".to_owned(), (&*signin.redirect_param).into());
    }
}

/// Fields of the request to the service: those of the ConfigMap, then those of the snippet.
fn request_fields(draft: &mut LocationDraft<'_, '_, '_>, service: &AuthServiceSettings) -> Vec<Value> {
    let mut fields = Vec::new();
    if let Some(key) = &service.set_headers
        && let Some(object) = draft.required_map("auth-proxy-set-headers", key)
    {
        fields.extend(object.data.iter().map(|(name, value)| json!([&**name, &**value])));
    }
    let snippet = draft.settings.snippets.auth.clone();
    if let Some(effects) = snippet.as_deref().and_then(SnippetPlan::only) {
        for edit in &effects.request_fields {
            match &edit.value {
                RequestFieldValue::Text(text) => fields.push(json!([&*edit.name, text.to_string()])),
                RequestFieldValue::AuthAnswer(_) => {
                    draft.warn("auth-snippet", format!("{}: the answer is not known yet", edit.name));
                }
            }
        }
    }
    fields
}
