//! Lists and descriptions of plugins, over the router.

use serde_json::json;

use crate::contract_router;
use crate::testing::{TestResponse, call, state};

async fn get(path: &str) -> TestResponse {
    call(&contract_router().with_state(state()), "GET", &format!("/apisix/admin/plugins{path}"), &[], "")
        .await
}

#[tokio::test]
async fn the_list_is_in_running_order_and_names_only_what_runs() {
    let state = state();
    let listed: Vec<String> = serde_json::from_value(get("/list").await.json()).unwrap();
    let priorities: Vec<i32> =
        listed.iter().map(|name| state.registry.get(name).unwrap().kind.priority).collect();
    assert!(priorities.is_sorted_by(|a, b| a >= b), "{listed:?} {priorities:?}");
    let http = state.registry.iter().filter(|one| one.kind.serves.http()).count();
    assert_eq!(listed.len(), http);
    let streams = json!(["ip-restriction", "limit-conn", "mqtt-proxy", "prometheus", "syslog"]);
    assert_eq!(get("/list?subsystem=stream").await.json(), streams);
}

#[tokio::test]
async fn all_plugins_are_described_for_the_editor() {
    let all = get("?all=true").await.json();
    let auth = &all["key-auth"];
    assert_eq!(
        (&auth["priority"], &auth["type"], &auth["version"]),
        (&json!(2500), &json!("auth"), &json!("0.1"))
    );
    assert!(auth["consumer_schema"]["properties"]["key"].is_object());
    assert!(auth["schema"]["properties"]["_meta"].is_object());
    assert!(all["cors"]["metadata_schema"].is_object() && all["cors"].get("type").is_none());
    let saml = &all["saml-auth"];
    assert_eq!(
        (&saml["inactive"], &saml["schema"]["type"], saml.get("type"), &saml["priority"]),
        (&json!(true), &json!("object"), None, &json!(2598))
    );
    assert_eq!(all["ldap-auth"]["consumer_schema"]["properties"]["user_dn"]["type"], "string");
    assert_eq!(all["file-logger"]["metadata_schema"]["properties"]["log_format"]["type"], "object");
    assert_eq!(all["opa"].get("metadata_schema"), None);
    let streams = get("?all=true&subsystem=stream").await.json();
    assert_eq!(streams["mqtt-proxy"]["schema"]["required"], json!(["protocol_level"]));
    assert_eq!(streams["traffic-split"]["inactive"], true);
    assert_eq!(streams["syslog"]["schema"]["required"], json!(["host", "port"]));
    assert!(streams.get("cors").is_none() && all.get("mqtt-proxy").is_none());
    assert_eq!(get("/cors?all=true").await.json(), all);
}

#[tokio::test]
async fn one_plugin_is_shown_or_missing() {
    let table = [
        ("/cors", 200, ""),
        ("/cors?subsystem=stream", 404, "plugin not found in subsystem stream"),
        ("/mqtt-proxy", 404, "plugin not found in subsystem http"),
        ("/mqtt-proxy?subsystem=stream", 200, ""),
        ("/limit-conn?subsystem=stream", 200, ""),
        ("/nonesuch", 404, "plugin not found in subsystem http"),
        ("/syslog?subsystem=stream", 200, ""),
        ("/http-logger?subsystem=stream", 404, "plugin not found in subsystem stream"),
        ("/cors?subsystem=mail", 400, "unsupported subsystem: mail"),
        ("/reload", 405, "please use PUT method to reload the plugins, GET method is not allowed."),
    ];
    for (path, status, message) in table {
        let answer = get(path).await;
        let found = answer.json()["error_msg"].as_str().unwrap_or("").to_owned();
        assert_eq!((answer.status.as_u16(), found.as_str()), (status, message), "{path}");
        assert_eq!(answer.headers.get("allow").is_some(), status == 405, "{path}");
    }
    let router = contract_router().with_state(state());
    let answer = call(&router, "PUT", "/apisix/admin/plugins/reload", &[], "").await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, "done"));
    let answer = call(&router, "DELETE", "/apisix/admin/plugins/list", &[], "").await;
    assert_eq!((answer.status.as_u16(), answer.json()), (404, json!({ "error_msg": "not found" })));
}
