//! All balancers against the rules they share, and each against its own promise.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use yumen_config::resource::{self as config, schema_of};
use yumen_config::{Kind, decode};
use yumen_plugin::Carry;

use super::consistent_hash::{ConsistentHash, HashKey};
use super::ewma::Ewma;
use super::least_conn::LeastConn;
use super::round_robin::RoundRobin;
use super::{Balancer, PolicyContext, PreviousEndpoints, RoundRobinState, SlowStart};
use crate::testing::TestWorker;
use crate::upstream::{
    AttemptTimeouts, Endpoint, EndpointHealth, EndpointSelection, EndpointState, EndpointTls, HostRewrite,
    KeepaliveLimits, RetryPolicy, TriedEndpoints, Upstream, UpstreamProtocol, UpstreamStreamSettings,
};

/// Endpoints as (weight, priority, up).
fn endpoints(of: &[(u32, i32, bool)]) -> Box<[Endpoint]> {
    let endpoint = |(at, (weight, priority, up)): (usize, &(u32, i32, bool))| {
        let health = EndpointHealth::default();
        health.set(*up);
        Endpoint {
            addr: ([10, 0, (at >> 8) as u8, at as u8], 80).into(),
            authority: "x".into(),
            host: "x".into(),
            weight: *weight,
            priority: *priority,
            state: Arc::new(EndpointState::new()),
            health: of.iter().any(|(_, _, up)| !up).then(|| Arc::new(health)),
            outlier: None,
        }
    };
    of.iter().enumerate().map(endpoint).collect()
}

fn upstream(of: &[(u32, i32, bool)], balancer: impl Fn(&[Endpoint]) -> Balancer) -> Upstream {
    let endpoints = endpoints(of);
    Upstream {
        origin: "upstreams/1".into(),
        slot: crate::UpstreamSlotId(0),
        protocol: UpstreamProtocol::default(),
        selection: EndpointSelection { balancer: balancer(&endpoints), slow_start: None },
        endpoints,
        pass_host: HostRewrite::Pass,
        retry: RetryPolicy::default(),
        timeouts: AttemptTimeouts { connect_ms: 1, send_ms: 1, read_ms: 1, total_ms: 0, attempt_ms: 0 },
        streams: UpstreamStreamSettings::default(),
        keepalive: KeepaliveLimits { size: 1, idle_timeout_ms: 1, requests: 1 },
        tls: EndpointTls::default(),
        protection: None,
        checks: None,
        on_change: Default::default(),
        unresolved: Box::default(),
    }
}

fn previous_of(upstream: &Upstream) -> Option<PreviousEndpoints<'_>> {
    let slow_start = upstream.selection.slow_start.as_deref();
    Some(PreviousEndpoints { endpoints: &upstream.endpoints, slow_start })
}

/// Weight, priority, and whether it is up.
type Given = (u32, i32, bool);
type Make = fn(&[Endpoint]) -> Balancer;

const TURNS: Make = |all| Balancer::RoundRobin(RoundRobin::new(all, Arc::new(RoundRobinState::new(1, 0))));
const HASH: Make = |all| Balancer::ConsistentHash(ConsistentHash::new(all, HashKey::Field("x-key".into())));
const ALL: [Make; 4] = [TURNS, HASH, |_| Balancer::LeastConn(LeastConn), |_| Balancer::Ewma(Ewma)];

/// How often each endpoint is picked in `rounds` first attempts, each with a key of its own.
fn shares(upstream: &Upstream, rounds: usize) -> Vec<usize> {
    let bench = TestWorker::default();
    let mut shares = vec![0; upstream.endpoints.len()];
    for round in 0..rounds {
        let ex = bench.exchange(&format!("GET /\nX-Key: key{round}"));
        shares[upstream.pick(&ex, &TriedEndpoints::default()).expect("an endpoint")] += 1;
    }
    shares
}

// Endpoints, and the indexes of those that may be picked at first.
const FIRST_PICKS: [(&[Given], &[usize]); 7] = [
    (&[(1, 0, true), (1, 0, true)], &[0, 1]),
    (&[(0, 0, true), (1, 0, true), (1, 0, true)], &[1, 2]),
    (&[(1, 0, false), (1, 0, true), (1, 0, true)], &[1, 2]),
    (&[(1, 0, false), (1, 0, false)], &[0, 1]),
    (&[(1, -1, true), (1, 0, true), (1, 0, true)], &[1, 2]),
    (&[(1, -1, true), (1, 0, false), (1, 0, false)], &[0]),
    (&[(1, -1, true), (0, 0, true)], &[0]),
];

/// The endpoints that 200 first attempts reach.
fn reached(of: &[Given], make: Make) -> Vec<usize> {
    let shares = shares(&upstream(of, make), 200);
    (0..of.len()).filter(|at| shares[*at] > 0).collect()
}

#[test]
fn every_balancer_keeps_the_common_rules() {
    for (of, expected) in FIRST_PICKS {
        for (number, make) in ALL.into_iter().enumerate() {
            let reached = reached(of, make);
            assert!(
                reached.iter().all(|at| expected.contains(at)),
                "balancer {number} on {of:?}: {reached:?}"
            );
        }
    }
}

/// A policy that prefers an endpoint as long as it is up is left out here.
#[test]
fn spreading_balancers_reach_every_candidate() {
    for (of, expected) in FIRST_PICKS {
        for (number, make) in ALL.into_iter().enumerate() {
            assert_eq!(reached(of, make), expected, "balancer {number} on {of:?}");
        }
    }
}

#[test]
fn where_all_are_down_one_successful_probe_draws_all_first_attempts() {
    // (weight, priority, up), the endpoints whose last probe succeeded, and the order in which all are tried.
    let cases: [(&[Given], &[usize], &[usize]); 5] = [
        (&[(1, 0, false), (1, 0, false)], &[1], &[1, 0]),
        // Of another priority, or of less weight.
        (&[(1, 0, false), (1, -1, false)], &[1], &[1, 0]),
        (&[(9, 0, false), (1, 0, false)], &[1], &[1, 0]),
        (&[(1, 0, false), (1, -1, false), (1, -2, false)], &[1, 2], &[1, 2, 0]),
        // One that gets no requests is none to wait for.
        (&[(1, 0, false), (0, 0, false)], &[1], &[0]),
    ];
    let bench = TestWorker::default();
    let ex = bench.exchange("GET /");
    for (of, recovering, expected) in cases {
        for (number, make) in ALL.into_iter().enumerate() {
            let upstream = upstream(of, make);
            for at in recovering {
                let health = upstream.endpoints[*at].health.as_ref().expect("some are down");
                health.active.successes.store(1, Relaxed);
            }
            for _ in 0..10 {
                let mut tried = TriedEndpoints::default();
                let mut order = Vec::new();
                while let Some(index) = upstream.pick(&ex, &tried) {
                    tried.push(index);
                    order.push(index);
                }
                assert_eq!(order, expected, "balancer {number} on {of:?}");
            }
            // One that is up takes all, whatever the probes of others say.
            upstream.endpoints[0].health.as_ref().expect("some are down").set(true);
            assert_eq!(
                upstream.pick(&ex, &TriedEndpoints::default()),
                Some(0),
                "balancer {number} on {of:?}"
            );
        }
    }
}

#[test]
fn every_balancer_tries_each_endpoint_once_and_then_gives_up() {
    let bench = TestWorker::default();
    let ex = bench.exchange("GET /");
    for of in [&[(1, 0, true), (3, 0, true), (2, -1, true), (0, 0, true)][..], &[(1, 0, true)]] {
        for make in ALL {
            let upstream = upstream(of, make);
            let mut tried = TriedEndpoints::default();
            let mut order = Vec::new();
            while let Some(index) = upstream.pick(&ex, &tried) {
                tried.push(index);
                order.push(index);
            }
            let last = *order.last().unwrap();
            order.sort_unstable();
            let available: Vec<usize> = (0..of.len()).filter(|at| of[*at].0 > 0).collect();
            assert_eq!(order, available);
            assert!(of.len() == 1 || last == 2, "the lower priority comes last");
        }
    }
}

#[test]
fn each_of_many_endpoints_is_tried_once() {
    let bench = TestWorker::default();
    let ex = bench.exchange("GET /");
    for make in ALL {
        let upstream = upstream(&[(1, 0, true); 300], make);
        let mut tried = TriedEndpoints::default();
        let mut order = Vec::new();
        while let Some(index) = upstream.pick(&ex, &tried).filter(|_| order.len() <= 300) {
            tried.push(index);
            order.push(index);
        }
        order.sort_unstable();
        assert!(order.iter().copied().eq(0..300), "{order:?}");
    }
}

#[test]
fn no_endpoint_or_only_weightless_ones_give_none() {
    let bench = TestWorker::default();
    let ex = bench.exchange("GET /");
    for of in [&[][..], &[(0, 0, true)], &[(0, 0, true), (0, 0, true)]] {
        for make in ALL {
            assert_eq!(upstream(of, make).pick(&ex, &TriedEndpoints::default()), None);
        }
    }
}

#[test]
fn round_robin_is_exact_and_smooth() {
    let upstream = upstream(&[(50, 0, true), (10, 0, true), (10, 0, true)], TURNS);
    assert_eq!(shares(&upstream, 70), [50, 10, 10]);
    let bench = TestWorker::default();
    let ex = bench.exchange("GET /");
    let turns: Vec<_> = (0..7).filter_map(|_| upstream.pick(&ex, &TriedEndpoints::default())).collect();
    assert_eq!(turns, [0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn round_robin_spreads_the_share_of_what_is_down_by_weight() {
    let even = [(1, 0, true); 4];
    let weighted = [(5, 0, true), (1, 0, true), (2, 0, true), (1, 0, true)];
    // (endpoints, which of them are down, what each gets)
    let cases: [(&[Given; 4], &[usize], [usize; 4]); 6] = [
        (&even, &[0], [0, 200, 200, 200]),
        (&even, &[0, 1], [0, 0, 300, 300]),
        (&even, &[1, 2], [300, 0, 0, 300]),
        (&weighted, &[0], [0, 150, 300, 150]),
        (&weighted, &[1], [375, 0, 150, 75]),
        (&weighted, &[0, 2], [0, 300, 0, 300]),
    ];
    for (of, down, expected) in cases {
        let mut of = *of;
        down.iter().for_each(|at| of[*at].2 = false);
        let upstream = upstream(&of, TURNS);
        assert_eq!(shares(&upstream, 600), expected, "{of:?}");
        // Up again, and down in between: nobody owes or is owed a turn.
        let healths = || down.iter().filter_map(|at| upstream.endpoints[*at].health.as_ref());
        for health in healths() {
            health.set(true);
        }
        let whole: u32 = of.iter().map(|one| one.0).sum();
        let by_weight: Vec<usize> = of.iter().map(|one| 100 * one.0 as usize).collect();
        assert_eq!(shares(&upstream, 100 * whole as usize), by_weight, "{of:?}");
        for health in healths() {
            health.set(false);
        }
        assert_eq!(shares(&upstream, 600), expected, "{of:?}");
    }
}

#[test]
fn round_robin_spreads_further_attempts_by_weight_and_keeps_first_ones_so() {
    let bench = TestWorker::default();
    let ex = bench.exchange("GET /");
    for (weights, first, again) in [
        ([1, 1, 1, 1], [150, 150, 150, 150], [0, 50, 50, 50]),
        ([3, 1, 1, 1], [300, 100, 100, 100], [0, 100, 100, 100]),
        ([1, 2, 2, 1], [100, 200, 200, 100], [0, 40, 40, 20]),
    ] {
        let upstream = upstream(&weights.map(|weight| (weight, 0, true)), TURNS);
        let (mut firsts, mut agains) = ([0; 4], [0; 4]);
        for _ in 0..600 {
            let mut tried = TriedEndpoints::default();
            let index = upstream.pick(&ex, &tried).unwrap();
            firsts[index] += 1;
            // The first endpoint fails, others never do.
            if index == 0 {
                tried.push(index);
                agains[upstream.pick(&ex, &tried).unwrap()] += 1;
            }
        }
        assert_eq!((firsts, agains), (first, again), "{weights:?}");
    }
}

#[test]
fn huge_weights_are_scaled_and_stay_in_proportion() {
    let upstream = upstream(&[(3_000_000_000, 0, true), (1_000_000_001, 0, true)], TURNS);
    let shares = shares(&upstream, 8000);
    assert!((5900..=6100).contains(&shares[0]), "{shares:?}");
}

#[test]
fn workers_begin_at_different_endpoints_and_keep_their_place() {
    let state = Arc::new(RoundRobinState::new(2, 4));
    let of = [(1, 0, true); 4];
    let first = |worker: usize| {
        let upstream = upstream(&of, |all| Balancer::RoundRobin(RoundRobin::new(all, state.clone())));
        let bench = TestWorker { worker, ..TestWorker::default() };
        let ex = bench.exchange("GET /");
        upstream.pick(&ex, &TriedEndpoints::default()).unwrap()
    };
    assert_eq!([first(0), first(1), first(0), first(1)], [0, 2, 1, 3]);
}

#[test]
fn a_key_keeps_its_endpoint_when_another_goes() {
    let of = vec![(1, 0, true); 10];
    let before = upstream(&of, HASH);
    let mut without = of.clone();
    without[3].0 = 0;
    let after = upstream(&without, HASH);
    let bench = TestWorker::default();
    for key in 0..500 {
        let ex = bench.exchange(&format!("GET /\nX-Key: k{key}"));
        let old = before.pick(&ex, &TriedEndpoints::default());
        assert_eq!(old, before.pick(&ex, &TriedEndpoints::default()));
        if old != Some(3) {
            assert_eq!(old, after.pick(&ex, &TriedEndpoints::default()));
        }
    }
}

#[test]
fn an_endpoint_that_comes_or_changes_moves_no_keys_between_others() {
    let bench = TestWorker::default();
    let picks = |weights: &[u32]| -> Vec<usize> {
        let of: Vec<Given> = weights.iter().map(|weight| (*weight, 0, true)).collect();
        let upstream = upstream(&of, HASH);
        let pick = |key| {
            let ex = bench.exchange(&format!("GET /\nX-Key: k{key}"));
            upstream.pick(&ex, &TriedEndpoints::default()).expect("an endpoint")
        };
        (0..1000).map(pick).collect()
    };
    // (weights before, after), by what happens to the last one.
    let cases: [(&[u32], &[u32]); 7] = [
        (&[10, 10, 10, 10], &[10, 10, 10, 10, 5]),
        (&[100, 100, 100, 100], &[100, 100, 100, 50]),
        (&[2, 2, 2], &[2, 2, 3]),
        (&[1, 1, 1], &[1, 1, 1, 1]),
        (&[100, 100, 1], &[100, 100, 100]),
        (&[1_000_000, 600_000, 1], &[1_000_000, 600_000, 777_777]),
        (&[100; 40], &[100; 60]),
    ];
    for (before, after) in cases {
        let common = before.iter().zip(after).take_while(|(before, after)| before == after).count();
        for (old, new) in picks(before).into_iter().zip(picks(after)) {
            assert!(old == new || old >= common || new >= common, "{before:?} {after:?}: {old} to {new}");
        }
    }
}

#[test]
fn huge_weights_and_many_endpoints_make_no_huge_rings() {
    for (weight, count, most) in [(u32::MAX, 3, 3 << 12), (1, 20_000, 1 << 20), (100, 2000, 1 << 20)] {
        let of = vec![(weight, 0, true); count];
        let upstream = upstream(&of, HASH);
        let Balancer::ConsistentHash(ring) = &upstream.selection.balancer else { panic!("it hashes") };
        assert!((count..=most).contains(&ring.points()), "{weight} {count}: {}", ring.points());
    }
}

#[test]
fn consistent_hash_follows_weights_roughly_and_falls_back_to_the_client() {
    let two_to_one = upstream(&[(2, 0, true), (1, 0, true)], HASH);
    let shares = shares(&two_to_one, 6000);
    assert!((3400..=4600).contains(&shares[0]), "{shares:?}");
    let bench = TestWorker::default();
    let picks: Vec<_> =
        (0..5).map(|_| two_to_one.pick(&bench.exchange("GET /"), &TriedEndpoints::default())).collect();
    assert!(picks.iter().all(|pick| *pick == picks[0] && pick.is_some()));
}

#[test]
fn least_conn_goes_where_load_over_weight_is_least() {
    let upstream = upstream(&[(1, 0, true), (4, 0, true)], |_| Balancer::LeastConn(LeastConn));
    let bench = TestWorker::default();
    let ex = bench.exchange("GET /");
    let pick = || upstream.pick(&ex, &TriedEndpoints::default()).unwrap();
    let mut underway: Vec<_> = (0..10).map(|_| upstream.started(pick(), 0)).collect();
    let active = |at: usize| upstream.endpoints[at].state.active.load(super::Relaxed);
    assert_eq!((active(0), active(1)), (2, 8));
    let at = underway.iter().position(|one| one.index() == 0).unwrap();
    underway.swap_remove(at).end(1, 1);
    assert_eq!((active(0), active(1)), (1, 8));
    drop(underway);
    assert_eq!((active(0), active(1)), (0, 0), "also what nobody told the end of");
}

#[test]
fn ewma_avoids_the_slow_endpoint_and_forgives_it_in_time() {
    let upstream = upstream(&[(1, 0, true), (1, 0, true)], |_| Balancer::Ewma(Ewma));
    upstream.started(0, 0).end(500_000, 1_000_000);
    upstream.started(1, 0).end(1_000, 1_000_000);
    let bench = TestWorker::default();
    let mut ex = bench.exchange("GET /");
    ex.now.mono_us = 1_000_000;
    assert!((0..50).all(|_| upstream.pick(&ex, &TriedEndpoints::default()) == Some(1)));
    ex.now.mono_us = 400_000_000;
    let picks: Vec<_> = (0..50).filter_map(|_| upstream.pick(&ex, &TriedEndpoints::default())).collect();
    assert!(picks.contains(&0), "an average of long ago counts for nothing");
}

#[test]
fn an_endpoint_that_is_new_or_up_again_grows_into_its_share() {
    const WINDOW_MS: u64 = 10_000;
    let shares = |upstream: &Upstream, at_ms: u64| {
        let bench = TestWorker::default();
        let mut shares = [0; 2];
        for _ in 0..20_000 {
            let mut ex = bench.exchange("GET /");
            ex.now.mono_us = at_ms * 1000 + 1;
            shares[upstream.pick(&ex, &TriedEndpoints::default()).expect("an endpoint")] += 1;
        }
        shares[1] as f64 / shares[0] as f64
    };
    // The lot is the least exact of those that follow weights; least_conn and ewma see no load here.
    for weights in [[1, 1], [2, 1], [1, 3]] {
        let of = weights.map(|weight| (weight, 0, true));
        let old = upstream(&of[..1], TURNS);
        let mut new = upstream(&of, |all| {
            let mut balancer = TURNS(all);
            balancer.require_pool();
            balancer
        });
        new.endpoints[0].state = old.endpoints[0].state.clone();
        new.endpoints[1].health = Some(Arc::default());
        new.selection.slow_start =
            Some(Box::new(SlowStart::new(WINDOW_MS, &new.endpoints, previous_of(&old), |_| Arc::default())));
        let whole = f64::from(weights[1]) / f64::from(weights[0]);
        let check = |at_ms: u64, part: f64| {
            let share = shares(&new, at_ms) / whole;
            assert!((share - part).abs() < 0.05, "{weights:?} at {at_ms} ms: {share} and not {part}");
        };
        for (at_ms, part) in
            [(5_000, 0.1), (5_500, 0.1), (8_000, 0.3), (12_500, 0.75), (15_000, 1.0), (99_000, 1.0)]
        {
            check(at_ms, part);
        }
        let health = new.endpoints[1].health.clone().unwrap();
        health.set(false);
        check(100_000, 0.0);
        health.set(true);
        check(101_000, 0.1);
        check(106_000, 0.5);
        // Where all are new at once, nobody has to wait for anybody.
        new.selection.slow_start =
            Some(Box::new(SlowStart::new(WINDOW_MS, &new.endpoints, None, |_| Arc::default())));
        let share = shares(&new, 200_000) / whole;
        assert!((share - 1.0).abs() < 0.05, "{weights:?}: {share}");
    }
}

#[test]
fn fewest_requests_and_fastest_answers_count_for_more_where_the_share_is_small() {
    for make in [|_: &[Endpoint]| Balancer::LeastConn(LeastConn), |_: &[Endpoint]| Balancer::Ewma(Ewma)] {
        let old = upstream(&[(1, 0, true)], make);
        let mut new = upstream(&[(1, 0, true), (1, 0, true)], make);
        new.endpoints[0].state = old.endpoints[0].state.clone();
        new.selection.slow_start =
            Some(Box::new(SlowStart::new(10_000, &new.endpoints, previous_of(&old), |_| Arc::default())));
        let bench = TestWorker::default();
        let picks = |at_ms: u64| {
            let mut ex = bench.exchange("GET /");
            ex.now.mono_us = at_ms * 1000 + 1;
            let picked = (0..200).filter(|_| new.pick(&ex, &TriedEndpoints::default()) == Some(1)).count();
            (picked > 0, picked == 200)
        };
        // Equally idle: the old one is preferred until the new one has its whole share.
        assert_eq!(picks(1_000), (false, false));
        // Three under way at the old one: nine tenths of its share later the new one is better.
        let underway: Vec<_> = (0..3).map(|_| new.started(0, 0)).collect();
        assert_eq!(picks(1_500), (false, false));
        assert_eq!(picks(10_000), (true, true));
        underway.into_iter().for_each(|one| one.end(0, 0));
        assert_eq!(picks(11_001), (true, false));
    }
}

#[test]
fn policies_have_the_names_of_the_schema() {
    let names = schema_of(Kind::Upstreams)["properties"]["type"]["enum"].as_array().unwrap();
    let endpoints = endpoints(&[(1, 0, true), (1, 0, true)]);
    let tested: BTreeSet<_> = ALL.iter().map(|make| make(&endpoints).name()).collect();
    assert_eq!(tested, names.iter().filter_map(|name| name.as_str()).collect(), "policies in `ALL`");
    for name in names {
        let written: config::UpstreamSpec =
            decode(&serde_json::json!({ "type": name, "nodes": {}, "key": "uri" }).to_string()).unwrap();
        let context = PolicyContext {
            written: &written,
            origin: "upstreams/1",
            endpoints: &endpoints,
            workers: 1,
            carry: &Carry::default(),
            no_turns: &Arc::default(),
        };
        assert_eq!(Balancer::build(&context).name(), name);
    }
}
