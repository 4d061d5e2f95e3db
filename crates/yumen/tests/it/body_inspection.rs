//! Request bodies that plugins buffer: within bounds, and processed on another thread if they are long.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::upstream::respond;
use crate::harness::{Client, Gateway, Upstream};

fn start(upstream: &Upstream, plugins: &Value) -> Gateway {
    let routes = plugins.as_object().unwrap().iter().map(|(name, plugins)| {
        json!({ "id": name, "uri": format!("/{name}*"), "plugins": plugins, "upstream": upstream.alone() })
    });
    Gateway::start(&json!({ "routes": routes.collect::<Vec<_>>() }))
}

fn post(path: &str, content_type: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// `{"b":[1,1,...]}` with `count` ones.
fn ones(count: usize) -> String {
    format!(r#"{{"b":[{}1]}}"#, "1,".repeat(count - 1))
}

#[test]
fn json_of_too_many_values_is_refused_before_a_tree_is_made_of_it() {
    let upstream = Upstream::start(|request, stream| respond(stream, 200, "", &request.body));
    let schema = json!({ "body_schema": { "type": "object", "required": ["b"] } });
    let gateway = start(
        &upstream,
        &json!({
            "validated": { "request-validation": schema },
            "degraphql": { "degraphql": { "query": "query($b: Int) { a(b: $b) }", "variables": ["b"] } },
            "guarded": { "fault-injection": {
                "abort": { "http_status": 403, "vars": [[["post_arg.a", "==", "1"]]] }
            } },
        }),
    );
    let json = "application/json";
    let send = |path: &str, body: &str| gateway.send(post(path, json, body));
    // Long enough for validation on an offload thread.
    let long = ones(40_000);
    assert_eq!(send("/validated", &long).text(), long);
    assert!(gateway.metric("yumen_offloaded_jobs_total") >= 1.0);
    let refused = send("/validated", &ones(100_000));
    assert_eq!((refused.status, refused.text().as_str()), (400, "the body holds more than 100000 values"));
    assert_eq!(send("/validated", &ones(600_000)).status, 413, "longer than the bound");
    let envelope: Value = serde_json::from_str(&send("/degraphql", &long).text()).unwrap();
    assert_eq!(envelope["variables"]["b"].as_array().map(Vec::len), Some(40_000));
    assert_eq!(send("/degraphql", &ones(100_000)).status, 400);
    assert_eq!(send("/guarded", &ones(500_000)).status, 200);
    assert_eq!(send("/guarded", &format!(r#"{{"b":{long},"a":"1"}}"#)).status, 403);
    assert_eq!(send("/guarded", &format!("{{{}\"a\":1}}", "\"\":1,".repeat(150_000))).status, 413);
    let form = "a=1&".repeat(20_000);
    assert_eq!(gateway.send(post("/guarded", "application/x-www-form-urlencoded", &form)).status, 413);
    for (content_type, body) in [
        ("application/json", r#"{"a":1e999}"#),
        ("application/json", r#"{"a":1"#),
        ("text/plain\r\nContent-Type: application/json", r#"{"a":1}"#),
        ("multipart/form-data; boundary=B", "--B\r\nContent-Disposition: form-data; name=a\r\n\r\n1"),
    ] {
        assert_eq!(gateway.send(post("/guarded", content_type, body)).status, 400, "{content_type}: {body}");
    }
    assert_eq!(gateway.send(post("/guarded", "application/json", r#"{"a":"1"}"#)).status, 403);
}

fn gzipped(text: &[u8]) -> Vec<u8> {
    let mut gzip =
        Command::new("gzip").arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, text) = (gzip.stdin.take().unwrap(), text.to_vec());
    let writing = std::thread::spawn(move || input.write_all(&text).unwrap());
    let coded = gzip.wait_with_output().unwrap().stdout;
    writing.join().unwrap();
    coded
}

#[test]
fn coded_answers_are_decoded_beside_the_worker_up_to_a_ratio() {
    let bomb = gzipped(&vec![b' '; 32 << 20]);
    // Text without repetitions.
    let numbers: Vec<String> = (0..40_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_string()).collect();
    let (numbers, coded) = (numbers.join(" "), gzipped(numbers.join(" ").as_bytes()));
    let upstream = Upstream::start(move |request, stream| {
        let body = if request.target.ends_with("bomb") { &bomb } else { &coded };
        respond(stream, 200, "Content-Encoding: gzip\r\nContent-Type: text/plain\r\n", body)
    });
    let filters = json!({ "filters": [{ "regex": "2654435761", "replace": "first" }] });
    let gateway = start(
        &upstream,
        &json!({
            "plain": { "response-rewrite": filters },
            "coded": { "response-rewrite": filters, "gzip": { "types": "*", "min_length": 1 } },
        }),
    );
    let ask = |path: &str| {
        let mut client = Client::connect(gateway.http);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"));
        client
    };
    let expected = numbers.replacen("2654435761", "first", 1);
    assert_eq!(ask("/plain/numbers").reply().text(), expected);
    assert_eq!(ask("/coded/numbers").reply().field("content-encoding"), Some("gzip"));
    assert!(gateway.metric("yumen_offloaded_jobs_total") >= 2.0);
    for path in ["/plain/bomb", "/coded/bomb"] {
        assert!(ask(path).try_reply(false).is_err(), "{path}");
    }
}
