//! Refusals of access rules and authorization requests.

use serde_json::{Value, json};

use crate::resource::{RouteSpec, decode_value};

/// Checks that a route with these actions is refused at a path within them; an empty text accepts it.
fn check(actions: Value, at: &str) {
    let route = json!({ "uri": "/*", "upstream_id": "u", "actions": actions });
    let refused = decode_value::<RouteSpec>(route).err();
    let path =
        refused.as_ref().map_or("", |error| error.path.strip_prefix("actions.").unwrap_or(&error.path));
    assert_eq!(path, at, "{actions}: {refused:?}");
}

#[test]
fn access_rules_that_cannot_take_effect_are_refused() {
    let file = json!({ "file": "a:b" });
    for (members, at) in [
        (json!({}), "access"),
        (json!({ "allow": ["10.0.0.0/8", "::1"], "deny": ["10.1.0.0/16"] }), ""),
        (json!({ "allow": ["10.0.0.0/40"] }), "access.allow[0]"),
        (json!({ "deny": ["::1", "host"] }), "access.deny[1]"),
        (json!({ "satisfy": "any", "allow": ["::1"] }), "access.satisfy"),
        (json!({ "satisfy": "any", "allow": ["::1"], "basic_auth_file": file }), ""),
        (json!({ "basic_auth_file": {} }), "access.basic_auth_file"),
        (json!({ "basic_auth_file": { "file": "a:b", "users": { "a": "b" } } }), "access.basic_auth_file"),
        (
            json!({ "basic_auth_file": { "users": { "a": "b" }, "realm": "a\"b" } }),
            "access.basic_auth_file.realm",
        ),
        (json!({ "client_certificate": { "required": true, "error_page": "https://a/" } }), ""),
        (json!({ "client_certificate": { "required": false } }), "access.client_certificate"),
        (
            json!({ "client_certificate": { "subject_pattern": "CN=a", "error_page": "/" } }),
            "access.client_certificate.error_page",
        ),
    ] {
        check(json!({ "access": members }), at);
    }
}

#[test]
fn authorization_requests_that_cannot_take_effect_are_refused() {
    for (members, at) in [
        (json!({ "nginx": { "url": "/auth?u=$request_uri" } }), ""),
        (json!({ "nginx": { "url": "auth" } }), "external_auth.nginx.url"),
        (json!({ "nginx": { "url": "/a b" } }), "external_auth.nginx.url"),
        (json!({ "nginx": { "url": "/", "fields": [["A b", ""]] } }), "external_auth.nginx.fields[0]"),
        (json!({ "nginx": { "url": "/" }, "protocol": "grpc" }), "external_auth.protocol"),
        (json!({ "nginx": { "url": "/" }, "path": "/a" }), "external_auth.path"),
        (
            json!({ "nginx": { "url": "/", "cache": { "key": "a", "durations": [] } } }),
            "external_auth.nginx.cache.durations",
        ),
    ] {
        let mut auth = json!({ "upstream_id": "a" });
        auth.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        check(json!({ "external_auth": auth }), at);
    }
}
