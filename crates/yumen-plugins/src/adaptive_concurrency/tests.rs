//! The limiter against a simulated upstream with a clock and a queue.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use serde_json::json;

use super::limiter::SAMPLES_MIN;
use super::*;
use crate::testing::PluginBench;

/// An upstream with `slots` parallel requests of `service_us` each; further requests queue.
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

/// The result of an offered load.
#[derive(Debug)]
struct Run {
    served_per_s: f64,
    latency_us: f64,
    /// Highest limit outside of measurements.
    limit: u32,
}

const RULES: AdaptiveLimitRules = AdaptiveLimitRules {
    min: 3,
    max: 1000,
    first: 20,
    tolerance: 1.25,
    window_us: 100_000,
    measure_interval_us: 10_000_000,
    measure_requests: 50,
};

/// Offers a request every `every_us` for `seconds`; evaluates the second half.
fn offer(limiter: &Arc<AdaptiveLimiter>, slots: usize, service_us: u64, every_us: u64, seconds: u64) -> Run {
    let mut server = Server { slots, service_us, ends: BinaryHeap::new(), queue: VecDeque::new() };
    let mut running: Vec<Option<(AdaptiveLimitGuard, u64)>> = Vec::new();
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
            limiter.learn(&guard, ConcurrencySample::Latency(now_us - since_us), now_us, lot >> 33);
            if now_us > (start_us + end_us) / 2 {
                served += 1;
                spent_us += now_us - since_us;
                limit = limiter.limit().max(limit);
            }
        }
        if let Some(guard) = AdaptiveLimitGuard::enter(limiter, arrival_us) {
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
    // Capacity: 10 in parallel at 10 ms, 1000 per second. The load is three times that.
    let run = offer(&Arc::new(AdaptiveLimiter::new(RULES)), 10, 10_000, 333, 30);
    assert!(run.served_per_s > 900.0, "{run:?}");
    assert!(run.latency_us < 25_000.0, "{run:?}");
    assert!((8..=30).contains(&run.limit), "{run:?}");
}

#[test]
fn a_load_that_the_upstream_bears_is_not_limited() {
    let limiter = Arc::new(AdaptiveLimiter::new(RULES));
    let run = offer(&limiter, 100, 10_000, 500, 30);
    assert!(run.served_per_s > 1900.0, "{run:?}");
    assert!(run.latency_us < 10_001.0 && limiter.baseline_us() == 10_000, "{run:?}");
}

#[test]
fn an_upstream_that_gets_faster_or_slower_is_measured_again() {
    let limiter = Arc::new(AdaptiveLimiter::new(RULES));
    offer(&limiter, 10, 10_000, 333, 30);
    assert!((10_000..12_000).contains(&limiter.baseline_us()), "{limiter:?}");
    // Long enough for a measurement before the evaluated half: the clock starts anew.
    let slower = offer(&limiter, 10, 40_000, 333, 90);
    assert!((40_000..50_000).contains(&limiter.baseline_us()), "{limiter:?}");
    // Capacity: 10 in parallel at 40 ms, 250 per second.
    assert!(slower.served_per_s > 220.0 && slower.latency_us < 100_000.0, "{slower:?}");
}

#[test]
fn reported_overload_lowers_the_limit_to_its_minimum() {
    let rules = AdaptiveLimitRules { min: 2, measure_requests: 1, ..RULES };
    let limiter = Arc::new(AdaptiveLimiter::new(rules));
    let mut now_us = 1_000_000;
    let mut finish = |sample| {
        now_us += rules.window_us;
        limiter.learn(&AdaptiveLimitGuard::enter(&limiter, now_us).unwrap(), sample, now_us, 0);
        limiter.limit()
    };
    assert_eq!(finish(ConcurrencySample::Latency(1000)), 20);
    assert_eq!([(); 3].map(|()| finish(ConcurrencySample::Overload)), [18, 16, 14]);
    assert_eq!([(); 40].map(|()| finish(ConcurrencySample::Overload))[39], 2);
}

#[test]
fn exchanges_above_the_limit_are_refused_until_others_end() {
    let bench = PluginBench::new();
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
    let dry_run = plugin.dry_run(PhaseSet::ACCESS, &mut bench.exchange("GET / HTTP/1.1"));
    assert!(matches!(dry_run, DryRunResult::Respond(response) if response.status == 503));
    drop(first);
    assert!(start().1.is_none());
}

/// An admitted exchange after its attempt has begun.
fn admitted<'b>(bench: &'b PluginBench, plugins: &[Arc<dyn Plugin>]) -> Exchange<'b> {
    let mut ex = bench.exchange("GET / HTTP/1.1");
    for plugin in plugins {
        assert!(matches!(plugin.access(&mut ex), Step::Continue));
    }
    plugins.iter().for_each(|plugin| plugin.upstream_request(&mut UpstreamRequestPhase::new(&mut ex)));
    ex
}

/// Runs the response head phase of an upstream response after 1 ms.
fn answered(bench: &PluginBench, plugins: &[Arc<dyn Plugin>], ex: &mut Exchange<'_>, status: u16) {
    bench.host.advance(Duration::from_millis(1));
    ex.endpoint.status = status;
    plugins.iter().for_each(|plugin| {
        plugin.response_head(&mut ResponseHeadPhase::new(ex), &mut ResponseHead::default())
    });
}

/// A complete exchange after one second.
fn exchange(
    bench: &PluginBench,
    plugins: &[Arc<dyn Plugin>],
    status: Option<u16>,
    outcome: &ExchangeOutcome<'_>,
) {
    bench.host.advance(Duration::from_secs(1));
    let mut ex = admitted(bench, plugins);
    status.into_iter().for_each(|status| answered(bench, plugins, &mut ex, status));
    plugins.iter().for_each(|plugin| plugin.log(&ex, outcome));
}

fn dry_run_note(bench: &PluginBench, plugin: &Arc<dyn Plugin>) -> String {
    match plugin.dry_run(PhaseSet::ACCESS, &mut bench.exchange("GET / HTTP/1.1")) {
        DryRunResult::Note(dry_run_note) => dry_run_note.into_owned(),
        other => panic!("it is let in, not {other:?}"),
    }
}

#[test]
fn clients_that_do_not_wait_tell_nothing_of_the_upstream() {
    // (upstream status, upstream failure, resulting limit)
    let cases = [
        (None, None, 20),
        (Some(200), None, 20),
        (None, Some(502), 18),
        (Some(200), Some(502), 18),
        (Some(503), None, 18),
        (Some(504), None, 18),
    ];
    for (status, upstream_failure, expected) in cases {
        let bench = PluginBench::new();
        let plugins = [bench.plugin("adaptive-concurrency", json!({"measure_requests": 1}))];
        exchange(&bench, &plugins, Some(200), &ExchangeOutcome::default());
        assert_eq!(dry_run_note(&bench, &plugins[0]), "0 of 20 exchanges under way");
        let failed = ExchangeOutcome { fault: "x", upstream_failure, ..ExchangeOutcome::default() };
        exchange(&bench, &plugins, status, &failed);
        let limit = format!("0 of {expected} exchanges under way");
        assert_eq!(dry_run_note(&bench, &plugins[0]), limit, "{status:?} {upstream_failure:?}");
    }
}

#[test]
fn a_global_rule_and_a_route_each_learn_of_an_exchange_that_both_let_in() {
    let mut bench = PluginBench::new();
    let mut plugin = |owner: &str, min_concurrency: u32| {
        bench.owner = owner.to_owned();
        bench.plugin(
            "adaptive-concurrency",
            json!({"measure_requests": 1, "min_concurrency": min_concurrency}),
        )
    };
    let plugins = [plugin("global_rules/1", 3), plugin("routes/1", 4)];
    exchange(&bench, &plugins, Some(200), &ExchangeOutcome::default());
    let failed = ExchangeOutcome { fault: "x", upstream_failure: Some(502), ..ExchangeOutcome::default() };
    exchange(&bench, &plugins, None, &failed);
    assert_eq!(
        plugins.each_ref().map(|plugin| dry_run_note(&bench, plugin)),
        ["0 of 18 exchanges under way"; 2]
    );
}

#[test]
fn an_exchange_counts_until_its_answer_begins() {
    let bench = PluginBench::new();
    let plugins = [bench.plugin("adaptive-concurrency", json!({"measure_requests": 10}))];
    // Tunnels, and responses that are read slowly or never completely.
    let mut open = Vec::new();
    for number in 0..30 {
        let mut ex = admitted(&bench, &plugins);
        assert!(dry_run_note(&bench, &plugins[0]).starts_with("1 of "));
        answered(&bench, &plugins, &mut ex, if number % 2 == 0 { 101 } else { 200 });
        open.push(ex);
    }
    assert_eq!(dry_run_note(&bench, &plugins[0]), "0 of 20 exchanges under way");
    bench.host.advance(Duration::from_secs(600));
    for ex in open.drain(..) {
        plugins[0]
            .log(&ex, &ExchangeOutcome { upstream_us: Some(600_000_000), ..ExchangeOutcome::default() });
    }
    assert_eq!(
        dry_run_note(&bench, &plugins[0]),
        "0 of 20 exchanges under way",
        "and its end is not counted again"
    );
}

#[test]
fn an_answer_of_the_gateways_own_tells_nothing_and_ends_the_counting() {
    let bench = PluginBench::new();
    let plugins = [bench.plugin("adaptive-concurrency", json!({"measure_requests": 1}))];
    let mut ex = bench.exchange("GET / HTTP/1.1");
    assert!(matches!(plugins[0].access(&mut ex), Step::Continue));
    plugins[0].response_head(&mut ResponseHeadPhase::new(&mut ex), &mut ResponseHead::default());
    assert_eq!(dry_run_note(&bench, &plugins[0]), "0 of 3 exchanges under way");
}

#[test]
fn requests_before_the_measurement_do_not_block_it() {
    let limiter = Arc::new(AdaptiveLimiter::new(RULES));
    let mut now_us = 1_000_000;
    let mut serve = |limiter: &Arc<AdaptiveLimiter>| {
        now_us += 100_000;
        let Some(guard) = AdaptiveLimitGuard::enter(limiter, now_us) else { return false };
        limiter.learn(&guard, ConcurrencySample::Latency(1000), now_us, 0);
        true
    };
    assert!((0..50).all(|_| serve(&limiter)));
    // More than may run during a measurement, and they never end.
    let _open: Vec<_> = (0..5).map(|_| AdaptiveLimitGuard::enter(&limiter, 1).unwrap()).collect();
    assert!((0..1000).all(|_| serve(&limiter)), "{limiter:?}");
}

#[test]
fn measurement_without_samples_is_aborted() {
    let rules = AdaptiveLimitRules { measure_interval_us: 60_000_000, ..RULES };
    let limiter = Arc::new(AdaptiveLimiter::new(rules));
    let enter = |now_us| AdaptiveLimitGuard::enter(&limiter, now_us);
    let open: Vec<_> = (0..3).map(|_| enter(1).unwrap()).collect();
    // Refused from here on, for a tenth of the interval.
    assert!(enter(50_000_000).is_none() && enter(55_900_000).is_none());
    let _more: Vec<_> = (0..17).map(|_| enter(56_000_000).expect("it is let in")).collect();
    assert!(enter(56_000_000).is_none(), "the limit holds: {limiter:?}");
    assert_eq!((limiter.limit(), limiter.baseline_us()), (20, 0));
    drop(open);
    // Samples set the baseline until it can be measured.
    for _ in 0..SAMPLES_MIN {
        limiter.learn(&enter(57_000_000).unwrap(), ConcurrencySample::Latency(7000), 57_000_000, 0);
    }
    assert!(limiter.baseline_us() == 7000 && limiter.limit() >= 20, "{limiter:?}");
}

#[test]
fn aborted_measurement_uses_its_samples() {
    let limiter = Arc::new(AdaptiveLimiter::new(RULES));
    for _ in 0..SAMPLES_MIN {
        limiter.learn(
            &AdaptiveLimitGuard::enter(&limiter, 1).unwrap(),
            ConcurrencySample::Latency(4000),
            1,
            0,
        );
    }
    let _open: Vec<_> = (0..3).map(|_| AdaptiveLimitGuard::enter(&limiter, 1).unwrap()).collect();
    assert!(AdaptiveLimitGuard::enter(&limiter, 1).is_none());
    assert!(AdaptiveLimitGuard::enter(&limiter, 1_000_001).is_some());
    assert_eq!((limiter.limit(), limiter.baseline_us()), (20, 4000));
}

#[test]
fn times_beyond_all_clocks_are_long_ones() {
    let bench = PluginBench::new();
    let settings = json!({"measure_requests": 1, "window": 1e300, "measure_interval": 1e300});
    let plugins = [bench.plugin("adaptive-concurrency", settings)];
    for _ in 0..12 {
        exchange(&bench, &plugins, Some(200), &ExchangeOutcome::default());
    }
    assert_eq!(dry_run_note(&bench, &plugins[0]), "0 of 20 exchanges under way", "measured once");
}

#[test]
fn bounds_that_cross_are_refused() {
    let refused =
        PluginBench::new().build("adaptive-concurrency", json!({"min_concurrency": 9, "max_concurrency": 3}));
    let Err(invalid) = refused else { panic!("it is taken") };
    assert_eq!(invalid.path, "min_concurrency");
}
