//! State that the successor takes over.

use std::net::SocketAddr;

use serde_json::json;

use super::{Line, runs, start, start_with};
use crate::datagrams;
use crate::harness::gateway::YUMEN;
use crate::harness::upstream::{Gate, respond};
use crate::harness::{Client, Options, Upstream, eventually, free_port, run};
use crate::l4;

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
fn three_upgrades_leave_one_process() {
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
fn counters_continue_after_an_upgrade() {
    let upstream = Upstream::start(|_, stream| respond(stream, 200, "", b"done"));
    let limit = json!({"count": 10, "time_window": 600, "rejected_code": 429, "key": "remote_addr"});
    let resources = json!({"routes": [{
        "id": "1", "uri": "/*",
        "plugins": {"limit-count": limit}, "upstream": upstream.alone(),
    }]});
    let mut line = start(&resources, "");
    let first = line.serving();
    let mut client = Client::connect(line.gateway.http);
    for _ in 0..6 {
        assert_eq!(client.get("/").status, 200);
    }
    line.upgrade();
    // Served by the old process, as the last response of the connection.
    let reply = client.get("/");
    assert_eq!((reply.status, reply.field("connection")), (200, Some("close")));
    line.wait_for_end_of(first);
    eventually("what the old process counted is counted by the new one", 10, || {
        line.gateway.log().contains("predecessor exited")
    });
    let statuses: Vec<u16> = (0..4).map(|_| line.gateway.get("/").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
}

/// An upstream that responds to `/held` when its gate is open.
fn holding() -> (Upstream, Gate) {
    let gate = Gate::default();
    let gate_copy = gate.clone();
    let upstream = Upstream::start(move |request, stream| {
        if request.target == "/held" {
            gate_copy.pass();
        }
        respond(stream, 200, "", b"done")
    });
    (upstream, gate)
}

/// Two clients with requests at that upstream.
fn open_two_gated(line: &Line, upstream: &Upstream) -> Vec<Client> {
    let mut waiting: Vec<Client> = (0..2).map(|_| Client::connect(line.gateway.http)).collect();
    for client in &mut waiting {
        client.send("GET /held HTTP/1.1\r\nHost: test\r\n\r\n");
    }
    eventually("both are under way", 10, || upstream.requests() == 2);
    waiting
}

#[test]
fn requests_under_way_in_the_old_process_count_in_the_new_one() {
    let (upstream, gate) = holding();
    let limit =
        json!({"conn": 2, "burst": 0, "default_conn_delay": 0.01, "key": "host", "rejected_code": 429});
    let route =
        json!({"id": "1", "uri": "/*", "plugins": {"limit-conn": limit}, "upstream": upstream.alone()});
    let mut line = start(&json!({"routes": [route]}), "");
    let mut waiting = open_two_gated(&line, &upstream);
    let first = line.serving();
    line.upgrade();
    for _ in 0..8 {
        assert_eq!(line.gateway.get("/").status, 429, "two are under way");
    }
    gate.open();
    for client in &mut waiting {
        assert_eq!(client.reply().status, 200);
    }
    eventually("the new process hears that they have ended", 10, || line.gateway.get("/").status == 200);
    drop(waiting);
    line.wait_for_end_of(first);
    assert_eq!(line.gateway.get("/").status, 200);
}

#[test]
fn an_outlier_and_a_broken_circuit_stay_so() {
    let ill = Upstream::start(|_, stream| respond(stream, 500, "", b"ill"));
    let well = Upstream::start(|_, stream| respond(stream, 200, "", b"well"));
    let nodes = json!({ill.address.to_string(): 1, well.address.to_string(): 1});
    let outliers = json!({"consecutive_5xx": 2, "base_ejection_time": 600, "max_ejection_time": 600});
    let breaker = json!({"break_response_code": 599, "max_breaker_sec": 300,
        "unhealthy": {"http_statuses": [500], "failures": 3}, "healthy": {"successes": 3}});
    let resources = json!({"routes": [
        {"id": "1", "uri": "/*", "upstream": {"nodes": nodes, "outlier_detection": outliers}},
        {"id": "2", "uri": "/broken", "plugins": {"api-breaker": breaker}, "upstream": ill.alone()},
    ]});
    let mut line = start(&resources, "");
    eventually("it is out", 10, || (0..8).all(|_| line.gateway.get("/").text() == "well"));
    eventually("the circuit is open", 10, || line.gateway.get("/broken").status == 599);
    let (requests_before, first) = (ill.requests(), line.serving());
    line.upgrade();
    line.wait_for_end_of(first);
    for _ in 0..20 {
        assert_eq!(line.gateway.get("/").text(), "well");
    }
    assert_eq!(ill.requests(), requests_before, "nobody asks the outlier");
}

#[test]
fn balancers_go_on_where_they_were() {
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let all = names.map(Upstream::text);
    let nodes: serde_json::Map<String, serde_json::Value> =
        all.iter().map(|one| (one.address.to_string(), json!(1))).collect();
    let route = |slow_ms: u64, nodes: &serde_json::Map<String, serde_json::Value>| {
        let mut upstream = json!({"nodes": nodes});
        if slow_ms > 0 {
            upstream["slow_start_ms"] = json!(slow_ms);
        }
        json!({"routes": [{"id": "1", "uri": "/*", "upstream": upstream}]})
    };
    let one_worker = Options { workers: 1, ..Options::default() };
    let mut line = start_with(&route(0, &nodes), &one_worker);
    let turn: Vec<String> = (0..names.len()).map(|_| line.gateway.get("/").text()).collect();
    for _ in 0..3 {
        assert_eq!(line.gateway.get("/").text(), turn[0]);
        line.upgrade();
        // The new process continues the rotation.
        for expected in &turn[1..] {
            assert_eq!(&line.gateway.get("/").text(), expected);
        }
    }

    // Slow start of a new endpoint continues in the new process.
    let (late, others) = (&all[0], all[1..2].iter());
    let mut nodes: serde_json::Map<String, serde_json::Value> =
        others.map(|one| (one.address.to_string(), json!(1))).collect();
    let mut line = start_with(&route(3_600_000, &nodes), &one_worker);
    (0..4).for_each(|_| assert_eq!(line.gateway.get("/").status, 200));
    nodes.insert(late.address.to_string(), json!(1));
    line.gateway.apply(&route(3_600_000, &nodes));
    assert_eq!(line.gateway.get("/").status, 200);
    line.upgrade();
    let before = late.requests();
    (0..400).for_each(|_| assert_eq!(line.gateway.get("/").status, 200));
    // Randomly a tenth of the other's share, about 36; without slow start 200.
    assert!(late.requests() - before < 120, "{}", late.requests() - before);
}

#[test]
fn an_upgrade_brings_settings_of_the_node_into_force() {
    let upstream = Upstream::start(|_, stream| respond(stream, 200, "", b"done"));
    let (kept_port, old_port, new) = (free_port(), free_port(), free_port());
    let node = |addresses: [SocketAddr; 2], workers: u32| {
        let listen = addresses.map(|address| format!("{{address: '{address}'}}")).join(", ");
        let tls = "{address: '127.0.0.1:0', tls: true}";
        let pid_file = format!("upgrade: {{pid_file: of-{workers}.pid}}");
        format!("listen: [{listen}, {tls}]\nworkers: {{count: {workers}}}\n{pid_file}\n")
    };
    let before = node([kept_port, old_port], 3);
    let options = Options { node: &before, own_listeners: true, own_workers: true, ..Options::default() };
    let mut line = start_with(&upstream.everything(), &options);
    let ask = |address: SocketAddr| {
        Client::connect(address).send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").reply().status
    };
    assert_eq!((ask(kept_port), ask(old_port)), (200, 200));
    let pid = |gateway: &crate::harness::Gateway, workers: u32| {
        std::fs::read_to_string(gateway.scratch.file(&format!("of-{workers}.pid"))).ok()
    };
    let mut workers_before = 3;
    for workers in [1, 4, 2] {
        let before = line.serving();
        assert_eq!(pid(&line.gateway, workers_before), Some(format!("{before}\n")));
        line.gateway.scratch.write("yumen.yaml", node([new, kept_port], workers));
        line.upgrade();
        line.wait_for_end_of(before);
        assert_eq!(line.gateway.status_json("/status")["workers"], workers);
        assert_eq!(pid(&line.gateway, workers_before), None, "a number that is true no longer");
        workers_before = workers;
        // Every handed-over socket has a worker that accepts.
        for _ in 0..40 {
            assert_eq!((ask(kept_port), ask(new)), (200, 200), "{workers} workers");
        }
        assert!(std::net::TcpStream::connect(old_port).is_err());
    }
}

#[test]
fn streams_live_on_and_new_ones_go_to_the_new_process() {
    let node = "stream_listen: [{address: '127.0.0.1:0'}, {address: '0.0.0.0:0', protocol: udp}]";
    let upstream = |address: SocketAddr| json!({"type": "roundrobin", "nodes": {address.to_string(): 1}});
    let mut line = start(&json!({"stream_routes": [], "routes": []}), node);
    let port = |line: &Line, kind: &str| -> SocketAddr {
        let lines = line.gateway.lines();
        let found = lines.iter().find_map(|line| line.trim().strip_prefix("stream   ")?.strip_prefix(kind));
        found.expect("it is announced").trim().parse().unwrap()
    };
    let (tcp, udp) = (port(&line, "tcp"), port(&line, "udp"));
    line.gateway.apply(&json!({"stream_routes": [
        {"id": "1", "server_port": tcp.port(), "upstream": upstream(l4::echo())},
        {"id": "2", "server_port": udp.port(), "upstream": upstream(datagrams::udp_echo("u"))},
    ]}));
    let first = line.serving();
    let mut early = Client::connect(tcp);
    let check = |client: &mut Client, text: &str| {
        client.send(text);
        assert_eq!(client.bytes(text.len()), text.as_bytes());
    };
    let session = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    session.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let write_config = |text: &str| {
        let second_loopback = SocketAddr::from(([127, 0, 0, 2], udp.port()));
        session.send_to(text.as_bytes(), second_loopback).unwrap();
        let mut room = [0; 100];
        let (count, from) = session.recv_from(&mut room).expect("an answer");
        assert_eq!(from, second_loopback);
        assert!(String::from_utf8_lossy(&room[..count]).contains(text));
    };
    check(&mut early, "before");
    write_config("before");
    line.upgrade();
    check(&mut early, "after");
    for _ in 0..5 {
        write_config("after");
    }
    check(&mut Client::connect(tcp), "late");
    assert!(runs(first));
    drop(early);
}

/// Remaining sessions of a predecessor keep its port: after the gateway ends, it must be possible to start it
/// again.
#[test]
fn a_draining_predecessor_ends_with_the_gateway() {
    let node = "timeouts: {drain_ms: 500}\nstream_listen: [{address: '127.0.0.1:0', protocol: udp}]";
    let mut line = start(&json!({"stream_routes": [], "routes": []}), node);
    let lines = line.gateway.lines();
    let udp: SocketAddr =
        lines.iter().find_map(|line| line.trim().strip_prefix("stream   udp")?.trim().parse().ok()).unwrap();
    let nodes = json!({datagrams::udp_echo("u").to_string(): 1});
    line.gateway.apply(&json!({"stream_routes": [
        {"id": "1", "server_port": udp.port(), "upstream": {"type": "roundrobin", "nodes": nodes}},
    ]}));
    let begin_session = || {
        let session = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        session.set_read_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
        // A datagram may be lost while the sockets change hands.
        let responds = || {
            session.send_to(b"hello", udp).unwrap();
            session.recv_from(&mut [0; 100]).is_ok()
        };
        assert!((0..60).any(|_| responds()), "an answer");
    };
    let first = line.serving();
    begin_session();
    let second = line.upgrade();
    begin_session();
    assert!(runs(first));
    let again = "listen: [{address: '127.0.0.1:0'}]\nstore: {data_dir: again}";
    let again = format!("{again}\nstream_listen: [{{address: '{udp}', protocol: udp}}]\n");
    let again = line.gateway.scratch.write("again.yaml", again);
    let taken = std::process::Command::new(YUMEN)
        .args(["run", "--admin", "127.0.0.1:0", "--status", "127.0.0.1:0", "--config", &again])
        .current_dir(line.gateway.scratch.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&taken.stderr).into_owned();
    assert!(stderr.contains(&first.to_string()) && stderr.contains("process "), "{stderr}");
    let serving = rustix::process::Pid::from_raw(second as i32).unwrap();
    rustix::process::kill_process(serving, rustix::process::Signal::TERM).unwrap();
    for pid in [second, first] {
        line.wait_for_end_of(pid);
    }
    assert!(std::net::UdpSocket::bind(udp).is_ok());
}

#[test]
fn sessions_of_tls_are_resumed_by_the_new_process() {
    let upstream = Upstream::start(|_, stream| respond(stream, 200, "", b"done"));
    let mut line = start(&upstream.everything(), "");
    let session = line.gateway.scratch.file("session").display().to_string();
    let address = line.gateway.https.to_string();
    let shake = |more: &[&str]| {
        let script = format!(
            "printf 'GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' | \
             openssl s_client -connect {address} -ign_eof {} 2>&1",
            more.join(" ")
        );
        run("sh", &["-c", &script]).1
    };
    assert!(shake(&["-sess_out", &session]).contains("\nNew, TLS"));
    line.upgrade();
    let output = shake(&["-sess_in", &session]);
    assert!(output.contains("\nReused, TLS"), "{output}");
}

#[test]
fn an_endpoint_that_is_out_stays_out() {
    let ill = Upstream::start(|_, stream| respond(stream, 500, "", b"ill"));
    let well = Upstream::start(|_, stream| respond(stream, 200, "", b"well"));
    // The active checks succeed but are rare: only traffic detects the failure.
    let checks = json!({
        "active": {
            "type": "tcp",
            "healthy": {"interval": 3600, "successes": 100}, "unhealthy": {"interval": 3600, "tcp_failures": 1},
        },
        "passive": {"unhealthy": {"http_statuses": [500], "http_failures": 2}},
    });
    let nodes = json!({ill.address.to_string(): 1, well.address.to_string(): 1});
    let route = json!({"id": "1", "uri": "/*", "upstream": {"nodes": nodes, "checks": checks}});
    let mut line = start(&json!({"routes": [route]}), "");
    eventually("it is out", 10, || (0..8).all(|_| line.gateway.get("/").text() == "well"));
    let requests_before = ill.requests();
    let first = line.serving();
    line.upgrade();
    line.wait_for_end_of(first);
    for _ in 0..20 {
        assert_eq!(line.gateway.get("/").text(), "well");
    }
    assert_eq!(ill.requests(), requests_before);
}

#[test]
fn an_upstream_gets_no_more_than_its_bound_from_both_processes() {
    let (upstream, gate) = holding();
    let mut bounded = upstream.alone();
    bounded["limits"] = json!({"max_requests": 2, "max_pending": 1, "pending_timeout": 30,
                               "per_endpoint": {"max_requests": 2}});
    let mut line = start(&json!({"routes": [{"id": "1", "uri": "/*", "upstream": bounded}]}), "");
    let mut waiting = open_two_gated(&line, &upstream);
    let first = line.serving();
    line.upgrade();
    let mut pending = Client::connect(line.gateway.http);
    pending.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("one waits", 10, || counted(&line, "yumen_upstream_pending") == 1.0);
    assert_eq!(line.gateway.get("/").status, 503, "one may wait");
    assert_eq!(upstream.requests(), 2);
    gate.open();
    for client in &mut waiting {
        assert_eq!(client.reply().status, 200);
    }
    assert_eq!(pending.reply().status, 200, "it is called when the others have ended");
    drop(waiting);
    line.wait_for_end_of(first);
    eventually("nothing is under way", 10, || counted(&line, "yumen_upstream_requests") == 0.0);
}

/// A metric with one series.
fn counted(line: &Line, family: &str) -> f64 {
    let (_, text) = line.gateway.status_text("/metrics");
    let series = text.lines().find(|line| line.starts_with(&format!("{family}{{"))).expect("a series");
    series.rsplit_once(' ').unwrap().1.parse().expect("a number")
}
