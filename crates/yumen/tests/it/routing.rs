//! The route of a request.

use serde_json::{Value, json};

use crate::harness::{Gateway, Reply, Upstream, eventually};

/// A route that responds with its id.
fn route(id: &str, matching: &Value) -> Value {
    let mut route = json!({
        "id": id,
        "plugins": { "mocking": { "response_example": id, "content_type": "text/plain", "with_mock_header": false } },
    });
    for (name, value) in matching.as_object().unwrap() {
        route[name] = value.clone();
    }
    route
}

fn gateway(routes: &[(&str, Value)]) -> Gateway {
    let routes: Vec<Value> = routes.iter().map(|(id, matching)| route(id, matching)).collect();
    Gateway::start(&json!({ "routes": routes }))
}

/// Checks requests (request line and fields) against the ids of their routes; `-` for none.
fn check(gateway: &Gateway, table: &[(&str, &str)]) {
    for (request, expected) in table {
        let host = if request.contains("\nHost:") { "" } else { "Host: test\r\n" };
        let (line, fields) = request.split_once('\n').unwrap_or((request, ""));
        let fields: String = fields.lines().map(|field| format!("{field}\r\n")).collect();
        let reply = gateway.send(format!("{line} HTTP/1.1\r\n{fields}{host}Connection: close\r\n\r\n"));
        assert_eq!(found(&reply), *expected, "{request}");
    }
}

fn found(reply: &Reply) -> String {
    if reply.status == 404 { "-".to_owned() } else { reply.text().trim().to_owned() }
}

#[test]
fn paths_match_exactly_by_prefix_and_by_parameter() {
    let gateway = gateway(&[
        ("exact", json!({ "uri": "/user/me" })),
        ("prefix", json!({ "uri": "/user/*" })),
        ("parameter", json!({ "uri": "/user/:id/posts" })),
        ("several", json!({ "uris": ["/x", "/y/*"] })),
        ("between", json!({ "uri": "/user/*/posts/*/likes" })),
    ]);
    check(
        &gateway,
        &[
            ("GET /user/me", "exact"),
            ("GET /user/me?a=b", "exact"),
            ("GET /user/you", "prefix"),
            ("GET /user/7/posts", "parameter"),
            ("GET /user/7/postscript", "prefix"),
            ("GET /user/7/posts/a/b/likes", "between"),
            ("GET /user/7/posts/likes", "prefix"),
            ("GET /x", "several"),
            ("GET /y/z", "several"),
            ("GET /xy", "-"),
            ("GET /", "-"),
        ],
    );
}

#[test]
fn hosts_match_exactly_before_wildcards_before_none() {
    let gateway = gateway(&[
        ("any", json!({ "uri": "/*" })),
        ("wildcard", json!({ "uri": "/*", "host": "*.shop.test" })),
        ("exact", json!({ "uri": "/*", "hosts": ["www.shop.test", "shop.test"] })),
    ]);
    check(
        &gateway,
        &[
            ("GET /\nHost: shop.test", "exact"),
            ("GET /\nHost: WWW.shop.test:80", "exact"),
            ("GET /\nHost: api.shop.test", "wildcard"),
            ("GET /\nHost: a.b.shop.test", "wildcard"),
            ("GET /\nHost: shop.test.evil", "any"),
        ],
    );
}

#[test]
fn methods_variables_and_addresses_decide() {
    let gateway = gateway(&[
        ("post", json!({ "uri": "/m", "methods": ["POST", "PUT"] })),
        ("beta", json!({ "uri": "/v", "vars": [["http_x_beta", "==", "1"]], "priority": 1 })),
        ("old", json!({ "uri": "/v", "vars": [["arg_age", ">", "60"]] })),
        ("cookie", json!({ "uri": "/v", "vars": [["cookie_tier", "in", ["gold", "silver"]]] })),
        ("pattern", json!({ "uri": "/v", "vars": [["http_user_agent", "~~", "^curl/"]] })),
        ("here", json!({ "uri": "/a", "remote_addrs": ["10.0.0.0/8", "127.0.0.1"] })),
        ("there", json!({ "uri": "/b", "remote_addr": "10.0.0.0/8" })),
    ]);
    check(
        &gateway,
        &[
            ("GET /m", "-"),
            ("PUT /m\nContent-Length: 0", "post"),
            ("GET /v", "-"),
            ("GET /v\nX-Beta: 1", "beta"),
            ("GET /v?age=61", "old"),
            ("GET /v?age=59", "-"),
            ("GET /v?age=61\nX-Beta: 1", "beta"),
            ("GET /v\nCookie: a=b; tier=gold", "cookie"),
            ("GET /v\nUser-Agent: curl/8", "pattern"),
            ("GET /a", "here"),
            ("GET /b", "-"),
        ],
    );
}

#[test]
fn priority_decides_between_equal_paths_and_status_takes_out_of_service() {
    let gateway = gateway(&[
        ("low", json!({ "uri": "/p", "priority": 1 })),
        ("high", json!({ "uri": "/p", "priority": 10 })),
        ("off", json!({ "uri": "/p", "priority": 100, "status": 0 })),
        ("gone", json!({ "uri": "/q", "status": 0 })),
    ]);
    check(&gateway, &[("GET /p", "high"), ("GET /q", "-")]);
}

#[test]
fn a_miss_is_answered_with_the_known_body() {
    let gateway = gateway(&[("a", json!({ "uri": "/a" }))]);
    let reply = gateway.get("/b");
    assert_eq!(reply.status, 404);
    assert_eq!(reply.text(), "{\"error_msg\":\"404 Route Not Found\"}\n");
    assert!(reply.field("content-type").unwrap().starts_with("application/json"));
}

#[test]
fn the_body_can_decide() {
    let vars = json!([["post_arg_kind", "==", "gold"]]);
    let gateway = gateway(&[
        ("gold", json!({ "uri": "/*", "vars": vars, "priority": 1 })),
        ("other", json!({ "uri": "/*" })),
    ]);
    for (body, expected) in [("kind=gold", "gold"), ("kind=tin", "other")] {
        let head = format!(
            "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        assert_eq!(found(&gateway.send(head + body)), expected, "{body}");
    }
}

#[test]
fn ten_thousand_routes_are_all_found() {
    let routes: Vec<Value> = (0..10_000)
        .map(|i| route(&format!("r{i}"), &json!({ "uri": format!("/api/v{}/thing{i}/*", i % 7) })))
        .collect();
    let gateway = Gateway::start(&json!({ "routes": routes }));
    for i in (0..10_000).step_by(397) {
        check(&gateway, &[(&format!("GET /api/v{}/thing{i}/x", i % 7), &format!("r{i}"))]);
    }
}

#[test]
fn patterns_with_look_around_match_and_what_takes_too_long_is_refused() {
    let upstream = Upstream::echo("a");
    let hard = json!([["arg_q", "~~", "^(a|a)*\\1b$"]]);
    let rewrite = json!({ "regex_uri": ["^/old/(?!keep)(.*)$", "/new/$1"] });
    let gateway = Gateway::start(&json!({ "routes": [
        { "id": "1", "uri": "/*", "vars": [["uri", "~~", "^/(?!admin)"]],
          "plugins": { "proxy-rewrite": rewrite, "uri-blocker": { "block_rules": ["(?<!x)secret", "(s)\\1n"] } },
          "upstream": upstream.alone() },
        { "id": "2", "uri": "/hard", "vars": hard, "upstream": upstream.alone() },
        { "id": "3", "uri": "/guarded", "upstream": upstream.alone(),
          "plugins": { "key-auth": { "_meta": { "filter": hard } } } },
        { "id": "4", "uri": "/blocked", "upstream": upstream.alone(),
          "plugins": { "uri-blocker": { "block_rules": ["(a|a)*\\1b"] } } },
    ] }));
    let target = |path: &str| gateway.get(path).json()["target"].as_str().map(str::to_owned);
    assert_eq!(target("/old/a").as_deref(), Some("/new/a"));
    assert_eq!(target("/old/keep").as_deref(), Some("/old/keep"));
    assert_eq!(target("/xsecret").as_deref(), Some("/xsecret"));
    assert_eq!(gateway.get("/admin").status, 404);
    assert_eq!(gateway.get("/secret").status, 403);
    assert_eq!(gateway.get("/ssn").status, 403);
    // The match, or the filter of the guard, exceeds the backtracking budget: no request is forwarded.
    let seen = upstream.requests();
    let long = "a".repeat(900);
    for path in ["/hard", "/guarded"] {
        let reply = gateway.get(&format!("{path}?q={long}"));
        assert_eq!(reply.status, 500, "{path}");
        assert!(reply.text().contains("a pattern took too long to match the request"), "{}", reply.text());
        assert_ne!(gateway.get(&format!("{path}?q=b")).status, 500);
    }
    assert_eq!(gateway.get(&format!("/blocked?{long}")).status, 403);
    // A fault is counted after its response.
    eventually("both faults are counted", 10, || {
        gateway.metric("yumen_faults_total{fault=\"undecided\",side=\"local\"}") == 2.0
    });
    assert!(upstream.requests() <= seen + 2);
}

#[test]
fn an_exchange_that_a_pattern_left_open_asks_no_plugin_behind_it() {
    let (upstream, auth) = (Upstream::echo("a"), Upstream::echo("auth"));
    let hard = json!([["arg_q", "~~", "^(a|a)*\\1b$"]]);
    let auth_settings = json!({ "uri": format!("http://{}/", auth.address) });
    let limit = json!({ "count": 1, "time_window": 60, "rejected_code": 429 });
    let gateway = Gateway::start(&json!({ "routes": [
        { "id": "1", "uri": "/hard", "vars": hard, "upstream": upstream.alone() },
        { "id": "2", "uri": "/hard", "upstream": upstream.alone(), "priority": -1,
          "plugins": { "forward-auth": auth_settings, "limit-count": limit } },
        { "id": "3", "uri": "/guarded", "upstream": upstream.alone(),
          "plugins": { "key-auth": { "_meta": { "filter": hard } }, "forward-auth": auth_settings, "limit-count": limit } },
        { "id": "4", "uri": "/late", "upstream": upstream.alone(),
          "plugins": { "forward-auth": { "uri": auth_settings["uri"], "_meta": { "filter": hard } }, "limit-count": limit } },
    ] }));
    let long = "a".repeat(900);
    for path in ["/hard", "/guarded", "/late"] {
        let head = format!("POST {path}?q={long} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n");
        let auth_before = auth.requests();
        for _ in 0..3 {
            assert_eq!(gateway.send(&head).status, 500, "{path}");
        }
        assert_eq!(auth.requests(), auth_before, "{path}");
        assert_eq!(gateway.get(&format!("{path}?q=x")).status, 200, "{path}: nothing was counted");
    }
}
