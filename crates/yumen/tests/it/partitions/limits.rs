//! Limits that the nodes share through Redis, and their guarantees during partitions.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::world::{NODES, World};
use crate::harness::redis::Redis;
use crate::harness::{Client, Gateway};

/// Admitted requests per route and client name.
const LIMIT: usize = 30;
/// Requests to each node, more than the limit.
const SENT: usize = 40;
/// Without Redis: the first refuses, the second passes, the third counts locally.
const ROUTES: [&str; 3] = ["strict", "lenient", "delayed"];

pub(super) struct Limits {
    redis: Redis,
    probes: AtomicUsize,
    /// Requests that the delayed limit admitted in this case, and those of them at nodes without Redis.
    delayed: Mutex<(usize, usize)>,
}

impl Limits {
    pub(super) fn new(redis: Redis) -> Limits {
        Limits { redis, probes: AtomicUsize::new(0), delayed: Mutex::default() }
    }

    /// A route for each kind of limit.
    pub(super) fn routes(&self, upstream: &Value) -> Vec<(String, Value)> {
        let route = |name: &str| {
            let mut settings = json!({
                "count": LIMIT, "time_window": 3600, "group": name, "key": "http_who", "policy": "redis",
                // Longer than any call while Redis is reachable.
                "redis_host": self.redis.address().ip().to_string(), "redis_port": self.redis.port,
                "redis_timeout": 5000, "allow_degradation": name == "lenient",
            });
            if name == "delayed" {
                settings["sync_interval"] = json!(0.1);
            }
            let plugins = json!({ "limit-count": settings });
            (name.to_owned(), json!({ "uri": format!("/{name}"), "plugins": plugins, "upstream": upstream }))
        };
        ROUTES.map(route).to_vec()
    }

    fn counted(&self, route: &str, who: &str) -> usize {
        self.redis.cli(&["GET", &format!("plugin-limit-count:v1:{route}:{who}")]).trim().parse().unwrap_or(0)
    }
}

/// The results of a flood of requests.
#[derive(Debug, Default, Clone, Copy)]
struct Told {
    admitted: usize,
    refused: usize,
    failed: usize,
}

fn flood(node: &Gateway, route: &str, who: &str) -> Told {
    let (mut told, mut client) = (Told::default(), Client::connect(node.http));
    for _ in 0..SENT {
        let reply = client.send(format!("GET /{route} HTTP/1.1\r\nHost: x\r\nWho: {who}\r\n\r\n")).reply();
        match reply.status {
            200 => told.admitted += 1,
            503 => told.refused += 1,
            500 => told.failed += 1,
            _ => panic!("/{route}: {reply:?}"),
        }
    }
    told
}

impl World {
    /// Floods all routes at all nodes concurrently; nodes in `uncounted` cannot reach Redis.
    pub(super) fn check_limits(&self, case: &str, uncounted: &[usize]) {
        let who = name(case);
        let told = std::thread::scope(|scope| {
            let floods = ROUTES.map(|route| {
                self.nodes.each_ref().map(|node| {
                    let who = &who;
                    scope.spawn(move || flood(node, route, who))
                })
            });
            floods.map(|nodes| nodes.map(|flood| flood.join().unwrap()))
        });
        let [strict, lenient, delayed] = told;
        let admitted = |told: &[Told]| -> usize { told.iter().map(|told| told.admitted).sum() };
        let told = format!("{case}: {strict:?} {lenient:?} {delayed:?}");
        for node in 0..NODES {
            if uncounted.contains(&node) {
                assert_eq!((strict[node].failed, lenient[node].admitted), (SENT, SENT), "{told}");
            } else {
                assert_eq!((strict[node].failed, lenient[node].failed), (0, 0), "{told}");
            }
            // A node that counts alone is exact.
            assert!(delayed[node].failed == 0 && delayed[node].admitted <= LIMIT, "{told}");
        }
        assert!(admitted(&strict) <= LIMIT, "{told}");
        if uncounted.is_empty() {
            assert_eq!((admitted(&strict), admitted(&lenient)), (LIMIT, LIMIT), "{told}");
        }
        // No request is refused before the limit is reached.
        assert!(admitted(&delayed) >= LIMIT, "{told}");
        let unheard = uncounted.iter().map(|node| delayed[*node].admitted).sum();
        *self.limits.delayed.lock().unwrap() = (admitted(&delayed), unheard);
    }

    /// All nodes count together again, and no admission was lost meanwhile.
    pub(super) fn check_counts(&self, case: &str) {
        self.wait(case, "every worker counts again", || {
            let who = format!("probe-{}", self.limits.probes.fetch_add(1, Ordering::Relaxed));
            let asked = |node: &Gateway| node.get_with("/strict", &format!("Who: {who}\r\n")).status == 200;
            self.nodes.iter().all(|node| (0..8).all(|_| asked(node)))
        });
        let (who, (admitted, unheard)) = (name(case), *self.limits.delayed.lock().unwrap());
        // A count is sent again if its acknowledgement was lost.
        self.wait(case, "all that was admitted is told", || {
            (admitted..=admitted + unheard).contains(&self.limits.counted("delayed", &who))
        });
    }
}

/// The client name, so that each case has its own counters.
fn name(case: &str) -> String {
    case.replace(' ', "-")
}
