//! `$sent_http_*`: response fields in conditions, plugins and the access log.

use serde_json::{Value, json};

use crate::harness::upstream::respond;
use crate::harness::{Gateway, Options, Scratch, Upstream, eventually};

fn upstream() -> Upstream {
    Upstream::start(|_, stream| {
        respond(stream, 200, "X-Tier: gold\r\nX-Part: a\r\nX-Part: b\r\nContent-Type: text/x\r\n", b"body")
    })
}

fn rewriting(uri: &str, upstream: &Upstream, settings: Value) -> Value {
    json!({ "id": uri[1..], "uri": uri, "upstream": upstream.alone(), "plugins": { "response-rewrite": settings } })
}

#[test]
fn conditions_and_values_over_an_answer_see_the_fields_it_has() {
    let upstream = upstream();
    let hit = |condition: Value| json!({ "headers": { "set": { "X-Hit": "yes" } }, "vars": condition });
    let filtered = json!({
        "headers": { "set": { "X-Hit": "yes" } }, "_meta": { "filter": [["sent_http_x_tier", "==", "gold"]] }
    });
    let routes = [
        rewriting("/vars", &upstream, hit(json!([["sent_http_x_tier", "==", "gold"]]))),
        rewriting("/not", &upstream, hit(json!([["sent_http_x_tier", "==", "tin"]]))),
        rewriting("/filter", &upstream, filtered),
        rewriting("/copy", &upstream, json!({ "headers": { "set": { "X-Copy": "is $sent_http_x_tier" } } })),
        rewriting("/joined", &upstream, json!({ "headers": { "add": ["X-Copy: ${sent_http_x_part}"] } })),
        // The result of importing a renamed field from Kong.
        rewriting(
            "/renamed",
            &upstream,
            json!({ "headers": { "set": { "X-New": "${sent_http_x_tier}" }, "remove": ["X-Tier"] } }),
        ),
    ];
    let gateway = Gateway::start(&json!({ "routes": routes }));
    for (path, name, expected) in [
        ("/vars", "x-hit", Some("yes")),
        ("/not", "x-hit", None),
        ("/filter", "x-hit", Some("yes")),
        ("/copy", "x-copy", Some("is gold")),
        ("/joined", "x-copy", Some("a, b")),
        ("/renamed", "x-new", Some("gold")),
        ("/renamed", "x-tier", None),
    ] {
        assert_eq!(gateway.get(path).field(name), expected, "{path} {name}");
    }
}

#[test]
fn a_plugin_sees_what_the_one_before_it_made_of_the_answer() {
    let upstream = upstream();
    let mut route =
        rewriting("/a", &upstream, json!({ "headers": { "set": { "X-Seen": "$sent_http_x_tier" } } }));
    route["plugins"]["response-rewrite"]["_meta"] = json!({ "priority": 1 });
    let rule = json!({ "id": "1", "plugins": { "response-rewrite": { "headers": { "set": { "X-Tier": "tin" } } } } });
    let gateway = Gateway::start(&json!({ "routes": [route], "global_rules": [rule] }));
    assert_eq!(gateway.get("/a").field("x-seen"), Some("tin"));
}

#[test]
fn the_access_log_tells_the_fields_that_were_sent() {
    let upstream = upstream();
    let scratch = Scratch::new();
    let log = scratch.file("access.log");
    let fields = ["location", "content_type", "content_length", "x_part", "x_set", "date"];
    let line: String = fields.iter().map(|name| format!("{name}=$sent_http_{name} ")).collect();
    let node =
        format!("logs: {{access: {{enabled: true, path: \"{}\", line: '$uri {line}'}}}}", log.display());
    let redirect = json!({ "id": "r", "uri": "/r", "plugins": { "redirect": { "uri": "/zz" } } });
    let set = rewriting("/set", &upstream, json!({ "headers": { "set": { "X-Set": "$uri" } } }));
    let routes = json!({ "routes": [redirect, set] });
    let routes = scratch.write("routes.yaml", routes.to_string());
    let gateway =
        Gateway::launch(scratch, &Options { node: &node, ..Options::default() }, &["--file", &routes]);
    let redirected = gateway.get("/r");
    let date = |reply: &crate::harness::Reply| reply.field("date").unwrap().to_owned();
    let length = redirected.field("content-length").unwrap().to_owned();
    let passed = gateway.get("/set");
    let expected = [
        format!(
            "/r location=/zz content_type={} content_length={length} x_part=- x_set=- date={} ",
            redirected.field("content-type").unwrap_or("-"),
            date(&redirected)
        ),
        format!(
            "/set location=- content_type=text/x content_length=4 x_part=a, b x_set=/set date={} ",
            date(&passed)
        ),
    ];
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    eventually("both lines are written", 10, || read().lines().count() == 2);
    let mut lines: Vec<String> = read().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, expected);
}

#[test]
fn a_plugin_of_the_log_phase_sees_the_fields_that_were_sent() {
    let upstream = upstream();
    let counted = |id: &str, tier: &str| {
        json!({ "id": id, "uri": format!("/{id}"), "upstream": upstream.alone(), "plugins": {
            "prometheus": { "_meta": { "filter": [["sent_http_x_tier", "==", tier]] } }
        } })
    };
    let gateway = Gateway::start(&json!({ "routes": [counted("tin", "tin"), counted("gold", "gold")] }));
    assert_eq!((gateway.get("/tin").status, gateway.get("/gold").status), (200, 200));
    let (_, metrics) = gateway.status_text("/apisix/prometheus/metrics");
    assert!(metrics.contains("route=\"gold\"") && !metrics.contains("route=\"tin\""), "{metrics}");
}

#[test]
fn a_filter_in_the_log_phase_sees_how_much_was_sent() {
    let upstream = Upstream::text("seventeen letters");
    let counted = |id: &str, filter: Value| {
        json!({ "id": id, "uri": format!("/{id}"), "upstream": upstream.alone(),
            "plugins": { "prometheus": { "_meta": { "filter": [filter] } } } })
    };
    let gateway = Gateway::start(&json!({ "routes": [
        counted("more", json!(["body_bytes_sent", ">", 17])),
        counted("less", json!(["bytes_sent", "<", 18])),
        counted("just", json!(["body_bytes_sent", "==", "17"])),
    ] }));
    for path in ["/more", "/less", "/just"] {
        assert_eq!(gateway.get(path).status, 200);
    }
    let metrics_text = || gateway.status_text("/apisix/prometheus/metrics").1;
    eventually("it is counted", 10, || metrics_text().contains("route=\"just\""));
    let metrics = metrics_text();
    assert!(!metrics.contains("route=\"more\"") && !metrics.contains("route=\"less\""), "{metrics}");
}
