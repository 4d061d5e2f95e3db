use prost::Message;
use serde_json::{Value, json};

use super::{ClsContent, ClsLogGroupList};
use crate::testing::PluginBench;

fn settings(more: Value) -> Value {
    let mut settings = json!({
        "cls_host": "cls.test", "cls_topic": "topic-1", "secret_id": "id", "secret_key": "secret-key",
        "log_format": {"uri": "$uri", "number": 1},
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

#[test]
fn a_batch_is_a_signed_list_of_logs() {
    let bench = PluginBench::new();
    let plugin = bench.plugin("tencent-cloud-cls", settings(json!({"global_tag": {"zone": "a"}})));
    bench.run(&plugin, "GET /a HTTP/1.1");
    bench.run(&plugin, "GET /b HTTP/1.1");
    let mut requests = bench.sink_requests();
    let request = requests.remove(0);
    assert!(requests.is_empty());
    assert_eq!((request.method, request.target.as_str()), ("POST", "/structuredlog?topic_id=topic-1"));
    let field = |name: &str| request.fields.iter().find(|(found, _)| found == name).unwrap().1.clone();
    assert_eq!(field("Content-Type"), "application/x-protobuf");
    assert_eq!(
        field("Authorization"),
        "q-sign-algorithm=sha1&q-ak=id&q-sign-time=1700000000;1700000060&q-key-time=1700000000;1700000060\
         &q-header-list=&q-url-param-list=&q-signature=cf4f0044f7e00c47c3bde7b61c73206b835436f9"
    );
    let list = ClsLogGroupList::decode(&*request.body.concat()).unwrap();
    let logs = &list.groups[0].logs;
    assert_eq!((logs.len(), logs[0].time), (2, 1_700_000_000_000));
    let content = |key: &str, value: &str| ClsContent { key: key.to_owned(), value: value.to_owned() };
    let mut found = logs[1].contents.clone();
    found.sort_by(|a, b| a.key.cmp(&b.key));
    let expected = [("number", "1"), ("route_id", "1"), ("service_id", "s1"), ("uri", "/b"), ("zone", "a")];
    assert_eq!(found, expected.map(|(key, value)| content(key, value)));
}

#[test]
fn a_share_of_the_requests_is_logged() {
    let bench = PluginBench::new();
    let plugin = bench.plugin("tencent-cloud-cls", settings(json!({"sample_ratio": 0.25})));
    for _ in 0..200 {
        bench.run(&plugin, "GET /a HTTP/1.1");
    }
    let entries: usize = bench.sink_requests().iter().map(|request| request.entries).sum();
    assert!((20..90).contains(&entries), "{entries} of 200");
}

#[test]
fn hosts_and_topics_are_checked() {
    let bench = PluginBench::new();
    for (more, path) in [
        (json!({"cls_host": "a/b"}), "cls_host"),
        (json!({"cls_host": "u@a"}), "cls_host"),
        (json!({"cls_topic": "a&b"}), "cls_topic"),
    ] {
        let refused = bench.build("tencent-cloud-cls", settings(more.clone())).err().expect("refused");
        assert_eq!(refused.path, path, "{more}");
    }
}
