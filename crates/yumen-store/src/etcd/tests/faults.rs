//! Members that end, stop and return; compacted histories; missing clusters.

use std::time::Duration;

use yumen_config::Kind;

use super::cluster::{Cluster, Node, programs};
use super::proxy::Proxy;
use crate::etcd::{FOREIGN, NodeAnnouncement};
use crate::fallback::StateOrigin;
use crate::last_good;
use crate::state::Revision;
use crate::store::{Store, StoreError};
use crate::test_kit::{TestDir, key, note, put, until};

#[test]
fn a_past_that_was_compacted_costs_no_route() {
    programs().iter().for_each(|program| check_compacted(Cluster::of(program, 1)));
}

fn check_compacted(cluster: Cluster) {
    cluster.wait();
    let proxy = Proxy::to(&cluster.urls()[0]);
    let mut settings = cluster.settings();
    settings.client.endpoints = vec![proxy.url()];
    let node = cluster.node_with("one", settings);
    let first_commit = put(node.store(), "kept", "{}").unwrap();
    put(node.store(), "changed", "{}").unwrap();
    put(node.store(), "deleted", "{}").unwrap();
    let commits = note(node.store());
    // The node receives no events while others write and etcd compacts.
    proxy.set_deaf(true);
    cluster.must(&["put", "/apisix/routes/changed", r#"{"v":2}"#]);
    cluster.must(&["del", "/apisix/routes/deleted"]);
    let last = cluster.must(&["put", "/apisix/routes/new", "{}", "-w", "json"]);
    let at = last.find("\"revision\":").unwrap() + 11;
    let last: String = last[at..].chars().take_while(char::is_ascii_digit).collect();
    cluster.must(&["compact", &last]);
    proxy.set_deaf(false);
    until("it is there", || node.store().state().get(Kind::Routes, "new").is_some());
    let state = node.store().state();
    assert_eq!(state.get(Kind::Routes, "kept").unwrap().modified.0, first_commit);
    assert_eq!(&*state.get(Kind::Routes, "changed").unwrap().json, r#"{"v":2}"#);
    assert!(state.get(Kind::Routes, "deleted").is_none());
    until("the followers hear of it", || !commits.lock().unwrap().is_empty());
    let commits = commits.lock().unwrap();
    let [committed] = &commits[..] else { panic!("one revision, and not {commits:?}") };
    assert_eq!(
        (committed.by.author.as_str(), committed.by.reason.as_deref()),
        (FOREIGN, Some("full listing"))
    );
    assert!(committed.changes.iter().all(|changed| changed.key != key("kept")), "{committed:?}");
}

#[test]
fn a_member_that_dies_or_keeps_quiet_costs_nothing_but_a_moment() {
    programs().iter().for_each(|program| check_members(Cluster::of(program, 3)));
}

fn check_members(mut cluster: Cluster) {
    cluster.wait();
    let node = cluster.node("one");
    put(node.store(), "a", "{}").unwrap();
    let current = |cluster: &Cluster| {
        let mut found = None;
        until("a member is used", || {
            found = node.store().status().endpoint;
            found.is_some()
        });
        cluster.index_of(&found.unwrap())
    };
    // Dead: the connection ends.
    let dead = current(&cluster);
    cluster.kill(dead);
    cluster.must(&["put", "/apisix/routes/b", "{}"]);
    until("b came", || node.store().state().get(Kind::Routes, "b").is_some());
    put(node.store(), "c", "{}").unwrap();
    cluster.launch(dead);
    // Silent: the connection stays open without data.
    cluster.wait();
    let quiet = current(&cluster);
    cluster.pause(quiet, true);
    cluster.must(&["--command-timeout", "20s", "put", "/apisix/routes/d", "{}"]);
    until("d came", || node.store().state().get(Kind::Routes, "d").is_some());
    put(node.store(), "e", "{}").unwrap();
    cluster.pause(quiet, false);
    // The leader.
    let leader = cluster.leader();
    cluster.kill(leader);
    put(node.store(), "f", "{}").unwrap();
    cluster.must(&["put", "/apisix/routes/g", "{}"]);
    until("g came", || node.store().state().get(Kind::Routes, "g").is_some());
    assert_eq!(node.store().state().len(), 7);
}

/// A write with a lost acknowledgement is neither repeated nor reported as failed.
#[test]
fn an_answer_that_is_lost_is_not_a_second_write() {
    let cluster = Cluster::start(1);
    cluster.wait();
    let proxy = Proxy::to(&cluster.urls()[0]);
    let mut settings = cluster.settings();
    settings.client.endpoints = vec![proxy.url()];
    let node = cluster.node_with("one", settings);
    let append = || {
        crate::test_kit::write(node.store(), |draft| {
            let text =
                draft.state().get(Kind::Routes, "n").map_or("[]".into(), |entry| entry.json.to_string());
            let count = text.matches('x').count() + 1;
            draft.put(key("n"), format!("{{\"n\":\"{}\"}}", "x".repeat(count)).into(), None);
        })
    };
    append().unwrap();
    for round in 2..5 {
        proxy.set_deaf(true);
        std::thread::scope(|scope| {
            let writer = scope.spawn(append);
            let expected = format!("{{\"n\":\"{}\"}}", "x".repeat(round));
            let arrived =
                || cluster.must(&["get", "/apisix/routes/n", "--print-value-only"]).trim() == expected;
            until("the write arrives", arrived);
            proxy.set_deaf(false);
            assert!(writer.join().unwrap().unwrap().is_some());
            assert!(arrived(), "once");
        });
        assert_eq!(node.store().state().get(Kind::Routes, "n").unwrap().json.matches('x').count(), round);
    }
}

#[test]
fn a_node_serves_what_it_last_knew_while_there_is_no_cluster_and_then_converges() {
    let mut cluster = Cluster::start(1);
    let mut settings = cluster.settings();
    let node = cluster.node_with("one", settings.clone());
    let revision = put(node.store(), "a", r#"{"v":1}"#).unwrap();
    write_setting(&node);
    drop(node);
    cluster.kill(0);

    settings.start_timeout = Duration::from_millis(300);
    settings.write_timeout = Duration::from_millis(300);
    let node = cluster.node_with("one", settings.clone());
    let status = node.store().status();
    assert!(matches!(status.origin, StateOrigin::LastGood { .. }), "{status:?}");
    assert!(status.error.is_some() && status.endpoint.is_none(), "{status:?}");
    let state = node.store().state();
    assert_eq!((state.revision.0, state.len()), (revision, 1));
    assert_eq!(state.setting("keys").map(|keys| keys.to_string()).as_deref(), Some("kept"));
    let refused = put(node.store(), "b", "{}").unwrap_err();
    assert!(matches!(&refused, StoreError::Unreachable(why) if why.contains("127.0.0.1")), "{refused}");

    let commits = note(node.store());
    cluster.launch(0);
    cluster.must(&["put", "/apisix/routes/a", r#"{"v":2}"#]);
    until("it converges", || &*node.store().state().get(Kind::Routes, "a").unwrap().json == r#"{"v":2}"#);
    until("it says so", || node.store().status().origin == StateOrigin::Store);
    assert!(commits.lock().unwrap().iter().all(|committed| committed.changes.len() == 1));
    put(node.store(), "b", "{}").unwrap();

    // Without either, the error contains both reasons.
    drop(node);
    cluster.kill(0);
    let error = Node::open(cluster.dir.join("new"), settings).err().unwrap().to_string();
    assert!(error.contains("127.0.0.1") && error.contains("last good state"), "{error}");
}

#[test]
fn a_damaged_last_good_state_is_a_problem_until_the_cluster_is_read() {
    let mut cluster = Cluster::start(1);
    let mut settings = cluster.settings();
    for id in ["a", "b"] {
        put(cluster.node_with("one", settings.clone()).store(), id, "{}").unwrap();
    }
    cluster.kill(0);
    let file = cluster.dir.join("one").join(crate::etcd::DIRECTORY).join(last_good::FILE);
    std::fs::write(file, "strange").unwrap();
    settings.start_timeout = Duration::from_millis(300);
    // A restart does not hide the damage.
    for _ in 0..2 {
        let node = cluster.node_with("one", settings.clone());
        assert_eq!(node.store().state().len(), 1);
        assert!(node.problems().contains("the last good state is incomplete"), "{}", node.problems());
        assert!(matches!(node.store().status().origin, StateOrigin::LastGood { damage: Some(_), .. }));
    }
    let node = cluster.node_with("one", settings);
    cluster.launch(0);
    until("the cluster is read", || node.store().state().len() == 2);
    until("the problem is over", || node.problems().is_empty());
}

fn write_setting(node: &Node) {
    crate::test_kit::write(node.store(), |draft| draft.set("keys", Some("kept"))).unwrap();
}

/// Listing after an outage, or watching: in both cases the loss of most objects is held.
#[test]
fn mass_deletion_is_held_until_confirmed() {
    let cluster = Cluster::start(1);
    let (one, other) = (cluster.node("one"), cluster.node("other"));
    for i in 0..20 {
        put(one.store(), &i.to_string(), "{}").unwrap();
    }
    until("both are there", || other.store().state().len() == 20);
    // Small numbers pass.
    cluster.must(&["del", "/apisix/routes/19"]);
    until("it passes", || one.store().state().len() == 19 && other.store().state().len() == 19);
    drop(other);
    cluster.must(&["del", "--prefix", "/apisix"]);
    until("it is held", || one.store().status().held == 19);
    let other = cluster.node("other");
    assert_eq!(other.store().status().held, 19);
    for node in [&one, &other] {
        assert_eq!(node.store().state().len(), 19);
        assert!(node.problems().contains("store/confirm"), "{}", node.problems());
    }
    // One object returns, one is changed, and the rest is confirmed for all nodes at once.
    cluster.must(&["put", "/apisix/routes/3", "{}"]);
    put(one.store(), "4", r#"{"v":4}"#).unwrap();
    let refused = crate::test_kit::write(one.store(), |draft| {
        draft.delete(Kind::Routes, "5");
    });
    assert!(matches!(&refused, Err(StoreError::Refused(why)) if why.contains("routes/5")), "{refused:?}");
    until("two are back", || one.store().status().held == 17 && other.store().status().held == 17);
    let (sender, receiver) = std::sync::mpsc::channel();
    other.store().confirm(crate::Authorship::by("ada"), Box::new(move |result| sender.send(result).unwrap()));
    assert_eq!(receiver.recv_timeout(crate::test_kit::WAIT).unwrap().unwrap(), 17);
    for node in [&one, &other] {
        until("the rest is gone", || node.store().state().len() == 2);
        until("nothing is wrong", || node.problems().is_empty());
        assert_eq!(node.store().history(None, 1).unwrap()[0].by.author, "ada");
    }
}

#[test]
fn an_empty_cluster_in_place_of_a_full_one_takes_nothing_away() {
    let data = TestDir::new();
    let full = Cluster::start(1);
    let node = Node::open(data.join("node"), full.settings()).unwrap();
    for i in 0..12 {
        put(node.store(), &i.to_string(), "{}").unwrap();
    }
    drop((node, full));
    let empty = Cluster::start(1);
    let node = Node::open(data.join("node"), empty.settings()).unwrap();
    assert_eq!((node.store().state().len(), node.store().status().held), (12, 12));
}

#[test]
fn a_damaged_name_of_a_node_is_made_anew() {
    let cluster = Cluster::start(1);
    let node = cluster.node("one");
    let path = cluster.dir.join("one/etcd/node");
    let name = node.store().node_id().unwrap();
    assert_eq!(node.store().node_id().unwrap(), name);
    for damage in [&b""[..], b"no name\n", &[0xff, 0xfe, 0x80], &[0; 300]] {
        std::fs::write(&path, damage).unwrap();
        let other = node.store().node_id().unwrap();
        assert_ne!(other, name);
        assert_eq!(node.store().node_id().unwrap(), other);
    }
}

/// Requires authentication: only `yumen` with the password `secret` may write.
pub(super) fn demand_passwords(cluster: &Cluster) {
    for command in [
        &["user", "add", "root:top"][..],
        &["user", "add", "yumen:secret"],
        &["role", "add", "gateway"],
        &["role", "grant-permission", "gateway", "readwrite", "--prefix=true", "/apisix/"],
        &["user", "grant-role", "root", "root"],
        &["user", "grant-role", "yumen", "gateway"],
        &["auth", "enable"],
    ] {
        cluster.must(command);
    }
}

#[test]
fn nodes_have_their_password_before_etcd_demands_one_and_after_it_no_longer_does() {
    let cluster = Cluster::start(1);
    let mut settings = cluster.settings();
    settings.client.user = Some(("yumen".into(), "secret".into()));
    let node = cluster.node_with("one", settings);
    put(node.store(), "a", "{}").unwrap();
    demand_passwords(&cluster);
    put(node.store(), "b", "{}").unwrap();
    cluster.must(&["--user", "root:top", "auth", "disable"]);
    put(node.store(), "c", "{}").unwrap();
    assert_eq!(node.store().state().len(), 3);
}

#[test]
fn passwords_are_asked_for_and_tokens_renewed() {
    let mut cluster = Cluster::start_with(1, &["--auth-token-ttl", "1"]);
    demand_passwords(&cluster);
    let mut settings = cluster.settings();
    settings.start_timeout = Duration::from_millis(500);
    settings.client.user = Some(("yumen".into(), "wrong".into()));
    let error = Node::open(cluster.dir.join("wrong"), settings.clone()).err().unwrap().to_string();
    assert!(error.contains("authentication failed"), "{error}");
    settings.start_timeout = crate::test_kit::WAIT;
    settings.client.user = Some(("yumen".into(), "secret".into()));
    let node = cluster.node_with("one", settings);
    put(node.store(), "a", "{}").unwrap();
    // Tokens are invalid after a restart of the member, and they expire.
    cluster.kill(0);
    cluster.launch(0);
    put(node.store(), "b", "{}").unwrap();
    std::thread::sleep(Duration::from_secs(3));
    put(node.store(), "c", "{}").unwrap();
    assert_eq!(node.store().state().len(), 3);
}

#[test]
fn a_node_whose_record_is_refused_tells_so_until_it_is_taken() {
    let cluster = Cluster::start(1);
    let mut settings = cluster.settings();
    settings.client.user = Some(("yumen".into(), "secret".into()));
    let node = cluster.node_with("one", settings);
    let (_applied, watched) = tokio::sync::watch::channel(Revision::default());
    let announced = node.store().announce(NodeAnnouncement {
        id: "one".into(),
        lease: Duration::from_secs(1),
        describe: Box::new(|_, _| Some("here".into())),
        applied: watched,
    });
    until("it is there", || node.store().nodes().contains_key("one"));
    demand_passwords(&cluster);
    let root = |command: &[&str]| cluster.must(&[&["--user", "root:top"][..], command].concat());
    root(&["role", "revoke-permission", "gateway", "--prefix=true", "/apisix/"]);
    root(&["role", "grant-permission", "gateway", "read", "--prefix=true", "/apisix/"]);
    until("it is told", || node.problems().contains("record in etcd cannot be renewed"));
    root(&["role", "grant-permission", "gateway", "readwrite", "--prefix=true", "/apisix/"]);
    until("it is over", || node.problems().is_empty());
    announced.leave();
}

/// Knowledge of a newer history is discarded.
#[test]
fn a_node_is_not_behind_an_older_copy() {
    let data = TestDir::new();
    let newer = Cluster::start(1);
    let node = Node::open(data.join("node"), newer.settings()).unwrap();
    for i in 0..30 {
        put(node.store(), "a", &format!("{{\"v\":{i}}}")).unwrap();
    }
    let shared = node.store().shared.clone();
    let head = shared.status().cluster_revision;
    let kvs = Vec::new();
    let listing =
        crate::etcd::KeyListing { head: crate::etcd::ClusterHead { cluster_id: 1, revision: 5 }, kvs };
    assert!(head > 5);
    drop(newer);
    shared.need(listing.head);
    shared.take_list(&listing);
    assert_eq!((shared.status().cluster_revision, shared.status().lag_revisions), (5, 0));
}
