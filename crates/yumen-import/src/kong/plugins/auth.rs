//! Plugins that tell who a client is, and who may pass.

use serde_json::{Value, json};

use super::{Ours, PluginJob};

/// Plugins after which a request belongs to a consumer.
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

/// Nobody can be called this: what stands in a list that would be empty.
const NOBODY: &str = "(nobody)";

/// What all of them have: credentials hidden, an anonymous consumer, a realm, requests before the request.
fn common(job: &mut PluginJob<'_>) -> Value {
    let mut out = json!({});
    if job.flag("hide_credentials", false) {
        out["hide_credentials"] = json!(true);
    }
    if let Some(realm) = job.text("realm") {
        out["realm"] = json!(realm);
    }
    if let Some(anonymous) = job.text("anonymous").filter(|anonymous| !anonymous.is_empty()) {
        match job.people.username(&json!(anonymous)) {
            Some(username) => out["anonymous_consumer"] = json!(username),
            None => job.dropped("anonymous", format!("there is no consumer {anonymous}")),
        }
        if job.place.authentications > 1 {
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

/// The first of several names; the others go to the report.
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

pub(super) fn key_auth(job: &mut PluginJob<'_>) -> Ours {
    let mut out = common(job);
    let name = only_name(job, "key_names", Some("apikey")).unwrap_or_default();
    if name != "apikey" {
        out["header"] = json!(name);
        out["query"] = json!(name);
    }
    for (field, place) in [("key_in_header", "header field"), ("key_in_query", "query argument")] {
        if !job.flag(field, true) {
            job.different(field, format!("a {place} is looked at too"), "neither place can be switched off");
        }
    }
    if job.flag("key_in_body", false) {
        job.dropped("key_in_body", "bodies are not searched for keys");
    }
    vec![("key-auth", out)]
}

pub(super) fn basic_auth(job: &mut PluginJob<'_>) -> Ours {
    vec![("basic-auth", common(job))]
}

pub(super) fn jwt(job: &mut PluginJob<'_>) -> Ours {
    let mut out = common(job);
    for (ours, theirs, default) in [
        ("header", "header_names", Some("authorization")),
        ("query", "uri_param_names", Some("jwt")),
        ("cookie", "cookie_names", None),
    ] {
        if let Some(name) = only_name(job, theirs, default) {
            out[ours] = json!(name);
        }
    }
    // Kong looks for the key under another name than the plugin here does by default.
    out["key_claim_name"] = json!(job.text("key_claim_name").unwrap_or_else(|| "iss".into()));
    let claims = job.texts("claims_to_verify");
    if !claims.is_empty() {
        out["claims_to_verify"] = json!(claims);
    }
    job.skip("secret_is_base64", json!(false), "say so in each consumer's credential");
    job.skip("maximum_expiration", json!(0), "how far ahead a token expires is not limited");
    vec![("jwt-auth", out)]
}

pub(super) fn hmac_auth(job: &mut PluginJob<'_>) -> Ours {
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
    vec![("hmac-auth", out)]
}

pub(super) fn ldap_auth(job: &mut PluginJob<'_>) -> Ours {
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
    vec![("ldap-auth", out)]
}

/// Groups are known when the file is read, so the plugin here gets the names of their members.
pub(super) fn acl(job: &mut PluginJob<'_>) -> Ours {
    let by_consumer_group = job.flag("include_consumer_groups", false);
    job.skip("hide_groups_header", json!(false), "no field tells the upstream the groups");
    job.skip("always_use_authenticated_groups", json!(false), "groups come from consumers alone");
    let mut lists = ["allow", "deny"].map(|field| {
        let mut groups = job.texts(field);
        // Before 2.0 the lists had other names.
        groups.extend(job.texts(if field == "allow" { "whitelist" } else { "blacklist" }));
        (!groups.is_empty()).then(|| job.people.members(&groups, by_consumer_group))
    });
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
    vec![("consumer-restriction", out)]
}
