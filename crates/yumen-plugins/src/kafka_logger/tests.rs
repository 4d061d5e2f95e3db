use serde_json::{Value, json};

use crate::testing::PluginBench;

fn bodies(more: Value, requests: &[&str]) -> Vec<String> {
    let bench = PluginBench::new();
    let mut settings = json!({"broker_list": {"kafka": 9092}, "kafka_topic": "logs"});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let plugin = bench.plugin("kafka-logger", settings);
    requests.iter().for_each(|request| drop(bench.run(&plugin, request)));
    bench.sink_bodies()
}

#[test]
fn a_record_is_a_list_of_entries_or_one_entry() {
    let format = || json!({"log_format": {"uri": "$uri"}});
    let entry = |uri: &str| format!("{{\"uri\":\"{uri}\",\"service_id\":\"s1\",\"route_id\":\"1\"}}");
    let both = bodies(format(), &["GET /a HTTP/1.1", "GET /b HTTP/1.1"]);
    assert_eq!(both, [format!("[{},{}]", entry("/a"), entry("/b"))]);
    let mut single = format();
    single["batch_max_size"] = 1.into();
    assert_eq!(bodies(single, &["GET /a HTTP/1.1"]), [entry("/a")]);
}

#[test]
fn the_origin_form_is_the_request_as_text() {
    let origin = json!({"meta_format": "origin", "batch_max_size": 1, "include_req_body": true});
    let text = "POST /a?b=1 HTTP/1.1\r\nx-a: 1\r\nhost: test.com\r\ncontent-length: 3\r\n\r\nabc";
    assert_eq!(bodies(origin, &["POST /a?b=1 HTTP/1.1\nX-A: 1\n\nabc"]), [text]);
    let list = json!({"meta_format": "origin"});
    let found: Value = serde_json::from_str(&bodies(list, &["GET / HTTP/1.1"])[0]).unwrap();
    assert_eq!(found, json!(["GET / HTTP/1.1\r\nhost: test.com\r\n\r\n"]));
}

#[test]
fn one_list_of_brokers_and_a_topic_are_required() {
    let bench = PluginBench::new();
    let broker = json!([{"host": "kafka", "port": 9092}]);
    for (settings, is_valid) in [
        (json!({"brokers": broker, "kafka_topic": "t"}), true),
        (json!({"brokers": broker}), false),
        (json!({"kafka_topic": "t"}), false),
        (json!({"brokers": [], "kafka_topic": "t"}), false),
        (json!({"brokers": broker, "broker_list": {"a": 1}, "kafka_topic": "t"}), false),
        (json!({"brokers": broker, "kafka_topic": "t", "required_acks": 0}), false),
    ] {
        assert_eq!(bench.build("kafka-logger", settings.clone()).is_ok(), is_valid, "{settings}");
    }
}
