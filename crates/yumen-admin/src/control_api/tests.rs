//! The control API over its router.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{ControlState, router};
use crate::contract_router;
use crate::testing::{call, state};

async fn served() -> axum::Router {
    let admin = state();
    let document = json!({
        "routes": [{ "id": "r1", "uri": "/a", "plugins": {
            "saml-auth": { "client_id": "me", "client_secret": "hush", "nested": [{ "token": "hush" }] },
            "limit-count": { "count": 1, "time_window": 60, "key": "remote_addr" } } }],
        "services": [{ "id": "s1", "upstream": { "nodes": { "a.example:80": 1 }, "checks": { "active": {} } } }],
        "upstreams": [{ "id": "u1", "nodes": { "127.0.0.1:80": 1 }, "type": "chash", "key": "remote_addr",
            "tls": { "client_cert": "c".repeat(128), "client_key": "hush".repeat(40) } }],
        "plugin_metadata": [{ "id": "datadog", "host": "h", "api_key": "hush" }],
        "consumers": [{ "username": "jack", "plugins": { "key-auth": { "key": "hush" } } }],
    });
    let put = [("x-digest", "d")];
    let written = contract_router().with_state(admin.clone());
    let answer = call(&written, "PUT", "/apisix/admin/configs", &put, &document.to_string()).await;
    assert_eq!(answer.status.as_u16(), 202, "{}", answer.text);
    let health = json!([{ "name": "/apisix/upstreams/u1", "type": "http", "nodes": [{
        "ip": "127.0.0.1", "port": 80, "hostname": "<b>", "status": "healthy<",
        "counter": { "success": 1, "http_failure": 2, "tcp_failure": 3, "timeout_failure": 4 } }] }]);
    let discovery = |source: Option<&str>| match source {
        None => Some(json!({ "services": ["all"] })),
        Some("consul") => Some(json!({ "services": {} })),
        Some(_) => None,
    };
    router(ControlState { admin, health: Arc::new(move || health.clone()), discovery: Arc::new(discovery) })
}

#[tokio::test]
async fn services_are_shown_all_or_by_the_source_they_come_from() {
    let router = served().await;
    for (path, status, expected) in [
        ("/yumen/v1/discovery", 200, json!({ "services": ["all"] })),
        ("/v1/discovery/consul/dump", 200, json!({ "services": {} })),
        ("/v1/discovery/eureka/dump", 404, json!({ "error_msg": "discovery[eureka] not found" })),
    ] {
        let answer = call(&router, "GET", path, &[], "").await;
        assert_eq!((answer.status.as_u16(), answer.json()), (status, expected), "{path}");
    }
}

#[tokio::test]
async fn resources_are_shown_with_their_revisions() {
    let router = served().await;
    let one = call(&router, "GET", "/v1/route/r1", &[], "").await.json();
    assert_eq!((&one["key"], &one["value"]["uri"]), (&json!("/apisix/routes/r1"), &json!("/a")));
    assert_eq!(
        (&one["createdIndex"], &one["modifiedIndex"], &one["has_domain"]),
        (&json!(1), &json!(1), &json!(false))
    );
    let service = call(&router, "GET", "/v1/service/s1", &[], "").await.json();
    assert_eq!(service["has_domain"], json!(true));
    for (path, count) in [("routes", 1), ("services", 1), ("upstreams", 1), ("plugin_metadatas", 1)] {
        let all = call(&router, "GET", &format!("/v1/{path}"), &[], "").await.json();
        assert_eq!(all.as_array().map(Vec::len), Some(count), "{path}");
    }
    let missing = [
        ("/v1/route/x", "route[x] not found"),
        ("/v1/upstream/x", "upstream[x] not found"),
        ("/v1/plugin_metadata/x", "plugin metadata[x] not found"),
        ("/v1/consumers", "not found"),
        ("/v1/consumer/jack", "not found"),
        ("/other", "not found"),
    ];
    for (path, message) in missing {
        let answer = call(&router, "GET", path, &[], "").await;
        assert_eq!((answer.status.as_u16(), answer.json()), (404, json!({ "error_msg": message })), "{path}");
    }
}

#[tokio::test]
async fn secrets_are_redacted_and_other_fields_stay() {
    let router = served().await;
    let paths = ["routes", "services", "upstreams", "plugin_metadatas", "route/r1", "upstream/u1", "schema"];
    for path in paths {
        let answer = call(&router, "GET", &format!("/v1/{path}"), &[], "").await;
        assert_eq!(answer.status.as_u16(), 200, "{path}");
        assert!(!answer.text.contains("hush"), "{path}: {}", answer.text);
    }
    let route = call(&router, "GET", "/v1/route/r1", &[], "").await.json();
    let plugins = &route["value"]["plugins"];
    assert_eq!(
        (&plugins["limit-count"]["key"], &plugins["saml-auth"]["client_id"]),
        (&json!("remote_addr"), &json!("me"))
    );
    let upstream = call(&router, "GET", "/v1/upstream/u1", &[], "").await.json();
    assert_eq!(
        (&upstream["value"]["key"], &upstream["value"]["tls"]["client_key"]),
        (&json!("remote_addr"), &json!("******"))
    );
}

/// Checks the form of a plugin's settings in responses.
fn check_plugin(name: &str, written: Value, shown: &Value) {
    let mut route = json!({ "plugins": { name: written } });
    crate::secrets::redact(route.as_object_mut().unwrap());
    assert_eq!(route["plugins"][name], *shown, "{name}");
}

#[test]
fn secrets_are_found_by_name_in_addresses_and_among_fields() {
    for (name, written, shown) in [
        (
            "http-logger",
            json!({ "auth_header": "Basic a", "uri": "http://u:pw@h:1/p?a=b@c", "log_format": { "a": "$host" } }),
            json!({ "auth_header": "******", "uri": "http://u:******@h:1/p?a=b@c", "log_format": { "a": "$host" } }),
        ),
        (
            "loki-logger",
            json!({ "headers": { "X-Scope-OrgID": "o", "X-Any": "v" }, "log_labels": { "job": "j" } }),
            json!({ "headers": { "X-Scope-OrgID": "******", "X-Any": "******" }, "log_labels": { "job": "j" } }),
        ),
        (
            "proxy-rewrite",
            json!({ "uri": "/a", "headers": { "set": { "X-Api-Key": "k", "X-Env": "test" }, "remove": ["X-Token"] } }),
            json!({ "uri": "/a", "headers": {
                "set": { "X-Api-Key": "******", "X-Env": "test" }, "remove": ["X-Token"] } }),
        ),
        (
            "response-rewrite",
            json!({ "headers": { "add": ["X-Token: t", "X-Env: test"] } }),
            json!({ "headers": { "add": ["X-Token: ******", "X-Env: test"] } }),
        ),
        (
            "ai-proxy",
            json!({ "provider": "p", "auth": { "header": { "X-Any": "v" }, "query": { "k": "v" }, "username": "u" } }),
            json!({ "provider": "p", "auth": {
                "header": { "X-Any": "******" }, "query": { "k": "******" }, "username": "u" } }),
        ),
        (
            "any",
            json!({ "secret_id": "s", "access_key_id": "a", "role_id": "r", "request_headers": ["X-User"] }),
            json!({ "secret_id": "******", "access_key_id": "******", "role_id": "r", "request_headers": ["X-User"] }),
        ),
        (
            "addresses",
            json!({ "of": ["redis://:pw@a:1,redis://u:p@w@b:1", "https://token@c", "http://d/e@f", "u@g"] }),
            json!({ "of": ["redis://:******@a:1,redis://u:******@b:1", "https://******@c", "http://d/e@f", "u@g"] }),
        ),
    ] {
        check_plugin(name, written, &shown);
    }
}

#[test]
fn fields_of_checks_hide_what_lets_them_in() {
    let mut upstream =
        json!({ "checks": { "active": { "req_headers": ["Authorization: Basic a", "User-Agent: b"] } } });
    crate::secrets::redact(upstream.as_object_mut().unwrap());
    let shown = json!(["Authorization: ******", "User-Agent: b"]);
    assert_eq!(upstream["checks"]["active"]["req_headers"], shown);
}

#[tokio::test]
async fn health_is_listed_for_all_for_one_and_as_a_page() {
    let router = served().await;
    let table = [
        ("upstreams/u1", 200, ""),
        ("services/s1", 200, ""),
        ("routes/r1", 404, "no checker for routes[r1]"),
        ("routes/x", 404, "routes[x] not found"),
        ("stream_routes/x", 404, "stream_routes[x] not found"),
        ("things/x", 400, "invalid src type things"),
    ];
    for (path, status, message) in table {
        let answer = call(&router, "GET", &format!("/v1/healthcheck/{path}"), &[], "").await;
        let found = answer.json()["error_msg"].as_str().unwrap_or("").to_owned();
        assert_eq!((answer.status.as_u16(), found.as_str()), (status, message), "{path}");
    }
    let all: Value = call(&router, "GET", "/v1/healthcheck", &[], "").await.json();
    let one = call(&router, "GET", "/v1/healthcheck/upstreams/u1", &[], "").await.json();
    assert_eq!(all, json!([one]));
    let page = call(&router, "GET", "/v1/healthcheck", &[("accept", "text/html")], "").await;
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(page.text.contains("<td>healthy&lt;</td>") && page.text.contains("<td>127.0.0.1:80</td>"));
}

#[tokio::test]
async fn schemas_reload_and_collection_are_answered() {
    let router = served().await;
    let schema = call(&router, "GET", "/v1/schema", &[], "").await.json();
    assert!(schema["main"]["route"]["properties"]["uri"].is_object());
    assert!(
        schema["plugins"]["cors"]["schema"].is_object() && schema["stream_plugins"]["mqtt-proxy"].is_object()
    );
    assert_eq!(call(&router, "PUT", "/v1/plugins/reload", &[], "").await.text, "done");
    assert_eq!(call(&router, "POST", "/v1/gc", &[], "").await.status.as_u16(), 200);
}
