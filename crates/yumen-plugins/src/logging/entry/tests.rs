use serde_json::{Value, json};
use yumen_plugin::ExchangeOutcome;

use crate::testing::PluginBench;

fn bench() -> PluginBench {
    let mut bench = PluginBench::new();
    bench.outcome = ExchangeOutcome {
        received_bytes: 120,
        sent_bytes: 210,
        duration_us: 12_500,
        upstream_us: Some(10_000),
        endpoint: Some("127.0.0.1:1980".parse().unwrap()),
        attempts: 1,
        ..ExchangeOutcome::default()
    };
    bench
}

/// The entry of a request as text.
fn entry_of(bench: &PluginBench, mut settings: Value, request: &str) -> String {
    settings["uri"] = "http://sink.test/logs".into();
    settings["batch_max_size"] = 1.into();
    let plugin = bench.plugin("http-logger", settings);
    bench.run(&plugin, request);
    let mut bodies = bench.sink_bodies();
    assert_eq!(bodies.len(), 1, "one entry");
    bodies.remove(0)
}

fn check(settings: Value, request: &str, expected: Value) {
    let entry = entry_of(&bench(), settings, request);
    let parsed: Value = serde_json::from_str(&entry).unwrap_or_else(|why| panic!("{why}: {entry}"));
    assert_eq!(parsed, expected);
}

#[test]
fn the_default_form_has_the_members_of_apisix() {
    let mut bench = bench();
    bench.upstream_reply = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-A: 1\r\nX-A: 2\r\n\r\nok\n".to_owned();
    let request = "GET /hello?a=1&b&c=&a=2%20x HTTP/1.1\nHost: test.com\nX-T: 1\nx-t: 2\nUser-Agent: curl";
    let entry = entry_of(&bench, json!({}), request);
    let expected = concat!(
        r#"{"request":{"url":"http://test.com:9080/hello?a=1&b&c=&a=2%20x","uri":"/hello?a=1&b&c=&a=2%20x","#,
        r#""method":"GET","headers":{"host":"test.com","x-t":["1","2"],"user-agent":"curl"},"#,
        r#""querystring":{"a":["1","2 x"],"b":true,"c":""},"size":120},"#,
        r#""response":{"status":200,"headers":{"content-length":"3","x-a":["1","2"]},"size":210},"#,
        r#""server":{"hostname":"","version":"0.1.0"},"upstream":"127.0.0.1:1980","service_id":"s1","#,
        r#""route_id":"1","client_ip":"127.0.0.1","start_time":1700000000000,"latency":12.5,"#,
        r#""upstream_latency":10,"apisix_latency":2.5}"#,
    );
    assert_eq!(entry, expected);
}

#[test]
fn a_format_replaces_the_default_form_and_ids_are_added() {
    let request = "GET /hello?name=jack HTTP/1.1\nX-Id: 7";
    let format = json!({
        "host": "$host", "name": "$arg_name", "text": "plain", "number": 5, "absent": "$arg_none",
        "nested": {"id": "$http_x_id", "list": ["$request_method", 1, "$arg_none"]},
    });
    let expected = json!({
        "host": "test.com", "name": "jack", "text": "plain", "number": 5,
        "nested": {"id": "7", "list": ["GET", 1, null]},
        "service_id": "s1", "route_id": "1",
    });
    check(json!({"log_format": format}), request, expected);
    check(
        json!({"log_format": {"route_id": "mine"}}),
        request,
        json!({"route_id": "mine", "service_id": "s1"}),
    );
}

#[test]
fn objects_deeper_than_five_are_emptied() {
    let format = json!({"a": {"b": {"c": {"d": {"e": {"f": "$host"}, "g": "$host"}}}}});
    let expected =
        json!({"a": {"b": {"c": {"d": {"e": {}, "g": "test.com"}}}}, "service_id": "s1", "route_id": "1"});
    check(json!({"log_format": format}), "GET / HTTP/1.1", expected);
}

#[test]
fn extra_members_are_added_and_replace_none() {
    let mut settings =
        json!({"log_format_extra": {"team": "shop", "client_ip": "forged", "agent": "$http_user_agent"}});
    let entry = entry_of(&bench(), settings.take(), "GET / HTTP/1.1\nUser-Agent: curl");
    let entry: Value = serde_json::from_str(&entry).unwrap();
    assert_eq!((&entry["team"], &entry["agent"]), (&json!("shop"), &json!("curl")));
    assert_eq!(entry["client_ip"], "127.0.0.1");
}

#[test]
fn metadata_applies_to_uses_without_a_format() {
    let mut bench = bench();
    bench.metadata = Some(json!({"log_format": {"from": "metadata"}}));
    let of = |settings| {
        serde_json::from_str::<Value>(&entry_of(&bench, settings, "GET / HTTP/1.1")).unwrap()["from"].clone()
    };
    assert_eq!(of(json!({})), "metadata");
    assert_eq!(of(json!({"log_format": {"from": "settings"}})), "settings");
    bench.metadata = Some(json!({"log_format": {}}));
    let entry: Value = serde_json::from_str(&entry_of(&bench, json!({}), "GET / HTTP/1.1")).unwrap();
    assert!(entry["request"].is_object(), "an empty format is none");
}

#[test]
fn bodies_are_included_by_setting_and_condition_and_cut() {
    fn bodies(settings: Value, request: &str) -> (Value, Value) {
        let entry: Value = serde_json::from_str(&entry_of(&bench(), settings, request)).unwrap();
        (entry["request"]["body"].clone(), entry["response"]["body"].clone())
    }
    let post = "POST /a?log=yes HTTP/1.1\n\nabcdef";
    assert_eq!(bodies(json!({}), post), (Value::Null, Value::Null));
    let both = json!({"include_req_body": true, "include_resp_body": true});
    assert_eq!(bodies(both, post), (json!("abcdef"), json!("ok\n")));
    let cut = json!({"include_req_body": true, "include_resp_body": true, "max_req_body_bytes": 3, "max_resp_body_bytes": 2});
    assert_eq!(bodies(cut, post), (json!("abc"), json!("ok")));
    let when = |value: &str| {
        json!({
            "include_req_body": true, "include_req_body_expr": [["arg_log", "==", value]],
            "include_resp_body": true, "include_resp_body_expr": [["status", "==", 200]],
        })
    };
    assert_eq!(bodies(when("yes"), post), (json!("abcdef"), json!("ok\n")));
    assert_eq!(bodies(when("no"), post), (Value::Null, json!("ok\n")));
    assert_eq!(bodies(json!({"include_req_body": true}), "GET /a HTTP/1.1"), (Value::Null, Value::Null));
}

#[test]
fn request_body_is_a_variable_of_formats() {
    let format = json!({"log_format": {"body": "$request_body"}, "max_req_body_bytes": 4});
    let expected = json!({"body": "abcd", "service_id": "s1", "route_id": "1"});
    check(format, "POST / HTTP/1.1\n\nabcdef", expected);
}

#[test]
fn no_byte_of_a_client_forges_a_line() {
    let request = "GET /a?x=%0d%0aforged%22&y=\u{fc} HTTP/1.1\nX-A: \"quoted\\\"\nX-B: tab\there";
    let entry = entry_of(&bench(), json!({}), request);
    assert!(!entry.contains('\n') && !entry.contains('\r'), "{entry}");
    let parsed: Value = serde_json::from_str(&entry).unwrap();
    assert_eq!(parsed["request"]["querystring"]["x"], "\r\nforged\"");
    assert_eq!(parsed["request"]["headers"]["x-a"], "\"quoted\\\"");
    assert_eq!(parsed["request"]["headers"]["x-b"], "tab\there");
}

#[test]
fn conditions_that_do_not_parse_are_refused() {
    let error = bench()
        .build("http-logger", json!({"uri": "http://a/", "include_req_body_expr": [["arg_a", "???", 1]]}))
        .err()
        .expect("refused");
    assert!(
        error.message.starts_with("failed to validate the 'include_req_body_expr' expression: "),
        "{}",
        error.message
    );
}
