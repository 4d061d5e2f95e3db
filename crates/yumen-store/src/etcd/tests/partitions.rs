//! Network partitions: packets are dropped and connections stay open.

use std::time::Duration;

use yumen_config::Kind;
use yumen_test::TestNetwork;

use super::cluster::{Cluster, Node, Places};
use crate::store::{Store, StoreError};
use crate::test_kit::{TestDir, put, until};

fn has(node: &Node, id: &str) -> bool {
    node.store().state().get(Kind::Routes, id).is_some()
}

#[test]
fn a_cut_cable_is_noticed_and_what_happened_beyond_it_is_learnt() {
    let Some(net) = TestNetwork::new(3) else { return };
    let mut cluster = Cluster::start_in(TestDir::new(), Places::in_net(&net, 3));
    cluster.wait();
    let node = cluster.node("one");
    put(node.store(), "a", "{}").unwrap();

    // The member in use is partitioned from all others: the node connects to another.
    let url = node.store().status().endpoint.unwrap();
    let used = cluster.index_of(&url);
    net.cut(used as u8, true);
    until("another one is used", || node.store().status().endpoint.is_some_and(|endpoint| endpoint != url));
    put(node.store(), "b", "{}").unwrap();
    net.cut(used as u8, false);

    // This node is partitioned from all members: it serves its state and catches up afterwards.
    net.cut_here(true);
    until("it is noticed", || node.store().status().error.is_some());
    cluster.must(&["put", "/apisix/routes/c", "{}"]);
    cluster.must(&["del", "/apisix/routes/a"]);
    assert!(has(&node, "a") && !has(&node, "c"));
    net.cut_here(false);
    until("it converges", || has(&node, "c") && !has(&node, "a"));

    // Only a minority is left: no write succeeds, and no old state is taken as new.
    drop(node);
    let mut settings = cluster.settings();
    settings.write_timeout = Duration::from_secs(2);
    settings.client.call_timeout = Duration::from_secs(1);
    let node = cluster.node_with("one", settings);
    let endpoint_index = cluster.index_of(&node.store().status().endpoint.unwrap());
    let others: Vec<usize> = (0..3).filter(|member| *member != endpoint_index).collect();
    others.iter().for_each(|member| net.cut(*member as u8, true));
    until("the leader is missed", || node.store().status().error.is_some());
    let refused = put(node.store(), "d", "{}").unwrap_err();
    assert!(matches!(refused, StoreError::Unreachable(_)), "{refused}");
    assert!(has(&node, "b") && has(&node, "c"));
    others.iter().for_each(|member| net.cut(*member as u8, false));
    until("it is followed again", || node.store().status().error.is_none());
    until("it is written again", || put(node.store(), "e", "{}").is_ok());
    assert!(has(&node, "e"));
    cluster.kill(endpoint_index);
}
