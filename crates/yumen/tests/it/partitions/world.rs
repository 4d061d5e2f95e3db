//! The gateways, etcd and Redis with a network between them, its faults, and clients that never stop.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockWriteGuard};
use std::time::Duration;

use serde_json::{Value, json};
use yumen_test::TestNetwork;

use super::limits::Limits;
use crate::harness::etcd::{Etcd, KEY, WAIT_S, ask, cluster};
use crate::harness::redis::Redis;
use crate::harness::upstream::respond;
use crate::harness::{Client, Gateway, Place, Reply, Upstream, eventually};

pub(super) const NODES: usize = 3;
const NAMES: [&str; NODES] = ["a", "b", "c"];
/// Routes that change constantly.
const ROUTES: usize = 3;
/// Numbers in the network: nodes from 0, then members, then Redis.
const FIRST_MEMBER: u8 = 3;
const REDIS: u8 = 6;
/// Pause between two writes through one node, which bounds the length of the history.
const PAUSE: Duration = Duration::from_millis(20);
/// Time for which a flapping link is down, and up.
const FLAP: Duration = Duration::from_millis(100);

/// A participant in the network.
#[derive(Debug, Clone, Copy)]
pub(super) enum Spot {
    Node(usize),
    Nodes,
    Members,
    Leader,
    /// A member that is not the leader.
    Follower,
    Followers,
    Redis,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// The links are down.
    Cable(Spot),
    /// The links go down and up repeatedly.
    Flapping(Spot),
    /// Packets from the first to the second are lost; the reverse direction works.
    Lost(Spot, Spot),
    /// Packets in both directions are lost.
    Cut(Spot, Spot),
}

/// The observations of the clients.
#[derive(Default)]
pub(super) struct Traffic {
    /// Routes and values by node, in the order of the responses.
    pub(super) served: [Vec<(usize, u64)>; NODES],
    /// Acknowledged values.
    pub(super) acknowledged: Vec<u64>,
    /// Successful and attempted writes by node.
    writes: [(usize, usize); NODES],
    pub(super) failures: Vec<String>,
}

pub(super) struct World {
    pub(super) nodes: [Gateway; NODES],
    pub(super) etcd: Etcd,
    pub(super) traffic: Mutex<Traffic>,
    pub(super) limits: Limits,
    next_id: AtomicU64,
    /// Read-locked by writers; the write lock pauses them.
    writing: RwLock<()>,
    is_over: AtomicBool,
    _upstream: Upstream,
    net: Arc<TestNetwork>,
}

impl World {
    /// `None` if namespaces are not available.
    pub(super) fn start() -> Option<World> {
        let net = TestNetwork::new(REDIS + 1)?;
        let members: Vec<Place> = (FIRST_MEMBER..REDIS).map(|number| Place::of(&net, number)).collect();
        let etcd = Etcd::at(&members);
        let redis = Redis::at(&Place::of(&net, REDIS));
        let upstream = Upstream::at(net.here().into(), |_, stream| respond(stream, 200, "", b"x"));
        let settings = ", silence_ms: 1000, write_ms: 3000, connect_ms: 1000, retry_ms_max: 250, lease_s: 600, drift_s: 1";
        let nodes =
            [0, 1, 2].map(|node| etcd.gateway_at(Place::of(&net, node), NAMES[node as usize], settings));
        let world = World {
            nodes,
            etcd,
            traffic: Mutex::default(),
            limits: Limits::new(redis),
            next_id: AtomicU64::new(1),
            writing: RwLock::new(()),
            is_over: AtomicBool::new(false),
            _upstream: upstream,
            net: Arc::new(net),
        };
        let upstream = world._upstream.alone();
        let mut routes = world.limits.routes(&upstream);
        routes.push(("plain".into(), json!({ "uri": "/plain", "upstream": upstream })));
        routes.extend((0..ROUTES).map(|route| (format!("k{route}"), changing(route, world.id()))));
        for (id, route) in routes {
            let path = format!("/apisix/admin/routes/{id}?wait=applied&nodes=all&timeout=60");
            let reply = ask(&world.nodes[0], "PUT", &path, "", &route.to_string());
            assert_eq!((reply.status, reply.field("x-yumen-nodes")), (201, Some("3/3")), "{}", reply.text());
        }
        Some(world)
    }

    fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `run` while clients read from and write through every node.
    pub(super) fn under_traffic(&self, run: impl FnOnce()) {
        std::thread::scope(|scope| {
            for node in 0..NODES {
                scope.spawn(move || self.read_on(node));
                scope.spawn(move || self.write_on(node));
            }
            // The threads must be stopped even if a wait fails, or the scope would never end.
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            self.is_over.store(true, Ordering::Relaxed);
            if let Err(panic) = ended {
                std::panic::resume_unwind(panic);
            }
        });
    }

    fn read_on(&self, node: usize) {
        let mut connection: Option<Client> = None;
        while !self.is_over.load(Ordering::Relaxed) {
            for route in 0..=ROUTES {
                let path = if route < ROUTES { format!("/k{route}") } else { "/plain".to_owned() };
                let client = connection.get_or_insert_with(|| Client::connect(self.nodes[node].http));
                let reply = client.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).try_reply(false);
                if reply.as_ref().map_or(true, |reply| reply.field("connection") == Some("close")) {
                    connection = None;
                }
                let mut traffic = self.traffic.lock().unwrap();
                match reply {
                    Ok(reply) if reply.status == 200 && route == ROUTES => {}
                    Ok(reply) if reply.status == 200 => {
                        traffic.served[node].push((route, reply.text().parse().unwrap()));
                    }
                    other => traffic.failures.push(format!("{path} at {node}: {other:?}")),
                }
            }
            // Pacing of the requests.
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn write_on(&self, node: usize) {
        for turn in node.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let writing = self.writing.read().unwrap();
            let (id, route) = (self.id(), turn % ROUTES);
            let path = format!("/apisix/admin/routes/k{route}");
            let reply = put(self.nodes[node].admin, &path, &changing(route, id).to_string());
            drop(writing);
            let mut traffic = self.traffic.lock().unwrap();
            traffic.writes[node].1 += 1;
            match reply.status {
                200 => {
                    traffic.acknowledged.push(id);
                    traffic.writes[node].0 += 1;
                }
                // The store is unreachable; the value may have been written.
                503 => {}
                _ => traffic.failures.push(format!("write at {node}: {reply:?}")),
            }
            drop(traffic);
            // Pacing of the writes.
            std::thread::sleep(PAUSE);
        }
    }

    /// No client writes while the guard exists.
    pub(super) fn pause_writes(&self) -> RwLockWriteGuard<'_, ()> {
        self.writing.write().unwrap()
    }

    /// Waits for a condition, and fails if a request has failed.
    pub(super) fn wait(&self, case: &str, what: &str, is_so: impl Fn() -> bool) {
        eventually(&format!("{case}: {what}"), WAIT_S, || {
            let failures = self.traffic.lock().unwrap().failures.clone();
            assert_eq!(failures, Vec::<String>::new(), "{case}");
            is_so()
        });
    }

    /// Writes succeed through each of these nodes; without nodes, through none at all.
    pub(super) fn wait_for_writes(&self, case: &str, nodes: &[usize]) {
        let writes = || self.traffic.lock().unwrap().writes;
        let before = writes();
        if nodes.is_empty() {
            let were_tried = || (0..NODES).all(|node| writes()[node].1 > before[node].1 + 1);
            self.wait(case, "writes are tried", were_tried);
            assert_eq!(writes().map(|(done, _)| done), before.map(|(done, _)| done), "{case}");
        }
        let go_on = || nodes.iter().all(|node| writes()[*node].0 > before[*node].0 + 4);
        self.wait(case, "writes are acknowledged", go_on);
    }

    pub(super) fn wait_for_reads(&self, case: &str) {
        let served = || self.traffic.lock().unwrap().served.each_ref().map(Vec::len);
        let before = served();
        self.wait(case, "everybody is served", || (0..NODES).all(|node| served()[node] > before[node] + 50));
    }

    /// Whether exactly the blind nodes report their state: in status, metrics and cluster view.
    pub(super) fn reports_drift(&self, blind: &[usize]) -> bool {
        (0..NODES).all(|node| {
            let (gateway, sees) = (&self.nodes[node], !blind.contains(&node));
            let view = cluster(gateway);
            let known = view["nodes"].as_array().map_or(0, Vec::len);
            let store = &gateway.status_json("/status")["store"];
            let is_stale = view["age_ms"].as_u64().unwrap() >= 1000
                && gateway.metric("yumen_store_staleness_seconds") >= 1.0;
            (&view["connected"], &store["connected"]) == (&json!(sees), &json!(sees))
                && gateway.metric("yumen_store_connected") == f64::from(u8::from(sees))
                && known == NODES
                && is_stale != sees
        })
    }

    /// The blind nodes keep reporting it during the fault.
    pub(super) fn check_blind(&self, case: &str, blind: &[usize]) {
        for node in blind {
            assert_eq!(cluster(&self.nodes[*node])["connected"], false, "{case}");
        }
    }

    /// Whether every connected node reports the lagging ones, in the cluster view and as a problem.
    pub(super) fn names_drifting(&self, blind: &[usize]) -> bool {
        let drifting: Vec<&str> = blind.iter().map(|node| NAMES[*node]).collect();
        (0..NODES).filter(|node| !blind.contains(node)).all(|node| {
            let view = cluster(&self.nodes[node]);
            let nodes = view["nodes"].as_array().unwrap().iter();
            let drifts = nodes.filter(|one| one["lag_ms"].as_u64() > Some(1000));
            let names: Vec<&str> = drifts.filter_map(|one| one["name"].as_str()).collect();
            let alarm = self.nodes[node].metric("yumen_cluster_drift");
            names == drifting && alarm == f64::from(u8::from(!drifting.is_empty()))
        })
    }

    /// Whether every node reports that no node lags, while writes are paused.
    pub(super) fn all_applied(&self) -> bool {
        self.nodes.iter().all(|node| {
            let view = cluster(node);
            view["behind"] == 0 && view["nodes"].as_array().unwrap().iter().all(|one| one["lag_ms"] == 0)
        })
    }

    /// Whether every node serves the content of the store, while writes are paused.
    pub(super) fn is_in_step(&self) -> bool {
        (0..ROUTES).all(|route| {
            let key = format!("/apisix/routes/k{route}");
            let Some(text) = self.etcd.ctl(&["get", &key, "--print-value-only"]) else { return false };
            let stored: Value = serde_json::from_str(&text).unwrap();
            let id = stored["desc"].as_str().unwrap();
            self.nodes.iter().all(|node| node.get(&format!("/k{route}")).text() == id)
        })
    }

    fn members_of(&self, spot: Spot, leader: u8) -> Vec<u8> {
        let followers = (FIRST_MEMBER..REDIS).filter(|member| *member != leader);
        match spot {
            Spot::Node(node) => vec![node as u8],
            Spot::Nodes => (0..NODES as u8).collect(),
            Spot::Members => (FIRST_MEMBER..REDIS).collect(),
            Spot::Leader => vec![leader],
            Spot::Follower => followers.take(1).collect(),
            Spot::Followers => followers.collect(),
            Spot::Redis => vec![REDIS],
        }
    }

    /// Applies faults to the network; the returned closure repairs it.
    pub(super) fn break_by(&self, faults: &[Fault]) -> impl FnOnce() {
        let leader = FIRST_MEMBER + self.etcd.leader() as u8;
        let mut repairs: Vec<Box<dyn FnOnce()>> = Vec::new();
        for fault in faults {
            let (net, members_of) = (self.net.clone(), |spot| self.members_of(spot, leader));
            match *fault {
                Fault::Cable(spot) => {
                    let cables = members_of(spot);
                    cables.iter().for_each(|cable| net.cut(*cable, true));
                    repairs.push(Box::new(move || cables.iter().for_each(|cable| net.cut(*cable, false))));
                }
                Fault::Flapping(spot) => repairs.push(flap(net, members_of(spot))),
                Fault::Lost(from, to) => repairs.push(lose(net, pairs(&members_of(from), &members_of(to)))),
                Fault::Cut(one, other) => {
                    let (one, other) = (members_of(one), members_of(other));
                    repairs.push(lose(net.clone(), pairs(&one, &other)));
                    repairs.push(lose(net, pairs(&other, &one)));
                }
            }
        }
        move || repairs.into_iter().for_each(|repair| repair())
    }
}

fn pairs(from: &[u8], to: &[u8]) -> Vec<(u8, u8)> {
    from.iter().flat_map(|from| to.iter().map(|to| (*from, *to))).collect()
}

fn lose(net: Arc<TestNetwork>, pairs: Vec<(u8, u8)>) -> Box<dyn FnOnce()> {
    pairs.iter().for_each(|(from, to)| net.lose(*from, *to, true));
    Box::new(move || pairs.iter().for_each(|(from, to)| net.lose(*from, *to, false)))
}

fn flap(net: Arc<TestNetwork>, cables: Vec<u8>) -> Box<dyn FnOnce()> {
    let is_over = Arc::<AtomicBool>::default();
    let seen = is_over.clone();
    let flapping = std::thread::spawn(move || {
        // Pacing of the cuts.
        for cable in cables.iter().cycle() {
            net.cut(*cable, true);
            std::thread::sleep(FLAP);
            net.cut(*cable, false);
            std::thread::sleep(FLAP);
            if seen.load(Ordering::Relaxed) {
                return;
            }
        }
    });
    Box::new(move || {
        is_over.store(true, Ordering::Relaxed);
        flapping.join().unwrap();
    })
}

/// A route that responds with its value.
fn changing(route: usize, id: u64) -> Value {
    let plugins = json!({ "mocking": { "response_example": id.to_string(), "content_type": "text/plain" } });
    json!({ "uri": format!("/k{route}"), "desc": id.to_string(), "plugins": plugins })
}

fn put(admin: SocketAddr, path: &str, body: &str) -> Reply {
    let length = body.len();
    let request = format!(
        "PUT {path} HTTP/1.1\r\nHost: x\r\nX-API-KEY: {KEY}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    Client::of(TcpStream::connect(admin).unwrap()).send(request).reply()
}
