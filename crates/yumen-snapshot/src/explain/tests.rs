//! Documents and questions in, explanations out: every reason, every kind of response, no side effect.

use std::sync::Arc;

use serde_json::{Value, json};
use yumen_base::Now;
use yumen_config::document;
use yumen_config::resource::Question;
use yumen_config::{Kind, Resource};

use super::{ExplainContext, ListenerPorts, explain};
use crate::Compiler;
use crate::testing::compiler;

struct Node {
    compiler: Compiler,
    snapshot: Arc<crate::Snapshot>,
    resources: Vec<Resource>,
}

fn node(text: &str) -> Node {
    let (resources, problems) = document::parse(text, &|_| None);
    assert!(problems.is_empty(), "{problems:?}");
    let mut compiler = compiler();
    let snapshot = compiler.replace_all(resources.clone(), 7).snapshot;
    Node { compiler, snapshot, resources }
}

impl Node {
    fn explain(&self, question: Value) -> Value {
        self.explain_at(ListenerPorts::default(), question)
    }

    fn explain_at(&self, listeners: ListenerPorts, question: Value) -> Value {
        let question: Question = serde_json::from_value(question).unwrap();
        let text = |kind: Kind, id: &str| {
            let found = self.resources.iter().find(|one| one.kind == kind && *one.id == *id);
            found.map(|one| one.json.clone())
        };
        let problems = self.compiler.problems();
        let now = Now { mono_us: 5_000_000, unix_ms: 1_700_000_000_000 };
        let context = ExplainContext { now, problems: &problems, text: Some(&text), listeners };
        serde_json::to_value(explain(&self.snapshot, &question, &context).unwrap()).unwrap()
    }

    fn why_not(&self, url: &str, route: &str) -> String {
        let explanation = self.explain(json!({"url": url, "why_not": route}));
        explanation["why_not"]["why"].as_str().unwrap().to_owned()
    }
}

#[test]
fn what_a_pattern_left_open_is_refused_as_serving_does() {
    let node = node(
        r#"
routes:
- {id: hard, uri: /hard, vars: [[arg_q, "~~", "^(a|a)*\\1b$"]], service_id: s}
- {id: guarded, uri: /guarded, service_id: s, plugins: {key-auth: {_meta: {filter: [[arg_q, "~~", "^(a|a)*\\1b$"]]}}}}
- {id: any, uri: "/*", service_id: s}
services:
- {id: s, upstream: {nodes: {"10.0.0.1:80": 1}}}
"#,
    );
    let long = "a".repeat(64);
    for (path, route) in [("/hard", Value::Null), ("/guarded", json!("guarded"))] {
        let url = format!("{path}?q={long}");
        let explanation = node.explain(json!({ "url": url }));
        assert_eq!(
            (&explanation["answer"]["status"], &explanation["route"]["id"]),
            (&json!(500), &route),
            "{explanation}"
        );
        assert_eq!(explanation["upstream"], Value::Null);
        let remarks = explanation["remarks"].to_string();
        assert_eq!(remarks.matches("a pattern took too long").count(), 1, "{remarks}");
    }
    // A pattern that serving does not evaluate decides nothing.
    let explanation = node.explain(json!({ "url": format!("/other?q={long}"), "why_not": "hard" }));
    assert_eq!(
        (&explanation["route"]["id"], &explanation["answer"]),
        (&json!("any"), &Value::Null),
        "{explanation}"
    );
}

const TABLE: &str = r#"
routes:
- {id: users, uris: [/users, /users/*], host: a.com, methods: [GET], service_id: s}
- {id: one, uri: /users/:id, host: a.com, priority: 5, vars: [[arg_v, "==", "2"]], service_id: s}
- {id: inside, uri: "/users/*", host: a.com, priority: 9, remote_addrs: [10.0.0.0/8], service_id: s}
- {id: low, uri: "/users/*", host: a.com, priority: -1, service_id: s}
- {id: young, uri: "/users/*", host: a.com, methods: [GET], create_time: 5, service_id: s}
- {id: any, uri: "/*", service_id: s}
- {id: other, uri: /users/*, host: b.com, service_id: s}
- {id: off, uri: /users/*, status: 0, service_id: s}
- {id: broken, uri: /broken, service_id: s, plugins: {limit-count: {count: 0}}}
services:
- {id: s, upstream: {nodes: {"10.0.0.1:80": 1}}}
"#;

#[test]
fn every_way_to_lose_has_its_words() {
    let node = node(TABLE);
    let url = "http://a.com/users/5/x?v=1";
    for (route, expected) in [
        ("users", "it gets the request"),
        ("inside", "the client's address 127.0.0.1 is not among its remote_addrs"),
        ("low", "route users has priority 0, this one -1"),
        ("young", "route users has the same host, path and priority and is older"),
        ("any", "route users is for a closer host, a.com"),
        ("one", "its path is /users/:id, not /users/5/x"),
        ("other", "its host is b.com, not a.com"),
        ("off", "it is disabled: its status is 0"),
        ("nobody", "no route has this id or name"),
        (
            "broken",
            "its path is /broken, not /users/5/x; it could only respond with 503 now: the route is misconfigured",
        ),
    ] {
        assert_eq!(node.why_not(url, route), expected, "{route}");
    }
    let vars = r#"["arg_v","==","2"] does not hold: arg_v is "1""#;
    assert_eq!(node.why_not("http://a.com/users/5?v=1", "one"), vars);
    assert_eq!(
        node.why_not("http://a.com/users/5", "one"),
        r#"["arg_v","==","2"] does not hold: arg_v has no value"#
    );
    let post = node.explain(json!({"method": "POST", "url": "http://a.com/users", "why_not": "users"}));
    assert_eq!(post["why_not"]["why"], "the method is POST, allowed are GET");
    assert_eq!(
        node.why_not("http://c.com/x", "other"),
        "its host is b.com, not c.com; its path is /users/*, not /x"
    );
    assert_eq!(
        node.why_not("/broken", "broken"),
        "it gets the request, and responds with 503: the route is misconfigured"
    );
}

#[test]
fn candidates_come_in_the_order_they_were_looked_at() {
    let explanation =
        node(TABLE).explain(json!({"url": "http://a.com/users/5?v=2", "client_ip": "192.0.2.1"}));
    assert_eq!(explanation["route"]["id"], "one");
    assert_eq!(explanation["route"]["params"], json!({"id": "5"}));
    let lost = |one: &Value| format!("{} {}", one["route"].as_str().unwrap(), one["lost"].as_str().unwrap());
    let lost: Vec<String> = explanation["candidates"].as_array().unwrap().iter().map(lost).collect();
    assert_eq!(
        lost,
        ["inside remote_addr", "users shadowed", "young shadowed", "low shadowed", "any shadowed"]
    );
    assert_eq!((&explanation["other_hosts"], &explanation["other_paths"]), (&json!(1), &json!(1)));
}

#[test]
fn a_404_names_the_nearest_routes() {
    let node = node(
        "routes:\n- {id: a, uri: /orders/list, host: a.com}\n- {id: b, uri: /orders, host: b.com}\n\
         - {id: c, uri: /x, host: c.com}\n",
    );
    let explanation = node.explain(json!({"url": "http://a.com/orders"}));
    assert_eq!((&explanation["route"], &explanation["answer"]["status"]), (&Value::Null, &json!(404)));
    let near: Vec<&str> = explanation["candidates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["why"].as_str().unwrap())
        .collect();
    assert_eq!(near, ["its host is b.com, not a.com", "its path is /orders/list, not /orders"]);
}

const SHOP: &str = r#"
routes:
- id: shop
  uri: /shop/*
  service_id: s
  plugins:
    proxy-rewrite: {regex_uri: ["^/shop/(.*)", "/$1"], headers: {set: {X-From: gateway}, remove: [X-Debug]}}
    key-auth: {}
    limit-count: {count: 2, time_window: 60, rejected_code: 429}
    prometheus: {}
- {id: old, uri: /old, plugins: {redirect: {uri: /new, ret_code: 301, _meta: {filter: [[request_method, "==", GET]]}}}}
- {id: named, uri: /named, upstream: {nodes: {"nowhere.internal:80": 1}}}
- {id: empty, uri: /empty, upstream: {nodes: []}}
- {id: zero, uri: /zero, upstream: {nodes: {"10.0.0.1:80": 0}}}
services:
- {id: s, plugins: {cors: {}}, upstream_id: u}
upstreams:
- {id: u, nodes: {"10.0.0.1:80": 1, "10.0.0.2:80": 1}, pass_host: rewrite, upstream_host: in.side}
consumers:
- {username: alice, plugins: {key-auth: {key: secret}}, group_id: g}
consumer_groups:
- {id: g, plugins: {limit-count: {count: 1, time_window: 60}}}
global_rules:
- {id: all, plugins: {prometheus: {}, ip-restriction: {blacklist: [192.0.2.0/24]}}}
"#;

fn steps(explanation: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let step = |one: &Value| {
        let says = one["says"].as_str().map_or_else(String::new, |says| format!(": {says}"));
        let (plugin, origin) = (text(&one["plugin"]), text(&one["origin"]));
        format!("{} {plugin} of {origin} {}{says}", text(&one["phase"]), text(&one["decision"]))
    };
    explanation["plugins"].as_array().unwrap().iter().map(step).collect()
}

#[test]
fn plugins_are_told_in_running_order_with_their_origin_and_verdict() {
    let explanation = node(SHOP)
        .explain(json!({"url": "http://a.com/shop/1?q=2", "headers": {"apikey": "secret", "X-Debug": "1"}}));
    assert_eq!(
        steps(&explanation),
        [
            "rewrite cors of services/s continues",
            "rewrite key-auth of routes/shop continues: the client is alice",
            "rewrite proxy-rewrite of routes/shop continues",
            "access ip-restriction of global_rules/all continues",
            "access limit-count of consumer_groups/g continues: leaves 0 of 1",
            "log prometheus of global_rules/all steps_back",
            "response_head cors of services/s later",
            "log prometheus of routes/shop later",
        ]
    );
    assert_eq!(explanation["consumer"], "alice");
    let upstream = &explanation["upstream"];
    assert_eq!((&upstream["path"], &upstream["host"]), (&json!("/1?q=2"), &json!("in.side")));
    assert_eq!(upstream["headers_set"], json!({"X-Consumer-Username": "alice", "X-From": "gateway"}));
    assert_eq!(upstream["headers_removed"], json!(["X-Debug"]));
    assert_eq!(upstream["next"], "10.0.0.1:80");
    assert_eq!(upstream["endpoints"].as_array().unwrap().len(), 2);
}

#[test]
fn a_consumer_whose_group_is_not_in_force_is_refused_until_it_is() {
    let (_, with_group) = SHOP.split_once("consumer_groups:").unwrap();
    let group = format!("consumer_groups:{}", with_group.split_once("global_rules:").unwrap().0);
    let broken = SHOP.replace("{count: 1, ", "{count: 0, ");
    let question = json!({"url": "http://a.com/shop/1", "headers": {"apikey": "secret"}});
    for text in [SHOP.replace(&group, ""), broken] {
        let node = node(&text);
        let explanation = node.explain(question.clone());
        assert_eq!(
            steps(&explanation)[..4],
            [
                "rewrite cors of services/s continues",
                "rewrite key-auth of routes/shop continues: the client is alice",
                "rewrite proxy-rewrite of routes/shop continues",
                "rewrite consumer group of consumers/alice answers: status 503",
            ]
        );
        assert_eq!(explanation["answer"]["status"], 503, "{explanation}");
        let problems = node.compiler.problems();
        let problem = problems.iter().find(|one| *one.object == *"consumers/alice").unwrap();
        assert_eq!(problem.message, "consumer group g does not exist or is broken");
        let hint = problem.hint.as_deref();
        assert_eq!(hint, Some("requests of this consumer are answered 503 until there is"));
    }
    assert_eq!(node(SHOP).explain(question)["answer"], Value::Null);
}

#[test]
fn what_a_consumer_switches_off_is_not_on_the_way() {
    for (from, to) in [
        ("{key-auth: {key: secret}}", "{key-auth: {key: secret}, limit-count: {_meta: {disable: true}}}"),
        ("{limit-count: {count: 1, time_window: 60}}", "{limit-count: {_meta: {disable: true}}}"),
    ] {
        let explanation =
            node(&SHOP.replace(from, to)).explain(json!({"url": "/shop/1", "consumer": "alice"}));
        assert!(steps(&explanation)[1].ends_with("the client is alice"), "{to}");
        assert!(!steps(&explanation).iter().any(|step| step.contains("limit-count")), "{to}");
    }
}

#[test]
fn asking_counts_nothing_and_takes_nobodys_turn() {
    let node = node(SHOP);
    let question = json!({"url": "/shop/1", "consumer": "alice"});
    let first = node.explain(question.clone());
    assert_eq!(steps(&first)[1], "rewrite key-auth of routes/shop assumed: the client is alice");
    assert_eq!(node.explain(question), first);
}

#[test]
fn answers_of_plugins_end_the_way() {
    let explanation = node(SHOP).explain(json!({"url": "/shop/1"}));
    assert_eq!(
        (&explanation["answer"]["status"], &explanation["answer"]["plugin"]),
        (&json!(401), &json!("key-auth"))
    );
    assert_eq!(steps(&explanation)[2], "rewrite proxy-rewrite of routes/shop not_reached");
    assert_eq!(explanation["upstream"], Value::Null);
    let explanation = node(SHOP).explain(json!({"url": "/old"}));
    assert_eq!(
        (&explanation["answer"]["status"], &explanation["answer"]["headers"]["Location"]),
        (&json!(301), &json!("/new"))
    );
    let explanation = node(SHOP).explain(json!({"url": "/old", "method": "POST"}));
    let skipped = r#"rewrite redirect of routes/old skipped: _meta.filter: ["request_method","==","GET"] does not hold: request_method is "POST""#;
    assert_eq!(steps(&explanation)[0], skipped);
    let explanation = node(SHOP).explain(json!({"url": "/nobody", "client_ip": "192.0.2.9"}));
    assert_eq!(explanation["answer"]["plugin"], "ip-restriction", "global rules run without a route");
}

#[test]
fn what_is_answered_before_a_route_is_looked_for_has_none() {
    let node = node(
        r#"
routes:
- {id: any, uri: "/*", upstream: {nodes: {"10.0.0.1:80": 1}}}
"#,
    );
    for (method, hops, expected) in [
        ("OPTIONS", "0", json!(200)),
        ("TRACE", "0", json!(405)),
        ("CONNECT", "9", json!(405)),
        ("OPTIONS", "1", Value::Null),
        ("GET", "0", Value::Null),
    ] {
        let explanation = node.explain(json!({
            "method": method, "url": "http://a.test/x", "headers": { "Max-Forwards": hops }
        }));
        assert_eq!(explanation["answer"]["status"], expected, "{method} {hops}");
        let route = if expected.is_null() { json!("any") } else { Value::Null };
        assert_eq!(explanation["route"]["id"], route, "{method} {hops}");
    }
}

#[test]
fn what_one_search_captured_decides_nothing_in_the_next() {
    let node = node(
        r#"
routes:
- {id: x, uri: "/a*", vars: [[uri_param_id, "==", a]], upstream: {nodes: {"10.0.0.1:80": 1}}}
- {id: y, uri: "/:id/*rest", upstream: {nodes: {"10.0.0.1:80": 1}}}
"#,
    );
    let explanation = node.explain(json!({ "url": "http://a.test/a/" }));
    assert_eq!(explanation["route"]["id"], "y");
    assert_eq!(node.why_not("http://a.test/a/", "x"), explanation["candidates"][0]["why"].as_str().unwrap());
}

#[test]
fn no_endpoint_is_an_answer_but_an_unresolved_name_is_not() {
    for (url, status, remark) in [
        ("/named", Value::Null, "addresses of nowhere.internal not resolved"),
        ("/empty", json!(503), "routes/empty has no endpoint"),
        ("/zero", json!(503), "all endpoints of routes/zero have weight 0"),
        ("/old", json!(503), "neither the route nor its service has an upstream"),
    ] {
        let explanation = node(SHOP).explain(json!({"url": url, "method": "POST"}));
        assert_eq!(explanation["answer"]["status"], status, "{url}");
        assert_eq!(explanation["remarks"][0], remark, "{url}");
    }
}

#[test]
fn an_assumed_consumer_must_exist_and_be_asked_for() {
    let node = node(SHOP);
    let explanation = node.explain(json!({"url": "/shop/1", "consumer": "bob"}));
    assert_eq!(explanation["remarks"], json!(["consumer bob does not exist or is not active"]));
    let explanation = node.explain(json!({"url": "/named", "consumer": "alice"}));
    let remark = "no plugin authenticates consumers; --consumer has no effect";
    assert_eq!(explanation["remarks"][0], remark);
}

#[test]
fn the_certificate_is_told_with_the_name_that_matched() {
    let pem = "x".repeat(128);
    let node = node(&format!(
        "ssls:\n- {{id: w, snis: ['*.a.com'], cert: {pem}, key: {pem}}}\n\
         - {{id: x, sni: x.a.com, cert: {pem}, key: {pem}}}\n"
    ));
    for (question, id, matched) in [
        (json!({"url": "https://x.a.com/"}), json!("x"), json!("x.a.com")),
        (json!({"url": "https://Y.a.com:8443/"}), json!("w"), json!("*.a.com")),
        (json!({"url": "https://b.com/"}), Value::Null, Value::Null),
        (json!({"url": "http://b.com/", "sni": "x.a.com"}), json!("x"), json!("x.a.com")),
    ] {
        let explanation = node.explain(question.clone());
        assert_eq!(
            (&explanation["certificate"]["id"], &explanation["certificate"]["matched"]),
            (&id, &matched),
            "{question}"
        );
    }
    assert_eq!(node.explain(json!({"url": "http://x.a.com/"}))["certificate"], Value::Null);
}

#[test]
fn what_is_no_request_is_refused_with_its_place() {
    let node = node("routes: []");
    for (question, path, part) in [
        (json!({"url": "ftp://a.com/"}), "url", "scheme"),
        (json!({"url": "a.com/x"}), "url", "neither"),
        (json!({"url": "http://"}), "url", "no host"),
        (json!({"url": "http://me@a.com/"}), "url", "user name"),
        (json!({"url": "http://a.com/%zz"}), "", "percent escape"),
        (json!({"url": "/a b"}), "", "not allowed"),
        (json!({"url": "/", "method": "G T"}), "", ""),
        (json!({"url": "/", "headers": {"a": "b\r\nc: d"}}), "headers.a", "one line"),
        (json!({"url": "/", "headers": {"a b": "c"}}), "", ""),
    ] {
        let parsed: Question = serde_json::from_value(question.clone()).unwrap();
        let refused =
            explain(&node.snapshot, &parsed, &ExplainContext::default()).expect_err(&question.to_string());
        assert_eq!(refused.path, path, "{question}: {refused:?}");
        assert!(refused.message.contains(part), "{question}: {refused:?}");
    }
}

#[test]
fn the_text_form_reads_from_top_to_bottom() {
    let node = node(SHOP);
    let question: Question =
        serde_json::from_value(json!({"url": "http://a.com/shop/1", "consumer": "alice", "why_not": "old"}))
            .unwrap();
    let text = explain(&node.snapshot, &question, &ExplainContext::default()).unwrap().to_string();
    let mut rest = &text[..];
    for part in [
        "GET a.com/shop/1 from 127.0.0.1",
        "\nRoute\n  shop by path /shop/* and any host",
        "routes for other paths: 4, for other hosts: 0",
        "\nWhy not old\n  its path is /old, not /shop/1",
        "\nPlugins, in running order\n",
        "key-auth",
        "of routes/shop",
        "\nUpstream\n  upstreams/u, http, roundrobin\n  10.0.0.1:80 weight 1 <- next\n",
        "\nUpstream request\n  GET /1 (rewritten)\n  Host: in.side\n",
        "  X-From: gateway\n",
    ] {
        let at =
            rest.find(part).unwrap_or_else(|| panic!("{part:?} is not, or not in its place, in\n{text}"));
        rest = &rest[at..];
    }
}

#[test]
fn a_url_without_a_port_comes_in_by_the_nodes_first_listener() {
    let node = node(
        "routes:\n- {id: a, uri: /a, vars: [[server_port, '==', '9080']], plugins: {redirect: {uri: /b}}}\n- {id: s, uri: /s, vars: [[server_port, '==', '9443']], plugins: {redirect: {uri: /b}}}\n",
    );
    let ports = ListenerPorts { http: Some(9080), https: Some(9443) };
    for (url, route) in [
        ("/a", json!("a")),
        ("http://x/a", json!("a")),
        ("https://x/s", json!("s")),
        ("http://x:80/a", Value::Null),
        ("https://x/a", Value::Null),
    ] {
        let explanation = node.explain_at(ports, json!({ "url": url }));
        assert_eq!(explanation["route"]["id"], route, "{url}");
        assert_eq!(explanation["remarks"], json!([]), "{url}");
    }
    let explanation = node.explain(json!({ "url": "http://x/a" }));
    let remark = "server_port is assumed to be 80: the URL has no port, and no listener is known";
    assert_eq!((&explanation["route"], &explanation["remarks"]), (&Value::Null, &json!([remark])));
}

#[test]
fn the_shares_of_weighted_backends_are_explained() {
    let node = node(
        r#"
routes:
- {id: two, uri: /two, backends: [{upstream_id: a, weight: 1}, {upstream_id: b, weight: 3}, {upstream_id: c, weight: 0}]}
- {id: broken, uri: /broken, backends: [{upstream_id: a, weight: 1}, {status: 500, weight: 2}]}
- {id: none, uri: /none, backends: []}
upstreams:
- {id: a, nodes: {"10.0.0.1:80": 1}}
- {id: b, nodes: {"10.0.0.2:80": 1}}
- {id: c, nodes: {"10.0.0.3:80": 1}}
"#,
    );
    let check = |url: &str, remark: &str, status: Value, upstream: Value| {
        let explanation = node.explain(json!({ "url": url }));
        assert_eq!(explanation["remarks"], json!([remark]), "{url}");
        assert_eq!(explanation["answer"]["status"], status, "{url}");
        assert_eq!(explanation["upstream"]["origin"], upstream, "{url}: {explanation}");
    };
    let shares = "weighted backends: 1 of 4 to upstreams/a, 3 of 4 to upstreams/b";
    check("/two", shares, Value::Null, json!("upstreams/b"));
    let shares = "weighted backends: 1 of 3 to upstreams/a, 2 of 3 with status 500";
    check("/broken", shares, json!(500), Value::Null);
    check("/none", "weighted backends: no backend: status 500", json!(500), Value::Null);
}
