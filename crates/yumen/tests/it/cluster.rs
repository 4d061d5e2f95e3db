//! Nodes with a common store: their view of each other, and writes that wait for all of them.

use serde_json::{Value, json};

use crate::harness::etcd::{Etcd, WAIT_S, ask, cluster, signal};
use crate::harness::{Gateway, Reply, eventually};

/// Enough connections for every worker.
const CONNECTIONS: usize = 8;

fn names(gateway: &Gateway) -> Vec<String> {
    let view = cluster(gateway);
    let mut names: Vec<String> = view["nodes"]
        .as_array()
        .unwrap_or_else(|| panic!("no nodes in {view}"))
        .iter()
        .map(|node| node["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

fn see(gateways: &[&Gateway], expected: &[&str]) {
    for gateway in gateways {
        eventually("the nodes are known", WAIT_S, || names(gateway) == expected);
    }
}

fn node<'a>(view: &'a Value, name: &str) -> &'a Value {
    let mut nodes = view["nodes"].as_array().unwrap().iter();
    nodes.find(|node| node["name"] == name).unwrap_or_else(|| panic!("no {name} in {view}"))
}

/// Makes the route `/a` respond with `text`.
fn write(gateway: &Gateway, text: &str, query: &str) -> Reply {
    let plugins = json!({ "mocking": { "response_example": text, "content_type": "text/plain" } });
    let route = json!({ "uri": "/a", "plugins": plugins }).to_string();
    let reply = ask(gateway, "PUT", &format!("/apisix/admin/routes/a?wait=applied&{query}"), "", &route);
    assert!(matches!(reply.status, 200 | 201), "{}", reply.text());
    reply
}

#[test]
fn a_write_that_waits_for_all_nodes_is_served_by_every_worker_of_all_when_it_is_answered() {
    let etcd = Etcd::start(1);
    let nodes = ["a", "b", "c"].map(|name| etcd.gateway(name, ""));
    see(&nodes.each_ref(), &["a", "b", "c"]);
    for i in 0..12 {
        let text = format!("text {i}");
        let reply = write(&nodes[i % 3], &text, "nodes=all&timeout=60");
        assert_eq!(
            (reply.field("x-yumen-applied"), reply.field("x-yumen-nodes")),
            (Some("true"), Some("3/3"))
        );
        for gateway in &nodes {
            (0..CONNECTIONS).for_each(|_| assert_eq!(gateway.get("/a").text(), text));
        }
    }
    // The node that responded has the status of all; the others get it a little later.
    eventually("b knows that nobody is behind", WAIT_S, || cluster(&nodes[1])["behind"] == 0);
    let view = cluster(&nodes[1]);
    let own = node(&view, "b");
    assert_eq!((&view["store"], &view["connected"]), (&json!("etcd"), &json!(true)));
    assert_eq!(
        (&own["is_self"], &own["config_source"], &own["workers"]),
        (&json!(true), &json!("store"), &json!(2))
    );
    assert_eq!(node(&view, "a")["addresses"]["http"], json!([nodes[0].http.to_string()]));
    for (metric, value) in [("nodes", 3.0), ("nodes_behind", 0.0), ("revision_spread", 0.0), ("drift", 0.0)] {
        let name = format!("yumen_cluster_{metric}");
        eventually(metric, WAIT_S, || nodes[0].metric(&name) == value);
    }
    // Other tools see the records of nodes, under Yumen's own prefix.
    assert!(etcd.ctl(&["get", "--prefix", "/apisix/yumen/nodes/"]).unwrap().contains("\"name\":\"c\""));
}

#[test]
fn a_stopped_node_is_named_and_a_quorum_does_without_it() {
    let etcd = Etcd::start(1);
    let nodes = ["a", "b", "c"].map(|name| etcd.gateway(name, ", lease_s: 600, drift_s: 1"));
    see(&nodes.each_ref(), &["a", "b", "c"]);
    write(&nodes[0], "first", "nodes=all&timeout=60");
    signal(nodes[2].pid(), "-STOP");
    let quorum = write(&nodes[0], "second", "nodes=quorum&timeout=60");
    assert_eq!(quorum.field("x-yumen-applied"), Some("true"));
    let all = write(&nodes[1], "third", "nodes=all&timeout=1");
    assert_eq!((all.field("x-yumen-applied"), all.field("x-yumen-behind")), (Some("false"), Some("c")));
    assert_eq!(all.field("x-yumen-nodes"), Some("2/3"));
    assert_eq!(nodes[1].get("/a").text(), "third", "the write stands");
    eventually("the alarm rings", WAIT_S, || nodes[0].metric("yumen_cluster_drift") == 1.0);
    nodes[0].assert_metric("yumen_cluster_nodes_behind", 1.0);
    assert!(nodes[0].metric("yumen_cluster_revision_spread") >= 1.0);
    let view = cluster(&nodes[0]);
    assert!(node(&view, "c")["lag_ms"].as_u64().unwrap() >= 1000, "{view}");
    eventually("a problem names it", WAIT_S, || {
        ask(&nodes[0], "GET", "/yumen/v1/problems", "", "").text().contains("node c (")
    });
    signal(nodes[2].pid(), "-CONT");
    eventually("it is in step again", WAIT_S, || cluster(&nodes[0])["behind"] == 0);
    assert_eq!(nodes[2].get("/a").text(), "third");
    nodes[0].assert_metric("yumen_cluster_drift", 0.0);
    eventually("there is no problem", WAIT_S, || {
        ask(&nodes[0], "GET", "/yumen/v1/problems", "", "").text().trim() == "[]"
    });
}

#[test]
fn a_node_that_leaves_or_dies_is_gone_and_what_is_known_outlives_etcd() {
    let mut etcd = Etcd::start(1);
    let stays = etcd.gateway("stays", "");
    let (mut leaves, dies) =
        (etcd.gateway("leaves", ", lease_s: 3600"), etcd.gateway("dies", ", lease_s: 2"));
    see(&[&stays, &leaves, &dies], &["dies", "leaves", "stays"]);
    let id = node(&cluster(&stays), "leaves")["id"].clone();
    dies.kill();
    see(&[&stays], &["leaves", "stays"]);
    // Its lease would last: the node deletes its record itself.
    leaves.terminate();
    leaves.wait(WAIT_S);
    see(&[&stays], &["stays"]);
    let again = etcd.gateway("leaves", "");
    see(&[&stays, &again], &["leaves", "stays"]);
    assert_eq!(node(&cluster(&stays), "leaves")["id"], id, "who it is lies in its data directory");
    // Another tool deletes the records.
    etcd.ctl(&["del", "--prefix", "/apisix/yumen/nodes/"]).unwrap();
    see(&[&stays, &again], &["leaves", "stays"]);

    etcd.kill(0);
    eventually("it is noticed", WAIT_S, || cluster(&stays)["connected"] == false);
    let before = cluster(&stays);
    eventually("what is told grows old", WAIT_S, || {
        cluster(&stays)["age_ms"].as_u64() > before["age_ms"].as_u64()
    });
    assert_eq!(names(&stays), ["leaves", "stays"]);
    etcd.launch(0);
    etcd.wait();
    let waited = write(&stays, "after", "nodes=all&timeout=60");
    assert_eq!(waited.field("x-yumen-applied"), Some("true"));
    assert_eq!(again.get("/a").text(), "after");
}

#[test]
fn a_node_with_a_store_of_its_own_is_alone() {
    let (gateway, key) = Gateway::embedded();
    let request = format!("GET /yumen/v1/cluster HTTP/1.1\r\nHost: admin\r\nX-API-KEY: {key}\r\n\r\n");
    let view = crate::harness::Client::connect(gateway.admin).send(request).reply().json();
    assert_eq!((&view["store"], view["nodes"].as_array().unwrap().len()), (&json!("embedded"), 1));
    assert_eq!(view["nodes"][0]["applied"], view["revision"]);
}
