//! The real connection, forwarding and retry code on a seeded scheduler, a virtual clock and a net in
//! memory, with faults. What a seed does it does again; a failure prints its seed and its events.
//!
//! `SIM_SEEDS=from..to cargo test -p yumen-proxy simulation` runs others than the usual seeds; with HTTP/2 a seed's
//! remainder says which sides speak it.

pub(crate) mod net;
pub(crate) mod scheduler;

mod client;
mod endpoint;
mod http2;
mod http2_endpoint;
mod ledger;
mod wire;
mod world;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use world::{Http2, World};

/// Events of a failure that are shown.
const EVENTS_SHOWN: usize = 400;

#[test]
fn every_seed_keeps_the_promises() {
    let (seeds, [passed, local, torn, queued, ejections]) = run_seeds(200, |_| Http2::default());
    // Worlds in which nothing happens would keep every promise.
    assert!(passed >= seeds && local >= seeds / 10 && torn >= seeds / 20, "{passed} {local} {torn}");
    assert!(queued >= seeds / 2 && ejections >= seeds / 20, "{queued} {ejections}");
}

#[test]
fn every_seed_keeps_the_promises_over_http2() {
    let (seeds, [passed, local, torn, ..]) = run_seeds(150, over_http2);
    assert!(passed >= seeds && local >= seeds / 10 && torn >= seeds / 20, "{passed} {local} {torn}");
}

/// Which sides speak HTTP/2 in a seed's world; one does.
fn over_http2(seed: u64) -> Http2 {
    let (clients, endpoints) = [(true, false), (false, true), (true, true)][(seed % 3) as usize];
    Http2 { clients, endpoints }
}

/// Runs seeds, so many where nothing else is asked for; says how many, and what happened in them.
fn run_seeds(usual: u64, http2: fn(u64) -> Http2) -> (u64, [u64; 5]) {
    let seeds = seeds(std::env::var("SIM_SEEDS").ok().as_deref(), usual);
    let next = AtomicU64::new(seeds.start);
    let tally = [const { AtomicU64::new(0) }; 5];
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds.end {
                            return None;
                        }
                        match check(seed, http2(seed), false) {
                            Ok(counts) => tally.iter().zip(counts).for_each(|(sum, count)| {
                                sum.fetch_add(count, Ordering::Relaxed);
                            }),
                            Err(broken) => {
                                next.store(seeds.end, Ordering::Relaxed);
                                return Some(report(seed, http2(seed), &broken));
                            }
                        }
                    }
                })
            })
            .collect();
        let texts: Vec<_> = lanes.into_iter().filter_map(|lane| lane.join().unwrap()).collect();
        assert!(texts.is_empty(), "{}", texts.join("\n"));
    });
    (seeds.end - seeds.start, tally.map(AtomicU64::into_inner))
}

#[test]
fn a_seed_does_the_same_again() {
    for (seed, http2) in
        [(3, Http2::default()), (4, Http2::default()), (3, over_http2(3)), (5, over_http2(5))]
    {
        let events = move || {
            let world = World::new(seed, http2, true);
            let broken = world.run();
            (world.events(), broken)
        };
        let lane = move || std::thread::spawn(events).join().unwrap();
        let (first, second) = (lane(), lane());
        assert!(first.0.len() > 50, "seed {seed} does something");
        assert_eq!(first, second, "seed {seed}, {http2:?}");
    }
}

fn seeds(text: Option<&str>, usual: u64) -> Range<u64> {
    let Some((from, to)) = text.and_then(|text| text.split_once("..")) else { return 0..usual };
    from.trim().parse().expect("SIM_SEEDS is from..to")..to.trim().parse().expect("SIM_SEEDS is from..to")
}

/// Runs a seed; says which promises it broke.
fn check(seed: u64, http2: Http2, keep_events: bool) -> Result<[u64; 5], Vec<String>> {
    let world = World::new(seed, http2, keep_events);
    let mut broken = match catch_unwind(AssertUnwindSafe(|| world.run())) {
        Ok(broken) => broken,
        Err(panic) => vec![format!("panicked: {}", text_of(&*panic))],
    };
    if broken.is_empty() {
        return Ok(world.tally());
    }
    broken.extend(world.events());
    // What a panic left behind may panic again when dropped.
    std::mem::forget(world);
    Err(broken)
}

/// Runs a failed seed again with its events kept.
fn report(seed: u64, http2: Http2, broken: &[String]) -> String {
    let again = match check(seed, http2, true) {
        Ok(_) => vec!["it did not happen again".into()],
        Err(lines) => lines,
    };
    let skipped = again.len().saturating_sub(EVENTS_SHOWN);
    let head = again.iter().take(8.min(skipped));
    let lines: Vec<_> = head.chain(&again[skipped..]).map(String::as_str).collect();
    format!("seed {seed}: {}\n{}\nSIM_SEEDS={seed}..{}", broken[0], lines.join("\n"), seed + 1)
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
