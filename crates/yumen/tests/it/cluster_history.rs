//! Histories of writers and readers of a cluster whose members and nodes crash and stop, checked for
//! consistency.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::etcd::{Cable, Etcd, KEY, WAIT_S, cluster, signal};
use crate::harness::{Client, Gateway, Reply, eventually};

const KEYS: usize = 2;
const NODES: usize = 3;
/// Two per node, which wait while their node is stopped.
const WRITERS: usize = 2 * NODES;
/// Writes that must complete during each fault, and again after it.
const WRITES_PER_FAULT: u64 = 12;

/// Pause between two reads, and between two attempts at a dead node.
const PAUSE: Duration = Duration::from_millis(10);

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Acknowledged with this revision.
    Done(u64),
    /// Refused because of a concurrent write: it must not have an effect.
    Refused,
    /// No response, or an inconclusive one.
    Unknown,
}

/// A conditional write that depends on the value that it found.
#[derive(Debug, Clone)]
struct Write {
    /// The value, unique over all writes; 0 for none.
    id: u64,
    key: usize,
    /// The value that the writer found.
    before: u64,
    from: Instant,
    to: Instant,
    fate: Fate,
    /// The value that the same node served right after the response.
    served_after: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct History {
    writes: Vec<Write>,
    /// The values that each node served, by node and key, in order.
    served: HashMap<(usize, usize), Vec<u64>>,
}

impl History {
    /// Whether one order of the writes is consistent with all observations and ends with `last`.
    ///
    /// Each write contains its predecessor, so there is at most one order: the chain of predecessors of the
    /// last value.
    fn check(&self, key: usize, last: u64) -> Result<usize, String> {
        let writes: HashMap<u64, &Write> =
            self.writes.iter().filter(|write| write.key == key).map(|write| (write.id, write)).collect();
        let (mut order, mut at) = (Vec::new(), last);
        while at != 0 {
            let write = writes.get(&at).ok_or(format!("nobody wrote {at}"))?;
            if write.fate == Fate::Refused {
                return Err(format!("{at} was refused, and happened"));
            }
            order.push(*write);
            if order.len() > writes.len() {
                return Err(format!("{at} came after itself"));
            }
            at = write.before;
        }
        order.reverse();
        let position: HashMap<u64, usize> =
            order.iter().enumerate().map(|(i, write)| (write.id, i)).collect();
        for write in writes.values().filter(|write| matches!(write.fate, Fate::Done(_))) {
            let own = position.get(&write.id).ok_or(format!("{} was acknowledged, and is lost", write.id))?;
            let served =
                write.served_after.map(|id| position.get(&id).ok_or(format!("{id} was served, and lost")));
            if served.transpose()?.is_some_and(|served| served < own) {
                return Err(format!("{} was in force, and something older was served", write.id));
            }
        }
        in_time(&order)?;
        for ((node, _), served) in self.served.iter().filter(|((_, of), _)| *of == key) {
            let mut newest = 0;
            for id in served {
                let at = *position.get(id).ok_or(format!("node {node} served {id}, which is lost"))?;
                if at < newest {
                    return Err(format!("node {node} went back to {id}"));
                }
                newest = at;
            }
        }
        Ok(order.len())
    }
}

impl History {
    /// A readable form: one line for each write, and for the values of each node.
    fn summary(&self) -> String {
        let begin = self.writes.iter().map(|write| write.from).min();
        let at = |moment: Instant| begin.map_or(0, |begin| moment.duration_since(begin).as_millis());
        let line = |write: &Write| {
            let Write { id, key, before, from, to, fate, served_after } = write;
            let (from, to) = (at(*from), at(*to));
            format!("{key}: {before} -> {id} {fate:?} {from}..{to} ms, then served {served_after:?}\n")
        };
        let mut summary: String = self.writes.iter().map(line).collect();
        summary.extend(self.served.iter().map(|(at, ids)| format!("served (node, key) {at:?}: {ids:?}\n")));
        summary
    }
}

/// Whether an order is consistent with the clock and with the revisions.
fn in_time(order: &[&Write]) -> Result<(), String> {
    let (mut latest, mut newest) = (None, 0);
    for write in order {
        if let Fate::Done(revision) = write.fate {
            if latest.is_some_and(|latest| write.to < latest) {
                return Err(format!("{} was over before what it came after began", write.id));
            }
            if revision <= newest {
                return Err(format!("{} has a revision older than what it came after", write.id));
            }
            newest = revision;
        }
        latest = latest.max(Some(write.from));
    }
    Ok(())
}

/// Gateways that may be replaced while clients use them.
type Nodes = [RwLock<Gateway>; NODES];

fn addresses(nodes: &Nodes, node: usize) -> (SocketAddr, SocketAddr) {
    let gateway = nodes[node].read().unwrap();
    (gateway.http, gateway.admin)
}

/// A response; `None` if the node is not available.
fn ask(at: SocketAddr, method: &str, path: &str, fields: &str, body: &str) -> Option<Reply> {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: test\r\nX-API-KEY: {KEY}\r\nConnection: close\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
    );
    Client::of(TcpStream::connect(at).ok()?).send(request).try_reply(false).ok()
}

fn route(key: usize, id: u64) -> String {
    let plugins = json!({ "mocking": { "response_example": id.to_string(), "content_type": "text/plain" } });
    json!({ "uri": format!("/{key}"), "desc": id.to_string(), "plugins": plugins }).to_string()
}

/// A value and its revision from a node.
fn stored(admin: SocketAddr, key: usize) -> Option<(u64, u64)> {
    let reply = ask(admin, "GET", &format!("/apisix/admin/routes/{key}"), "", "")?;
    let found: Value = serde_json::from_slice(&reply.body).ok()?;
    Some((found["value"]["desc"].as_str()?.parse().ok()?, found["modifiedIndex"].as_u64()?))
}

fn served(http: SocketAddr, key: usize) -> Option<u64> {
    let reply = ask(http, "GET", &format!("/{key}"), "", "").filter(|reply| reply.status == 200)?;
    reply.text().parse().ok()
}

/// Writes conditionally on the current value; `None` if the node does not respond.
fn write(nodes: &Nodes, node: usize, key: usize, id: u64) -> Option<Write> {
    let (http, admin) = addresses(nodes, node);
    let (before, revision) = stored(admin, key)?;
    let path = format!("/apisix/admin/routes/{key}?wait=applied&timeout=60");
    let from = Instant::now();
    let reply = ask(admin, "PUT", &path, &format!("If-Match: \"{revision}\"\r\n"), &route(key, id));
    let to = Instant::now();
    let fate = match reply.as_ref().map(|reply| reply.status) {
        Some(200) => Fate::Done(reply.as_ref()?.field("x-yumen-revision")?.parse().ok()?),
        Some(412) => Fate::Refused,
        _ => Fate::Unknown,
    };
    let is_applied = reply.is_some_and(|reply| reply.field("x-yumen-applied") == Some("true"));
    let served_after = if is_applied { served(http, key) } else { None };
    Some(Write { id, key, before, from, to, fate, served_after })
}

/// The faults, one at a time, so that a majority is always available.
#[derive(Debug, Clone, Copy)]
enum Fault {
    KillMember(usize),
    StopMember(usize),
    KillNode(usize),
    StopNode(usize),
    /// The node and the members are disconnected from each other.
    CutNode(usize),
    /// The members receive from the node, but not the reverse.
    DeafNode(usize),
}

const FAULTS: [Fault; 9] = [
    Fault::KillMember(0),
    Fault::StopNode(1),
    Fault::StopMember(1),
    Fault::DeafNode(1),
    Fault::KillNode(2),
    Fault::CutNode(0),
    Fault::KillMember(2),
    Fault::StopMember(0),
    Fault::KillNode(0),
];

/// The connections of each node to each of the members.
type Cables = [Vec<Cable>; NODES];

fn gateway(etcd: &Etcd, cables: &Cables, node: usize) -> Gateway {
    let urls: Vec<String> = cables[node].iter().map(Cable::url).collect();
    etcd.gateway_by(&urls, &format!("n{node}"), ", silence_ms: 1000, write_ms: 20000")
}

fn break_and_repair(etcd: &mut Etcd, cables: &Cables, nodes: &Nodes, fault: Fault, meanwhile: impl Fn()) {
    let hold = |node: usize, requests, answers| {
        cables[node].iter().for_each(|cable| cable.hold(requests, answers));
    };
    let pid = |node: usize| nodes[node].read().unwrap().pid();
    match fault {
        Fault::KillMember(member) => {
            etcd.kill(member);
            meanwhile();
            etcd.launch(member);
        }
        Fault::StopMember(member) => {
            signal(etcd.pid(member), "-STOP");
            meanwhile();
            signal(etcd.pid(member), "-CONT");
        }
        Fault::StopNode(node) => {
            signal(pid(node), "-STOP");
            meanwhile();
            signal(pid(node), "-CONT");
        }
        Fault::CutNode(node) | Fault::DeafNode(node) => {
            hold(node, matches!(fault, Fault::CutNode(_)), true);
            meanwhile();
            hold(node, false, false);
        }
        Fault::KillNode(node) => {
            let mut gateway_lock = nodes[node].write().unwrap();
            gateway_lock.kill();
            gateway_lock.wait(WAIT_S);
            drop(gateway_lock);
            meanwhile();
            let fresh = gateway(etcd, cables, node);
            *nodes[node].write().unwrap() = fresh;
        }
    }
    // The operations continue after the repair.
    meanwhile();
}

#[test]
fn what_was_acknowledged_stays_and_nobody_sees_time_run_backwards() {
    let mut etcd = Etcd::start(3);
    let cables: Cables = [0, 1, 2].map(|_| etcd.addresses().into_iter().map(Cable::to).collect());
    let nodes: Nodes = [0, 1, 2].map(|node| RwLock::new(gateway(&etcd, &cables, node)));
    let (history, next) = (Mutex::<History>::default(), AtomicU64::new(1));
    for key in 0..KEYS {
        let (id, from) = (next.fetch_add(1, Ordering::Relaxed), Instant::now());
        let (_, admin) = addresses(&nodes, 0);
        let path = format!("/apisix/admin/routes/{key}?wait=applied&nodes=all&timeout=60");
        let reply = ask(admin, "PUT", &path, "", &route(key, id)).unwrap();
        let fate = Fate::Done(reply.field("x-yumen-revision").unwrap().parse().unwrap());
        let first = Write { id, key, before: 0, from, to: Instant::now(), fate, served_after: None };
        history.lock().unwrap().writes.push(first);
    }
    for node in 0..NODES {
        let (http, _) = addresses(&nodes, node);
        eventually("the first values are served", WAIT_S, || {
            (0..KEYS).all(|key| served(http, key).is_some())
        });
    }
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (nodes, history, next, is_over, done) = (&nodes, &history, &next, &is_over, &done);
            scope.spawn(move || {
                for turn in writer.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    if let Some(write) = write(nodes, writer % NODES, turn % KEYS, id) {
                        done.fetch_add(u64::from(matches!(write.fate, Fate::Done(_))), Ordering::Relaxed);
                        history.lock().unwrap().writes.push(write);
                    } else {
                        std::thread::sleep(PAUSE);
                    }
                }
            });
        }
        for node in 0..NODES {
            let (nodes, history, is_over) = (&nodes, &history, &is_over);
            scope.spawn(move || {
                for key in (0..KEYS).cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    if let Some(id) = served(addresses(nodes, node).0, key) {
                        history.lock().unwrap().served.entry((node, key)).or_default().push(id);
                    }
                    std::thread::sleep(PAUSE);
                }
            });
        }
        let progress = || {
            let before = done.load(Ordering::Relaxed);
            eventually("writes are acknowledged", WAIT_S, || {
                done.load(Ordering::Relaxed) >= before + WRITES_PER_FAULT
            });
        };
        // The threads must be stopped even if a wait fails, or the scope would never end.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            FAULTS
                .into_iter()
                .for_each(|fault| break_and_repair(&mut etcd, &cables, &nodes, fault, progress));
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
    check(&etcd, &nodes, &history.into_inner().unwrap());
}

/// All nodes agree with etcd, and the history is consistent.
fn check(etcd: &Etcd, nodes: &Nodes, history: &History) {
    for key in 0..KEYS {
        let text = etcd.ctl(&["get", &format!("/apisix/routes/{key}"), "--print-value-only"]).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        let last: u64 = value["desc"].as_str().unwrap().parse().unwrap();
        for node in nodes {
            let gateway = node.read().unwrap();
            eventually("the node ends where etcd is", WAIT_S, || {
                served(gateway.http, key) == Some(last)
                    && stored(gateway.admin, key).is_some_and(|(id, _)| id == last)
            });
        }
        let order = history
            .check(key, last)
            .unwrap_or_else(|wrong| panic!("key {key}: {wrong}\n{}", history.summary()));
        assert!(order > FAULTS.len(), "too few writes to tell anything: {order}");
    }
    for node in nodes {
        let gateway = node.read().unwrap();
        eventually("no node is behind", WAIT_S, || {
            let view = cluster(&gateway);
            view["behind"] == 0 && view["nodes"].as_array().is_some_and(|nodes| nodes.len() == NODES)
        });
    }
}

/// A history of writes as value, previous value, begin, end and result, and of the values from one node.
fn history(writes: &[(u64, u64, u64, u64, Fate)], served: &[u64]) -> History {
    let begin = Instant::now();
    let at = |ms: u64| begin + Duration::from_millis(ms);
    let write = |(id, before, from, to, fate): &(u64, u64, u64, u64, Fate)| Write {
        id: *id,
        key: 0,
        before: *before,
        from: at(*from),
        to: at(*to),
        fate: *fate,
        served_after: None,
    };
    History { writes: writes.iter().map(write).collect(), served: HashMap::from([((0, 0), served.to_vec())]) }
}

#[test]
fn the_judge_knows_a_history_that_could_not_have_been() {
    use Fate::{Done, Refused, Unknown};
    let first = (1, 0, 0, 1, Done(1));
    for (writes, served, last, expected) in [
        (vec![first, (2, 1, 2, 3, Done(2)), (3, 1, 2, 3, Refused)], vec![1, 2, 2], 2, Ok(2)),
        (vec![first, (2, 1, 2, 3, Unknown), (3, 2, 4, 5, Done(4))], vec![1, 3], 3, Ok(3)),
        (vec![first, (2, 1, 2, 3, Done(2))], vec![], 1, Err("2 was acknowledged, and is lost")),
        (vec![first, (2, 1, 2, 3, Done(2)), (3, 1, 2, 3, Done(3))], vec![], 3, Err("2 was acknowledged")),
        (vec![first, (2, 1, 2, 3, Refused)], vec![], 2, Err("2 was refused, and happened")),
        (vec![first, (2, 1, 2, 3, Done(2))], vec![2, 1], 2, Err("went back to 1")),
        (vec![first, (2, 1, 2, 3, Unknown)], vec![2], 1, Err("served 2, which is lost")),
        (vec![first], vec![], 9, Err("nobody wrote 9")),
        (vec![(1, 0, 5, 6, Done(1)), (2, 1, 2, 3, Done(2))], vec![], 2, Err("was over before")),
        (vec![(1, 0, 0, 1, Done(3)), (2, 1, 2, 3, Done(2))], vec![], 2, Err("revision older")),
        (vec![(1, 2, 0, 1, Done(1)), (2, 1, 2, 3, Done(2))], vec![], 2, Err("came after itself")),
    ] {
        let found = history(&writes, &served).check(0, last);
        match (&found, &expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{found} for {expected}"),
            _ => panic!("{found:?} for {expected:?}"),
        }
    }
    let mut stale = history(&[first, (2, 1, 2, 3, Done(2))], &[]);
    stale.writes[1].served_after = Some(1);
    assert!(stale.check(0, 2).unwrap_err().contains("something older was served"));
}
