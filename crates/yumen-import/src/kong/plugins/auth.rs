//! Authentication plugins, and the restriction by group.

use serde_json::{Value, json};

use super::{ConvertedPlugins, PluginJob};
use crate::report::dropped;

/// Plugins that assign a consumer to a request.
pub(super) const IDENTIFIES: [&str; 9] = [
    "key-auth",
    "key-auth-enc",
    "basic-auth",
    "jwt",
    "hmac-auth",
    "ldap-auth",
    "oauth2",
    "mtls-auth",
    "vault-auth",
];

/// An invalid consumer name, for a list that would be empty otherwise.
const NOBODY: &str = "(nobody)";

/// Settings of all authentication plugins: hidden credentials, anonymous consumer, realm, preflight requests.
fn common(job: &mut PluginJob<'_>) -> Value {
    let mut out = json!({});
    if job.flag("hide_credentials", false) {
        out["hide_credentials"] = json!(true);
    }
    if let Some(realm) = job.text("realm") {
        out["realm"] = json!(realm);
    }
    let mut conditions = Vec::new();
    if let Some(anonymous) = job.text("anonymous").filter(|anonymous| !anonymous.is_empty()) {
        match job.consumers.username(&json!(anonymous)) {
            Some(username) => {
                out["anonymous_consumer"] = json!(username);
                // Kong skips the plugin once another one has identified the client.
                if job.authentication.count > 1 {
                    let is_unknown = json!(["consumer_name", "==", null]);
                    // Kong compares credentials, and an anonymous client of any plugin has none.
                    let is_anonymous = match job.authentication.anonymous.as_slice() {
                        [one] => json!(["consumer_name", "==", one]),
                        many => json!(["consumer_name", "in", many]),
                    };
                    conditions.push(json!(["OR", is_unknown, is_anonymous]));
                    refuse_ambiguous(job, username);
                }
            }
            None => job.dropped("anonymous", format!("there is no consumer {anonymous}")),
        }
    }
    let why = "upstreams get X-Consumer-Username, X-Consumer-Custom-ID and X-Credential-Identifier only";
    job.different("", "X-Consumer-ID, X-Consumer-Groups and X-Anonymous-Consumer are removed", why);
    if !job.flag("run_on_preflight", true) {
        conditions.push(json!(["request_method", "~=", "OPTIONS"]));
    }
    if !conditions.is_empty() {
        out["_meta"] = json!({ "filter": conditions });
    }
    out
}

/// Refuses requests if a client with a credential cannot be distinguished from an anonymous one of another plugin.
fn refuse_ambiguous(job: &mut PluginJob<'_>, own: &str) {
    let mut others = job.authentication.anonymous.iter().filter(|name| *name != own);
    if let Some(name) = others.find(|name| job.consumers.has_credentials(name)) {
        let why = format!("{name} is anonymous for another plugin and also has credentials");
        job.report.add(dropped(job.label, "anonymous", "left out").why(why));
        job.loses_guard = true;
    }
}

/// The first of several names; the others are reported. An empty list turns the place off, which an empty name
/// expresses.
fn only_name(job: &mut PluginJob<'_>, field: &str, default: &str) -> String {
    let is_written = job.settings.peek(field).is_some();
    let names = job.texts(field);
    if names.len() > 1 {
        let instead = format!("only \"{}\" is looked at", names[0]);
        job.different(field, instead, "one name can be given here");
    }
    let absent = if is_written { "" } else { default };
    names.into_iter().next().unwrap_or_else(|| absent.to_owned())
}

pub(super) fn key_auth(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let mut out = common(job);
    let name = only_name(job, "key_names", "apikey");
    for (field, setting) in [("key_in_header", "header"), ("key_in_query", "query")] {
        let name = if job.flag(field, true) { name.as_str() } else { "" };
        // The default of both gateways.
        if name != "apikey" {
            out[setting] = json!(name);
        }
    }
    if job.flag("key_in_body", false) {
        job.dropped("key_in_body", "bodies are not searched for keys");
    }
    super::one("key-auth", out)
}

pub(super) fn basic_auth(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    super::one("basic-auth", common(job))
}

pub(super) fn jwt(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let mut out = common(job);
    for (setting, kong_field, default) in [
        ("header", "header_names", "authorization"),
        ("query", "uri_param_names", "jwt"),
        ("cookie", "cookie_names", ""),
    ] {
        out[setting] = json!(only_name(job, kong_field, default));
    }
    // The default claim differs from that of `jwt-auth`.
    out["key_claim_name"] = json!(job.text("key_claim_name").unwrap_or_else(|| "iss".into()));
    let claims = job.texts("claims_to_verify");
    if claims.is_empty() {
        // An expired token must not open a route, so this part is stricter than Kong.
        let why = "Kong accepts expired tokens without this setting";
        job.different("claims_to_verify", "exp and nbf are verified in tokens that have them", why);
    } else {
        out["claims_to_verify"] = json!(claims);
    }
    if job.flag("secret_is_base64", false) && job.consumers.secrets_in_base64 != Some(true) {
        let why = "the secrets are taken as text, as other jwt plugins of the file take them";
        job.dropped("secret_is_base64", why);
    }
    if let Some(seconds) = job.count("maximum_expiration").filter(|seconds| *seconds > 0) {
        out["maximum_expiration"] = json!(seconds.min(u64::from(u32::MAX)));
    }
    super::one("jwt-auth", out)
}

/// The algorithms of `hmac-auth`.
const HMAC_ALGORITHMS: [&str; 3] = ["hmac-sha1", "hmac-sha256", "hmac-sha512"];

pub(super) fn hmac_auth(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let mut out = common(job);
    if let Some(skew) = job.count("clock_skew").filter(|skew| *skew > 0) {
        out["clock_skew"] = json!(skew);
    }
    let (algorithms, others): (Vec<String>, Vec<String>) = job
        .texts("algorithms")
        .into_iter()
        .partition(|algorithm| HMAC_ALGORITHMS.contains(&algorithm.as_str()));
    if !others.is_empty() {
        job.dropped("algorithms", format!("signatures with {} are not verified here", others.join(", ")));
        // Without any algorithm the plugin would accept its default ones.
        job.loses_guard |= algorithms.is_empty();
    }
    if !algorithms.is_empty() {
        out["allowed_algorithms"] = json!(algorithms);
    }
    let signed = job.texts("enforce_headers");
    if !signed.is_empty() {
        out["signed_headers"] = json!(signed);
    }
    if job.flag("validate_request_body", false) {
        out["validate_request_body"] = json!(true);
    }
    job.different("", "clients sign with `Signature keyId=`", "Kong's field begins with `hmac username=`");
    super::one("hmac-auth", out)
}

/// Kong knows users of the directory without consumers, and so does `ldap-auth-advanced`.
pub(super) fn ldap_auth(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let plugins = directory(job);
    let why = "the gateway searches the entry of a user first; set bind_dn and ldap_password unless anonymous clients \
               may search";
    job.different("", "Kong builds the name of the entry from the user name", why);
    plugins
}

/// The settings that both plugins for directories have.
pub(super) fn directory(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let mut out = common(job);
    let host = job.text("ldap_host").unwrap_or_default();
    let port = job.count("ldap_port").unwrap_or(389);
    out["ldap_uri"] = json!(format!("{host}:{port}"));
    out["base_dn"] = json!(job.text("base_dn").unwrap_or_default());
    out["attribute"] = json!(job.text("attribute").unwrap_or_else(|| "cn".into()));
    out["consumer_required"] = json!(false);
    for (field, member) in [("ldaps", "use_ldaps"), ("start_tls", "use_starttls")] {
        if job.flag(field, false) {
            out[member] = json!(true);
        }
    }
    out["ssl_verify"] = json!(job.flag("verify_ldap_host", false));
    for (field, member) in [("timeout", "timeout"), ("keepalive", "keepalive_timeout")] {
        if let Some(ms) = job.count(field) {
            let least = if field == "keepalive" { 1000 } else { 1 };
            out[member] = json!(ms.clamp(least, 60_000));
        }
    }
    match job.text("header_type").as_deref() {
        None | Some("ldap") => {}
        Some("basic") => out["header_type"] = json!("basic"),
        Some(other) => {
            job.dropped("header_type", format!("the scheme {other} is not read; clients send `ldap`"))
        }
    }
    if let Some(members) = out.as_object_mut() {
        if members.remove("hide_credentials").is_some() {
            job.dropped("hide_credentials", "the upstream gets the Authorization field");
        }
        if members.remove("anonymous_consumer").is_some() {
            job.dropped("anonymous", "requests without valid credentials are refused");
        }
    }
    job.skip("cache_ttl", Value::Null, "each request asks the directory");
    super::one("ldap-auth-advanced", out)
}

/// Group members are known from the file, so the restriction lists their consumer names.
pub(super) fn acl(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let by_consumer_group = job.flag("include_consumer_groups", false);
    job.skip("hide_groups_header", json!(false), "no field tells the upstream the groups");
    job.skip("always_use_authenticated_groups", json!(false), "groups come from consumers alone");
    let mut lists = ["allow", "deny"].map(|field| {
        let mut groups = job.texts(field);
        // Before 2.0 the lists had other names.
        groups.extend(job.texts(if field == "allow" { "whitelist" } else { "blacklist" }));
        (!groups.is_empty()).then(|| job.consumers.members(&groups, by_consumer_group, field == "deny"))
    });
    // An empty list is no restriction; a name that no consumer has keeps its meaning.
    for list in lists.iter_mut().flatten().filter(|list| list.is_empty()) {
        list.push(NOBODY.to_owned());
    }
    let [allow, deny] = lists;
    if allow.is_none() && deny.is_none() {
        // Kong rejects such a plugin, so its list is misspelt or malformed.
        job.dropped("", "it names no group");
        job.loses_guard = true;
        return Vec::new();
    }
    let mut out = json!({ "rejected_msg": "You cannot consume this service" });
    if let Some(allow) = allow {
        out["whitelist"] = json!(allow);
    }
    if let Some(deny) = deny {
        out["blacklist"] = json!(deny);
    }
    super::one("consumer-restriction", out)
}
