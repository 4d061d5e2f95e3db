//! The real connection, forwarding and retry code on a seeded scheduler, a virtual clock and a net in
//! memory, with faults. What a seed does it does again; a failure prints its seed and its events.
//!
//! `SIM_SEEDS=from..to cargo test -p yumen-proxy simulation` runs others than the usual seeds.

pub(crate) mod net;

mod client;
mod endpoint;
mod ledger;
mod scheduler;
mod wire;
mod world;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Events of a failure that are shown.
const EVENTS_SHOWN: usize = 400;

#[test]
fn every_seed_keeps_the_promises() {
    let seeds = seeds(std::env::var("SIM_SEEDS").ok().as_deref());
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
                        match check(seed, false) {
                            Ok(counts) => tally.iter().zip(counts).for_each(|(sum, count)| {
                                sum.fetch_add(count, Ordering::Relaxed);
                            }),
                            Err(broken) => {
                                next.store(seeds.end, Ordering::Relaxed);
                                return Some(report(seed, &broken));
                            }
                        }
                    }
                })
            })
            .collect();
        let texts: Vec<_> = lanes.into_iter().filter_map(|lane| lane.join().unwrap()).collect();
        assert!(texts.is_empty(), "{}", texts.join("\n"));
    });
    // Worlds in which nothing happens would keep every promise.
    let [passed, local, torn, queued, ejections] = tally.map(AtomicU64::into_inner);
    let seeds = seeds.end - seeds.start;
    assert!(passed >= seeds && local >= seeds / 10 && torn >= seeds / 20, "{passed} {local} {torn}");
    assert!(queued >= seeds / 2 && ejections >= seeds / 20, "{queued} {ejections}");
}

#[test]
fn a_seed_does_the_same_again() {
    for seed in [3, 4] {
        let events = move || {
            let world = world::World::new(seed, true);
            let broken = world.run();
            (world.events(), broken)
        };
        let lane = move || std::thread::spawn(events).join().unwrap();
        let (first, second) = (lane(), lane());
        assert!(first.0.len() > 50, "seed {seed} does something");
        assert_eq!(first, second, "seed {seed}");
    }
}

fn seeds(text: Option<&str>) -> Range<u64> {
    let Some((from, to)) = text.and_then(|text| text.split_once("..")) else { return 0..200 };
    from.trim().parse().expect("SIM_SEEDS is from..to")..to.trim().parse().expect("SIM_SEEDS is from..to")
}

/// Runs a seed; says which promises it broke.
fn check(seed: u64, keep_events: bool) -> Result<[u64; 5], Vec<String>> {
    let world = world::World::new(seed, keep_events);
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
fn report(seed: u64, broken: &[String]) -> String {
    let again = match check(seed, true) {
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
