use serde_json::{Value, json};
use yumen_plugin::sink::SinkReceiver;
use yumen_plugin::{NodeLogLevel, SinkBatch, SinkRegistry};

use super::open_node_log;

/// The address, and the body of a batch with two lines.
fn sent(metadata: Value) -> (String, String) {
    let sinks = SinkRegistry::default();
    let node_log = open_node_log(&metadata, &sinks).expect("valid metadata");
    for line in ["[warn] one", "[error] \"two\""] {
        assert!(node_log.handle.push((node_log.render)(line)));
    }
    let queue = sinks.take_new().remove(0);
    let mut receiver: SinkReceiver = queue.take_receiver().unwrap();
    let mut chunks = Vec::new();
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    while let std::task::Poll::Ready(Some(chunk)) = receiver.poll_chunk(&mut cx) {
        chunks.push(chunk);
    }
    let batch = SinkBatch { chunks: &chunks, entries: chunks.len(), now: yumen_plugin::Now::default() };
    let request = queue.encoder.requests(&batch).remove(0);
    let body = String::from_utf8(request.body.concat()).unwrap();
    (queue.spec.address.to_string(), body)
}

#[test]
fn lines_have_the_form_of_their_server() {
    let lines = "[warn] one\n[error] \"two\"\n".to_owned();
    let tcp = json!({"tcp": {"host": "a", "port": 1, "tls": true}});
    assert_eq!(sent(tcp), ("tls://a:1".to_owned(), lines.clone()));
    assert_eq!(sent(json!({"host": "a", "port": 1})), ("tcp://a:1".to_owned(), lines.clone()));
    let kafka = json!({"kafka": {"brokers": [{"host": "k", "port": 9092}], "kafka_topic": "t"}});
    assert_eq!(sent(kafka), ("kafka://k:9092/t".to_owned(), lines));
    let row = json!({"clickhouse": {"endpoint_addr": "http://c:8123", "user": "u", "logtable": "log"}});
    let (address, body) = sent(row);
    assert_eq!(address, "http://c:8123");
    let rows = r#"{"data":"[warn] one"} {"data":"[error] \"two\""}"#;
    assert_eq!(body, format!("INSERT INTO log FORMAT JSONEachRow {rows}"));
    let (_, body) = sent(json!({"skywalking": {"service_name": "shop", "service_instance_name": "n"}}));
    let list: Value = serde_json::from_str(&body).unwrap();
    let first = json!({
        "service": "shop", "serviceInstance": "n", "endpoint": "", "body": {"text": {"text": "[warn] one"}},
    });
    assert_eq!((&list[0], list.as_array().map(Vec::len)), (&first, Some(2)));
}

#[test]
fn levels_have_the_names_of_nginx() {
    for (name, expected) in [
        ("CRIT", NodeLogLevel::Error),
        ("ERROR", NodeLogLevel::Error),
        ("WARN", NodeLogLevel::Warn),
        ("NOTICE", NodeLogLevel::Info),
        ("DEBUG", NodeLogLevel::Debug),
    ] {
        let metadata = json!({"host": "a", "port": 1, "level": name});
        assert_eq!(open_node_log(&metadata, &SinkRegistry::default()).unwrap().level, expected);
    }
}

#[test]
fn a_server_is_required() {
    for metadata in [json!({}), json!({"host": "a"}), json!({"clickhouse": {"endpoint_addr": "ftp://a"}})] {
        assert!(open_node_log(&metadata, &SinkRegistry::default()).is_err(), "{metadata}");
    }
}
