//! A soak test in seconds: constant configuration changes under load, without growth of memory.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Client, Gateway, Upstream};

const ROUTES: usize = 1000;
const WARM_UP: Duration = Duration::from_secs(6);
const SOAK: Duration = Duration::from_secs(12);

/// A thousand routes; change `i` alters upstream, plugins or path of one of them.
fn document(i: usize, upstreams: &[Upstream; 2]) -> Value {
    let routes: Vec<Value> = (0..ROUTES)
        .map(|n| {
            let turn = if n == i % ROUTES { i } else { 0 };
            json!({
                "id": format!("r{n}"),
                "uri": if turn % 3 == 1 { format!("/r{n}/{}", turn % 7) } else { format!("/r{n}/*") },
                "plugins": { "limit-count": {
                    "count": 1_000_000 + turn % 5, "time_window": 3600, "key": "remote_addr", "rejected_code": 429
                } },
                "upstream": upstreams[turn % 2].alone(),
            })
        })
        .chain([json!({ "id": "all", "uri": "/*", "upstream": upstreams[i % 2].alone() })])
        .collect();
    json!({ "routes": routes })
}

#[test]
fn churn_under_load_leaves_memory_flat() {
    let upstreams = [Upstream::text("a"), Upstream::text("b")];
    let gateway = Gateway::start(&document(0, &upstreams));
    let (over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (mut warm, mut changes) = (0, 0);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (gateway, over, served) = (&gateway, &over, &served);
            scope.spawn(move || {
                let mut client = Client::connect(gateway.http);
                for n in (0..).map(|n| n * 7 + thread) {
                    if over.load(Ordering::Acquire) {
                        return;
                    }
                    let reply = client.get(&format!("/r{}/x", n % ROUTES));
                    assert_eq!(reply.status, 200);
                    served.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        let started = Instant::now();
        while started.elapsed() < WARM_UP + SOAK {
            changes += 1;
            gateway.edit(&document(changes, &upstreams));
            if warm == 0 && started.elapsed() > WARM_UP {
                warm = gateway.resident_kib();
            }
            let due = Duration::from_millis(10) * changes as u32;
            // Pacing of the edits.
            std::thread::sleep(due.saturating_sub(started.elapsed()));
        }
        over.store(true, Ordering::Release);
    });
    let end = gateway.resident_kib();
    let revision = gateway.revision();
    assert!(end < warm + warm / 5, "{warm} KiB after warming up, {end} KiB after {revision} revisions");
    assert!(revision > 50 && served.load(Ordering::Acquire) > 1000, "{revision} revisions");
    gateway.assert_metric("yumen_connection_panics_total", 0.0);
}
