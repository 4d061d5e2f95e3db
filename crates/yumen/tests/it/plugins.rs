//! Plugins in the whole chain, as clients and upstreams see them.

use serde_json::{Value, json};

use crate::harness::gateway::YUMEN;
use crate::harness::upstream::respond;
use crate::harness::{Client, Gateway, Upstream, run};

fn with_plugins(upstream: &Upstream, plugins: &Value) -> Gateway {
    let route = json!({ "id": "r1", "uri": "/*", "plugins": plugins, "upstream": upstream.alone() });
    Gateway::start(&json!({ "routes": [route] }))
}

#[test]
fn key_auth_refuses_strangers_and_tells_the_upstream_who_came() {
    let upstream = Upstream::echo("a");
    let gateway = Gateway::start(&json!({
        "consumers": [{ "username": "jack", "plugins": { "key-auth": { "key": "jacks-key" } } }],
        "routes": [{ "id": "r1", "uri": "/*", "plugins": { "key-auth": {} }, "upstream": upstream.alone() }],
    }));
    let reply = gateway.get("/");
    assert_eq!(reply.status, 401);
    assert_eq!(reply.text(), "{\"message\":\"Missing API key in request\"}\n");
    let reply = gateway.get_with("/", "apikey: wrong\r\n");
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (401, "{\"message\":\"Invalid API key in request\"}\n")
    );
    let seen = gateway.get_with("/", "apikey: jacks-key\r\n").json();
    assert_eq!(seen["fields"]["x-consumer-username"], "jack");
    assert_eq!(gateway.get("/?apikey=jacks-key").status, 200);
    assert_eq!(upstream.requests(), 2);
    // A client cannot set the consumer fields itself.
    let seen = gateway.get_with("/", "apikey: jacks-key\r\nX-Consumer-Username: root\r\n").json();
    assert_eq!(seen["fields"]["x-consumer-username"], "jack");
}

#[test]
fn variables_of_the_node_and_the_endpoint_have_values_in_plugins_and_conditions() {
    let upstream = Upstream::echo("a");
    let set = json!({ "X-By": "$hostname", "X-P": "[$pid]", "X-Sent": "$bytes_sent/$body_bytes_sent",
        "X-Host": "$upstream_unresolved_host", "X-No": "[$nosuch_var]" });
    let port = upstream.address.port();
    let document = json!({ "routes": [
        { "id": "r1", "uri": "/*", "vars": [["hostname", "~~", ".+"]],
          "plugins": { "response-rewrite": { "headers": { "set": set } } },
          "upstream": { "nodes": { (format!("localhost:{port}")): 1 } } },
    ] });
    let gateway = Gateway::start(&document);
    let reply = gateway.get("/");
    let field = |name: &str| reply.field(name).unwrap_or_default().to_owned();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(field("x-by"), host.trim());
    assert_eq!(field("x-p"), format!("[{}]", gateway.pid()));
    assert_eq!((field("x-sent").as_str(), field("x-host").as_str()), ("0/0", "localhost"));
    assert_eq!(field("x-no"), "[]");
}

#[test]
fn a_key_hidden_from_the_upstream_is_hidden_whatever_rewrites_the_request() {
    let upstream = Upstream::echo("a");
    let hide = json!({ "hide_credentials": true });
    let rewrite = json!({ "headers": { "set": { "X-Saw": "$request_uri $args [$arg_apikey]" } } });
    let document = json!({
        "consumers": [
            { "username": "jack", "plugins": { "key-auth": { "key": "k1" } } },
            { "username": "jill", "plugins": { "key-auth": { "key": "k2" }, "proxy-rewrite": { "uri": "/new" } } },
        ],
        "routes": [
            { "id": "1", "uri": "/hide", "plugins": { "key-auth": hide }, "upstream": upstream.alone() },
            { "id": "2", "uri": "/both", "plugins": { "key-auth": hide, "proxy-rewrite": rewrite },
              "upstream": upstream.alone() },
        ],
    });
    let gateway = Gateway::start(&document);
    for (requested, expected) in [
        ("/hide?apikey=k1&b=2", "/hide?b=2"),
        ("/hide?apikey=k2&b=2", "/new?b=2"),
        ("/both?apikey=k1&b=2", "/both?b=2"),
    ] {
        let seen = gateway.get(requested).json();
        assert_eq!(seen["target"], expected, "{requested}: {seen}");
        let file = gateway.scratch.file("routes.yaml").display().to_string();
        let (_, out, err) =
            run(YUMEN, &["explain", &format!("http://test{requested}"), "--file", &file, "--json"]);
        let explanation: Value = serde_json::from_str(&out).expect(&err);
        assert_eq!(explanation["upstream"]["path"], expected, "{explanation}");
    }
    let seen = gateway.get("/both?apikey=k1&b=2").json();
    assert_eq!(seen["fields"]["x-saw"], "/both?b=2 b=2 []");
}

#[test]
fn no_spelling_of_a_path_goes_around_what_looks_at_request_uri() {
    let upstream = Upstream::echo("a");
    let filtered = json!({ "_meta": { "filter": [["request_uri", "~~", "^/admin"]] } });
    let saw = json!({ "headers": { "set": { "X-Saw": "$request_uri $real_request_uri" } } });
    let plugins = json!({ "uri-blocker": { "block_rules": ["^/internal/"] }, "key-auth": filtered, "proxy-rewrite": saw });
    let gateway = with_plugins(&upstream, &plugins);
    for spelling in ["/internal/x", "//internal/x", "/%69nternal/x", "/./internal/x", "/a/../internal/x"] {
        assert_eq!(gateway.get(spelling).status, 403, "{spelling}");
    }
    for spelling in ["/admin", "//admin", "/%61dmin", "/x/../admin"] {
        assert_eq!(gateway.get(spelling).status, 401, "{spelling}");
    }
    let seen = gateway.get("//a/%62%20%0d?c=%41").json();
    assert_eq!(seen["fields"]["x-saw"], "/a/b%20%0D?c=%41 //a/%62%20%0d?c=%41");
}

#[test]
fn basic_auth_challenges_and_lets_in() {
    let upstream = Upstream::echo("a");
    let login = json!({ "basic-auth": { "username": "foo", "password": "bar" } });
    let gateway = Gateway::start(&json!({
        "consumers": [{ "username": "foo", "plugins": login }],
        "routes": [{ "id": "r1", "uri": "/*", "plugins": { "basic-auth": {} }, "upstream": upstream.alone() }],
    }));
    let reply = gateway.get("/");
    assert_eq!(reply.status, 401);
    assert!(reply.field("www-authenticate").unwrap().to_lowercase().starts_with("basic"));
    let url = gateway.url("/");
    let status = |login: &str| {
        crate::harness::run("curl", &["-s", "-o", "/dev/null", "-w", "%{http_code}", "-u", login, &url]).1
    };
    assert_eq!((status("foo:bar").as_str(), status("foo:baz").as_str()), ("200", "401"));
}

#[test]
fn limit_count_is_exact_across_workers() {
    let upstream = Upstream::text("x");
    let limit = json!({ "limit-count": { "count": 50, "time_window": 60, "rejected_code": 429, "key": "remote_addr" } });
    let gateway = with_plugins(&upstream, &limit);
    // Many connections, so that both workers get some; concurrently, so that they race.
    let passed: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| (0..20).filter(|_| gateway.get("/").status == 200).count()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((passed, upstream.requests()), (50, 50));
    let reply = gateway.get("/");
    assert_eq!(reply.status, 429);
    assert_eq!(reply.field("x-ratelimit-limit"), Some("50"));
    assert_eq!(reply.field("x-ratelimit-remaining"), Some("0"));
}

#[test]
fn limit_count_survives_changes_of_the_configuration() {
    let upstream = Upstream::text("x");
    let limit = json!({ "limit-count": { "count": 3, "time_window": 60, "rejected_code": 429, "key": "remote_addr" } });
    let route = json!({ "id": "r1", "uri": "/*", "plugins": limit, "upstream": upstream.alone() });
    let gateway = Gateway::start(&json!({ "routes": [route] }));
    assert_eq!([gateway.get("/").status, gateway.get("/").status], [200, 200]);
    gateway.apply(
        &json!({ "routes": [route, { "id": "other", "uri": "/other", "upstream": upstream.alone() }] }),
    );
    assert_eq!([gateway.get("/").status, gateway.get("/").status], [200, 429]);
}

#[test]
fn global_rules_run_where_no_route_matches() {
    let gateway = Gateway::start(&json!({
        "global_rules": [{ "id": "1", "plugins": { "response-rewrite": { "headers": { "set": { "X-Seen": "yes" } } } } }],
    }));
    let reply = gateway.get("/none");
    assert_eq!((reply.status, reply.field("x-seen")), (404, Some("yes")));
}

#[test]
fn a_route_may_pass_by_the_global_rules() {
    let refuse = json!({ "ip-restriction": { "blacklist": ["127.0.0.0/8"] } });
    let rewrite = json!({ "response-rewrite": { "headers": { "set": { "X-Seen": "yes" } } } });
    let mock = json!({ "mocking": { "response_example": "x", "content_type": "text/plain" } });
    let gateway = Gateway::start(&json!({
        "global_rules": [{ "id": "1", "plugins": refuse }, { "id": "2", "plugins": rewrite }],
        "routes": [
            { "id": "open", "uri": "/open", "plugins": mock, "skip_global_rules": true },
            { "id": "ruled", "uri": "/ruled", "plugins": mock },
        ],
    }));
    for (path, expected) in
        [("/open", (200, None)), ("/ruled", (403, Some("yes"))), ("/none", (403, Some("yes")))]
    {
        let reply = gateway.get(path);
        assert_eq!((reply.status, reply.field("x-seen")), expected, "{path}");
    }
    let file = gateway.scratch.file("routes.yaml").display().to_string();
    for (path, expected) in [("/open", "200"), ("/ruled", "403")] {
        let (code, out, err) = run(YUMEN, &["explain", path, "--file", &file]);
        assert!(code == 0 && out.contains(expected), "{out}{err}");
        assert_eq!(out.contains("ip-restriction"), path == "/ruled", "{out}");
    }
}

#[test]
fn a_consumers_settings_win_over_the_routes() {
    let upstream = Upstream::text("x");
    let limit = |count: u32| json!({ "count": count, "time_window": 60, "rejected_code": 429, "key": "consumer_name" });
    let consumer = |name: &str, count: Option<u32>| {
        let mut plugins = json!({ "key-auth": { "key": name } });
        if let Some(count) = count {
            plugins["limit-count"] = limit(count);
        }
        json!({ "username": name, "plugins": plugins })
    };
    let plugins = json!({ "key-auth": {}, "limit-count": limit(2) });
    let gateway = Gateway::start(&json!({
        "consumers": [consumer("plain", None), consumer("premium", Some(5))],
        "routes": [{ "id": "r1", "uri": "/*", "plugins": plugins, "upstream": upstream.alone() }],
    }));
    let passed = |key: &str| {
        (0..8).filter(|_| gateway.get_with("/", &format!("apikey: {key}\r\n")).status == 200).count()
    };
    assert_eq!((passed("plain"), passed("premium")), (2, 5));
}

#[test]
fn credentials_groups_and_plugin_configs_are_followed() {
    let upstream = Upstream::echo("a");
    let rewrite = |value: &str| json!({ "response-rewrite": { "headers": { "set": { "X-From": value } } } });
    let gateway = Gateway::start(&json!({
        "consumer_groups": [{ "id": "g", "plugins": rewrite("group") }],
        "consumers": [{ "username": "jack", "group_id": "g" }],
        "credentials": [{ "id": "jack/credentials/one", "plugins": { "key-auth": { "key": "k" } } }],
        "plugin_configs": [{ "id": "p", "plugins": rewrite("config") }],
        "routes": [
            { "id": "r1", "uri": "/auth", "plugins": { "key-auth": {} }, "upstream": upstream.alone() },
            { "id": "r2", "uri": "/config", "plugin_config_id": "p", "upstream": upstream.alone() },
        ],
    }));
    let reply = gateway.get_with("/auth", "apikey: k\r\n");
    assert_eq!((reply.status, reply.field("x-from")), (200, Some("group")), "{}", gateway.log());
    assert_eq!(reply.json()["fields"]["x-credential-identifier"], "one");
    assert_eq!(gateway.get("/config").field("x-from"), Some("config"));
}

#[test]
fn mocking_answers_without_an_upstream() {
    let mock = json!({ "mocking": { "response_status": 201, "content_type": "application/json", "response_example": "{\"a\":1}" } });
    let gateway = Gateway::start(&json!({ "routes": [{ "id": "r1", "uri": "/*", "plugins": mock }] }));
    let reply = gateway.get("/");
    assert_eq!((reply.status, reply.text().as_str()), (201, "{\"a\":1}"));
    assert!(reply.field("x-mock-by").is_some());
}

#[test]
fn proxy_rewrite_changes_what_the_upstream_sees() {
    let upstream = Upstream::echo("a");
    let rewrite = json!({ "proxy-rewrite": {
        "regex_uri": ["^/old/(.*)", "/new/$1"], "host": "inside.test", "method": "PUT",
        "headers": { "set": { "X-Set": "$remote_addr" }, "remove": ["X-Gone"], "add": { "X-Add": "1" } },
    } });
    let gateway = with_plugins(&upstream, &rewrite);
    let seen = gateway.get_with("/old/thing?a=b", "X-Gone: 1\r\nX-Set: no\r\n").json();
    assert_eq!(seen["target"], "/new/thing?a=b");
    assert_eq!(seen["method"], "PUT");
    let fields = &seen["fields"];
    assert_eq!(
        [&fields["host"], &fields["x-set"], &fields["x-add"], &fields["x-gone"]],
        [&json!("inside.test"), &json!("127.0.0.1"), &json!("1"), &Value::Null]
    );
}

#[test]
fn response_rewrite_changes_what_the_client_sees() {
    let upstream = Upstream::text("hello from upstream");
    let rewrite = json!({ "response-rewrite": {
        "status_code": 202, "headers": { "set": { "X-A": "b" } },
        "filters": [{ "regex": "upstream", "scope": "global", "replace": "the gateway" }],
    } });
    let gateway = with_plugins(&upstream, &rewrite);
    let mut client = Client::connect(gateway.http);
    for _ in 0..3 {
        let reply = client.get("/");
        assert_eq!((reply.status, reply.field("x-a")), (202, Some("b")));
        assert_eq!(reply.text(), "hello from the gateway");
    }
    let gateway = with_plugins(&upstream, &json!({ "response-rewrite": { "body": "other" } }));
    assert_eq!(gateway.get("/").text(), "other");
}

#[test]
fn redirect_sends_elsewhere() {
    let upstream = Upstream::text("x");
    let gateway = with_plugins(&upstream, &json!({ "redirect": { "uri": "/new$uri", "ret_code": 301 } }));
    let reply = gateway.get("/a");
    assert_eq!((reply.status, reply.field("location")), (301, Some("/new/a")));
    let gateway = with_plugins(&upstream, &json!({ "redirect": { "http_to_https": true } }));
    let reply = gateway.get_with("/a?b", "Host: shop.test\r\n");
    // The port of the TLS listener.
    let port = gateway.https.port();
    assert_eq!(
        (reply.status, reply.field("location").unwrap().to_owned()),
        (301, format!("https://shop.test:{port}/a?b"))
    );
}

#[test]
fn cors_answers_preflights_by_itself() {
    let upstream = Upstream::text("x");
    let gateway = with_plugins(
        &upstream,
        &json!({ "cors": { "allow_origins": "https://a.test", "allow_methods": "GET,POST" } }),
    );
    let preflight = "OPTIONS / HTTP/1.1\r\nHost: x\r\nOrigin: https://a.test\r\nAccess-Control-Request-Method: POST\r\nConnection: close\r\n\r\n";
    let reply = gateway.send(preflight);
    assert_eq!((reply.status, reply.field("access-control-allow-origin")), (200, Some("https://a.test")));
    assert_eq!(reply.field("access-control-allow-methods"), Some("GET,POST"));
    assert_eq!(upstream.requests(), 0);
    let reply = gateway.get_with("/", "Origin: https://a.test\r\n");
    assert_eq!(
        (reply.text().as_str(), reply.field("access-control-allow-origin")),
        ("x", Some("https://a.test"))
    );
    assert_eq!(
        gateway.get_with("/", "Origin: https://b.test\r\n").field("access-control-allow-origin"),
        None
    );
}

#[test]
fn restrictions_and_faults_answer_as_configured() {
    let upstream = Upstream::text("x");
    let gateway = Gateway::start(&json!({}));
    let table = [
        (json!({ "ip-restriction": { "blacklist": ["127.0.0.0/8"] } }), 403),
        (json!({ "ip-restriction": { "whitelist": ["127.0.0.1"] } }), 200),
        (json!({ "uri-blocker": { "block_rules": ["root\\.exe"] } }), 403),
        (json!({ "fault-injection": { "abort": { "http_status": 418, "body": "teapot" } } }), 418),
        (
            json!({ "limit-conn": { "conn": 1, "burst": 0, "default_conn_delay": 0.1, "key": "remote_addr" } }),
            200,
        ),
        (json!({ "request-id": {} }), 200),
    ];
    for (plugins, status) in table {
        let route = json!({ "id": "r1", "uri": "/*", "plugins": plugins, "upstream": upstream.alone() });
        gateway.apply(&json!({ "routes": [route] }));
        let reply = gateway.get("/root.exe");
        assert_eq!(reply.status, status, "{plugins}: {reply:?}");
        assert_eq!(reply.field("x-request-id").is_some(), plugins.get("request-id").is_some());
    }
}

#[test]
fn prometheus_counts_by_status_route_and_node() {
    let upstream = Upstream::text("x");
    let gateway = Gateway::start(&json!({
        "global_rules": [{ "id": "1", "plugins": { "prometheus": {} } }],
        "routes": [{ "id": "r1", "uri": "/a", "upstream": upstream.alone() }],
    }));
    for _ in 0..7 {
        gateway.get("/a");
    }
    gateway.get("/none");
    // An exchange is counted after its last byte was sent.
    crate::harness::eventually("all are counted", 5, || {
        gateway.metric("yumen_requests_total{class=\"4xx\"}") == 1.0
    });
    let (_, text) = gateway.status_text("/apisix/prometheus/metrics");
    let line = |parts: &[&str]| {
        let found = text.lines().find(|line| parts.iter().all(|part| line.contains(part)));
        found.unwrap_or_else(|| panic!("{parts:?} not in\n{text}")).rsplit(' ').next().unwrap().to_owned()
    };
    let status = [
        "apisix_http_status{",
        "code=\"200\"",
        "route=\"r1\"",
        "matched_uri=\"/a\"",
        "node=\"127.0.0.1\"",
        "response_source=\"upstream\"",
    ];
    assert_eq!(line(&status), "7");
    assert_eq!(line(&["apisix_http_status{", "code=\"404\""]), "1");
    assert_eq!(line(&["apisix_http_latency_count{", "type=\"request\"", "route=\"r1\""]), "7");
    assert!(line(&["apisix_bandwidth{", "type=\"egress\"", "route=\"r1\""]).parse::<f64>().unwrap() > 7.0);
    gateway.assert_metric("yumen_requests_total{class=\"2xx\"}", 7.0);
    assert!(gateway.metric("apisix_http_requests_total") >= 8.0);
    let connections =
        |state: &str| gateway.metric(&format!("apisix_nginx_http_current_connections{{state=\"{state}\"}}"));
    assert!(connections("accepted") >= 8.0);
    assert_eq!(connections("handled"), connections("accepted"));
    assert_eq!(connections("active"), gateway.metric("yumen_connections"));
    assert!(connections("total") >= 8.0);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let labels = format!("apisix_node_info{{hostname=\"{}\",version=\"", host.trim());
    assert_eq!(line(&[&labels]), "1");
    // No metric family occurs twice.
    let types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    let distinct: std::collections::BTreeSet<&&str> = types.iter().collect();
    assert_eq!(types.len(), distinct.len());
}

#[test]
fn the_status_of_an_upstream_that_failed_is_told_and_plugins_may_hide_it() {
    let upstream = Upstream::start(|request, stream| {
        let status = if request.target.starts_with("/bad") { 503 } else { 404 };
        respond(stream, status, "", b"x")
    });
    let hide = json!({ "headers": { "remove": ["X-APISIX-Upstream-Status"] } });
    let gateway = Gateway::start(&json!({ "routes": [
        { "id": "1", "uri": "/*", "upstream": upstream.alone() },
        { "id": "2", "uri": "/bad/status", "plugins": { "response-rewrite": { "status_code": 200 } },
          "upstream": upstream.alone() },
        { "id": "3", "uri": "/bad/hidden", "plugins": { "response-rewrite": hide }, "upstream": upstream.alone() },
        { "id": "4", "uri": "/own", "plugins": { "fault-injection": { "abort": { "http_status": 503 } } },
          "upstream": upstream.alone() },
    ] }));
    for (path, status, shown) in [
        ("/bad", 503, Some("503")),
        ("/bad/status", 200, Some("503")),
        ("/bad/hidden", 503, None),
        ("/own", 503, None),
        ("/", 404, None),
    ] {
        let reply = gateway.get(path);
        assert_eq!((reply.status, reply.field("x-apisix-upstream-status")), (status, shown), "{path}");
    }
}

#[test]
fn a_missing_plugin_that_guards_nothing_is_left_out_with_a_warning() {
    let upstream = Upstream::text("x");
    let gateway = with_plugins(&upstream, &json!({ "lago": { "endpoint_addrs": ["http://127.0.0.1:1"] } }));
    assert_eq!(gateway.get("/").text(), "x");
    let problem = &gateway.status_json("/yumen/v1/problems")[0];
    assert_eq!((&problem["level"], &problem["object"]), (&json!("warning"), &json!("routes/r1")));
    assert!(gateway.log().contains("lago"));
}

#[test]
fn a_plugin_nobody_knows_is_an_error_with_a_hint() {
    let upstream = Upstream::text("x");
    let gateway = with_plugins(&upstream, &json!({ "key-aut": {} }));
    // A route without a last good version fails closed.
    assert_eq!(gateway.get("/").status, 503);
    let problem = &gateway.status_json("/yumen/v1/problems")[0];
    assert_eq!((&problem["level"], &problem["object"]), (&json!("error"), &json!("routes/r1")));
    assert!(problem["hint"].as_str().unwrap().contains("key-auth"), "{problem}");
}

#[test]
fn texts_say_that_they_are_text_unless_somebody_says_otherwise() {
    let upstream = Upstream::echo("a");
    for (more, expected) in [
        (json!({}), "text/plain; charset=utf-8"),
        (json!({ "headers": { "content-type": "text/x" } }), "text/x"),
    ] {
        let mut abort = json!({ "http_status": 503, "body": "<b>" });
        abort.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let gateway = with_plugins(&upstream, &json!({ "fault-injection": { "abort": abort } }));
        let reply = gateway.get("/");
        assert_eq!((reply.text().as_str(), reply.field("content-type")), ("<b>", Some(expected)));
    }
}
