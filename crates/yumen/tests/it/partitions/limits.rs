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

    fn counted(&self, route: &str, user: &str) -> usize {
        self.redis.cli(&["GET", &format!("plugin-limit-count:v1:{route}:{user}")]).trim().parse().unwrap_or(0)
    }
}

/// The results of a flood of requests.
#[derive(Debug, Default, Clone, Copy)]
struct FloodResult {
    admitted: usize,
    refused: usize,
    failed: usize,
}

fn flood(node: &Gateway, route: &str, user: &str) -> FloodResult {
    let (mut result, mut client) = (FloodResult::default(), Client::connect(node.http));
    for _ in 0..SENT {
        let reply = client.send(format!("GET /{route} HTTP/1.1\r\nHost: x\r\nWho: {user}\r\n\r\n")).reply();
        match reply.status {
            200 => result.admitted += 1,
            503 => result.refused += 1,
            500 => result.failed += 1,
            _ => panic!("/{route}: {reply:?}"),
        }
    }
    result
}

impl World {
    /// Floods all routes at all nodes concurrently; nodes in `uncounted` cannot reach Redis.
    pub(super) fn check_limits(&self, case: &str, uncounted: &[usize]) {
        let user = name(case);
        let results = std::thread::scope(|scope| {
            let floods = ROUTES.map(|route| {
                self.nodes.each_ref().map(|node| {
                    let user = &user;
                    scope.spawn(move || flood(node, route, user))
                })
            });
            floods.map(|nodes| nodes.map(|flood| flood.join().unwrap()))
        });
        let [strict, lenient, delayed] = results;
        let admitted =
            |results: &[FloodResult]| -> usize { results.iter().map(|results| results.admitted).sum() };
        let summary = format!("{case}: {strict:?} {lenient:?} {delayed:?}");
        for node in 0..NODES {
            if uncounted.contains(&node) {
                assert_eq!((strict[node].failed, lenient[node].admitted), (SENT, SENT), "{summary}");
            } else {
                assert_eq!((strict[node].failed, lenient[node].failed), (0, 0), "{summary}");
            }
            // A node that counts alone is exact.
            assert!(delayed[node].failed == 0 && delayed[node].admitted <= LIMIT, "{summary}");
        }
        assert!(admitted(&strict) <= LIMIT, "{summary}");
        if uncounted.is_empty() {
            assert_eq!((admitted(&strict), admitted(&lenient)), (LIMIT, LIMIT), "{summary}");
        }
        // No request is refused before the limit is reached.
        assert!(admitted(&delayed) >= LIMIT, "{summary}");
        let unreported = uncounted.iter().map(|node| delayed[*node].admitted).sum();
        *self.limits.delayed.lock().unwrap() = (admitted(&delayed), unreported);
    }

    /// All nodes count together again, and no admission was lost meanwhile.
    pub(super) fn check_counts(&self, case: &str) {
        self.wait(case, "every worker counts again", || {
            let user = format!("probe-{}", self.limits.probes.fetch_add(1, Ordering::Relaxed));
            let is_admitted =
                |node: &Gateway| node.get_with("/strict", &format!("Who: {user}\r\n")).status == 200;
            self.nodes.iter().all(|node| (0..8).all(|_| is_admitted(node)))
        });
        let (user, (admitted, unreported)) = (name(case), *self.limits.delayed.lock().unwrap());
        // A count is sent again if its acknowledgement was lost.
        self.wait(case, "all that was admitted is told", || {
            (admitted..=admitted + unreported).contains(&self.limits.counted("delayed", &user))
        });
    }
}

/// The client name, so that each case has its own counters.
fn name(case: &str) -> String {
    case.replace(' ', "-")
}
