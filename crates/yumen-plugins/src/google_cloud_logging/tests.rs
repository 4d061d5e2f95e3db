use serde_json::{Value, json};

use crate::testing::PluginBench;

fn account() -> Value {
    json!({
        "client_email": "a@b.test", "private_key": "k", "project_id": "shop", "token_uri": "https://oauth.test/token",
    })
}

fn entries(settings: Value, request: &str) -> Value {
    let mut bench = PluginBench::new();
    bench.outcome.duration_us = 123_456;
    let plugin = bench.plugin("google-cloud-logging", settings);
    bench.run(&plugin, request);
    let mut requests = bench.sink_requests();
    let sent = requests.remove(0);
    assert_eq!((sent.method, sent.target.as_str()), ("POST", "/v2/entries:write"));
    serde_json::from_slice(&sent.body.concat()).expect("JSON")
}

#[test]
fn an_entry_has_the_request_in_the_form_of_the_service() {
    let settings = json!({ "auth_config": account(), "resource": {"type": "k8s", "labels": {"a": "b"}} });
    let found = entries(settings, "POST /a?b=1 HTTP/1.1\nX-Request-Id: r-1\nUser-Agent: \"curl\"\n\nabc");
    assert_eq!(found["partialSuccess"], false);
    let entry = &found["entries"][0];
    assert_eq!(entry["logName"], "projects/shop/logs/apisix.apache.org%2Flogs");
    assert_eq!(entry["labels"], json!({"source": "apache-apisix-google-cloud-logging"}));
    assert_eq!(entry["resource"], json!({"type": "k8s", "labels": {"a": "b"}}));
    assert_eq!(entry["insertId"], "r-1");
    assert_eq!(entry["timestamp"], "2023-11-14T22:13:20.123Z");
    assert_eq!(entry["jsonPayload"], json!({"route_id": "1", "service_id": "s1"}));
    let http = &entry["httpRequest"];
    assert_eq!((&http["requestMethod"], &http["status"]), (&json!("POST"), &json!(200)));
    assert_eq!((&http["latency"], &http["userAgent"]), (&json!("0.123s"), &json!("\"curl\"")));
    assert_eq!(http["requestUrl"], "http://test.com:9080/a?b=1");
    assert_eq!(http["remoteIp"], "127.0.0.1");
}

#[test]
fn a_format_of_the_user_is_the_payload() {
    let settings =
        json!({ "auth_config": account(), "log_id": "gate", "log_format": {"m": "$request_method"} });
    let found = entries(settings, "GET / HTTP/1.1");
    let entry = &found["entries"][0];
    assert_eq!(entry["jsonPayload"], json!({"m": "GET", "route_id": "1", "service_id": "s1"}));
    assert_eq!((&entry["logName"], &entry["httpRequest"]), (&json!("projects/shop/logs/gate"), &Value::Null));
}

#[test]
fn one_account_is_required() {
    let bench = PluginBench::new();
    for (settings, is_valid) in [
        (json!({"auth_config": account()}), true),
        // Another node may have the file.
        (json!({"auth_file": "/account.json"}), true),
        (json!({}), false),
        (json!({"auth_config": account(), "auth_file": "/account.json"}), false),
        (json!({"auth_config": {"client_email": "a"}}), false),
    ] {
        assert_eq!(bench.build("google-cloud-logging", settings.clone()).is_ok(), is_valid, "{settings}");
    }
    let mut account = account();
    account["token_uri"] = json!("ftp://a");
    let refused =
        bench.build("google-cloud-logging", json!({"auth_config": account})).err().expect("refused");
    assert_eq!(refused.path, "auth_config.token_uri");
}
