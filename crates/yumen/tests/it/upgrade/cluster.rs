//! The upgrade of a cluster node: the cluster sees one node, and exclusive resources are handed over.

use serde_json::json;

use super::Line;
use crate::harness::etcd::{Etcd, WAIT_S, ask, cluster};
use crate::harness::{Client, Gateway, eventually};

#[test]
fn a_node_of_a_cluster_is_taken_over_from_and_stays_the_same_node() {
    let etcd = Etcd::start(1);
    let other = etcd.gateway("b", "");
    let mut line = Line::of(etcd.gateway("a", ""));
    for turn in 0..2 {
        let serving = line.serving();
        let failed = line.ask(&["--binary", "/bin/false"]);
        assert_eq!(failed.status.code(), Some(2), "{failed:?}");
        assert_eq!(line.serving(), serving);
        put(&line.gateway, &format!("failed {turn}"));
        eventually("the other node follows", WAIT_S, || other.get("/a").text() == format!("failed {turn}"));
        line.upgrade();
        put(&line.gateway, &format!("taken {turn}"));
        eventually("the other node follows", WAIT_S, || other.get("/a").text() == format!("taken {turn}"));
        put(&other, &format!("other {turn}"));
        eventually("the new process follows", WAIT_S, || {
            line.gateway.get("/a").text() == format!("other {turn}")
        });
        eventually("both nodes are known, once each", WAIT_S, || {
            let view = cluster(&other);
            let nodes = view["nodes"].as_array().expect("nodes");
            let mut names: Vec<&str> = nodes.iter().filter_map(|node| node["name"].as_str()).collect();
            names.sort_unstable();
            names == ["a", "b"]
        });
    }
}

#[test]
fn a_write_for_all_nodes_waits_for_processes_that_were_taken_over_from() {
    let etcd = Etcd::start(1);
    let other = etcd.gateway("b", "");
    let mut line = Line::of(etcd.gateway("a", ""));
    put(&line.gateway, "before");
    let mut clients: Vec<Client> = (0..5).map(|_| Client::connect(line.gateway.http)).collect();
    for client in &mut clients {
        assert_eq!(client.get("/a").text(), "before");
    }
    line.upgrade();
    for (number, client) in clients.iter_mut().enumerate() {
        let text = format!("after {number}");
        let plugins = json!({ "mocking": { "response_example": text, "content_type": "text/plain" } });
        let path = "/apisix/admin/routes/a?wait=applied&nodes=all";
        let reply = ask(&other, "PUT", path, "", &json!({ "uri": "/a", "plugins": plugins }).to_string());
        assert_eq!(reply.field("x-yumen-applied"), Some("true"), "{reply:?}");
        assert_eq!(reply.field("x-yumen-nodes"), Some("2/2"), "the node is there all the time: {reply:?}");
        assert_eq!(client.get("/a").text(), text);
    }
}

/// Makes the route `/a` respond with `text`.
fn put(gateway: &Gateway, text: &str) {
    let plugins = json!({ "mocking": { "response_example": text, "content_type": "text/plain" } });
    let route = json!({ "uri": "/a", "plugins": plugins }).to_string();
    let reply = ask(gateway, "PUT", "/apisix/admin/routes/a?wait=applied", "", &route);
    assert!(matches!(reply.status, 200 | 201), "{}", reply.text());
}
