//! Plugins of Kong Enterprise that ask an identity provider, a directory or a policy server.

use serde_json::{Map, Value, json};

use super::{ConvertedPlugins, PluginJob};

/// The first of several values; the others are reported.
fn first_of(job: &mut PluginJob<'_>, field: &str) -> Option<String> {
    let values = job.texts(field);
    if values.len() > 1 {
        job.different(
            field,
            format!("only the first of {} values is used", values.len()),
            "one can be given here",
        );
    }
    values.into_iter().next()
}

/// A condition on claims that is not converted: tokens would pass that Kong refuses.
fn lose(job: &mut PluginJob<'_>, field: &str, why: &str) {
    job.dropped(field, why);
    job.loses_guard = true;
}

/// The ways in which clients of `openid-connect` identify themselves.
struct AuthMethods {
    logs_in: bool,
    bearer: Option<BearerWay>,
}

/// The way in which bearer tokens are verified.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BearerWay {
    KeySet,
    Introspection,
}

impl AuthMethods {
    fn take(job: &mut PluginJob<'_>) -> AuthMethods {
        let written = job.texts("auth_methods");
        let has = |name: &str| written.is_empty() || written.iter().any(|method| method == name);
        let bearer = match (has("bearer"), has("introspection")) {
            (true, _) => Some(BearerWay::KeySet),
            (false, true) => Some(BearerWay::Introspection),
            (false, false) => None,
        };
        let (logs_in, has_both) = (has("authorization_code"), has("bearer") && has("introspection"));
        let others = ["client_credentials", "kong_oauth2", "password", "refresh_token", "userinfo"];
        let others: Vec<&str> = others.into_iter().filter(|name| has(name)).collect();
        if !others.is_empty() {
            let instead = format!("clients are refused that use {}", others.join(", "));
            job.different("auth_methods", instead, "users log in by codes, programs by bearer tokens");
        }
        if has_both {
            let instead = "bearer tokens are verified by the key set of the provider";
            job.different("auth_methods", instead, "opaque tokens need introspection alone");
        }
        AuthMethods { logs_in, bearer }
    }
}

/// A claim is one of these values, or a list with one of them.
fn has_one_of(values: &[String]) -> Value {
    json!({ "anyOf": [{ "enum": values }, { "type": "array", "contains": { "enum": values } }] })
}

/// The conditions on claims, as a JSON schema of the claims of bearer tokens.
fn claim_schema(job: &mut PluginJob<'_>, logs_in: bool) -> Option<Value> {
    let (mut required, mut properties) = (Vec::new(), Map::new());
    for (field, claim_field, default) in [
        ("audience_required", "audience_claim", "aud"),
        ("groups_required", "groups_claim", "groups"),
        ("roles_required", "roles_claim", "roles"),
    ] {
        let (values, claim) = (job.texts(field), job.texts(claim_field));
        if values.is_empty() {
            continue;
        }
        let is_simple = claim.len() <= 1 && !values.iter().any(|value| value.contains(' '));
        if logs_in || !is_simple {
            let why = "only single values of bearer tokens can be required, on routes without logins";
            lose(job, field, why);
            continue;
        }
        let claim = claim.into_iter().next().unwrap_or_else(|| default.to_owned());
        properties.insert(claim.clone(), has_one_of(&values));
        required.push(claim);
    }
    let forbidden = job.texts("claims_forbidden");
    if !forbidden.is_empty() && logs_in {
        lose(job, "claims_forbidden", "claims of sessions cannot be forbidden");
    }
    if logs_in || (required.is_empty() && forbidden.is_empty()) {
        return None;
    }
    let mut schema = json!({ "type": "object" });
    if !required.is_empty() {
        schema["required"] = json!(required);
        schema["properties"] = Value::Object(properties);
    }
    if !forbidden.is_empty() {
        let present: Vec<Value> = forbidden.iter().map(|claim| json!({ "required": [claim] })).collect();
        schema["not"] = json!({ "anyOf": present });
    }
    Some(schema)
}

/// The scopes that a token needs.
fn required_scopes(job: &mut PluginJob<'_>) -> Vec<String> {
    let (required, claim) = (job.texts("scopes_required"), job.texts("scopes_claim"));
    let is_usual_claim = claim.is_empty() || claim == ["scope"];
    match required.as_slice() {
        [] => Vec::new(),
        [all] if is_usual_claim => {
            all.split(' ').filter(|scope| !scope.is_empty()).map(str::to_owned).collect()
        }
        _ => {
            lose(
                job,
                "scopes_required",
                "alternatives, and scopes in another claim, cannot be required here",
            );
            Vec::new()
        }
    }
}

/// The session of users, for `session`.
fn session(job: &mut PluginJob<'_>) -> Value {
    let secret = job.text("session_secret").filter(|secret| secret.len() >= 16);
    let secret = secret.unwrap_or_else(|| {
        let instead = "the secret is that of the environment variable OPENID_SESSION_SECRET";
        job.different("session_secret", instead, "all nodes need the same secret, of at least 16 characters");
        "$env://OPENID_SESSION_SECRET".to_owned()
    });
    let mut out = json!({ "secret": secret });
    for (field, setting) in [
        ("session_cookie_name", "cookie_name"),
        ("session_cookie_domain", "cookie_domain"),
        ("session_cookie_path", "cookie_path"),
        ("session_cookie_same_site", "cookie_same_site"),
    ] {
        if let Some(text) = job.text(field) {
            out[setting] = json!(text);
        }
    }
    for (field, setting) in
        [("session_cookie_secure", "cookie_secure"), ("session_cookie_http_only", "cookie_http_only")]
    {
        if job.settings.peek(field).is_some() {
            out[setting] = json!(job.flag(field, true));
        }
    }
    for (field, setting) in [
        ("session_idling_timeout", "idling_timeout"),
        ("session_rolling_timeout", "rolling_timeout"),
        ("session_absolute_timeout", "absolute_timeout"),
    ] {
        if let Some(seconds) = job.count(field) {
            out[setting] = json!(seconds);
        }
    }
    let redis = job.settings.child("redis", job.report);
    match (job.text("session_storage").as_deref(), redis) {
        (Some("redis"), Some(mut redis)) => {
            let mut server =
                json!({ "host": redis.text("host", job.report).unwrap_or_else(|| "127.0.0.1".into()) });
            for (field, setting) in [("port", "port"), ("database", "database")] {
                if let Some(number) = redis.count(field, job.report) {
                    server[setting] = json!(number);
                }
            }
            for (field, setting) in [("username", "username"), ("password", "password"), ("prefix", "prefix")]
            {
                if let Some(text) = redis.text(field, job.report) {
                    server[setting] = json!(text);
                }
            }
            if redis.flag("ssl", job.report).unwrap_or(false) {
                server["ssl"] = json!(true);
                server["ssl_verify"] = json!(redis.flag("ssl_verify", job.report).unwrap_or(false));
            }
            redis.finish(job.report);
            out["storage"] = json!("redis");
            out["redis"] = server;
        }
        (None | Some("cookie"), _) => {}
        (Some(other), _) => {
            job.different(
                "session_storage",
                "sessions are in cookies",
                format!("{other} holds no sessions here"),
            );
        }
    }
    out
}

/// The fields for the upstream.
fn forwarded_fields(job: &mut PluginJob<'_>, out: &mut Value) {
    // An absent field has Kong's default, a null one is off.
    let is_off = job.settings.is_null("upstream_access_token_header");
    let access = job.text("upstream_access_token_header").unwrap_or_else(|| "authorization:bearer".into());
    match access.as_str() {
        _ if is_off => out["set_access_token_header"] = json!(false),
        "authorization:bearer" => out["access_token_in_authorization_header"] = json!(true),
        _ => {
            let why = "the name of the field is fixed";
            job.different("upstream_access_token_header", "the upstream gets X-Access-Token", why);
        }
    }
    for (field, setting, name) in [
        ("upstream_id_token_header", "set_raw_id_token_header", "X-Raw-ID-Token"),
        ("upstream_user_info_header", "set_userinfo_header", "X-Userinfo"),
        ("upstream_refresh_token_header", "set_refresh_token_header", "X-Refresh-Token"),
    ] {
        let written = job.text(field);
        out[setting] = json!(written.is_some());
        if written.is_some() {
            job.different(field, format!("the upstream gets {name}"), "the name of the field is fixed");
        }
    }
    out["set_id_token_header"] = json!(false);
}

/// Connection to the provider and authentication at it.
fn provider(job: &mut PluginJob<'_>, out: &mut Value) {
    const DOCUMENT: &str = "/.well-known/openid-configuration";
    let issuer = job.text("issuer").unwrap_or_default();
    let begin = issuer.trim_end_matches('/');
    out["discovery"] =
        json!(if begin.ends_with(DOCUMENT) { begin.to_owned() } else { format!("{begin}{DOCUMENT}") });
    out["client_id"] = json!(first_of(job, "client_id").unwrap_or_default());
    if let Some(secret) = first_of(job, "client_secret") {
        out["client_secret"] = json!(secret);
    }
    for (field, setting) in [
        ("client_auth", "token_endpoint_auth_method"),
        ("introspection_endpoint_auth_method", "introspection_endpoint_auth_method"),
    ] {
        match first_of(job, field) {
            Some(method) if method.starts_with("client_secret_") => out[setting] = json!(method),
            Some(method) => job.dropped(field, format!("{method} needs settings that are not converted")),
            None => {}
        }
    }
    for field in ["introspection_endpoint", "realm"] {
        if let Some(text) = job.text(field) {
            out[field] = json!(text);
        }
    }
    if job.settings.peek("ssl_verify").is_some() {
        out["ssl_verify"] = json!(job.flag("ssl_verify", true));
    }
    if let Some(ms) = job.count("timeout") {
        out["timeout"] = json!(ms.div_ceil(1000).clamp(1, 999));
    }
    if let Some(seconds) = job.count("leeway") {
        out["iat_slack"] = json!(seconds);
    }
    let mut proxy = Map::new();
    for field in
        ["http_proxy", "http_proxy_authorization", "https_proxy", "https_proxy_authorization", "no_proxy"]
    {
        if let Some(text) = job.text(field) {
            proxy.insert(field.to_owned(), json!(text));
        }
    }
    if !proxy.is_empty() {
        out["proxy_opts"] = Value::Object(proxy);
    }
}

/// Consumers are not assigned by claims.
fn refuse_consumers(job: &mut PluginJob<'_>) {
    let claim = job.texts("consumer_claim");
    let is_optional = job.flag("consumer_optional", false);
    job.skip("consumer_by", json!(["username", "custom_id"]), "consumers are not assigned by claims");
    job.skip("by_username_ignore_case", json!(false), "consumers are not assigned by claims");
    match (claim.is_empty(), is_optional) {
        (true, _) => {}
        (false, true) => {
            job.different("consumer_claim", "requests have no consumer", "claims assign none here")
        }
        (false, false) => {
            lose(job, "consumer_claim", "Kong refuses users without a consumer; claims assign none here")
        }
    }
    if job.text("anonymous").is_some_and(|name| !name.is_empty()) {
        job.dropped("anonymous", "requests without valid credentials are refused");
    }
}

pub(super) fn openid_connect(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let methods = AuthMethods::take(job);
    if !methods.logs_in && methods.bearer.is_none() {
        return without_counterpart(job, "none of its auth_methods is supported");
    }
    let mut out = json!({});
    provider(job, &mut out);
    refuse_consumers(job);
    let scopes = job.texts("scopes");
    if !scopes.is_empty() {
        out["scope"] = json!(scopes.join(" "));
    }
    let required = required_scopes(job);
    if !required.is_empty() {
        out["required_scopes"] = json!(required);
    }
    if let Some(schema) = claim_schema(job, methods.logs_in) {
        out["claim_schema"] = schema;
    }
    let issuers = job.texts("issuers_allowed");
    if !issuers.is_empty() {
        out["claim_validator"] = json!({ "issuer": { "valid_issuers": issuers } });
    }
    if methods.bearer == Some(BearerWay::KeySet) {
        out["use_jwks"] = json!(true);
    }
    if methods.bearer.is_some() {
        let why = "tokens in the query would be in logs";
        job.different("bearer_token_param_type", "bearer tokens are read from Authorization", why);
        job.texts("bearer_token_param_type");
    }
    match methods.logs_in {
        true => log_in(job, &mut out),
        false => out["bearer_only"] = json!(true),
    }
    for field in [
        "cache_introspection",
        "cache_tokens",
        "cache_user_info",
        "cache_ttl",
        "cache_ttl_max",
        "cache_ttl_min",
    ] {
        job.skip(field, json!(true), "results are kept until the end of the token");
    }
    forwarded_fields(job, &mut out);
    super::one("openid-connect", out)
}

/// Settings of logins.
fn log_in(job: &mut PluginJob<'_>, out: &mut Value) {
    out["session"] = session(job);
    for (field, setting) in
        [("redirect_uri", "redirect_uri"), ("logout_redirect_uri", "post_logout_redirect_uri")]
    {
        if let Some(url) = first_of(job, field) {
            out[setting] = json!(url);
        }
    }
    for (field, setting) in
        [("require_proof_key_for_code_exchange", "use_pkce"), ("logout_revoke", "revoke_tokens_on_logout")]
    {
        if job.flag(field, false) {
            out[setting] = json!(true);
        }
    }
    if job.flag("require_pushed_authorization_requests", false) {
        out["par"] = json!({ "enabled": true });
    }
    if let Some(suffix) = job.text("logout_uri_suffix") {
        out["logout_path"] = json!(suffix);
        job.different("logout_uri_suffix", "it is the whole path of the logout", "suffixes are not compared");
    }
}

/// The policies of Kong read another document, so the route stays closed until they are changed.
pub(super) fn opa(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let protocol = job.text("opa_protocol").unwrap_or_else(|| "http".into());
    let host = job.text("opa_host").unwrap_or_else(|| "localhost".into());
    let port = job.count("opa_port").unwrap_or(8181);
    let path = job.text("opa_path").unwrap_or_default();
    let Some(policy) = path.trim_start_matches('/').strip_prefix("v1/data/") else {
        lose(job, "opa_path", "the path of a policy begins with /v1/data/");
        return Vec::new();
    };
    let mut out = json!({ "host": format!("{protocol}://{host}:{port}"), "policy": policy });
    for (field, setting) in [
        ("include_route_in_opa_input", "with_route"),
        ("include_service_in_opa_input", "with_service"),
        ("include_consumer_in_opa_input", "with_consumer"),
    ] {
        if job.flag(field, false) {
            out[setting] = json!(true);
        }
    }
    if job.settings.peek("ssl_verify").is_some() {
        out["ssl_verify"] = json!(job.flag("ssl_verify", true));
    }
    for field in [
        "include_body_in_opa_input",
        "include_parsed_json_body_in_opa_input",
        "include_uri_captures_in_opa_input",
    ] {
        if job.flag(field, false) {
            job.dropped(field, "the policy does not get it");
        }
    }
    // A rule that denies by a member that is missing here would not hold.
    let why = "Kong sends input.request.http: change the policy, then open the route";
    job.different("", "the policy gets input.request", why);
    job.loses_guard = true;
    super::one("opa", out)
}

/// Kong's advanced plugin searches the entry of a user, as the gateway does.
pub(super) fn ldap_auth_advanced(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let search: Vec<(&str, Option<String>)> =
        ["bind_dn", "ldap_password"].into_iter().map(|field| (field, job.text(field))).collect();
    if !job.texts("groups_required").is_empty() {
        lose(job, "groups_required", "groups of the directory are not compared");
    }
    for field in ["group_base_dn", "group_name_attribute", "group_member_attribute", "log_search_results"] {
        job.skip(field, Value::Null, "groups of the directory are not read");
    }
    job.skip("consumer_by", json!(["username", "custom_id"]), "consumers name their entry by user_dn");
    if !job.flag("consumer_optional", false) {
        lose(job, "consumer_optional", "Kong refuses users without a consumer of this name");
    }
    let mut plugins = super::auth::directory(job);
    for plugin in &mut plugins {
        for (field, text) in &search {
            if let Some(text) = text {
                plugin.settings[*field] = json!(text);
            }
        }
    }
    plugins
}

/// A plugin whose counterpart needs settings that Kong does not have.
pub(super) fn without_counterpart(job: &mut PluginJob<'_>, why: &str) -> ConvertedPlugins {
    lose(job, "", why);
    job.settings.drain();
    Vec::new()
}
