//! The limit against an upstream made of a clock and a queue.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use serde_json::json;

use super::*;
use crate::testing::Bench;

/// An upstream that serves so many at a time, each for so long; the others queue there.
struct Server {
    slots: usize,
    service_us: u64,
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    queue: VecDeque<usize>,
}

impl Server {
    fn begin(&mut self, request: usize, now_us: u64) {
        if self.ends.len() < self.slots {
            self.ends.push(Reverse((now_us + self.service_us, request)));
        } else {
            self.queue.push_back(request);
        }
    }
}

/// What came of an offered load.
#[derive(Debug)]
struct Run {
    served_per_s: f64,
    latency_us: f64,
    /// The highest while nothing was measured.
    limit: u32,
}

const RULES: Rules = Rules {
    min: 3,
    max: 1000,
    first: 20,
    tolerance: 1.25,
    window_us: 100_000,
    measure_interval_us: 10_000_000,
    measure_requests: 50,
};

/// Offers a request each `every_us` for `seconds`; the second half is looked at.
fn offer(limiter: &Arc<Limiter>, slots: usize, service_us: u64, every_us: u64, seconds: u64) -> Run {
    let mut server = Server { slots, service_us, ends: BinaryHeap::new(), queue: VecDeque::new() };
    let mut running: Vec<Option<(Guard, u64)>> = Vec::new();
    let (mut served, mut spent_us, mut lot, mut limit) = (0u64, 0u64, 1u64, 0);
    let (start_us, end_us) = (1_000_000, 1_000_000 + seconds * 1_000_000);
    let mut arrival_us = start_us;
    while arrival_us < end_us {
        while let Some(Reverse((now_us, request))) = server.ends.peek().copied() {
            if now_us > arrival_us {
                break;
            }
            server.ends.pop();
            if let Some(next) = server.queue.pop_front() {
                server.begin(next, now_us);
            }
            let (guard, since_us) = running[request].take().unwrap();
            lot = lot.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            limiter.finished(&guard, Sample::Took(now_us - since_us), now_us, lot >> 33);
            if now_us > (start_us + end_us) / 2 {
                served += 1;
                spent_us += now_us - since_us;
                limit = limiter.limit().max(limit);
            }
        }
        if let Some(guard) = Guard::enter(limiter) {
            running.push(Some((guard, arrival_us)));
            server.begin(running.len() - 1, arrival_us);
        }
        arrival_us += every_us;
    }
    Run {
        served_per_s: served as f64 * 2.0 / seconds as f64,
        latency_us: spent_us as f64 / served.max(1) as f64,
        limit,
    }
}

#[test]
fn under_overload_the_upstream_is_kept_busy_and_quick() {
    // Ten at a time, 10 ms each: a thousand a second. Three times that is offered.
    let run = offer(&Arc::new(Limiter::new(RULES)), 10, 10_000, 333, 30);
    assert!(run.served_per_s > 900.0, "{run:?}");
    assert!(run.latency_us < 25_000.0, "{run:?}");
    assert!((8..=30).contains(&run.limit), "{run:?}");
}

#[test]
fn a_load_that_the_upstream_bears_is_not_limited() {
    let limiter = Arc::new(Limiter::new(RULES));
    let run = offer(&limiter, 100, 10_000, 500, 30);
    assert!(run.served_per_s > 1900.0, "{run:?}");
    assert!(run.latency_us < 10_001.0 && limiter.baseline_us() == 10_000, "{run:?}");
}

#[test]
fn an_upstream_that_gets_faster_or_slower_is_measured_again() {
    let limiter = Arc::new(Limiter::new(RULES));
    offer(&limiter, 10, 10_000, 333, 30);
    assert!((10_000..12_000).contains(&limiter.baseline_us()), "{limiter:?}");
    let slower = offer(&limiter, 10, 40_000, 333, 60);
    assert!((40_000..50_000).contains(&limiter.baseline_us()), "{limiter:?}");
    // Ten at a time, 40 ms each, are 250 a second.
    assert!(slower.served_per_s > 220.0 && slower.latency_us < 100_000.0, "{slower:?}");
}

#[test]
fn an_overload_that_is_told_makes_the_limit_smaller_and_never_too_small() {
    let rules = Rules { min: 2, measure_requests: 1, ..RULES };
    let limiter = Arc::new(Limiter::new(rules));
    let mut now_us = 1_000_000;
    let mut finish = |sample| {
        now_us += rules.window_us;
        limiter.finished(&Guard::enter(&limiter).unwrap(), sample, now_us, 0);
        limiter.limit()
    };
    assert_eq!(finish(Sample::Took(1000)), 20);
    assert_eq!([(); 3].map(|()| finish(Sample::Overload)), [18, 16, 14]);
    assert_eq!([(); 40].map(|()| finish(Sample::Overload))[39], 2);
}

#[test]
fn exchanges_above_the_limit_are_refused_until_others_end() {
    let bench = Bench::new();
    let settings = json!({"min_concurrency": 2, "initial_concurrency": 2, "rejected_msg": "busy"});
    let plugin = bench.plugin("adaptive-concurrency", settings);
    let start = || {
        let mut ex = bench.exchange("GET / HTTP/1.1");
        let answer = bench.admit(std::slice::from_ref(&plugin), &mut ex, "GET / HTTP/1.1");
        (ex, answer)
    };
    let (first, second) = (start(), start());
    assert!(first.1.is_none() && second.1.is_none());
    let refused = start().1.expect("it is refused");
    assert_eq!((refused.status, &refused.body[..]), (503, &b"{\"error_msg\":\"busy\"}\n"[..]));
    let told = plugin.foresee(Phases::ACCESS, &mut bench.exchange("GET / HTTP/1.1"));
    assert!(matches!(told, Foreseen::Respond(response) if response.status == 503));
    drop(first);
    assert!(start().1.is_none());
}

#[test]
fn clients_that_do_not_wait_tell_nothing_of_the_upstream() {
    // (the endpoint's failure, its status, the limit then)
    let cases = [(None, None, 20), (Some(502), None, 18), (None, Some(503), 18)];
    for (upstream_failure, upstream_status, expected) in cases {
        let bench = Bench::new();
        let plugin = bench.plugin("adaptive-concurrency", json!({"measure_requests": 1}));
        let served = Outcome { attempts: 1, upstream_us: Some(1000), ..Outcome::default() };
        let failed = Outcome { fault: "x", upstream_failure, upstream_status, ..served };
        let rounds = [served, failed].map(|outcome| {
            bench.host.advance(std::time::Duration::from_secs(1));
            let mut ex = bench.exchange("GET / HTTP/1.1");
            assert!(matches!(plugin.access(&mut ex), Step::Continue));
            plugin.log(&ex, &outcome);
            drop(ex);
            let Foreseen::Says(told) = plugin.foresee(Phases::ACCESS, &mut bench.exchange("GET / HTTP/1.1"))
            else {
                panic!("it is let in")
            };
            told.into_owned()
        });
        let of = |limit: u32| format!("0 of {limit} exchanges under way");
        assert_eq!(rounds, [of(20), of(expected)], "{failed:?}");
    }
}

#[test]
fn a_global_rule_and_a_route_each_learn_of_an_exchange_that_both_let_in() {
    let mut bench = Bench::new();
    let mut plugin = |owner: &str, min_concurrency: u32| {
        bench.owner = owner.to_owned();
        bench.plugin(
            "adaptive-concurrency",
            json!({"measure_requests": 1, "min_concurrency": min_concurrency}),
        )
    };
    let plugins = [plugin("global_rules/1", 3), plugin("routes/1", 4)];
    let limits = || {
        plugins.each_ref().map(|plugin| {
            match plugin.foresee(Phases::ACCESS, &mut bench.exchange("GET / HTTP/1.1")) {
                Foreseen::Says(told) => told.into_owned(),
                _ => panic!("it is let in"),
            }
        })
    };
    let served = Outcome { attempts: 1, upstream_us: Some(1000), ..Outcome::default() };
    for outcome in [served, Outcome { fault: "x", upstream_failure: Some(502), ..served }] {
        bench.host.advance(std::time::Duration::from_secs(1));
        let mut ex = bench.exchange("GET / HTTP/1.1");
        for plugin in &plugins {
            assert!(matches!(plugin.access(&mut ex), Step::Continue));
        }
        plugins.iter().for_each(|plugin| plugin.log(&ex, &outcome));
    }
    assert_eq!(limits(), ["0 of 18 exchanges under way"; 2]);
}

#[test]
fn times_beyond_all_clocks_are_long_ones() {
    let bench = Bench::new();
    let settings = json!({"measure_requests": 1, "window": 1e300, "measure_interval": 1e300});
    let plugin = bench.plugin("adaptive-concurrency", settings);
    for _ in 0..12 {
        bench.host.advance(std::time::Duration::from_secs(1));
        let mut ex = bench.exchange("GET / HTTP/1.1");
        assert!(matches!(plugin.access(&mut ex), Step::Continue));
        plugin.log(&ex, &Outcome { attempts: 1, upstream_us: Some(1000), ..Outcome::default() });
    }
    let told = plugin.foresee(Phases::ACCESS, &mut bench.exchange("GET / HTTP/1.1"));
    assert!(matches!(told, Foreseen::Says(told) if told == "0 of 20 exchanges under way"), "measured once");
}

#[test]
fn bounds_that_cross_are_refused() {
    let refused =
        Bench::new().build("adaptive-concurrency", json!({"min_concurrency": 9, "max_concurrency": 3}));
    let Err(invalid) = refused else { panic!("it is taken") };
    assert_eq!(invalid.path, "min_concurrency");
}
