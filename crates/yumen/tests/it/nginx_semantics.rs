//! Native actions with the semantics of NGINX: redirects, access rules, error responses, canaries, sessions, bounds.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::upstream::respond;
use crate::harness::{Gateway, Options, Scratch, Upstream, eventually};

/// A gateway with one route for all requests, of these actions, to the upstream `app`.
fn acting(actions: &Value, more: &[(&str, &Upstream)], app: &Upstream) -> Gateway {
    let mut upstreams = vec![json!({ "id": "app", "nodes": app.nodes() })];
    upstreams.extend(more.iter().map(|(id, upstream)| json!({ "id": id, "nodes": upstream.nodes() })));
    let route = json!({ "id": "1", "uri": "/*", "actions": actions, "upstream_id": "app" });
    Gateway::start(&json!({ "upstreams": upstreams, "routes": [route] }))
}

#[test]
fn a_conditional_redirect_spares_challenges_and_the_rest_is_forwarded() {
    let app = Upstream::echo("app");
    let when = json!({ "scheme": "http", "exempt_paths": ["/.well-known/acme-challenge"] });
    let actions = json!({
        "redirect": { "stage": "first", "scheme": "https", "status": 308, "when": when },
        "forwarded_fields": "nginx",
    });
    let gateway = acting(&actions, &[], &app);
    let reply = gateway.get("/a?b=c");
    assert!(
        reply.field("location").is_some_and(|url| url.starts_with("https://") && url.ends_with("/a?b=c"))
    );
    assert_eq!(reply.status, 308);
    let reply =
        gateway.get_with("/.well-known/acme-challenge/x", "Host: a.example\r\nX-Forwarded-For: 9.9.9.9\r\n");
    let fields = &reply.json()["fields"];
    for (name, value) in [
        ("x-forwarded-for", "127.0.0.1"),
        ("x-real-ip", "127.0.0.1"),
        ("x-original-forwarded-for", "9.9.9.9"),
        ("x-forwarded-host", "a.example"),
        ("x-forwarded-scheme", "http"),
        ("x-scheme", "http"),
    ] {
        assert_eq!(fields[name], value, "{name} in {fields}");
    }
    assert_eq!(fields["x-request-id"].as_str().map(str::len), Some(32));
}

#[test]
fn a_slow_hash_admits_its_password_only() {
    let app = Upstream::echo("app");
    // `ada:myPassword`, by bcrypt with cost 5.
    let file = "ada:$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC";
    let access = json!({ "basic_auth_file": { "file": file, "realm": "Staff" } });
    let gateway = acting(&json!({ "access": access }), &[], &app);
    let get = |token: &str| gateway.get_with("/", &format!("Host: a\r\nAuthorization: Basic {token}\r\n"));
    for _ in 0..3 {
        assert_eq!(get("YWRhOm15UGFzc3dvcmQ=").status, 200, "{}", gateway.log());
        assert_eq!(get("YWRhOm15UGFzc3dvcmU=").status, 401);
    }
    let reply = gateway.get("/");
    assert_eq!((reply.status, reply.field("www-authenticate")), (401, Some("Basic realm=\"Staff\"")));
    assert_eq!(app.requests(), 3);
}

#[test]
fn an_authorization_request_admits_refuses_and_leads_to_the_sign_in_page() {
    let auth = Upstream::start(|request, stream| {
        assert!(request.target.starts_with("/check?"), "{}", request.target);
        assert_eq!((&*request.method, request.body.len()), ("GET", 0));
        match request.field("cookie") {
            Some("s=ada") => respond(stream, 202, "X-User: ada\r\nSet-Cookie: s=new\r\n", b"long body"),
            Some("s=bad") => respond(stream, 403, "", b""),
            Some("s=broken") => respond(stream, 302, "Location: /\r\n", b""),
            _ => respond(stream, 401, "", b""),
        }
    });
    let app = Upstream::echo("app");
    let nginx = json!({ "url": "/check?u=$escaped_request_uri", "signin": "https://login.example/start" });
    let external = json!({ "upstream_id": "auth", "allowed_response_headers": ["X-User"], "nginx": nginx });
    let gateway = acting(&json!({ "external_auth": external }), &[("auth", &auth)], &app);
    let post = |cookie: &str| {
        let fields = format!("Host: a.example\r\nCookie: {cookie}\r\nX-User: forged\r\nContent-Length: 2");
        gateway.send(format!("POST /x?y HTTP/1.1\r\n{fields}\r\n\r\nok"))
    };
    let reply = post("s=ada");
    assert_eq!((reply.status, reply.field("set-cookie")), (200, Some("s=new")), "{}", gateway.log());
    assert_eq!((&reply.json()["fields"]["x-user"], &reply.json()["body"]), (&json!("ada"), &json!("ok")));
    let reply = post("s=none");
    let location = "https://login.example/start?rd=http://a.example%2Fx%3Fy";
    assert_eq!((reply.status, reply.field("location")), (302, Some(location)));
    assert_eq!(post("s=bad").status, 403);
    assert_eq!(post("s=broken").status, 500);
    assert_eq!(app.requests(), 1);
}

#[test]
fn error_responses_are_replaced_by_those_of_another_upstream() {
    let app = Upstream::start(|request, stream| match &*request.target {
        "/missing" => respond(stream, 404, "X-App: 1\r\n", b"not here"),
        "/broken" => respond(stream, 500, "", b"own page"),
        _ => respond(stream, 200, "", b"app"),
    });
    let pages = Upstream::start(|request, stream| {
        let field = |name: &str| request.field(name).unwrap_or("-").to_owned();
        let seen = ["x-code", "x-format", "x-original-uri", "x-namespace", "host"].map(field).join(" ");
        let status = request.field("x-code").unwrap().parse().unwrap();
        respond(
            stream,
            status,
            "X-Page: 1\r\n",
            format!("{} {} {seen}", request.method, request.target).as_bytes(),
        )
    });
    let rules = json!({ "upstream_id": "pages", "statuses": [403, 404], "no_endpoint": true, "fields": [["X-Namespace", "shop"]] });
    let actions = |more: Value| {
        let mut actions = json!({ "errors": { "format": "html", "pages": rules } });
        actions.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        actions
    };
    let route = |id: &str, uri: &str, to: &str, more: Value| json!({ "id": id, "uri": uri, "upstream_id": to, "actions": actions(more) });
    let gone = json!({ "upstream_id": "gone", "statuses": [404] });
    let gateway = Gateway::start(&json!({
        "upstreams": [
            { "id": "app", "nodes": app.nodes() },
            { "id": "pages", "nodes": pages.nodes() },
            { "id": "none", "nodes": {} },
            { "id": "gone", "nodes": { "127.0.0.1:1": 1 } },
        ],
        "routes": [
            route("1", "/*", "app", json!({})),
            route("2", "/none", "none", json!({})),
            route("3", "/closed", "app", json!({ "access": { "deny": ["127.0.0.1"] } })),
            { "id": "4", "uri": "/gone/*", "upstream_id": "app", "actions": {
                "errors": { "pages": gone },
                "rewrite": { "path": { "full": "/missing" } },
            } },
        ],
    }));
    let check = |path: &str, status: u16, text: &str| {
        let reply = gateway.get_with(path, "Host: a.example\r\nAccept: text/html\r\n");
        assert_eq!((reply.status, &*reply.text()), (status, text), "{path} {}", gateway.log());
        reply
    };
    let reply = check("/missing", 404, "GET / 404 text/html /missing shop a.example");
    assert_eq!((reply.field("x-page"), reply.field("x-app")), (Some("1"), None));
    check("/broken", 500, "own page");
    check("/fine", 200, "app");
    check("/none", 503, "GET / 503 text/html /none shop a.example");
    check("/closed", 403, "GET / 403 text/html /closed shop a.example");
    // Without a page, the response of the upstream is passed on.
    check("/gone/x", 404, "not here");
}

#[test]
fn messages_of_the_gateway_are_pages_in_the_form_of_nginx() {
    let app = Upstream::text("app");
    let actions = json!({ "errors": { "format": "html" }, "limits": { "body_bytes_max": 4 } });
    let gateway = acting(&actions, &[], &app);
    let post = |length: usize| {
        let body = "x".repeat(length);
        gateway.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"))
    };
    assert_eq!(post(4).status, 200);
    let reply = post(5);
    assert_eq!((reply.status, reply.field("content-type")), (413, Some("text/html")));
    assert!(
        reply.text().contains("<center><h1>413 Request Entity Too Large</h1></center>"),
        "{}",
        reply.text()
    );
}

#[test]
fn a_canary_is_chosen_by_field_cookie_and_session() {
    let (main, canary) = (Upstream::text("main"), Upstream::text("canary"));
    let backends = |ignores_session: bool| {
        let rules = json!({ "header": { "name": "X-Canary" }, "cookie": "canary", "ignores_session": ignores_session });
        json!([{ "upstream_id": "main", "weight": 100 }, { "upstream_id": "canary", "weight": 0, "canary": rules }])
    };
    let route = |id: &str, ignores_session: bool| {
        json!({
            "id": id, "uri": format!("/{id}"), "backends": backends(ignores_session), "session": { "name": "s", "mode": "hash" },
        })
    };
    let empty = json!([
        { "upstream_id": "main", "weight": 0 },
        { "upstream_id": "empty", "weight": 100, "canary": { "cookie": "canary" } },
    ]);
    let gateway = Gateway::start(&json!({
        "upstreams": [
            { "id": "main", "nodes": main.nodes() },
            { "id": "canary", "nodes": canary.nodes() },
            { "id": "empty", "nodes": {} },
        ],
        "routes": [
            route("sticky", false),
            route("legacy", true),
            { "id": "empty", "uri": "/empty", "backends": empty },
        ],
    }));
    let get = |path: &str, fields: &str| gateway.get_with(path, &format!("Host: a\r\n{fields}"));
    let check = |path: &str, fields: &str, expected: &str| {
        assert_eq!(get(path, fields).text(), expected, "{path} {fields} {}", gateway.log());
    };
    check("/sticky", "", "main");
    check("/sticky", "X-Canary: always\r\n", "canary");
    check("/sticky", "Cookie: canary=always\r\n", "canary");
    check("/sticky", "X-Canary: never\r\nCookie: canary=always\r\n", "main");
    let of = |fields: &str| {
        let reply = get("/sticky", fields);
        let cookie = reply.field("set-cookie").expect("a new session").split(';').next().unwrap().to_owned();
        format!("Cookie: {cookie}\r\n")
    };
    let (of_main, of_canary) = (of(""), of("X-Canary: always\r\n"));
    check("/sticky", &of_canary, "canary");
    check("/sticky", &format!("{of_main}X-Canary: always\r\n"), "main");
    check("/legacy", &format!("{of_main}X-Canary: always\r\n"), "canary");
    check("/empty", "", "main");
    check("/empty", "Cookie: canary=always\r\n", "main");
}

#[test]
fn a_hashed_session_stays_until_its_endpoint_goes() {
    let names = ["a", "b", "c", "d"];
    let upstreams = names.map(Upstream::text);
    let resources = |present: &[usize]| {
        let nodes: serde_json::Map<String, Value> =
            present.iter().map(|at| (upstreams[*at].address.to_string(), json!(1))).collect();
        let session = json!({ "name": "s", "mode": "hash", "change_on_failure": false });
        json!({ "routes": [{ "id": "1", "uri": "/*", "session": session, "upstream": { "nodes": nodes } }] })
    };
    let gateway = Gateway::start(&resources(&[0, 1, 2, 3]));
    let first: Vec<(String, String)> = (0..40)
        .map(|_| {
            let reply = gateway.get("/");
            let cookie = reply.field("set-cookie").expect("a cookie").split(';').next().unwrap().to_owned();
            (cookie, reply.text())
        })
        .collect();
    let get = |cookie: &str| gateway.get_with("/", &format!("Host: a\r\nCookie: {cookie}\r\n"));
    for (cookie, name) in &first {
        let reply = get(cookie);
        assert_eq!((&reply.text(), reply.field("set-cookie")), (name, None));
    }
    let used: std::collections::BTreeSet<&String> = first.iter().map(|(_, name)| name).collect();
    assert_eq!(used.len(), 4, "40 keys reach all endpoints");
    gateway.apply(&resources(&[0, 1, 2]));
    for (cookie, name) in &first {
        let now = get(cookie).text();
        // The sessions of the other endpoints do not move.
        assert_eq!(now == *name, name != "d", "{name} {now}");
    }
}

#[test]
fn a_response_is_slowed_after_its_first_bytes() {
    let app = Upstream::start(|_, stream| respond(stream, 200, "", &[b'x'; 20_000]));
    let limits = json!({ "response_rate": 10_000, "response_rate_after": 5_000 });
    let gateway = acting(&json!({ "limits": limits }), &[], &app);
    let begun = Instant::now();
    let reply = gateway.get("/");
    assert_eq!((reply.status, reply.body.len()), (200, 20_000));
    // 5000 bytes are free, those of one second need not wait, and 5000 remain.
    assert!(begun.elapsed() >= Duration::from_millis(490), "{:?}", begun.elapsed());
}

#[test]
fn routes_of_one_plugin_config_share_their_limit_and_its_exemptions() {
    let app = Upstream::text("app");
    let limit = |except: &str| {
        json!({ "limit-req": {
        "rate": 5, "burst": 25, "key": "remote_addr", "nodelay": true, "rejected_code": 503,
        "_meta": { "filter": [["remote_addr", "!", "ipmatch", [except]]] },
    } })
    };
    let route = |id: &str, config: &str| {
        json!({
            "id": id, "uri": format!("/{id}"), "plugin_config_id": config, "upstream": app.alone(),
        })
    };
    let gateway = Gateway::start(&json!({
        "plugin_configs": [
            { "id": "limited", "plugins": limit("10.0.0.0/8") },
            { "id": "exempt", "plugins": limit("127.0.0.0/8") },
        ],
        "routes": [route("a", "limited"), route("b", "limited"), route("c", "exempt")],
    }));
    let begun = Instant::now();
    let passed =
        (0..60).filter(|at| gateway.get(if at % 2 == 0 { "/a" } else { "/b" }).status == 200).count();
    // One, 25 of the burst, and those that the bucket has leaked meanwhile.
    let leaked = (begun.elapsed().as_secs_f64() * 5.0).ceil() as usize;
    assert!((26..=26 + leaked).contains(&passed), "{passed} in {:?}", begun.elapsed());
    assert!((0..60).all(|_| gateway.get("/c").status == 200));
}

#[test]
fn a_route_may_have_no_lines_in_the_access_log() {
    let app = Upstream::text("app");
    let scratch = Scratch::new();
    let log = scratch.file("access.log");
    let node = format!("logs: {{access: {{enabled: true, path: \"{}\", format: json}}}}", log.display());
    let routes = scratch.write(
        "routes.yaml",
        json!({ "routes": [
            { "id": "loud", "uri": "/loud", "upstream": app.alone() },
            { "id": "quiet", "uri": "/quiet", "actions": { "access_log": false }, "upstream": app.alone() },
        ] })
        .to_string(),
    );
    let mut gateway =
        Gateway::launch(scratch, &Options { node: &node, ..Options::default() }, &["--file", &routes]);
    for path in ["/quiet", "/loud", "/quiet"] {
        assert_eq!(gateway.get(path).status, 200);
    }
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    eventually("the line is written", 5, || read().contains("\"/loud\""));
    gateway.terminate();
    gateway.wait(60);
    assert_eq!(read().lines().count(), 1, "{}", read());
}
