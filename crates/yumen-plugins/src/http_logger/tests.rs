use serde_json::{Value, json};

use crate::testing::PluginBench;

#[test]
fn batches_are_lists_single_objects_or_lines() {
    fn check(settings: Value, expected: &str) {
        let bench = PluginBench::new();
        let mut written =
            json!({"uri": "http://sink.test:8080/logs?a=1", "log_format": {"m": "$request_method"}});
        written.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        let plugin = bench.plugin("http-logger", written);
        for _ in 0..2 {
            bench.run(&plugin, "GET / HTTP/1.1");
        }
        let requests = bench.sink_requests();
        let request = &requests[0];
        assert_eq!((request.method, request.target.as_str(), request.entries), ("POST", "/logs?a=1", 2));
        let fields: Vec<String> =
            request.fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let body = String::from_utf8(request.body.concat()).unwrap();
        assert_eq!(format!("{}\n{body}", fields.join("\n")), expected);
    }
    let entry = r#"{"m":"GET","service_id":"s1","route_id":"1"}"#;
    check(json!({}), &format!("Content-Type: application/json\n[{entry},{entry}]"));
    let lines = json!({"concat_method": "new_line", "auth_header": "Bearer x"});
    check(lines, &format!("Content-Type: text/plain\nAuthorization: Bearer x\n{entry}\n{entry}"));
}

#[test]
fn an_exchange_without_a_route_has_a_route_id() {
    let bench = PluginBench::new();
    let settings =
        json!({"uri": "http://sink.test", "batch_max_size": 1, "log_format": {"m": "$request_method"}});
    let plugin = bench.plugin("http-logger", settings);
    let mut ex = bench.exchange("GET / HTTP/1.1");
    ex.route.info = None;
    bench.finish(std::slice::from_ref(&plugin), ex, None);
    assert_eq!(bench.sink_bodies(), [r#"{"m":"GET","route_id":"no-matched"}"#]);
}

#[test]
fn urls_that_are_no_http_are_refused() {
    let bench = PluginBench::new();
    for uri in ["ftp://a/", "a/b", "http://user:secret@a/"] {
        let error = bench.build("http-logger", json!({"uri": uri})).err().expect("refused");
        assert!(!error.message.contains("secret"), "{}", error.message);
    }
}
