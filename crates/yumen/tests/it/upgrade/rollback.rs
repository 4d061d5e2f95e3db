//! A failed upgrade leaves the old process as it was.

use serde_json::json;

use super::store::executable;
use super::{Line, start};
use crate::harness::gateway::YUMEN;
use crate::harness::upstream::respond;
use crate::harness::{Upstream, eventually};

/// Requests an upgrade that must fail for this reason.
fn check(line: &Line, arguments: &[&str], reason: &str) {
    let before = line.serving();
    let output = line.ask(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr.contains(reason), "{arguments:?}: {stderr}");
    assert_eq!(line.serving(), before);
    assert_eq!(line.gateway.get("/").status, 200);
}

#[test]
fn a_new_process_that_fails_leaves_the_old_one_serving() {
    let upstream = Upstream::start(|_, stream| respond(stream, 200, "", b"done"));
    let mut line = start(&upstream.everything(), "upgrade: {ready_s: 2}");
    check(&line, &["--binary", "/bin/false"], "successor exited before it was ready (exit status: 1)");
    check(&line, &["--binary", "/nonexistent/yumen"], "No such file or directory");
    let silent = executable(&line, "silent", "#!/bin/sh\nexec sleep 600\n");
    check(&line, &["--binary", &silent], "not ready within 2 s (upgrade.ready_s)");
    let wraps = "#!/bin/sh\nsleep 600 & echo $! > wrapped\nwait\n";
    let wraps = executable(&line, "wraps", wraps);
    check(&line, &["--binary", &wraps], "not ready within 2 s (upgrade.ready_s)");
    let wrapped = std::fs::read_to_string(line.gateway.scratch.file("wrapped")).unwrap();
    let wrapped = wrapped.trim().parse().expect("a number");
    eventually("nobody else holds what was handed over", 5, || !super::runs(wrapped));
    let babbles =
        executable(&line, "babbles", "#!/bin/sh\nprintf '\\000\\000\\000\\004\"no\"' >&0\nexec sleep 600\n");
    check(&line, &["--binary", &babbles], "invalid message from the successor");
    let config = line.gateway.scratch.write("broken.yaml", "listen: 7");
    let broken = executable(&line, "broken", &format!("#!/bin/sh\nexec {YUMEN} run --config {config}\n"));
    check(&line, &["--binary", &broken], "broken.yaml:1:9: error: yumen.yaml at listen");
    line.upgrade();
    assert_eq!(line.gateway.get("/").status, 200);
}

#[test]
fn a_new_process_that_would_break_what_works_does_not_take_over() {
    let node = json!({"id": "1", "uri": "/*", "plugins": {"mocking": {"response_example": "ok"}}});
    let line = start(&json!({"routes": [node]}), "");
    line.gateway.scratch.write(
        "other.json",
        json!({"routes": [{"id": "1", "uri": "/*", "plugins": {"mocking": 7}}]}).to_string(),
    );
    let any = "127.0.0.1:0";
    let other = format!(
        "#!/bin/sh\nexec {YUMEN} run --config yumen.yaml --workers 1 --listen {any} --listen-tls {any} \
         --admin {any} --status {any} --file other.json\n"
    );
    let other = executable(&line, "other", &other);
    check(&line, &["--binary", &other], "routes/1");
    let before = line.serving();
    let output = line.ask(&["--binary", &other, "--force"]);
    assert!(output.status.success(), "{output:?}");
    eventually("the new process answers", 10, || line.serving() != before);
    // The old process may still accept for a moment.
    eventually("it serves what it made of the route", 10, || line.gateway.get("/").status == 503);
}

#[test]
fn what_only_a_last_good_version_serves_is_not_lost_by_an_upgrade() {
    let ok = json!({"mocking": {"response_example": "ok"}});
    let secret = |auth| json!({"id": "secret", "uri": "/secret", "plugins": {"key-auth": auth}});
    let open = json!({"id": "open", "uri": "/*", "plugins": ok});
    let good = json!({"routes": [secret(json!({})), open]}).to_string();
    let line = start(&json!({"routes": [secret(json!({})), open]}), "");
    let broken = json!({"routes": [secret(json!(7)), open]}).to_string();
    for (text, named) in [(&*broken, "routes/secret"), ("routes: [", "file")] {
        line.gateway.scratch.write("routes.yaml", text);
        eventually("the problem is told", 10, || {
            line.gateway.status_json("/yumen/v1/problems").to_string().contains(named)
        });
        check(&line, &[], named);
        assert_eq!(line.gateway.get("/secret").status, 401);
        line.gateway.scratch.write("routes.yaml", &good);
        eventually("it is mended", 10, || {
            !line.gateway.status_json("/yumen/v1/problems").to_string().contains(named)
        });
    }
    let output = line.ask(&[]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn one_upgrade_at_a_time() {
    let upstream = Upstream::start(|_, stream| respond(stream, 200, "", b"done"));
    let line = start(&upstream.everything(), "upgrade: {ready_s: 600}");
    let slow = executable(&line, "slow", "#!/bin/sh\ntouch started\nexec sleep 600\n");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| line.ask(&["--binary", &slow]));
        eventually("the first is under way", 30, || line.gateway.scratch.file("started").exists());
        check(&line, &[], "another upgrade is in progress");
        let sleeper = children_of(line.gateway.pid()).pop().expect("the process that was started");
        let pid = rustix::process::Pid::from_raw(sleeper as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        let output = first.join().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    });
    assert_eq!(line.gateway.get("/").status, 200);
}

#[test]
fn a_gateway_that_is_ended_does_not_wait_for_an_upgrade_that_hangs() {
    let upstream = Upstream::start(|_, stream| respond(stream, 200, "", b"done"));
    let mut line = start(&upstream.everything(), "upgrade: {ready_s: 600}");
    let slow = executable(&line, "slow", "#!/bin/sh\ntouch started\nexec sleep 600\n");
    let pid = line.gateway.pid();
    let output = std::thread::scope(|scope| {
        let upgrading = scope.spawn(|| line.ask(&["--binary", &slow]));
        eventually("it is under way", 30, || {
            line.gateway.scratch.file("started").exists() && !children_of(pid).is_empty()
        });
        let sleeper = children_of(pid).pop().expect("the process that was started");
        let gateway = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(gateway, rustix::process::Signal::TERM).unwrap();
        // Ten seconds is the bound for callers without a reply.
        eventually("the new process is ended", 8, || !super::runs(sleeper));
        upgrading.join().unwrap()
    });
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("not upgraded: the gateway is ending"), "{stderr}");
    line.wait_for_end_of(pid);
}

/// The child processes of a process, of all its threads.
fn children_of(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
    let of_thread = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
    };
    threads.flatten().flat_map(of_thread).collect()
}
