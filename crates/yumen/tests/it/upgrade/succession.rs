//! What the new process knows of what was before.

use serde_json::json;

use super::start;
use crate::harness::upstream::respond;
use crate::harness::{Client, Upstream, eventually};

#[test]
fn a_new_process_takes_over_and_the_old_one_ends() {
    let upstream = Upstream::start(|_, stream| respond(stream, 200, "", b"done"));
    let mut line = start(&upstream.everything(), "upgrade: {pid_file: yumen.pid}");
    let first = line.serving();
    let pid_file = line.gateway.scratch.file("yumen.pid");
    assert_eq!(std::fs::read_to_string(&pid_file).unwrap().trim(), first.to_string());
    assert_eq!(line.gateway.get("/").status, 200);
    let second = line.upgrade();
    assert_eq!(std::fs::read_to_string(&pid_file).unwrap().trim(), second.to_string());
    assert_eq!(line.gateway.get("/").status, 200);
    line.wait_for_end_of(first);
    assert_eq!(line.gateway.get("/").status, 200);
    assert_eq!(line.serving(), second);
}

#[test]
fn three_upgrades_in_a_row_leave_one_process() {
    let upstream = Upstream::start(|_, stream| respond(stream, 200, "", b"done"));
    let mut line = start(&upstream.everything(), "");
    let mut pids = vec![line.serving()];
    for _ in 0..3 {
        pids.push(line.upgrade());
        assert_eq!(line.gateway.get("/").status, 200);
    }
    let last = pids.pop().unwrap();
    pids.into_iter().for_each(|pid| line.wait_for_end_of(pid));
    assert_eq!(line.serving(), last);
    assert_eq!(line.gateway.get("/").status, 200);
}

#[test]
fn what_was_counted_counts_on() {
    let upstream = Upstream::start(|_, stream| respond(stream, 200, "", b"done"));
    let limit = json!({"count": 10, "time_window": 600, "rejected_code": 429, "key": "remote_addr"});
    let resources = json!({"routes": [{
        "id": "1", "uri": "/*",
        "plugins": {"limit-count": limit}, "upstream": upstream.alone(),
    }]});
    let mut line = start(&resources, "");
    let first = line.serving();
    let mut kept = Client::connect(line.gateway.http);
    for _ in 0..6 {
        assert_eq!(kept.get("/").status, 200);
    }
    line.upgrade();
    // Served by the old process, and its last.
    let reply = kept.get("/");
    assert_eq!((reply.status, reply.field("connection")), (200, Some("close")));
    line.wait_for_end_of(first);
    eventually("what the old process counted is counted by the new one", 10, || {
        line.gateway.log().contains("the process before has ended")
    });
    let statuses: Vec<u16> = (0..4).map(|_| line.gateway.get("/").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
}
