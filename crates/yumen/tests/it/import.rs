//! `yumen import kong`: the imported document behaves as the Kong file describes.

use crate::harness::gateway::YUMEN;
use crate::harness::{Gateway, Options, Scratch, Upstream, run};

/// A Kong file with two upstreams.
fn file(orders: &Upstream, pool: &Upstream) -> String {
    format!(
        r#"
_format_version: "3.0"
services:
- name: orders
  url: http://{orders}/api
  routes:
  - name: orders
    paths: [/orders]
  - name: orders-by-post
    paths: [/]
    methods: [POST]
  - name: orders-raw
    paths: ["~/raw/\\d+$"]
    strip_path: false
    preserve_host: true
  - name: orders-encrypted
    paths: [/encrypted]
    protocols: [https]
  plugins:
  - name: key-auth
    config: {{key_names: [x-key]}}
- name: pool
  host: pool.up
  routes:
  - name: pool
    hosts: ["*.example.com"]
    headers: {{x-version: ["2"]}}
    plugins:
    - name: rate-limiting
      config: {{hour: 3, limit_by: ip}}
  - name: pool-long
    paths: [/orders/of/the/pool]
    methods: [GET]
    hosts: [pool.example.com]
  - name: ended
    paths: [/ended]
    plugins:
    - name: request-termination
      config: {{status_code: 418, message: no more}}
upstreams:
- name: pool.up
  targets: [{{target: "{pool}"}}]
consumers:
- username: ann
  keyauth_credentials: [{{key: "${{{{ env \"DECK_IMPORT_KEY\" }}}}"}}]
plugins:
- name: correlation-id
  config: {{header_name: X-Trace, generator: uuid, echo_downstream: true}}
"#,
        orders = orders.address,
        pool = pool.address,
    )
}

/// Imports a file; returns the scratch directory with `routes.yaml`, the exit status and the report.
fn import(text: &str, more: &[&str]) -> (Scratch, i32, String) {
    let scratch = Scratch::new();
    let kong = scratch.write("kong.yaml", text);
    let out = scratch.file("routes.yaml").display().to_string();
    let mut args = vec!["DECK_IMPORT_KEY=anns-key", YUMEN, "import", "kong", &kong, "--out", &out];
    args.extend(more);
    let (code, _, report) = run("env", &args);
    (scratch, code, report)
}

#[test]
fn an_imported_file_serves_as_it_did_in_kong() {
    let (orders, pool) = (Upstream::echo("orders"), Upstream::echo("pool"));
    let (scratch, code, report) = import(&file(&orders, &pool), &[]);
    assert_eq!(code, 0, "{report}");
    let routes = scratch.file("routes.yaml").display().to_string();
    let (code, out, _) = run(YUMEN, &["check", &routes]);
    assert_eq!(code, 0, "{out}");
    let gateway = Gateway::launch(scratch, &Options::default(), &["--file", &routes]);

    let reply = gateway.get("/orders/7");
    assert_eq!(reply.status, 401);
    assert!(reply.field("x-trace").is_some(), "the global plugin runs");
    let seen = gateway.get_with("/orders/7?a=b", "x-key: anns-key\r\n").json();
    assert_eq!((&seen["name"], &seen["target"]), (&"orders".into(), &"/api/7?a=b".into()));
    assert_eq!(seen["fields"]["x-consumer-username"], "ann");
    assert_eq!(seen["fields"]["host"], orders.address.to_string(), "the service's host is told");
    let seen = gateway.get_with("/ordersmore", "x-key: anns-key\r\n").json();
    assert_eq!(seen["target"], "/api/more", "a path is a prefix of characters");

    let raw = b"GET /raw/12 HTTP/1.1\r\nHost: shop.test\r\nx-key: anns-key\r\n\r\n";
    let seen = gateway.send(raw).json();
    assert_eq!((&seen["target"], &seen["fields"]["host"]), (&"/api/raw/12".into(), &"shop.test".into()));
    assert_eq!(gateway.get_with("/raw/x", "x-key: anns-key\r\n").status, 404);
    let plain = gateway.get_with("/encrypted", "x-key: anns-key\r\n");
    assert_eq!((plain.status, plain.text().as_str()), (426, "{\"message\":\"Please use HTTPS protocol\"}"));

    // A route with three criteria precedes one with two, and that one with one, whatever the length of the
    // path.
    let seen = gateway.send("GET /orders/of/the/pool HTTP/1.1\r\nHost: pool.example.com\r\n\r\n").json();
    assert_eq!((&seen["name"], &seen["target"]), (&"pool".into(), &"/".into()));
    let post = "POST /orders/of HTTP/1.1\r\nHost: x\r\nx-key: anns-key\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(gateway.send(post).json()["target"], "/api/orders/of");

    let ended = gateway.get("/ended");
    assert_eq!((ended.status, ended.text().as_str()), (418, "{\"message\":\"no more\"}"));
    let limited = "GET / HTTP/1.1\r\nHost: b.example.com\r\nX-Version: 2\r\n\r\n";
    let statuses: Vec<u16> = (0..4).map(|_| gateway.send(limited).status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    let reply = gateway.send(limited);
    assert_eq!(reply.json()["message"], "API rate limit exceeded");
    assert_eq!(reply.field("ratelimit-limit"), Some("3"));
}

#[test]
fn a_limit_of_several_windows_counts_for_all_paths_of_its_route() {
    let upstream = Upstream::text("served");
    let file = format!(
        r#"
_format_version: "3.0"
services:
- name: s
  url: http://{}
  routes:
  - name: a
    paths: [/a, "~/b"]
    plugins:
    - name: rate-limiting
      config: {{minute: 3, hour: 100, policy: local}}
"#,
        upstream.address
    );
    let (scratch, code, report) = import(&file, &[]);
    assert_eq!(code, 0, "{report}");
    let routes = scratch.file("routes.yaml").display().to_string();
    let gateway = Gateway::launch(scratch, &Options::default(), &["--file", &routes]);
    let statuses = ["/a", "/b", "/a", "/b", "/a"].map(|path| gateway.get(path).status);
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
}

#[test]
fn the_report_goes_where_it_is_asked_to_and_can_be_json() {
    let text = "_format_version: '3.0'\nservices:\n- {name: s, url: 'http://127.0.0.1:1', colour: blue}\n";
    let (scratch, code, _) = import(text, &[]);
    let report = scratch.file("report").display().to_string();
    let (_, _, err) = import(text, &["--report", &report, "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&report).unwrap()).unwrap();
    assert_eq!(json["counts"]["dropped"], 1);
    assert_eq!(
        (&json["lines"][0]["object"], &json["lines"][0]["field"]),
        (&"service s".into(), &"colour".into())
    );
}

#[test]
fn unreadable_file_is_refused_with_its_place_and_exit_status_2() {
    for (text, parts) in [
        ("routes: []\n", vec!["kong.yaml", "_format_version", "3.0"]),
        (
            "_format_version: \"3.0\"\nservices: [a\nroutes: []\n",
            vec!["kong.yaml", "kong.yaml:2:11", "close the bracket"],
        ),
        ("{\"_format_version\": \"3.0\",\n]", vec!["kong.yaml", "kong.yaml:2:1: error: "]),
        ("- a\n", vec!["kong.yaml", "found a list, expected an object"]),
    ] {
        let (_, code, err) = import(text, &[]);
        assert_eq!(code, 2, "{text}: {err}");
        for part in parts {
            assert!(err.contains(part), "{part:?} is not in {err}");
        }
    }
    let (code, _, err) = run(YUMEN, &["import", "kong", "/nowhere/kong.yaml"]);
    assert_eq!(code, 2);
    assert!(err.contains("/nowhere/kong.yaml"), "{err}");
    let scratch = Scratch::new();
    let path = scratch.file("latin1.yaml");
    std::fs::write(&path, b"a: 1\nb: \xe9\n").unwrap();
    let (code, _, err) = run(YUMEN, &["import", "kong", &path.display().to_string()]);
    assert_eq!(code, 2);
    assert!(err.contains("latin1.yaml:2:4"), "{err}");
}

#[test]
fn losses_fail_only_a_strict_import() {
    let exact = "_format_version: '3.0'\nservices:\n- {name: s, url: 'http://127.0.0.1:1'}\n";
    let lossy = exact.replace("'}", "', colour: blue}");
    for (text, strict, expected) in [(exact, true, 0), (&lossy, false, 0), (&lossy, true, 1)] {
        let more: &[&str] = if strict { &["--strict"] } else { &[] };
        let (_, code, report) = import(text, more);
        assert_eq!(code, expected, "{text} strict {strict}: {report}");
    }
}

#[test]
fn the_report_groups_findings_unless_it_is_verbose() {
    let services: String =
        (0..5).map(|at| format!("- {{name: s{at}, url: 'http://127.0.0.1:1', colour: blue}}\n")).collect();
    let text = format!("_format_version: '3.0'\nservices:\n{services}");
    let (_, _, report) = import(&text, &[]);
    let expected = "dropped: 5 objects (service s0, service s1, service s2 and 2 more) at colour: left out; \
        unknown field\n0 objects exact, 0 different, 5 dropped\n--verbose lists all objects\n";
    assert_eq!(report, expected);
    let (_, _, report) = import(&text, &["--verbose"]);
    assert!(report.contains("dropped: service s4 at colour: left out; unknown field\n"), "{report}");
}
