//! The command line: its help, its refusals, and its output at start.

use std::net::TcpListener;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::harness::gateway::YUMEN;
use crate::harness::{Client, Gateway, Options, Scratch, Upstream, run};

fn check(document: &str, exit: i32, expected: &[&str]) {
    let scratch = Scratch::new();
    let path = scratch.write("routes.yaml", document);
    let (code, out, err) = run(YUMEN, &["check", &path]);
    assert_eq!(code, exit, "{document}\n{out}{err}");
    for part in expected {
        assert!(out.contains(part), "{part:?} is not in\n{out}");
    }
}

#[test]
fn check_tells_which_variables_nobody_knows_and_where_they_stand() {
    let plugins = "response-rewrite: {headers: {set: {X-By: \"$hostname $nosuch_var\"}}}, \
        limit-count: {count: 9, time_window: 9, key: hostnam}, \
        proxy-rewrite: {uri: \"/$1/$arg_a/$http_b\"}, \
        redirect: {uri: \"/a?$post_argx\"}";
    check(
        &format!("routes:\n- id: r1\n  uri: /a\n  plugins: {{{plugins}}}\n"),
        0,
        &[
            "routes/r1 at plugins.response-rewrite.headers.set.X-By: unknown variable $nosuch_var",
            "routes/r1 at plugins.limit-count.key: unknown variable $hostnam: it never has a value",
            "did you mean \"hostname\"?",
            "routes/r1 at plugins.redirect.uri: unknown variable $post_argx",
            "redirect responds to every request, so limit-count never runs",
            "0 errors, 4 warnings",
        ],
    );
}

#[test]
fn check_tells_errors_with_object_path_and_hint() {
    check(
        "routes:\n- id: r1\n  uri: /a\n  upstream: {nodes: {\"127.0.0.1:80\": -1}}\n",
        1,
        &["error: routes/r1 at upstream", "1 error,"],
    );
    check(
        "routes:\n- id: r2\n  uri: /a\n  upstreem: {nodes: {\"127.0.0.1:80\": 1}}\n",
        1,
        &["error: routes/r2", "upstreem", "note: "],
    );
    check(
        "routes:\n- id: r3\n  uri: [\n",
        1,
        &["routes.yaml:3:9: error: did not find expected node content", "help: "],
    );
    check(
        "routes:\n- id: r4\n  uri: /a\n  plugins: {limit-count: {count: 0}}\n",
        1,
        &["plugins.limit-count"],
    );
}

#[test]
fn check_is_content_with_warnings_and_clean_documents() {
    check("routes: []\n#END\n", 0, &["0 errors, 0 warnings"]);
    check(
        "routes:\n- id: r1\n  uri: /a\n  plugins: {lago: {}}\n  upstream: {nodes: {\"127.0.0.1:80\": 1}}\n",
        0,
        &["warning: routes/r1 at plugins.lago", "0 errors, 1 warning"],
    );
}

#[test]
fn check_follows_references_into_its_own_environment() {
    let consumer = |key: &str| {
        format!("consumers:\n- username: alice\n  plugins: {{key-auth: {{key: \"$env://{key}\"}}}}\n")
    };
    check(&consumer("PATH"), 0, &["0 errors"]);
    let unset = "error: consumers/alice at plugins.key-auth.key: \"key\" cannot be resolved: the environment \
                 variable \"YUMEN_UNSET\" is not set";
    check(&consumer("YUMEN_UNSET"), 1, &[unset]);
}

#[test]
fn check_prints_problems_as_json_when_asked() {
    let scratch = Scratch::new();
    let path = scratch.write("routes.yaml", "routes:\n- {id: r1, uri: 1}\n");
    let (code, out, _) = run(YUMEN, &["check", &path, "--json"]);
    let problems: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 1);
    assert_eq!(problems[0]["object"], "routes/r1");
    assert_eq!(problems[0]["level"], "error");
}

#[test]
fn check_of_a_missing_file_names_it() {
    let (code, _, err) = run(YUMEN, &["check", "/nowhere/routes.yaml"]);
    assert_eq!(code, 2);
    assert!(err.contains("/nowhere/routes.yaml"), "{err}");
}

#[test]
fn help_teaches_the_first_two_commands() {
    let (code, out, _) = run(YUMEN, &["--help"]);
    assert_eq!(code, 0);
    for part in ["yumen run", "curl http://127.0.0.1:9080/hello", "check", "completions", "version"] {
        assert!(out.contains(part), "{part:?} is not in\n{out}");
    }
    let (code, out, _) = run(YUMEN, &["run", "--help"]);
    assert_eq!(code, 0);
    let options =
        ["--config", "--file", "--data-dir", "--workers", "--listen", "--listen-tls", "--admin", "--status"];
    for part in options {
        assert!(out.contains(part), "{part:?} is not in\n{out}");
    }
}

#[test]
fn version_and_completions_work() {
    let (code, out, _) = run(YUMEN, &["version"]);
    assert_eq!((code, out.starts_with("yumen "), out.contains("HTTP/3")), (0, true, true), "{out}");
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = run(YUMEN, &["completions", shell]);
        assert_eq!(code, 0);
        assert!(out.contains("listen-tls"), "{shell}: {out}");
    }
}

#[test]
fn a_wrong_node_configuration_is_refused_with_place_and_hint() {
    let scratch = Scratch::new();
    let path = scratch.write("yumen.yaml", "lisen: []\nworkers: {count: many}\n");
    let (code, _, err) = run(YUMEN, &["run", "--config", &path]);
    assert_eq!(code, 1);
    for part in ["yumen.yaml", "unknown field \"lisen\"", "did you mean \"listen\"?", "count"] {
        assert!(err.contains(part), "{part:?} is not in\n{err}");
    }
    let (code, _, err) = run(YUMEN, &["run", "--config", "/nowhere/yumen.yaml"]);
    assert_eq!(code, 2);
    assert!(err.contains("/nowhere/yumen.yaml"), "{err}");
}

#[test]
fn a_missing_resource_file_is_named() {
    let any = "127.0.0.1:0";
    let listeners = ["--listen", any, "--listen-tls", any, "--admin", any, "--status", any];
    let (code, _, err) = run(YUMEN, &[&["run", "--file", "/nowhere/routes.yaml"][..], &listeners].concat());
    assert_eq!(code, 2);
    assert!(err.contains("/nowhere/routes.yaml"), "{err}");
}

#[test]
fn a_port_that_is_taken_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let scratch = Scratch::new();
    let any = "127.0.0.1:0";
    let data = scratch.path().display().to_string();
    let common = ["run", "--data-dir", &data, "--listen-tls", any];
    for args in [
        ["--listen", &address, "--status", any, "--admin", any],
        ["--listen", any, "--status", &address, "--admin", any],
    ] {
        let (code, _, err) = run(YUMEN, &[&common[..], &args].concat());
        assert_eq!(code, 2);
        assert!(err.contains(&format!("cannot listen on {address}")), "{err}");
        assert!(err.to_lowercase().contains("in use"), "{err}");
    }
}

#[test]
fn start_says_where_it_listens_and_what_to_try_and_raises_open_files() {
    // Started by a shell with a low soft limit, as in a login session.
    let scratch = Scratch::new();
    let out = std::fs::File::create(scratch.file("out")).unwrap();
    let err = std::fs::File::create(scratch.file("err")).unwrap();
    let any = "127.0.0.1:0";
    let command = format!(
        "ulimit -S -n 64; exec {YUMEN} run --listen {any} --listen-tls {any} --admin {any} --status {any}"
    );
    let mut child = Command::new("sh")
        .args(["-c", &command])
        .current_dir(scratch.path())
        .stdout(Stdio::from(out))
        .stderr(Stdio::from(err))
        .spawn()
        .unwrap();
    let printed = || std::fs::read_to_string(scratch.file("out")).unwrap();
    crate::harness::eventually("it is ready", 20, || printed().contains("curl"));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let printed = printed();
    for part in [
        "http://127.0.0.1:",
        "https://127.0.0.1:",
        "/status",
        "/metrics",
        "/apisix/admin",
        "curl -i http://127.0.0.1:",
    ] {
        assert!(printed.contains(part), "{part:?} is not in\n{printed}");
    }
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let columns: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(columns[3], columns[4], "soft is hard: {line}");
    let log = std::fs::read_to_string(scratch.file("err")).unwrap();
    assert!(log.contains(&format!("open_files={}", columns[3])), "{log}");
}

#[test]
fn without_a_file_it_starts_on_its_embedded_store_and_says_hello() {
    let (gateway, key) = Gateway::embedded();
    let reply = gateway.get("/hello");
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(!reply.body.is_empty());
    assert_eq!(key.len(), 40, "{key}");
    assert!(!gateway.log().contains(&key), "the key is in the log");
}

#[test]
fn status_and_admin_listeners_answer() {
    let upstream = Upstream::text("x");
    let gateway = Gateway::start(&upstream.everything());
    for path in [
        "/status",
        "/status/ready",
        "/metrics",
        "/apisix/prometheus/metrics",
        "/v1/healthcheck",
        "/yumen/v1/problems",
    ] {
        assert_eq!(gateway.status_text(path).0, 200, "{path}");
    }
    assert_eq!(gateway.status_json("/status")["workers"], 2);
    assert_eq!(gateway.status_json("/yumen/v1/problems"), json!([]));
    let admin = Client::connect(gateway.admin).get("/apisix/admin");
    assert_eq!(admin.status, 200);
}

#[test]
fn a_second_gateway_does_not_share_the_ports_of_the_first() {
    let upstream = Upstream::text("x");
    let first = Gateway::start(&upstream.everything());
    let (address, any) = (first.http.to_string(), "127.0.0.1:0");
    let data = first.scratch.path().display().to_string();
    let args = [
        "run",
        "--data-dir",
        &data,
        "--listen",
        &address,
        "--listen-tls",
        any,
        "--admin",
        any,
        "--status",
        any,
    ];
    let (code, _, err) = run(YUMEN, &args);
    assert_eq!(code, 2);
    assert!(err.contains(&format!("cannot listen on {address}")), "{err}");
}

/// Exit status and standard error of a command with this standard output.
fn printed_to(out: impl Into<Stdio>, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(YUMEN);
    let output = command.args(arguments).stdin(Stdio::null()).stdout(out).output().expect("it runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn output_that_could_not_be_written_is_an_error_and_a_reader_that_has_gone_is_none() {
    let (gateway, key) = Gateway::embedded();
    let admin = format!("http://{}", gateway.admin);
    let file = gateway.scratch.write("routes.yaml", "routes: []\n#END\n");
    let status = format!("http://{}", gateway.status);
    let completions = |command: &[&'static str]| -> Vec<String> {
        let more = ["--admin", &*admin, "--key", &*key];
        command.iter().copied().chain(more).map(str::to_owned).collect()
    };
    let plain = |command: &[&str]| command.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
    for command in [
        completions(&["export"]),
        completions(&["diff", "0"]),
        completions(&["history"]),
        completions(&["lint"]),
        completions(&["problems"]),
        completions(&["explain", "/hello"]),
        plain(&["plan", &file, "--against", &file]),
        plain(&["explain", "/hello", "--file", &file]),
        plain(&["check", &file]),
        plain(&["check", "--json", &file]),
        plain(&["lint", &file]),
        plain(&["top", "--once", "--interval", "0", "--status", &status]),
        plain(&["version"]),
        plain(&["--version"]),
        plain(&["--help"]),
        plain(&["help", "run"]),
        plain(&["completions", "bash"]),
        plain(&["reference", "config"]),
    ] {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let full = std::fs::File::options().write(true).open("/dev/full").expect("a full disk");
        let (code, printed) = printed_to(full, &command);
        assert_eq!(code, Some(2), "{command:?}: {printed}");
        assert!(printed.contains("No space left on device"), "{command:?}: {printed}");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let (code, printed) = printed_to(writer, &command);
        assert_eq!((code, &*printed), (Some(0), ""), "{command:?}");
    }
}

#[test]
fn the_command_line_is_held_to_the_bounds_of_the_file() {
    let (code, _, err) = run(YUMEN, &["run", "--workers", "1025"]);
    assert!(code == 2 && err.contains("1025") && err.contains("write auto, or a number up to 1024"), "{err}");
    let address = "127.0.0.1:9";
    let (code, _, err) = run(YUMEN, &["run", "--listen", address, "--listen-tls", address]);
    assert!(
        code == 2 && err.contains("the address 127.0.0.1:9 is already used by listen[0].address"),
        "{err}"
    );
}

#[test]
fn a_place_to_ask_for_upgrades_at_that_is_not_there_is_told() {
    let node = "upgrade: {socket: nowhere/upgrade.sock}";
    let gateway = Gateway::with(&json!({"routes": []}), &Options { node, ..Options::default() });
    let log = gateway.log();
    assert!(log.contains("upgrade socket unavailable") && log.contains("nowhere/upgrade.sock"), "{log}");
}

#[test]
fn check_takes_items_without_ids_and_tells_what_becomes_of_those_that_are_broken() {
    let item = |id: &str| {
        format!("- {{{id}uri: /a, upstream: {{nodes: {{\"127.0.0.1:80\": 1}}, type: roundrobin}}}}\n")
    };
    check(&format!("routes:\n{}#END\n", item("")), 0, &["0 errors, 0 warnings"]);
    let twice =
        "error: routes/routes#2 at id: item 2 has the id \"r\" of item 1, which was there before\n 3 | ";
    check(&format!("routes:\n{}{}", item("id: r, "), item("id: r, ")), 1, &[twice, "1 error,"]);
    let unset = "error: routes/r at desc: the environment variable \"YUMEN_UNSET\" is not set\n 2 | ";
    check(&format!("routes:\n{}", item("id: r, desc: \"${{YUMEN_UNSET}}\", ")), 1, &[unset, "1 error,"]);
}

#[test]
fn commands_find_their_gateway_without_a_key() {
    let upstream = Upstream::text("x");
    let gateway = Gateway::start(&upstream.everything());
    let ask = |arguments: &[&str], directory: &std::path::Path| {
        let output = Command::new(YUMEN)
            .args(arguments)
            .current_dir(directory)
            .env_remove("YUMEN_ADMIN")
            .env_remove("YUMEN_ADMIN_KEY")
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    // The data directory of a gateway with a resource file has nothing but sockets.
    let (code, out, err) = ask(&["problems"], gateway.scratch.path());
    assert_eq!((code, &*out), (Some(0), "no problems\n"), "{err}");
    let elsewhere = Scratch::new();
    let data = gateway.scratch.file("data").display().to_string();
    let (code, out, err) = ask(&["explain", "/a", "--data-dir", &data], elsewhere.path());
    assert!(code == Some(0) && out.contains("all by path /*"), "{out}{err}");
    let (code, _, err) = ask(&["problems", "--data-dir", "."], elsewhere.path());
    assert!(code == Some(2) && err.contains("no gateway answers at ./admin.sock"), "{err}");
    let mode = std::os::unix::fs::MetadataExt::mode(
        &std::fs::metadata(gateway.scratch.file("data/admin.sock")).unwrap(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let (code, _, err) = ask(&["keys", "rotate", "admin", "--data-dir", &data], elsewhere.path());
    assert!(code == Some(2) && err.contains("set admin.keys in yumen.yaml"), "{err}");
}

#[test]
fn the_admin_socket_survives_an_upgrade() {
    let upstream = Upstream::text("x");
    let gateway = Gateway::start(&upstream.everything());
    let data = gateway.scratch.file("data").display().to_string();
    let before = gateway.status_json("/status")["pid"].clone();
    let (code, out, err) = run(YUMEN, &["upgrade", "--data-dir", &data]);
    assert_eq!(code, 0, "{out}{err}");
    crate::harness::eventually("the successor serves", 20, || {
        gateway.status_json("/status")["pid"] != before
    });
    let (code, out, err) = run(YUMEN, &["problems", "--data-dir", &data]);
    assert_eq!((code, &*out), (0, "no problems\n"), "{err}");
    let successor = gateway.status_json("/status")["pid"].as_i64().expect("a process id");
    run("kill", &[&successor.to_string()]);
}

#[test]
fn lost_keys_are_replaced_and_viewers_may_explain_and_plan() {
    let (gateway, key) = Gateway::embedded();
    let data = gateway.scratch.file("data").display().to_string();
    let at = ["--data-dir", &*data];
    let (code, new, err) = run(YUMEN, &[&["keys", "rotate", "admin"][..], &at].concat());
    assert_eq!((code, new.trim().len()), (0, 40), "{err}");
    let with = |key: &str| run(YUMEN, &[&["history", "--key", key][..], &at].concat());
    assert_eq!((with(&key).0, with(new.trim()).0), (2, 0));
    let (_, viewer, _) = run(YUMEN, &[&["keys", "rotate", "viewer"][..], &at].concat());
    let viewer = viewer.trim();
    let file = gateway.scratch.write("routes.yaml", "routes: []\n");
    for (arguments, expected) in [
        (&["explain", "/hello"][..], 0),
        (&["plan", &file], 0),
        (&["import", "file", &file], 2),
        (&["keys", "list"], 2),
        (&["keys", "rotate", "viewer"], 2),
    ] {
        let (code, out, err) = run(YUMEN, &[arguments, &["--key", viewer], &at].concat());
        assert_eq!(code, expected, "{arguments:?}: {out}{err}");
    }
    let (code, _, err) = run(YUMEN, &[&["keys", "rotate", "viewr"][..], &at].concat());
    assert!(code == 2 && err.contains("no holder \"viewr\"; holders: admin, viewer"), "{err}");
    let create = [&["keys", "create", "ann", "--role", "viewer"][..], &at].concat();
    let (code, new, err) = run(YUMEN, &create);
    assert_eq!((code, new.trim().len()), (0, 40), "{err}");
    let (code, _, err) = run(YUMEN, &create);
    assert!(code == 2 && err.contains("the holder \"ann\" has a key"), "{err}");
}

#[test]
fn the_last_change_is_undone_without_its_number() {
    let (gateway, _) = Gateway::embedded();
    let data = gateway.scratch.file("data").display().to_string();
    let at = ["--data-dir", &*data];
    let ask = |arguments: &[&str]| run(YUMEN, &[arguments, &at].concat());
    let file = gateway.scratch.write("one.yaml", "upstreams: [{id: u1, nodes: {\"127.0.0.1:80\": 1}}]\n");
    assert_eq!(ask(&["import", "file", &file]).0, 0);
    assert!(ask(&["diff", "HEAD~1"]).1.contains("+ upstreams/u1"));
    let (code, out, _) = ask(&["rollback", "--last"]);
    assert!(code == 0 && out.contains("restores revision 1: 1 object changed"), "{out}");
    let (_, out, _) = ask(&["history", "--limit", "1"]);
    let time = out.split_whitespace().nth(1).unwrap_or_default();
    assert!(time.len() == 20 && time.contains('T') && time.ends_with('Z'), "{out}");
    let (code, _, err) = ask(&["rollback", "HEAD~9"]);
    assert!(code == 2 && err.contains("the history has 3 revisions"), "{err}");
}

#[test]
fn a_short_address_is_all_of_ipv4() {
    let upstream = Upstream::text("x");
    let options = Options {
        node: "listen: [{address: \":0\"}, {address: \"127.0.0.1:0\", tls: true}]\n",
        own_listeners: true,
        ..Options::default()
    };
    let scratch = Scratch::new();
    let routes = scratch.write("routes.yaml", upstream.everything().to_string());
    let gateway = Gateway::launch(scratch, &options, &["--file", &routes]);
    assert!(
        gateway.lines().iter().any(|line| line.contains("http     http://0.0.0.0:")),
        "{:?}",
        gateway.lines()
    );
}

#[test]
fn a_listener_of_another_kind_is_named() {
    let other = Upstream::text("{}");
    let plain = format!("http://{}", other.address);
    let encrypted = format!("https://{}", other.address);
    for (arguments, expected) in [
        (
            &["top", "--once", "--interval", "0", "--status", &plain][..],
            "no status listener of yumen answers at http://",
        ),
        (&["history", "--admin", &encrypted], "a listener without TLS has a URL with http://"),
    ] {
        let (code, _, err) = run(YUMEN, arguments);
        assert!(code == 2 && err.contains(expected), "{arguments:?}: {err}");
    }
}

#[test]
fn an_argument_out_of_its_range_names_the_allowed_ones() {
    for (arguments, expected) in [
        (&["history", "--limit", "0"][..], "write a number from 1"),
        (&["rollback"], "<REVISION|--last>"),
        (&["run", "--workers", "x"], "write auto, or a number up to 1024"),
    ] {
        let (code, _, err) = run(YUMEN, arguments);
        assert!(code == 2 && err.contains(expected), "{arguments:?}: {err}");
    }
}
