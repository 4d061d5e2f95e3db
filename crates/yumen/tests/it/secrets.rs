//! Error messages contain no secrets.

use serde_json::{Value, json};

use crate::harness::certs::{self, Pair};
use crate::harness::gateway::YUMEN;
use crate::harness::{Client, Gateway, Reply, run};

fn ask(gateway: &Gateway, key: &str, line: &str, body: &str) -> Reply {
    let length = body.len();
    let fields = format!("Host: admin\r\nX-API-KEY: {key}\r\nContent-Length: {length}");
    Client::connect(gateway.admin).send(format!("{line} HTTP/1.1\r\n{fields}\r\n\r\n{body}")).reply()
}

/// Fails if the text contains a line of the key, as text or as a list of bytes.
fn assert_hides(text: &str, pair: &Pair, context: &str) {
    for line in pair.key.lines().filter(|line| !line.starts_with("-----")) {
        let bytes: Vec<String> = line.bytes().take(6).map(|byte| byte.to_string()).collect();
        assert!(!text.contains(&line[..8]) && !text.contains(&bytes.join(", ")), "{context}: {text}");
    }
}

/// Objects with a key without newlines, and with a key that matches no certificate.
fn broken(pair: &Pair) -> Value {
    let key = pair.key.replace('\n', "");
    let tls = json!({ "client_cert": pair.cert, "client_key": key });
    let upstream = json!({ "scheme": "https", "nodes": { "127.0.0.1:1": 1 }, "tls": tls });
    let mut second = json!({ "id": "2", "snis": ["b.test"], "cert": pair.cert, "key": pair.key });
    second["certs"] = json!([pair.cert]);
    second["keys"] = json!([key.replacen("PRIVATE KEY-----", "PRIVATE KEY----- ", 1)]);
    json!({
        "ssls": [{ "id": "1", "snis": ["a.test"], "cert": pair.cert, "key": key }, second],
        "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }],
    })
}

#[test]
fn a_key_that_lost_its_newlines_is_named_and_not_quoted() {
    let pair = certs::simple("a", &["a.test"]);
    let document = broken(&pair);
    let gateway = Gateway::start(&document);
    let problems = gateway.status_json("/yumen/v1/problems");
    let paths: Vec<(&str, &str)> = problems
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| {
            assert!(problem["message"].as_str().unwrap().contains("newlines are missing"), "{problem}");
            (problem["object"].as_str().unwrap(), problem["path"].as_str().unwrap())
        })
        .collect();
    for expected in [("ssls/1", "key"), ("ssls/2", "keys[0]"), ("routes/1", "upstream.tls.client_key")] {
        assert!(paths.contains(&expected), "{expected:?}: {paths:?}");
    }
    assert_hides(&problems.to_string(), &pair, "problems");
    assert_hides(&gateway.log(), &pair, "log");
    let file = gateway.scratch.write("broken.yaml", document.to_string());
    let (_, out, err) = run(YUMEN, &["check", &file]);
    assert!(out.contains("newlines are missing"), "{out}{err}");
    assert_hides(&(out + &err), &pair, "check");
    let alone = gateway.scratch.write("key.yaml", pair.key.replace('-', ""));
    let (_, out, err) = run(YUMEN, &["check", &alone]);
    assert_hides(&(out + &err), &pair, "check of a key");
}

#[test]
fn the_admin_api_refuses_a_broken_key_without_quoting_it() {
    let pair = certs::simple("a", &["a.test"]);
    let (gateway, key) = Gateway::embedded();
    for ssl in broken(&pair)["ssls"].as_array().unwrap() {
        let line = format!("PUT /apisix/admin/ssls/{}", ssl["id"].as_str().unwrap());
        let reply = ask(&gateway, &key, &line, &ssl.to_string());
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(reply.text().contains("failed to parse key: the private key is not PEM"), "{}", reply.text());
        assert_hides(&reply.text(), &pair, "answer");
    }
    assert_hides(&gateway.log(), &pair, "log");
}
