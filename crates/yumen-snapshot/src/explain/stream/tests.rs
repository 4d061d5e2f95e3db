use serde_json::{Value, json};
use yumen_config::document;
use yumen_config::resource::Question;

use super::super::{ExplainContext, explain_any};
use crate::testing::compiler;

const TABLE: &str = r#"
stream_routes:
- {id: any, upstream_id: u}
- {id: port, server_port: 9100, upstream_id: u}
- {id: port-too, server_port: 9100, upstream_id: u}
- {id: office, server_port: 9100, remote_addr: 10.1.0.0/16, upstream_id: u}
- {id: inner, server_port: 9100, server_addr: 10.0.0.7, upstream_id: u}
- {id: name, sni: db.test, upstream_id: u}
- {id: names, sni: "*.test", server_port: 9103, upstream_id: u}
- {id: guarded, server_port: 9200, upstream_id: u, plugins: {ip-restriction: {blacklist: [127.0.0.1]}}}
upstreams:
- {id: u, scheme: tcp, nodes: {"10.0.0.1:80": 1}}
"#;

fn explain_stream(text: &str, question: Value) -> Result<Value, String> {
    let (resources, problems) = document::parse(text, &|_| None);
    assert!(problems.is_empty(), "{problems:?}");
    let snapshot = compiler().replace_all(resources, 7).snapshot;
    let question: Question = serde_json::from_value(question).unwrap();
    let explained = explain_any(&snapshot, &question, &ExplainContext::default());
    let explained = explained.map_err(|invalid| format!("{}: {}", invalid.path, invalid.message))?;
    let explained_json = serde_json::to_value(&explained).unwrap();
    assert!(explained.to_string().contains("\nStream route\n"));
    Ok(explained_json)
}

#[test]
fn the_route_is_the_one_that_serves() {
    for (url, client, expected) in [
        ("tcp://127.0.0.1:9000", "127.0.0.1", json!("any")),
        ("tcp://127.0.0.1:9100/", "127.0.0.1", json!("port")),
        ("udp://127.0.0.1:9100", "10.1.2.3", json!("office")),
        ("TCP://10.0.0.7:9100", "10.1.2.3", json!("inner")),
        ("tls://DB.test:9103", "127.0.0.1", json!("name")),
        ("tls://web.test:9103", "127.0.0.1", json!("names")),
        ("tls://*:9103", "127.0.0.1", json!("any")),
    ] {
        let explained_json = explain_stream(TABLE, json!({"url": url, "client_ip": client})).unwrap();
        assert_eq!(explained_json["stream_route"]["id"], expected, "{url}: {explained_json:#}");
        assert_eq!(explained_json["upstream"]["next"], "10.0.0.1:80", "{url}");
    }
}

#[test]
fn every_way_to_lose_has_its_words() {
    for (url, route, expected) in [
        ("tcp://127.0.0.1:9100", "port", "it gets the stream"),
        ("tcp://127.0.0.1:9100", "any", "stream route port requires the port, 9100"),
        ("tcp://127.0.0.1:9100", "port-too", "stream route port has as many conditions and a lower id"),
        ("tcp://127.0.0.1:9100", "office", "it requires remote_addr 10.1.0.0/16, not 127.0.0.1"),
        ("tcp://127.0.0.1:9100", "inner", "it requires server_addr 10.0.0.7, not 127.0.0.1"),
        ("tcp://10.0.0.7:9100", "port", "stream route inner requires a closer server_addr, 10.0.0.7"),
        ("tcp://127.0.0.1:9100", "guarded", "it requires server_port 9200, not 9100"),
        ("tcp://127.0.0.1:9100", "name", "it requires sni db.test, not no name at all"),
        ("tls://db.test:9103", "names", "stream route name requires a closer server name, db.test"),
        ("tls://db.test:9103", "any", "stream route name requires a server name, db.test"),
        ("tls://web.test:9103", "name", "it requires sni db.test, not web.test"),
        ("tcp://127.0.0.1:9100", "nobody", "no active stream route has this id or name"),
    ] {
        let explained_json = explain_stream(TABLE, json!({"url": url, "why_not": route})).unwrap();
        assert_eq!(explained_json["why_not"]["why"], expected, "{url} {route}");
    }
}

#[test]
fn a_younger_route_loses_by_its_age() {
    let younger = "stream_routes:\n- {id: a, server_port: 9100, create_time: 20, upstream_id: u}";
    let table = TABLE.replace("stream_routes:", younger);
    let question = json!({"url": "tcp://127.0.0.1:9100", "why_not": "a"});
    let explained_json = explain_stream(&table, question).unwrap();
    let expected = "stream route port has as many conditions and is older";
    assert_eq!(explained_json["why_not"]["why"], expected);
}

#[test]
fn where_none_fits_the_nearest_are_told() {
    let table = TABLE.replace("- {id: any, upstream_id: u}\n", "");
    let explained_json = explain_stream(&table, json!({"url": "tcp://127.0.0.1:9000"})).unwrap();
    assert_eq!(explained_json["stream_route"], Value::Null);
    let nearest: Vec<&str> = explained_json["candidates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["stream_route"].as_str().unwrap())
        .collect();
    assert_eq!(nearest, ["guarded", "name", "port", "port-too", "inner"]);
    assert_eq!(explained_json["others"], 2);
}

#[test]
fn plugins_that_refuse_are_told() {
    let explained_json = explain_stream(TABLE, json!({"url": "tcp://127.0.0.1:9200"})).unwrap();
    assert_eq!(explained_json["plugins"][0]["decision"], "answers", "{explained_json:#}");
    assert_eq!(explained_json["upstream"], Value::Null);
}

#[test]
fn what_is_no_stream_is_refused() {
    for (question, expected) in [
        (
            json!({"url": "tcp://127.0.0.1"}),
            "url: \"tcp://127.0.0.1\" has no port: the form is tcp://HOST:PORT",
        ),
        (
            json!({"url": "tcp://db.test:1"}),
            "url: \"tcp://db.test:1\" has a name for its host, which only TLS carries: write the address",
        ),
        (
            json!({"url": "udp://127.0.0.1:1", "sni": "a"}),
            "sni: a udp stream has no server name: use tls://127.0.0.1:1",
        ),
    ] {
        assert_eq!(explain_stream(TABLE, question).unwrap_err(), expected);
    }
}
