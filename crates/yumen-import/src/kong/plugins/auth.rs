//! Authentication plugins, and the restriction by group.

use serde_json::{Value, json};

use super::{ConvertedPlugins, PluginJob};

/// Plugins that assign a consumer to a request.
pub(super) const IDENTIFIES: [&str; 10] = [
    "key-auth",
    "key-auth-enc",
    "basic-auth",
    "jwt",
    "hmac-auth",
    "ldap-auth",
    "oauth2",
    "openid-connect",
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
    if let Some(anonymous) = job.text("anonymous").filter(|anonymous| !anonymous.is_empty()) {
        match job.consumers.username(&json!(anonymous)) {
            Some(username) => out["anonymous_consumer"] = json!(username),
            None => job.dropped("anonymous", format!("there is no consumer {anonymous}")),
        }
        if job.authentication.0 > 1 {
            let why = "Kong stops at the first plugin that identifies the client; here all run";
            job.different("anonymous", "a client is anonymous unless the last plugin identifies it", why);
        }
    }
    let why =
        "consumers are told by X-Consumer-Username, X-Consumer-Custom-ID and X-Credential-Identifier only";
    job.different(
        "",
        "a client's own X-Consumer-ID, X-Consumer-Groups and X-Anonymous-Consumer are passed on",
        why,
    );
    if !job.flag("run_on_preflight", true) {
        out["_meta"] = json!({ "filter": [["request_method", "~=", "OPTIONS"]] });
    }
    out
}

/// The first of several names; the others are reported.
fn only_name(job: &mut PluginJob<'_>, field: &str, default: Option<&str>) -> Option<String> {
    let mut names = job.texts(field);
    if names.is_empty() {
        names.extend(default.map(str::to_owned));
    }
    if names.len() > 1 {
        let instead = format!("only \"{}\" is looked at", names[0]);
        job.different(field, instead, "one name can be given here");
    }
    names.into_iter().next()
}

pub(super) fn key_auth(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let mut out = common(job);
    let name = only_name(job, "key_names", Some("apikey")).unwrap_or_default();
    if name != "apikey" {
        out["header"] = json!(name);
        out["query"] = json!(name);
    }
    for (field, location) in [("key_in_header", "header field"), ("key_in_query", "query argument")] {
        if !job.flag(field, true) {
            job.different(
                field,
                format!("a {location} is looked at too"),
                "neither place can be switched off",
            );
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
        ("header", "header_names", Some("authorization")),
        ("query", "uri_param_names", Some("jwt")),
        ("cookie", "cookie_names", None),
    ] {
        if let Some(name) = only_name(job, kong_field, default) {
            out[setting] = json!(name);
        }
    }
    // The default claim differs from that of `jwt-auth`.
    out["key_claim_name"] = json!(job.text("key_claim_name").unwrap_or_else(|| "iss".into()));
    let claims = job.texts("claims_to_verify");
    if !claims.is_empty() {
        out["claims_to_verify"] = json!(claims);
    }
    job.skip("secret_is_base64", json!(false), "say so in each consumer's credential");
    job.skip("maximum_expiration", json!(0), "how far ahead a token expires is not limited");
    super::one("jwt-auth", out)
}

pub(super) fn hmac_auth(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let mut out = common(job);
    if let Some(skew) = job.number("clock_skew") {
        out["clock_skew"] = json!(skew);
    }
    let algorithms = job.texts("algorithms");
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

pub(super) fn ldap_auth(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let mut out = common(job);
    let host = job.text("ldap_host").unwrap_or_default();
    let port = job.count("ldap_port").unwrap_or(389);
    out["ldap_uri"] = json!(format!("{host}:{port}"));
    out["base_dn"] = json!(job.text("base_dn").unwrap_or_default());
    out["uid"] = json!(job.text("attribute").unwrap_or_else(|| "cn".into()));
    out["use_tls"] = json!(job.flag("ldaps", false) || job.flag("start_tls", false));
    out["tls_verify"] = json!(job.flag("verify_ldap_host", false));
    for field in ["cache_ttl", "timeout", "keepalive", "header_type"] {
        job.skip(field, Value::Null, "setting not supported");
    }
    super::one("ldap-auth", out)
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
        (!groups.is_empty()).then(|| job.consumers.members(&groups, by_consumer_group))
    });
    // An empty list is no restriction; a name that no consumer has keeps its meaning.
    for list in lists.iter_mut().flatten().filter(|list| list.is_empty()) {
        list.push(NOBODY.to_owned());
    }
    let [allow, deny] = lists;
    if allow.is_none() && deny.is_none() {
        job.dropped("", "it names no group");
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
