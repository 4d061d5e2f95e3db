//! Histories of concurrent writers on several nodes with failing members: every acknowledged write happened
//! once, in one order that all nodes saw.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use yumen_config::Kind;

use super::cluster::{Cluster, Node};
use super::proxy::Proxy;
use crate::state::{StoreCommit, StoreEntry};
use crate::store::{Store, StoreError};
use crate::test_kit::{Random, key, until, write};

const KEYS: u64 = 3;
const ROUNDS: usize = 5;

/// One append, from the call to its result.
struct Operation {
    key: u64,
    number: u64,
    from: Instant,
    to: Instant,
    is_confirmed: bool,
}

fn list(entry: Option<&StoreEntry>) -> Vec<u64> {
    let text = entry.map_or("{\"l\":[]}", |entry| &entry.json);
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    value["l"].as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

/// Appends a number to the current list.
fn append(node: &Node, at: u64, number: u64) -> Result<(), StoreError> {
    let written = write(node.store(), move |draft| {
        let name = at.to_string();
        let mut numbers = list(draft.state().get(Kind::Routes, &name));
        numbers.push(number);
        draft.put(key(&name), serde_json::json!({ "l": numbers }).to_string().into(), None);
    });
    written.map(|committed| assert!(committed.is_some()))
}

/// Every list that a node served, by key, in order.
type Seen = Arc<Mutex<Vec<(u64, Vec<u64>)>>>;

fn watch(node: &Node) -> Seen {
    let seen = Seen::default();
    let notes = seen.clone();
    node.store().follow(Box::new(move |committed: &Arc<StoreCommit>| {
        let changed = committed.changes.iter().filter(|changed| changed.key.kind == Kind::Routes);
        let row = |id: &str, after: Option<&StoreEntry>| (id.parse().unwrap(), list(after));
        notes.lock().unwrap().extend(changed.map(|changed| row(&changed.key.id, changed.after.as_ref())));
    }));
    seen
}

/// Kills or suspends one member at a time, including the leader, and restarts it; drops responses meanwhile.
fn disturb(cluster: &mut Cluster, proxies: &[Vec<Proxy>], random: &mut Random) {
    for _ in 0..ROUNDS {
        for proxies in proxies {
            proxies.iter().for_each(|proxy| proxy.set_deaf(true));
            std::thread::sleep(Duration::from_millis(20 + random.below(200)));
            proxies.iter().for_each(|proxy| proxy.set_deaf(false));
        }
        let member = random.below(3) as usize;
        let pause = Duration::from_millis(500 + random.below(3000));
        if random.below(2) == 0 {
            cluster.kill(member);
            std::thread::sleep(pause);
            cluster.launch(member);
        } else {
            cluster.pause(member, true);
            std::thread::sleep(pause);
            cluster.pause(member, false);
        }
        std::thread::sleep(Duration::from_millis(random.below(1500)));
    }
}

#[test]
fn acknowledged_writes_are_linearizable() {
    let mut cluster = Cluster::start(3);
    cluster.wait();
    let mut settings = cluster.settings();
    settings.write_timeout = Duration::from_secs(4);
    settings.client.call_timeout = Duration::from_secs(2);
    let proxies: Vec<Vec<Proxy>> =
        (0..3).map(|_| cluster.urls().iter().map(|url| Proxy::to(url)).collect()).collect();
    let start = |(i, proxies): (usize, &Vec<Proxy>)| {
        settings.client.endpoints = proxies.iter().map(Proxy::url).collect();
        cluster.node_with(&i.to_string(), settings.clone())
    };
    let nodes: Vec<Node> = proxies.iter().enumerate().map(start).collect();
    let seen: Vec<Seen> = nodes.iter().map(watch).collect();
    let (numbers, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let operations = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (i, node) in nodes.iter().chain(&nodes).enumerate() {
            let (numbers, ends, operations) = (&numbers, &ends, &operations);
            scope.spawn(move || {
                let mut random = Random(i as u64);
                while !ends.load(Ordering::Relaxed) {
                    let (at, number) = (random.below(KEYS), numbers.fetch_add(1, Ordering::Relaxed));
                    let from = Instant::now();
                    let is_confirmed = match append(node, at, number) {
                        Ok(()) => true,
                        Err(StoreError::Unreachable(_)) => false,
                        Err(other) => panic!("{other}"),
                    };
                    let done = Operation { key: at, number, from, to: Instant::now(), is_confirmed };
                    operations.lock().unwrap().push(done);
                    // Longer lists would add no information and are slow to parse.
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
        disturb(&mut cluster, &proxies, &mut Random(7));
        ends.store(true, Ordering::Relaxed);
    });
    // Doubtful writes may still arrive. After one more write per node, no earlier write can.
    for node in &nodes {
        until("it is written again", || append(node, KEYS, 0).is_ok());
    }
    let newest = nodes.iter().map(|node| node.store().state().revision).max();
    until("all agree", || nodes.iter().all(|node| Some(node.store().state().revision) >= newest));
    check(&cluster, &nodes, &seen, &operations.into_inner().unwrap());
}

fn check(cluster: &Cluster, nodes: &[Node], seen: &[Seen], operations: &[Operation]) {
    assert!(operations.iter().filter(|one| one.is_confirmed).count() > 20, "hardly anything was written");
    for at in 0..KEYS {
        let name = at.to_string();
        let text = cluster.must(&["get", &format!("/apisix/routes/{at}"), "--print-value-only"]);
        let entry = |json: &str| StoreEntry {
            json: json.into(),
            created: Default::default(),
            modified: Default::default(),
            expires_ms: None,
        };
        let last = list((!text.trim().is_empty()).then(|| entry(text.trim())).as_ref());
        let unique: BTreeSet<u64> = last.iter().copied().collect();
        assert_eq!(unique.len(), last.len(), "something was written twice: {last:?}");
        let own = || operations.iter().filter(|one| one.key == at);
        for one in own().filter(|one| one.is_confirmed) {
            assert!(unique.contains(&one.number), "{} was acknowledged and is lost", one.number);
        }
        let known: BTreeSet<u64> = own().map(|one| one.number).collect();
        assert!(unique.is_subset(&known), "something came from nowhere");
        // An operation that started after the result of another must follow it.
        let by_number: BTreeMap<u64, &Operation> = own().map(|one| (one.number, one)).collect();
        let mut begun: Option<&Operation> = None;
        for one in last.iter().map(|number| by_number[number]) {
            if let Some(before) = begun.filter(|before| one.is_confirmed && one.to < before.from) {
                panic!("{} after {}, which began when it was answered", one.number, before.number);
            }
            begun = begun.filter(|before| before.from >= one.from).or(Some(one));
        }
        for (node, seen) in nodes.iter().zip(seen) {
            assert_eq!(list(node.store().state().get(Kind::Routes, &name)), last);
            let mut length = 0;
            for (_, served) in seen.lock().unwrap().iter().filter(|(key, _)| *key == at) {
                assert!(served.len() >= length && last.starts_with(served), "{served:?} was served");
                length = served.len();
            }
        }
    }
}
