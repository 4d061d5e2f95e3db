//! Admission: address lists, passwords, client certificates, limits.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use yumen_config::resource::ClientCertMode;

use super::LocationDraft;
use crate::derived::ParsedIngress;
use crate::engine::ReferencedObject;
use crate::ingress_nginx::{
    AuthSatisfaction, ControllerSettings, HtpasswdForm, IngressBasicAuth, IngressClientTls, IngressLimits,
};
use crate::model::SecretObject;

/// Statuses of refused requests, of a rate and of connections.
const LIMIT_STATUSES: (u16, u16) = (503, 503);

pub(super) fn add(draft: &mut LocationDraft<'_, '_, '_>) {
    let settings = draft.settings;
    let list = |networks: &[Arc<str>]| networks.iter().map(|one| Value::from(&**one)).collect::<Value>();
    if !settings.access.allow.is_empty() {
        draft.set_action("access", "allow", list(&settings.access.allow));
    }
    if !settings.access.deny.is_empty() {
        draft.set_action("access", "deny", list(&settings.access.deny));
    }
    if let Some(basic) = &settings.auth.basic
        && let Some(value) = basic_auth(draft, basic)
    {
        draft.set_action("access", "basic_auth_file", value);
    }
    add_client_fields(draft);
    let has_lists = !settings.access.allow.is_empty() || !settings.access.deny.is_empty();
    let rules = [has_lists, settings.auth.basic.is_some(), settings.auth.service.is_some()];
    let is_any = settings.auth.satisfy == AuthSatisfaction::Any;
    if is_any && rules.into_iter().filter(|is_written| *is_written).count() > 1 {
        draft.set_action("access", "satisfy", "any".into());
    }
    if let Some(rate) = settings.limits.response_rate {
        draft.set_action("limits", "response_rate", rate.bytes_per_second.into());
        if rate.after_bytes > 0 {
            draft.set_action("limits", "response_rate_after", rate.after_bytes.into());
        }
    }
}

fn basic_auth(draft: &mut LocationDraft<'_, '_, '_>, basic: &IngressBasicAuth) -> Option<Value> {
    let key = &basic.secret;
    let secret = match draft.view.secret(&key.namespace, &key.name) {
        ReferencedObject::Found(secret) => secret,
        ReferencedObject::Missing | ReferencedObject::Pending => {
            draft.deny("auth-secret", format!("{key} does not exist"));
            return None;
        }
    };
    match passwords(secret, basic.form) {
        Some((member, value)) => {
            let mut file = Map::from_iter([(member.to_owned(), value)]);
            if !basic.realm.is_empty() {
                file.insert("realm".to_owned(), (&*basic.realm).into());
            }
            Some(file.into())
        }
        None => {
            let entry = if basic.form == HtpasswdForm::File { "no text in auth" } else { "no entries" };
            draft.deny("auth-secret", format!("{key} has {entry}"));
            None
        }
    }
}

fn passwords(secret: &SecretObject, form: HtpasswdForm) -> Option<(&'static str, Value)> {
    match form {
        HtpasswdForm::File => {
            let text = secret.text("auth").filter(|text| !text.trim().is_empty())?;
            Some(("file", text.into()))
        }
        HtpasswdForm::Map => {
            let users = secret
                .data
                .keys()
                .filter_map(|name| Some((name.to_string(), Value::from(secret.text(name).map(str::trim)?))));
            let users: Map<String, Value> = users.collect();
            (!users.is_empty()).then(|| ("users", users.into()))
        }
    }
}

/// Conditions on the client certificate, for all routes of a host.
pub(in super::super) fn client_certificate(client: &IngressClientTls) -> Option<Value> {
    let is_required = client.mode == Some(ClientCertMode::Require);
    let mut members = Map::new();
    if is_required {
        members.insert("required".to_owned(), true.into());
        if let Some(page) = &client.error_page {
            members.insert("error_page".to_owned(), (&**page).into());
        }
    }
    if let Some(pattern) = &client.match_cn {
        members.insert("subject_pattern".to_owned(), (&**pattern).into());
    }
    (!members.is_empty()).then(|| members.into())
}

/// The fields that describe the client certificate.
fn add_client_fields(draft: &mut LocationDraft<'_, '_, '_>) {
    let Some(client) = draft.context.client else { return };
    let mut fields = vec![
        json!(["ssl-client-verify", "$ssl_client_verify"]),
        json!(["ssl-client-subject-dn", "$ssl_client_s_dn"]),
        json!(["ssl-client-issuer-dn", "$ssl_client_i_dn"]),
    ];
    if client.passes_certificate {
        fields.push(json!(["ssl-client-cert", "$ssl_client_escaped_cert"]));
    }
    for field in fields {
        draft.push_action("request_fields", "set", field);
    }
    draft.set_action("request_fields", "variables", true.into());
}

/// Plugins that the routes of an Ingress share, so that all its paths have one count; `None` without any.
pub(in super::super) fn plugin_set(parsed: &ParsedIngress, defaults: &ControllerSettings) -> Option<Value> {
    let mut plugins = Map::new();
    add_limits(&parsed.settings.limits, defaults, &mut plugins);
    add_blocks(defaults, &mut plugins);
    add_compression(defaults, &mut plugins);
    (!plugins.is_empty()).then(|| plugins.into())
}

fn add_limits(limits: &IngressLimits, defaults: &ControllerSettings, plugins: &mut Map<String, Value>) {
    let (rate_status, connections_status) = defaults.limit_statuses.unwrap_or(LIMIT_STATUSES);
    let exempt: Vec<&str> = limits.exempt.iter().map(|one| &**one).collect();
    let mut insert = |name: &str, mut value: Value| {
        if !exempt.is_empty() {
            value["_meta"] = json!({ "filter": [["remote_addr", "!", "ipmatch", exempt]] });
        }
        plugins.insert(name.to_owned(), value);
    };
    // Of two rates the lower one holds; the burst is a multiple of the number that is written.
    let rate = |number: u32, seconds: f64| (f64::from(number) / seconds, number);
    let rates = [
        limits.per_second.map(|number| rate(number, 1.0)),
        limits.per_minute.map(|number| rate(number, 60.0)),
    ];
    let lowest = rates.into_iter().flatten().min_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((per_second, number)) = lowest.filter(|(per_second, _)| *per_second > 0.0) {
        let burst = u64::from(number) * u64::from(limits.burst_multiplier);
        let value = json!({
            "rate": per_second,
            "burst": burst,
            "nodelay": true,
            "key_type": "var",
            "key": "remote_addr",
            "rejected_code": rate_status,
        });
        insert("limit-req", value);
    }
    if let Some(connections) = limits.connections.filter(|connections| *connections > 0) {
        let value = json!({
            "conn": connections,
            "burst": 0,
            "default_conn_delay": 0.1,
            "key_type": "var",
            "key": "remote_addr",
            "rejected_code": connections_status,
        });
        insert("limit-conn", value);
    }
}

/// Clients that the controller refuses.
fn add_blocks(defaults: &ControllerSettings, plugins: &mut Map<String, Value>) {
    let blocked = &defaults.blocked;
    let texts = |list: &[Arc<str>]| list.iter().map(|one| Value::from(&**one)).collect::<Value>();
    if !blocked.networks.is_empty() {
        plugins.insert("ip-restriction".to_owned(), json!({ "blacklist": texts(&blocked.networks) }));
    }
    if !blocked.user_agents.is_empty() {
        let patterns: Value = blocked.user_agents.iter().map(|one| Value::from(pattern_of(one))).collect();
        plugins.insert("ua-restriction".to_owned(), json!({ "denylist": patterns, "bypass_missing": true }));
    }
    if !blocked.referers.is_empty() {
        // NGINX compares the whole field, not its host.
        let rule = |entry: &Arc<str>| json!([["http_referer", "~~", pattern_of(entry)]]);
        let rules: Value = blocked.referers.iter().map(rule).collect();
        plugins
            .insert("fault-injection".to_owned(), json!({ "abort": { "http_status": 403, "vars": rules } }));
    }
}

/// A regular expression from an entry of NGINX's map, which compares texts without case.
fn pattern_of(entry: &str) -> String {
    if let Some(pattern) = entry.strip_prefix("~*") {
        return format!("(?i){pattern}");
    }
    if let Some(pattern) = entry.strip_prefix('~') {
        return pattern.to_owned();
    }
    let escaped: String = entry
        .chars()
        .flat_map(|one| {
            let is_plain = one.is_ascii_alphanumeric() || one == ' ' || !one.is_ascii();
            (!is_plain).then_some('\\').into_iter().chain([one])
        })
        .collect();
    format!("(?i)^{escaped}$")
}

fn add_compression(defaults: &ControllerSettings, plugins: &mut Map<String, Value>) {
    let all = [("gzip", &defaults.gzip), ("brotli", &defaults.brotli)];
    for (name, compression) in all {
        let Some(compression) = compression else { continue };
        let types: Value = compression.types.iter().map(|one| Value::from(&**one)).collect();
        let mut value =
            json!({ "comp_level": compression.level, "min_length": compression.bytes_min.max(1) });
        if types.as_array().is_some_and(|types| !types.is_empty()) {
            value["types"] = types;
        }
        plugins.insert(name.to_owned(), value);
    }
}
