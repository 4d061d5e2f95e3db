//! `yumen.yaml`: node settings with visible effects.

use serde_json::{Value, json};

use crate::harness::{Client, Gateway, Options, Upstream};

fn with_node(node: &str, workers: u32, upstream: &Value) -> Gateway {
    let document = json!({ "routes": [{ "id": "1", "uri": "/*", "upstream": upstream }] });
    Gateway::with(&document, &Options { node, workers, ..Options::default() })
}

#[test]
fn workers_are_as_many_as_nice_and_as_pinned_as_configured() {
    let upstream = Upstream::text("x");
    let gateway = with_node("workers: {cpu_affinity: auto, nice: 7}", 3, &upstream.alone());
    assert_eq!(gateway.status_json("/status")["workers"], 3);
    // Worker threads may apply their settings after the start was announced.
    let mut settled = Vec::new();
    crate::harness::eventually("all are settled", 5, || {
        settled = workers(gateway.pid());
        let is_one = |cpus: &str| cpus.parse::<u32>().is_ok();
        settled.len() == 3 && settled.iter().all(|(nice, cpus)| nice == "7" && is_one(cpus))
    });
    assert_eq!(gateway.get("/").status, 200);
}

/// Nice value and allowed CPUs of each worker thread.
fn workers(pid: u32) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let settled = |task: std::fs::DirEntry| {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let (stat, status) = (read("stat"), read("status"));
        // After the name in parentheses: state is field 3 of proc(5), nice is field 19.
        let nice = stat.rsplit_once(") ")?.1.split(' ').nth(16)?;
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        let is_worker = read("comm").starts_with("yumen-worker");
        is_worker.then(|| (nice.to_owned(), cpus.trim().to_owned()))
    };
    tasks.filter_map(Result::ok).filter_map(settled).collect()
}

#[test]
fn logs_can_be_json() {
    let upstream = Upstream::text("x");
    let gateway = with_node("logs: {format: json}", 1, &upstream.alone());
    let log = gateway.log();
    assert!(log.lines().count() >= 3, "{log}");
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).expect(line);
        assert_eq!(line["level"], "INFO");
    }
}

#[test]
fn the_server_field_can_be_changed_and_left_out() {
    let upstream = Upstream::text("x");
    for (node, expected) in
        [("", Some("yumen")), ("server_header: other", Some("other")), ("server_header: ''", None)]
    {
        assert_eq!(with_node(node, 1, &upstream.alone()).get("/").field("server"), expected, "{node}");
    }
}

#[test]
fn forwarding_fields_of_trusted_peers_are_believed() {
    let upstream = Upstream::echo("a");
    let gateway = with_node("trusted_addresses: [127.0.0.0/8]", 1, &upstream.alone());
    let fields = "X-Forwarded-Proto: https\r\nX-Forwarded-Host: outside.test\r\nX-Forwarded-Port: 443\r\n";
    let seen = gateway.get_with("/", fields).json();
    for (name, value) in [("proto", "https"), ("host", "outside.test"), ("port", "443")] {
        assert_eq!(seen["fields"][format!("x-forwarded-{name}")], value);
    }
}

/// The fields at an endpoint, and the statuses of routes and plugins, for a request with these fields from
/// the peer.
fn forwarded_fields(node: &str, fields: &str) -> (Value, [u16; 2]) {
    let upstream = Upstream::echo("a");
    let saw =
        "$http_x_forwarded_proto $http_x_forwarded_host $http_x_forwarded_port $http_forwarded $remote_addr";
    let rewrite = json!({ "headers": { "set": { "X-Saw": saw } } });
    let real_ip = json!({ "source": "http_x_forwarded_for" });
    let document = json!({ "routes": [
        { "id": "1", "uri": "/*", "plugins": { "proxy-rewrite": rewrite, "real-ip": real_ip },
          "upstream": upstream.alone() },
        { "id": "2", "uri": "/secure", "plugins": { "redirect": { "http_to_https": true } },
          "upstream": upstream.alone() },
        { "id": "3", "uri": "/matched", "vars": [["http_x_forwarded_proto", "==", "https"]],
          "plugins": { "mocking": { "response_status": 299, "response_example": "x" } } },
    ] });
    let gateway = Gateway::with(&document, &Options { node, ..Options::default() });
    let port = gateway.http.port().to_string();
    let mut seen = gateway.get_with("/", fields).json()["fields"].take();
    for field in ["x-saw", "x-forwarded-port"] {
        seen[field] = seen[field].as_str().unwrap().replace(&port, "PORT").into();
    }
    let statuses = ["/secure", "/matched"].map(|path| gateway.get_with(path, fields).status);
    (seen, statuses)
}

#[test]
fn what_strangers_say_of_the_way_here_reaches_neither_rules_nor_endpoints() {
    let fields = "X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.test\r\nX-Forwarded-Port: 99\r\n\
        Forwarded: for=1.1.1.1\r\nX-Forwarded-For: 6.6.6.6\r\n";
    for (node, client, chain) in [
        // Without trusted peers, the list is forwarded as in APISIX.
        ("", "6.6.6.6", "6.6.6.6, 6.6.6.6"),
        ("trusted_addresses: [10.0.0.0/8]", "127.0.0.1", "127.0.0.1"),
    ] {
        let (seen, statuses) = forwarded_fields(node, fields);
        assert_eq!(seen["x-saw"], format!("http test PORT  {client}"), "{node}");
        assert_eq!(seen["x-forwarded-for"], chain, "{node}");
        for (name, value) in [("proto", "http"), ("host", "test"), ("port", "PORT")] {
            assert_eq!(seen[format!("x-forwarded-{name}")], value, "{node}");
        }
        assert_eq!((seen.get("forwarded"), statuses), (None, [301, 200]), "{node}");
    }
    let (seen, statuses) = forwarded_fields("trusted_addresses: [127.0.0.1]", fields);
    assert_eq!(seen["x-saw"], "https evil.test 99 for=1.1.1.1 6.6.6.6");
    assert_eq!((&seen["x-forwarded-for"], statuses), (&json!("6.6.6.6, 6.6.6.6"), [200, 299]));
}

#[test]
fn what_a_plugin_says_of_the_way_here_goes_to_the_endpoint() {
    let upstream = Upstream::echo("a");
    let rewrite = json!({ "proxy-rewrite": { "headers": { "set": { "X-Forwarded-Proto": "https" } } } });
    let route = json!({ "id": "1", "uri": "/*", "plugins": rewrite, "upstream": upstream.alone() });
    let gateway = Gateway::start(&json!({ "routes": [route] }));
    let seen = gateway.get_with("/", "X-Forwarded-Proto: ftp\r\nX-Forwarded-Host: evil\r\n").json();
    assert_eq!(seen["fields"]["x-forwarded-proto"], "https");
    assert_eq!(seen["fields"]["x-forwarded-host"], "test");
}

#[test]
fn the_client_is_who_a_believed_proxy_says_it_is() {
    let upstream = Upstream::echo("a");
    let node = "real_ip: {from: [127.0.0.0/8, 10.0.0.0/8], source: http_x_forwarded_for, recursive: true}";
    let only = json!({ "ip-restriction": { "whitelist": ["1.2.3.4"] } });
    let route = json!({ "id": "1", "uri": "/*", "plugins": only, "upstream": upstream.alone() });
    let document = json!({ "routes": [route] });
    let gateway = Gateway::with(&document, &Options { node, ..Options::default() });
    let seen = gateway.get_with("/", "X-Forwarded-For: 6.6.6.6, 1.2.3.4, 10.0.0.9\r\n").json();
    assert_eq!(seen["fields"]["x-real-ip"], "1.2.3.4");
    assert_eq!(seen["fields"]["x-forwarded-for"], "6.6.6.6, 1.2.3.4, 10.0.0.9, 1.2.3.4");
    assert_eq!(gateway.get_with("/", "X-Forwarded-For: 1.2.3.4, 6.6.6.6\r\n").status, 403);
    assert_eq!(gateway.get("/").status, 403);
}

#[test]
fn endpoints_learn_of_the_client_in_forwarded_where_asked() {
    let upstream = Upstream::echo("a");
    let fields = "Forwarded: for=6.6.6.6\r\n";
    let own = "for=127.0.0.1;host=\"test\";proto=http";
    for (node, expected) in [
        ("", None),
        ("forwarded_header: true", Some(own.to_owned())),
        ("{forwarded_header: true, trusted_addresses: [127.0.0.1]}", Some(format!("for=6.6.6.6, {own}"))),
    ] {
        let seen = with_node(node, 1, &upstream.alone()).get_with("/", fields).json();
        assert_eq!(seen["fields"]["forwarded"].as_str().map(str::to_owned), expected, "{node}");
    }
}

#[test]
fn a_quote_that_a_client_leaves_open_makes_it_nobody_else() {
    let upstream = Upstream::echo("a");
    let node = "{forwarded_header: true, trusted_addresses: [127.0.0.1], \
        real_ip: {from: [127.0.0.1], source: http_forwarded, recursive: true}}";
    let gateway = with_node(node, 1, &upstream.alone());
    let own = "for=9.9.9.9;host=\"test\";proto=http";
    for (fields, passed_on) in [
        ("x=\"a\", for=9.9.9.9", "x=\"a\", for=9.9.9.9, "),
        ("x=\", for=9.9.9.9", ""),
        ("x=\"\\, for=9.9.9.9;proto=\"http\"", ""),
        ("for=\"127.0.0.1, for=9.9.9.9", ""),
        ("x=\"\r\nForwarded: for=9.9.9.9", "for=9.9.9.9, "),
    ] {
        let seen = gateway.get_with("/", &format!("Forwarded: {fields}\r\n")).json();
        assert_eq!(seen["fields"]["x-real-ip"], "9.9.9.9", "{fields}");
        assert_eq!(seen["fields"]["forwarded"], format!("{passed_on}{own}"), "{fields}");
    }
}

#[test]
fn kept_connections_carry_as_many_requests_as_the_pool_allows() {
    let upstream = Upstream::text("x");
    let mut settings = upstream.alone();
    settings["keepalive_pool"] = json!({ "size": 4, "idle_timeout": 60, "requests": 5 });
    let gateway = with_node("", 1, &settings);
    let mut client = Client::connect(gateway.http);
    for _ in 0..20 {
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!((upstream.requests(), upstream.connections()), (20, 4));
}

#[test]
fn a_listener_without_deferred_accept_and_with_ipv6_serves() {
    let upstream = Upstream::text("x");
    let node = "listen: [{address: \"127.0.0.1:1\", defer_accept: false}]";
    let gateway = Gateway::with(
        &upstream.everything(),
        &Options { node, args: &["--listen", "[::1]:0"], ..Options::default() },
    );
    assert_eq!(gateway.get("/").status, 200);
    let line = gateway.lines().into_iter().find(|line| line.contains("http://[::1]:")).expect("announced");
    let address = line.trim().rsplit("//").next().unwrap().to_owned();
    let mut client = Client::connect(address.parse().unwrap());
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn the_reference_configuration_is_accepted() {
    let (code, reference, _) = crate::harness::run(crate::harness::gateway::YUMEN, &["reference", "config"]);
    assert_eq!(code, 0);
    let upstream = Upstream::text("x");
    let gateway = with_node(&reference, 1, &upstream.alone());
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn huge_pages_are_collapsed_only_if_enabled() {
    let route = |id: usize| {
        let plugins = json!({ "mocking": { "response_example": "x" } });
        json!({ "id": id.to_string(), "uri": format!("/{id}"), "plugins": plugins })
    };
    let routes = json!({ "routes": (0..1200).map(route).collect::<Vec<Value>>() });
    let with = |node| Gateway::with(&routes, &Options { node, ..Options::default() });
    let (off, on) = (with(""), with("router: {huge_pages: true}"));
    // The message appears whether or not the system allows huge pages.
    let has_collapsed = |gateway: &Gateway| gateway.log().contains("huge page collapse");
    crate::harness::eventually("the tables are collapsed", 20, || has_collapsed(&on));
    assert!(!has_collapsed(&off), "{}", off.log());
    assert_eq!((off.get("/7").status, on.get("/7").status), (200, 200));
}
