//! Schemas, and validation without writing, over the router.

use serde_json::{Value, json};

use crate::contract_router;
use crate::testing::{call, state};

async fn check(method: &str, path: &str, body: &str, status: u16, expected: Value) {
    let router = contract_router().with_state(state());
    let answer = call(&router, method, path, &[], body).await;
    let mut found = answer.json();
    // Remedies are beside the message of the contract.
    found.as_object_mut().map(|members| members.remove("hint"));
    assert_eq!((answer.status.as_u16(), found), (status, expected), "{method} {path} {body}");
}

#[tokio::test]
async fn every_kind_has_a_schema_and_nothing_else_has() {
    let router = contract_router().with_state(state());
    let names = "route service upstream consumer credential consumer_group plugin_config global_rule \
                 plugin_metadata ssl proto stream_route secret plugins";
    for name in names.split_whitespace() {
        let answer = call(&router, "GET", &format!("/apisix/admin/schema/{name}"), &[], "").await;
        assert_eq!((answer.status.as_u16(), &answer.json()["type"]), (200, &json!("object")), "{name}");
        assert!(answer.text.ends_with("}\n"), "{name}");
    }
    check(
        "GET",
        "/apisix/admin/schema/nonesuch",
        "",
        400,
        json!({ "error_msg": "not found schema: nonesuch" }),
    )
    .await;
}

#[tokio::test]
async fn plugin_schemas_differ_by_type() {
    let router = contract_router().with_state(state());
    let table = [
        ("key-auth", "", "header", true),
        ("key-auth", "?schema_type=consumer", "key", false),
        ("cors", "?schema_type=metadata", "allow_origins", false),
        ("openid-connect", "", "_meta", true),
        ("http-logger", "?schema_type=metadata", "log_format", false),
        ("ldap-auth", "?schema_type=consumer", "user_dn", false),
        ("mqtt-proxy", "?subsystem=stream", "protocol_level", true),
        ("syslog", "?subsystem=stream", "_meta", true),
    ];
    for (name, query, property, has_meta) in table {
        let path = format!("/apisix/admin/schema/plugins/{name}{query}");
        let schema = call(&router, "GET", &path, &[], "").await.json();
        assert!(schema["properties"][property].is_object(), "{path}: {schema}");
        assert_eq!(schema["properties"]["_meta"].is_object(), has_meta, "{path}");
    }
    let absent = json!({ "error_msg": "plugin not found in subsystem http" });
    for name in ["nonesuch", "mqtt-proxy"] {
        check("GET", &format!("/apisix/admin/schema/plugins/{name}"), "", 404, absent.clone()).await;
    }
    for path in ["cors?schema_type=consumer", "key-auth?schema_type=metadata"] {
        let path = format!("/apisix/admin/schema/plugins/{path}");
        check("GET", &path, "", 400, json!({ "error_msg": "not found schema" })).await;
    }
}

#[tokio::test]
async fn an_object_is_judged_without_being_written() {
    let at = |name: &str| format!("/apisix/admin/schema/validate/{name}");
    let needs = "allOf 1 failed: value should match only one schema, but matches none";
    check("POST", &at("routes"), r#"{"uri":"/","plugins":{}}"#, 200, json!({})).await;
    check("POST", &at("routes"), r#"{"plugins":{}}"#, 400, json!({ "error_msg": needs })).await;
    check("POST", &at("things"), "{}", 404, json!({ "error_msg": "Unsupported resource type: things" }))
        .await;
    let router = contract_router().with_state(state());
    let answer = call(&router, "POST", &at("routes"), &[], "{").await;
    assert_eq!(answer.status.as_u16(), 400);
    assert!(answer.text.starts_with("{\"error_msg\":\"invalid request body: "), "{}", answer.text);
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_in_the_shape_of_the_api() {
    let router = contract_router().with_state(state());
    let large = " ".repeat(3 * 1024 * 1024);
    let answer = call(&router, "POST", "/apisix/admin/schema/validate/routes", &[], &large).await;
    let message = "invalid request body: Failed to buffer the request body: length limit exceeded";
    assert_eq!((answer.status.as_u16(), &answer.json()["error_msg"]), (413, &json!(message)));
}

#[tokio::test]
async fn object_nested_too_deeply_is_invalid() {
    let nested = format!("{}0{}", r#"{"a":"#.repeat(99), "}".repeat(99));
    let body = format!(r#"{{"uri":"/a","plugins":{{"cors":{nested}}}}}"#);
    let expected = json!({ "error_msg": "it is nested deeper than 100 levels" });
    check("POST", "/apisix/admin/schema/validate/routes", &body, 400, expected).await;
}
