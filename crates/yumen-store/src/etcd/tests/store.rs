//! One and two nodes in a healthy cluster.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use yumen_config::Kind;

use super::cluster::{Cluster, programs};
use crate::state::{ResourceKey, StoreState};
use crate::store::Store;
use crate::test_kit::{key, note, put, until, write};

fn text(state: &StoreState, kind: Kind, id: &str) -> Option<String> {
    state.get(kind, id).map(|entry| entry.json.to_string())
}

#[test]
fn writes_of_a_node_reach_other_nodes_and_etcdctl() {
    programs().iter().for_each(|program| check_shared(&Cluster::of(program, 1)));
}

fn check_shared(cluster: &Cluster) {
    let (one, other) = (cluster.node("one"), cluster.node("other"));
    let commits = note(other.store());
    let revision = put(one.store(), "a", r#"{"uri":"/a"}"#).unwrap();
    assert_eq!(text(&one.store().state(), Kind::Routes, "a").unwrap(), r#"{"uri":"/a"}"#);
    until("the other has it", || other.store().state().revision.0 == revision);
    until("its followers hear of it", || !commits.lock().unwrap().is_empty());
    let commits = commits.lock().unwrap();
    let newest = commits.last().unwrap();
    assert_eq!((newest.by.author.as_str(), newest.by.reason.as_deref()), ("test", Some("why not")));
    assert_eq!(newest.changes[0].key, key("a"));
    let entry = other.store().state().get(Kind::Routes, "a").unwrap().clone();
    assert_eq!((entry.created.0, entry.modified.0), (revision, revision));
    assert_eq!(cluster.must(&["get", "/apisix/routes/a", "--print-value-only"]).trim(), r#"{"uri":"/a"}"#);
}

#[test]
fn keys_of_other_tools_are_read_among_foreign_keys() {
    let cluster = Cluster::start(1);
    for (path, value) in [
        ("/apisix/routes/", "init_dir"),
        ("/apisix/consumers/", "init_dir"),
        ("/apisix/routes/1", r#"{ "uri": "/1", "id": "1" }"#),
        ("/apisix/consumers/jack", r#"{"username":"jack"}"#),
        ("/apisix/consumers/jack/credentials/c", r#"{"id":"c"}"#),
        ("/apisix/secrets/vault/1", r#"{"id":"vault/1"}"#),
        ("/apisix/plugin_metadata/file-logger", r#"{"log_format":{}}"#),
        ("/apisix/routes/bad", "{ this is no JSON"),
        ("/apisix/services/list", "[1]"),
        ("/apisix/unknown/1", "{}"),
        ("/apisixother/routes/2", r#"{"uri":"/2"}"#),
    ] {
        cluster.must(&["put", path, value]);
    }
    let node = cluster.node("one");
    let state = node.store().state();
    let found: Vec<String> = state.entries().map(|(key, entry)| format!("{key} {}", entry.json)).collect();
    assert_eq!(
        found,
        [
            r#"routes/1 {"uri":"/1","id":"1"}"#,
            r#"consumers/jack {"username":"jack"}"#,
            r#"consumers/jack/credentials/c {"id":"c"}"#,
            r#"plugin_metadata/file-logger {"log_format":{}}"#,
            r#"secrets/vault/1 {"id":"vault/1"}"#,
        ]
    );
    let problems = node.problems();
    assert!(problems.contains("routes/bad") && problems.contains("services/list"), "{problems}");

    // An unreadable value leaves the last good one active; a valid one replaces it and ends the problem.
    cluster.must(&["put", "/apisix/routes/1", "no"]);
    until("the problem is told", || node.problems().contains("routes/1"));
    assert_eq!(text(&node.store().state(), Kind::Routes, "1").unwrap(), r#"{"uri":"/1","id":"1"}"#);
    put(node.store(), "1", r#"{"uri":"/better"}"#).unwrap();
    cluster.must(&["put", "/apisix/routes/bad", r#"{"uri":"/bad"}"#]);
    until("it is mended", || text(&node.store().state(), Kind::Routes, "bad").is_some());
    let problems = node.problems();
    assert!(!problems.contains("routes/") && problems.contains("services/list"), "{problems}");
    cluster.must(&["del", "/apisix/routes/1"]);
    until("it is gone", || text(&node.store().state(), Kind::Routes, "1").is_none());
}

/// Both nodes increment one number equally often; no increment is lost, and each decision sees the newest
/// state.
#[test]
fn two_nodes_that_write_the_same_object_lose_no_write() {
    const ROUNDS: u64 = 40;
    let cluster = Cluster::start(1);
    let nodes = [cluster.node("one"), cluster.node("other")];
    let add = |node: &super::cluster::Node| {
        write(node.store(), |draft| {
            let text = draft.state().get(Kind::Routes, "n").map(|entry| entry.json.to_string());
            let count = text.map_or(0, |text| text[5..text.len() - 1].parse::<u64>().unwrap());
            draft.put(key("n"), format!("{{\"n\":{}}}", count + 1).into(), None);
        })
    };
    std::thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(move || (0..ROUNDS).for_each(|_| assert!(add(node).unwrap().is_some())));
        }
    });
    let expected = format!("{{\"n\":{}}}", 2 * ROUNDS);
    for node in &nodes {
        until("both are there", || text(&node.store().state(), Kind::Routes, "n").unwrap() == expected);
    }
}

#[test]
fn many_proposals_at_once_share_transactions() {
    const COUNT: usize = 300;
    let cluster = Cluster::start(1);
    let node = cluster.node("one");
    let before = node.store().state().revision.0;
    let (sender, receiver) = std::sync::mpsc::channel();
    for i in 0..COUNT {
        let (key, sender) = (key(&i.to_string()), sender.clone());
        node.store().propose(crate::Proposal {
            by: crate::Authorship::by("test"),
            decide: Box::new(move |draft| {
                draft.put(key.clone(), "{}".into(), None);
                true
            }),
            done: Box::new(move |result| sender.send(result.unwrap().unwrap().revision.0).unwrap()),
        });
    }
    let revisions: Vec<u64> =
        (0..COUNT).map(|_| receiver.recv_timeout(crate::test_kit::WAIT).unwrap()).collect();
    assert!(revisions.is_sorted());
    assert_eq!(node.store().state().len(), COUNT);
    let written = revisions.last().unwrap() - before;
    assert!(written < COUNT as u64 / 2, "{written} transactions for {COUNT} proposals");
}

#[test]
fn a_change_larger_than_a_transaction_is_written_all_the_same() {
    const COUNT: usize = 1000;
    let cluster = Cluster::start(1);
    let (one, other) = (cluster.node("one"), cluster.node("other"));
    write(one.store(), |draft| {
        for i in 0..COUNT {
            draft.put(key(&i.to_string()), "{}".into(), None);
            draft.put(ResourceKey::new(Kind::Upstreams, i.to_string()), "{}".into(), None);
        }
    })
    .unwrap();
    until("the other has it", || other.store().state().len() == 2 * COUNT);
    // Deleted through a gateway, which confirms large deletions itself: no hold.
    write(other.store(), |draft| {
        (0..COUNT).for_each(|i| assert!(draft.delete(Kind::Routes, &i.to_string())));
    })
    .unwrap();
    until("it is gone here too", || one.store().state().len() == COUNT);
}

/// Counts the total effect of a change in parts while another node writes between the parts.
#[test]
fn a_change_in_parts_knows_what_it_has_written_when_it_is_decided_again() {
    const COUNT: usize = 400;
    let cluster = Cluster::start(1);
    let mut settings = cluster.settings();
    settings.txn_steps_max = 8;
    let (one, other) = (cluster.node_with("one", settings), cluster.node("other"));
    let count = |is_deleted: bool| {
        let (stop, counts) = (AtomicBool::new(false), Arc::new(Mutex::new(Vec::new())));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    put(other.store(), "z", &format!("{{\"n\":{number}}}")).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(100));
                }
            });
            let counter = counts.clone();
            let done = write(one.store(), move |draft| {
                let mut changed = draft.written_before().len();
                for i in 0..COUNT {
                    let key = key(&format!("many-{i}"));
                    let exists = draft.state().get(key.kind, &key.id).is_some();
                    if exists == is_deleted {
                        changed += 1;
                        match is_deleted {
                            true => assert!(draft.delete(key.kind, &key.id)),
                            false => draft.put(key, "{}".into(), None),
                        }
                    }
                }
                counter.lock().unwrap().push(changed);
            });
            stop.store(true, Ordering::Relaxed);
            done.unwrap();
        });
        let counts = counts.lock().unwrap().clone();
        assert!(counts.len() > 1, "it was decided again: {counts:?}");
        assert!(counts.iter().all(|count| *count == COUNT), "{counts:?}");
    };
    count(false);
    until("the other has it", || other.store().state().len() == COUNT + 1);
    count(true);
}

#[test]
fn settings_are_shared_without_a_revision() {
    let cluster = Cluster::start(1);
    let (one, other) = (cluster.node("one"), cluster.node("other"));
    let committed = write(one.store(), |draft| draft.set("keys", Some("secret"))).unwrap();
    assert!(committed.is_none());
    until("the other knows it", || {
        other.store().state().setting("keys").is_some_and(|keys| **keys == *"secret")
    });
    write(other.store(), |draft| draft.set("keys", None)).unwrap();
    until("it is forgotten", || one.store().state().setting("keys").is_none());
}

#[test]
fn objects_with_a_lifetime_expire_on_every_node() {
    let cluster = Cluster::start(1);
    let (one, other) = (cluster.node("one"), cluster.node("other"));
    let written = write(one.store(), |draft| {
        let at_ms = draft.now_ms() + 1500;
        draft.put(key("brief"), "{}".into(), Some(at_ms));
        draft.put(key("lasting"), "{}".into(), None);
    });
    let expires_ms = written.unwrap().unwrap().changes[0].after.as_ref().unwrap().expires_ms;
    assert!(expires_ms.is_some());
    assert_eq!(one.store().state().get(Kind::Routes, "brief").unwrap().expires_ms, expires_ms);
    for node in [&one, &other] {
        until("it ends", || node.store().state().len() == 1);
    }
}

#[test]
fn shared_keys_are_visible_until_the_lease_ends() {
    let cluster = Cluster::start(1);
    let (one, other) = (cluster.node("one"), cluster.node("other"));
    let (own, other_board) = (one.store().board(), other.store().board());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let revision = one.store().state().revision;
    runtime.block_on(async {
        let lease = own.lease(Duration::from_secs(60)).await.unwrap();
        assert!(own.put_new("turn", "one".into(), lease).await.unwrap());
        assert!(!other_board.put_new("turn", "other".into(), 0).await.unwrap());
        own.put("kept/a", "text".into(), 0).await.unwrap();
        until("both are seen", || other_board.texts().len() == 2);
        assert_eq!(other_board.texts().get("turn").map(|text| &**text), Some("one"));
        own.end(lease).await.unwrap();
        until("one is left", || other_board.texts().into_keys().eq(["kept/a".into()]));
        assert!(other_board.put_new("turn", "other".into(), 0).await.unwrap());
        other_board.delete("turn").await.unwrap();
        until("it is gone", || own.texts().len() == 1);
    });
    assert_eq!(one.store().state().revision, revision, "it is nothing of the configuration");
}

#[test]
fn the_past_is_what_this_node_saw_and_what_etcd_kept() {
    let cluster = Cluster::start(1);
    let one = cluster.node("one");
    let first = put(one.store(), "a", r#"{"v":1}"#).unwrap();
    cluster.must(&["put", "/elsewhere", "x"]);
    let second = put(one.store(), "a", r#"{"v":2}"#).unwrap();
    assert!(second > first + 1);
    let numbers: Vec<u64> = one.store().history(None, 9).unwrap().iter().map(|one| one.revision.0).collect();
    assert_eq!(numbers[..2], [second, first]);
    // A node that joined later reads from etcd.
    let other = cluster.node("other");
    for node in [&one, &other] {
        for (revision, expected) in
            [(first, r#"{"v":1}"#), (second - 1, r#"{"v":1}"#), (second, r#"{"v":2}"#)]
        {
            let state = node.store().state_at(crate::Revision(revision)).unwrap();
            assert_eq!(text(&state, Kind::Routes, "a").unwrap(), expected);
        }
        let future = node.store().state_at(crate::Revision(second + 1));
        assert!(matches!(future, Err(crate::StoreError::Compacted(_))));
    }
    cluster.must(&["compact", &second.to_string()]);
    assert!(matches!(other.store().state_at(crate::Revision(first)), Err(crate::StoreError::Compacted(_))));
    assert!(one.store().state_at(crate::Revision(first)).is_ok());
}

#[test]
fn a_decision_that_writes_nothing_writes_nothing() {
    let cluster = Cluster::start(1);
    let node = cluster.node("one");
    let before = node.store().state().revision;
    assert!(write(node.store(), |_| ()).unwrap().is_none());
    write(node.store(), |draft| {
        draft.put(key("a"), "{}".into(), None);
        draft.delete(Kind::Routes, "a");
    })
    .unwrap();
    assert_eq!(node.store().state().revision, before);
    assert!(Arc::ptr_eq(&node.opened.store, &node.opened.store));
}
