//! Places are never more than the bounds, nobody waits while there is room, and outliers come back.

use std::sync::atomic::AtomicUsize;
use std::task::{Wake, Waker};

use serde_json::{Value, json};
use yumen_config::{Kind, Resource};

use super::*;
use crate::Publisher;
use crate::endpoint::{Endpoint, TriedEndpoints};
use crate::testing::{SeededRandom, TestWorker, compiler};

/// Counts how often it was woken.
#[derive(Default)]
struct WakeFlag(AtomicUsize);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn wake_flag() -> (Arc<WakeFlag>, Waker) {
    let wake_flag = Arc::new(WakeFlag::default());
    (wake_flag.clone(), wake_flag.into())
}

fn was_set(wake_flag: &WakeFlag) -> bool {
    wake_flag.0.swap(0, Relaxed) > 0
}

#[test]
fn places_are_bounded_and_given_back() {
    let gate = Arc::new(UpstreamLimiter::default());
    let permits: Vec<_> = (0..3).map_while(|_| RequestPermit::get(&gate, 3, 0)).collect();
    assert_eq!((permits.len(), RequestPermit::get(&gate, 3, 0).is_none()), (3, true));
    drop(permits);
    assert_eq!(gate.requests.load(Relaxed), 0);
    let (busy, idle) = (Arc::new(EndpointCounts::default()), Arc::new(EndpointCounts::default()));
    let mut first = RequestPermit::get(&gate, 3, 0).unwrap();
    let mut second = RequestPermit::get(&gate, 3, 0).unwrap();
    first.move_to(EndpointSlot::get(&busy, 1).unwrap());
    assert!(EndpointSlot::get(&busy, 1).is_none());
    second.move_to(EndpointSlot::get(&idle, 1).unwrap());
    drop((first, second));
    assert_eq!(busy.requests.load(Relaxed) + idle.requests.load(Relaxed), 0);
}

#[test]
fn the_queue_is_bounded_and_served_in_order() {
    let gate = Arc::new(UpstreamLimiter::default());
    let permit = RequestPermit::get(&gate, 1, 0).unwrap();
    let tickets: Vec<_> = (0..3).map_while(|_| gate.wait(2, 0, 1000, 1000)).collect();
    assert_eq!((tickets.len(), gate.waiting(), gate.refused_full.load(Relaxed)), (2, 2, 1));
    let (wake_flags, wakers): (Vec<_>, Vec<_>) = tickets.iter().map(|_| wake_flag()).unzip();
    let called = |at: usize| tickets[at].is_woken(&wakers[at], 1001);
    assert_eq!([called(1), called(0), called(0)], [false, true, false], "the first looks once uncalled");
    drop(permit);
    assert_eq!([was_set(&wake_flags[0]), was_set(&wake_flags[1])], [true, false]);
    assert_eq!([called(1), called(0)], [false, true]);
}

#[test]
fn the_last_come_goes_first_once_the_first_has_waited_half_its_time() {
    let gate = Arc::new(UpstreamLimiter::default());
    let permits: Vec<_> = (0..2).map(|_| RequestPermit::get(&gate, 2, 0).unwrap()).collect();
    let tickets = [1000, 1100, 1600].map(|now_ms| gate.wait(9, 0, now_ms, 1000).unwrap());
    let (wake_flags, wakers): (Vec<_>, Vec<_>) = tickets.iter().map(|_| wake_flag()).unzip();
    let called = || {
        tickets.iter().zip(&wakers).map(|(ticket, waker)| ticket.is_woken(waker, 1600)).collect::<Vec<_>>()
    };
    assert_eq!((called(), called()), (vec![true, false, false], vec![false; 3]));
    drop(permits);
    assert_eq!(
        wake_flags.iter().map(|wake_flag| was_set(wake_flag)).collect::<Vec<_>>(),
        [false, true, true]
    );
}

#[test]
fn one_who_leaves_hands_the_call_on() {
    let gate = Arc::new(UpstreamLimiter::default());
    let permit = RequestPermit::get(&gate, 1, 0).unwrap();
    let [first, second] = [0, 0].map(|_| gate.wait(9, 0, 1000, 1000).unwrap());
    let (wake_flags, wakers): (Vec<_>, Vec<_>) = [wake_flag(), wake_flag()].into_iter().unzip();
    assert!(first.is_woken(&wakers[0], 1000) && !second.is_woken(&wakers[1], 1000));
    drop(permit);
    assert_eq!([was_set(&wake_flags[0]), was_set(&wake_flags[1])], [true, false]);
    first.give_up();
    assert!(was_set(&wake_flags[1]) && second.is_woken(&wakers[1], 1000));
    assert_eq!(gate.refused_late.load(Relaxed), 1);
}

#[test]
fn two_who_join_at_once_miss_no_place_that_came_free_before() {
    let gate = Arc::new(UpstreamLimiter::default());
    let [first, second] = [0, 0].map(|_| gate.wait(9, 0, 1000, 1000).unwrap());
    let (wake_flags, wakers): (Vec<_>, Vec<_>) = [wake_flag(), wake_flag()].into_iter().unzip();
    assert!(!second.is_woken(&wakers[1], 1000) && first.is_woken(&wakers[0], 1000));
    drop(first);
    assert!(was_set(&wake_flags[1]) && second.is_woken(&wakers[1], 1000));
}

#[test]
fn a_connection_goes_to_its_own_worker_until_another_has_waited_long() {
    let gate = Arc::new(UpstreamLimiter::default());
    let tally = Arc::new(EndpointCounts::default());
    let one = ConcurrencyBounds { requests: UNBOUNDED, connections: 1 };
    let limits = ProtectionLimits { all: one, each: one, pending_max: 9, pending_timeout_ms: 1000 };
    gate.set_limits(Some(&limits));
    let permit = EndpointPermit::get(&gate, &tally).unwrap();
    assert!(EndpointPermit::get(&gate, &tally).is_none());
    assert!(!permit.is_awaited() && !permit.is_awaited_elsewhere(0));
    let _other = gate.wait(9, 1, 1000, 1000).unwrap();
    assert!(permit.is_awaited_elsewhere(0));
    let own = gate.wait(9, 0, 1000, 1000).unwrap();
    assert!(!permit.is_awaited_elsewhere(0));
    let late = gate.wait(9, 1, 1501, 1000).unwrap();
    assert!(permit.is_awaited_elsewhere(0));
    drop((own, late));
    drop(permit);
    assert_eq!((gate.connections.load(Relaxed), tally.connections.load(Relaxed)), (0, 0));
}

/// Random comings and goings: whoever waits is called while there is room, and nobody gets in beyond it.
#[test]
fn nobody_waits_while_there_is_room() {
    for seed in 0..200 {
        let random = SeededRandom::new(seed);
        let most = 1 + random.below(3) as u32;
        let gate = Arc::new(UpstreamLimiter::default());
        let mut permits = Vec::new();
        let mut waiting: Vec<(QueueTicket, Arc<WakeFlag>, Waker)> = Vec::new();
        for step in 0..400 {
            let now_ms = 1000 + step * 10;
            match random.below(3) {
                0 if gate.waiting() > 0 || gate.requests.load(Relaxed) >= most => {
                    if let Some(ticket) = gate.wait(5, random.below(2), now_ms, 500) {
                        let (wake_flag, waker) = wake_flag();
                        wake_flag.0.store(1, Relaxed);
                        waiting.push((ticket, wake_flag, waker));
                    }
                }
                0 => permits.extend(RequestPermit::get(&gate, most, random.below(2))),
                1 if !permits.is_empty() => drop(permits.swap_remove(random.below(permits.len()))),
                _ if !waiting.is_empty() && random.below(4) == 0 => {
                    waiting.swap_remove(random.below(waiting.len())).0.give_up();
                }
                _ => {}
            }
            // Whoever was woken tries, in any order, until nobody is woken any more.
            while let Some(at) = waiting.iter().position(|(_, wake_flag, _)| was_set(wake_flag)) {
                let (ticket, _, waker) = &waiting[at];
                if ticket.is_woken(waker, now_ms)
                    && let Some(permit) = RequestPermit::get(&gate, most, 0)
                {
                    permits.push(permit);
                    waiting.swap_remove(at);
                }
            }
            assert!(gate.requests.load(Relaxed) <= most);
            let has_room = gate.requests.load(Relaxed) < most;
            assert!(!has_room || waiting.is_empty(), "seed {seed}, step {step}");
        }
    }
}

/// The same where each endpoint has room for one, and some who wait cannot go everywhere.
#[test]
fn no_request_waits_while_a_usable_endpoint_is_free() {
    for seed in 0..200 {
        let random = SeededRandom::new(seed);
        let gate = Arc::new(UpstreamLimiter::default());
        let endpoints: Vec<_> = (0..3).map(|_| Arc::new(EndpointCounts::at(&gate))).collect();
        let enter = |excluded_endpoints: u128| {
            let open = (0..3).filter(|at| excluded_endpoints & 1 << at == 0);
            let endpoint = open.into_iter().find_map(|at| EndpointSlot::get(&endpoints[at], 1))?;
            let mut permit = RequestPermit::get(&gate, UNBOUNDED, 0)?;
            permit.move_to(endpoint);
            Some(permit)
        };
        let mut permits = Vec::new();
        let mut waiting: Vec<(QueueTicket, u128, Arc<WakeFlag>, Waker)> = Vec::new();
        for step in 0..400 {
            let now_ms = 1000 + step * 10;
            match random.below(3) {
                0 => {
                    let excluded_endpoints = random.one(&[0, 0, 0b001, 0b010, 0b011, 0b101, u128::MAX]);
                    // Who comes anew leaves alone what others wait for.
                    match enter(excluded_endpoints | !gate.avoided_by_all()) {
                        Some(permit) => permits.push(permit),
                        None => waiting.extend(gate.wait(5, random.below(2), now_ms, 500).map(|ticket| {
                            let (wake_flag, waker) = wake_flag();
                            wake_flag.0.store(1, Relaxed);
                            ticket.avoid(excluded_endpoints);
                            (ticket, excluded_endpoints, wake_flag, waker)
                        })),
                    }
                }
                1 if !permits.is_empty() => drop(permits.swap_remove(random.below(permits.len()))),
                _ if !waiting.is_empty() && random.below(4) == 0 => {
                    waiting.swap_remove(random.below(waiting.len())).0.give_up();
                }
                _ => {}
            }
            while let Some(at) = waiting.iter().position(|(_, _, wake_flag, _)| was_set(wake_flag)) {
                let (ticket, excluded_endpoints, _, waker) = &waiting[at];
                if !ticket.is_woken(waker, now_ms) {
                    continue;
                }
                match enter(*excluded_endpoints) {
                    Some(permit) => {
                        permits.push(permit);
                        waiting.swap_remove(at);
                    }
                    None => ticket.pass_on(),
                }
            }
            for (_, excluded_endpoints, ..) in &waiting {
                assert!(
                    enter(*excluded_endpoints).is_none(),
                    "seed {seed}, step {step}: one waits that avoids {excluded_endpoints:b}"
                );
            }
        }
    }
}

#[test]
fn wake_passes_to_a_request_that_can_use_the_permit() {
    let gate = Arc::new(UpstreamLimiter::default());
    assert_eq!(gate.avoided_by_all(), u128::MAX);
    let permit = RequestPermit::get(&gate, 1, 0).unwrap();
    let tickets: Vec<_> = [0b01, 0b01, 0b11, 0b10, 0]
        .map(|excluded_endpoints| {
            let ticket = gate.wait(9, 0, 1000, 1000).unwrap();
            ticket.avoid(excluded_endpoints);
            ticket
        })
        .into();
    let (wake_flags, wakers): (Vec<_>, Vec<_>) = tickets.iter().map(|_| wake_flag()).unzip();
    let called = |at: usize| tickets[at].is_woken(&wakers[at], 1000);
    assert_eq!(
        [0, 1, 2, 3, 4].map(called),
        [true, false, false, true, true],
        "nobody before these is like them"
    );
    let was_set = || [0, 1, 2, 3, 4].map(|at| was_set(&wake_flags[at]));
    drop(permit);
    assert_eq!(was_set(), [true, false, false, false, false]);
    assert!(called(0));
    tickets[0].pass_on();
    assert_eq!(was_set(), [false, false, false, true, false], "those who avoid as much are left alone");
    assert!(called(3));
    tickets[3].pass_on();
    assert_eq!(was_set(), [false, false, false, false, true], "who has heard the call is left alone");
    assert!(called(4));
    tickets[4].pass_on();
    assert_eq!(was_set(), [false; 5], "where one finds no room who avoids nothing, there is none");
    assert_eq!(gate.avoided_by_all(), 0);
}

#[test]
fn waiting_requests_are_woken_after_an_endpoint_change() {
    let written = |nodes: Value| {
        let limits = json!({ "per_endpoint": { "max_requests": 1 }, "max_pending": 9 });
        vec![Resource::new(Kind::Upstreams, "1", &json!({ "nodes": nodes, "limits": limits }))]
    };
    let mut compiler = compiler();
    let publisher = Publisher::default();
    let before = compiler.replace_all(written(json!({ "10.0.0.1:1": 1, "10.0.0.2:1": 1 })), 1).snapshot;
    publisher.publish(before.clone());
    let (slot, upstream) = before.upstreams().next().unwrap();
    let tickets = [0, 0].map(|_| upstream.protection.as_ref().unwrap().gate.wait(9, 0, 1000, 1000).unwrap());
    let (wake_flags, wakers): (Vec<_>, Vec<_>) = tickets.iter().map(|_| wake_flag()).unzip();
    assert!(tickets[0].is_woken(&wakers[0], 1000) && !tickets[1].is_woken(&wakers[1], 1000));
    let after = compiler.replace_all(written(json!({ "10.0.0.3:1": 1, "10.0.0.2:1": 1 })), 2).snapshot;
    let was_set = || [0, 1].map(|at| was_set(&wake_flags[at]));
    assert_eq!(was_set(), [false; 2], "as yet nobody can see them");
    publisher.publish(after.clone());
    assert_eq!(was_set(), [true; 2]);
    // Whoever has failed at an endpoint does not go there again, wherever it stands now.
    let is_second = |endpoint: &Endpoint| &*endpoint.host == "10.0.0.2";
    let now = after.upstream(slot).unwrap();
    let mut tried = TriedEndpoints::default();
    tried.push(upstream.endpoints.iter().position(is_second).unwrap());
    let carried = tried.remap(&upstream.endpoints, &now.endpoints);
    let is_tried: Vec<bool> = (0..2).map(|at| carried.has(at)).collect();
    assert_eq!(is_tried, now.endpoints.iter().map(is_second).collect::<Vec<_>>());
    assert_eq!(carried.count(), 1);
}

const RULES: OutlierRules = OutlierRules {
    consecutive_5xx: 3,
    consecutive_gateway_failures: 2,
    success_rate: None,
    interval_ms: 1000,
    base_ejection_ms: 100,
    max_ejection_ms: 250,
    max_ejected_percent: 50,
};

/// What happens to endpoints, as `index` and letter: `.` fine, `5` an answer of 500, `g` a gateway failure,
/// and `+` as 100 ms later. Gives what was decided and who is out in the end.
#[track_caller]
fn check(rules: &OutlierRules, endpoints: usize, events: &str, decided: &[(usize, u64)], out: &[usize]) {
    let all: Vec<_> = (0..endpoints).map(|_| Arc::new(EndpointCounts::default())).collect();
    let state = OutlierState::default();
    let mut now_ms = 5000;
    let mut news = Vec::new();
    for event in events.split_whitespace() {
        if event == "+" {
            now_ms += 100;
            if state.is_due(now_ms) {
                state.end_ejections(&all, now_ms);
            }
            continue;
        }
        let (index, letters) = event.split_at(1);
        for letter in letters.chars() {
            let failure = match letter {
                '.' => AttemptFailure::None,
                '5' => AttemptFailure::of_status(500),
                _ => AttemptFailure::of_status(503),
            };
            let found = state.observe(rules, &all, index.parse().unwrap(), failure, now_ms);
            news.extend(found.map(|news| (news.index, news.for_ms)));
        }
    }
    assert_eq!(news, decided, "{events}");
    let left: Vec<_> = (0..endpoints).filter(|at| all[*at].ejection.is_ejected()).collect();
    assert_eq!(left, out, "{events}");
}

#[test]
fn outliers_are_left_out_and_come_back() {
    check(&RULES, 4, "055 0.", &[], &[]);
    check(&RULES, 4, "055.55", &[], &[]);
    check(&RULES, 4, "0555", &[(0, 100)], &[0]);
    check(&RULES, 4, "0g5g", &[(0, 100)], &[0]);
    check(&RULES, 4, "0gg", &[(0, 100)], &[0]);
    check(&RULES, 4, "0gg +", &[(0, 100)], &[]);
    // Each time for longer, to a bound.
    check(&RULES, 4, "0gg + 0gg + + 0gg", &[(0, 100), (0, 200), (0, 250)], &[0]);
    // Good conduct over an interval takes one time back.
    check(&RULES, 4, "0gg + + + + + + + + + + 1. + + 0gg", &[(0, 100), (0, 100)], &[0]);
    // Half of them at most, and never the last.
    check(&RULES, 4, "0gg 1gg 2gg 3gg", &[(0, 100), (1, 100)], &[0, 1]);
    check(&RULES, 2, "0gg 1gg", &[(0, 100)], &[0]);
    check(&RULES, 1, "0gggg", &[], &[]);
    check(&OutlierRules { max_ejected_percent: 0, ..RULES }, 3, "0gg 1gg", &[(0, 100)], &[0]);
    check(
        &OutlierRules { max_ejected_percent: 100, ..RULES },
        3,
        "0gg 1gg 2gg",
        &[(0, 100), (1, 100)],
        &[0, 1],
    );
    check(&OutlierRules { consecutive_gateway_failures: 0, ..RULES }, 3, "0gg", &[], &[]);
}

#[test]
fn where_the_rest_fails_too_the_ejected_ones_come_back_early() {
    let rules = OutlierRules { base_ejection_ms: 30_000, max_ejection_ms: 300_000, ..RULES };
    let second = "+ + + + + + + + + +";
    check(&rules, 2, &format!("0gg {second} 1g"), &[(0, 30_000)], &[0]);
    check(&rules, 2, &format!("0gg {second} 1gg"), &[(0, 30_000)], &[]);
    check(&rules, 2, &format!("0gg {second} 155."), &[(0, 30_000)], &[0]);
    // Not each time the threshold is reached: a second passes in between.
    check(&rules, 2, "0gg 1gggggggg + 1gggggggg", &[(0, 30_000)], &[0]);
    // An endpoint of four may not be left out any more, but answers.
    check(&rules, 4, &format!("0gg 1gg {second} 2gg 3."), &[(0, 30_000), (1, 30_000)], &[0, 1]);
    check(&rules, 4, &format!("0gg 1gg {second} 2gg 3gg"), &[(0, 30_000), (1, 30_000)], &[]);
    // The time that was cut short does not make the next one longer.
    check(&rules, 2, &format!("0gg {second} 1gg 0gg"), &[(0, 30_000), (0, 30_000)], &[0]);
}

#[test]
fn one_that_falls_behind_the_others_is_left_out() {
    let rate = SuccessRateRules { requests_min: 4, endpoints_min: 3, deviations: 1.0 };
    let rules = OutlierRules {
        success_rate: Some(rate),
        consecutive_5xx: 0,
        consecutive_gateway_failures: 0,
        ..RULES
    };
    let second = "+ + + + + + + + + +";
    let good = "0.... 1.... 2....";
    check(&rules, 4, &format!("{good} 3.5.5 {second} 0."), &[(3, 100)], &[3]);
    check(&rules, 4, &format!("{good} 3.... {second} 0."), &[], &[]);
    // Too few requests, and too few to compare with.
    check(&rules, 4, &format!("{good} 355 {second} 0."), &[], &[]);
    check(&rules, 2, &format!("0.... 15555 {second} 0."), &[], &[]);
}

#[test]
fn retries_stay_within_their_budget() {
    let gate = Arc::new(UpstreamLimiter::default());
    let protection = |budget| UpstreamProtection {
        limits: None,
        outliers: None,
        budget: Some(budget),
        gate: gate.clone(),
        endpoints: Box::default(),
    };
    let protection = protection(RetryBudget { share: 0.2, min: 1 });
    let mut permits: Vec<_> = (0..10).filter_map(|_| RequestPermit::get(&gate, UNBOUNDED, 0)).collect();
    let may: Vec<bool> = permits.iter_mut().take(4).map(|permit| retries(&protection, permit)).collect();
    assert_eq!(may, [true, true, false, false]);
    // One that retries already may go on.
    assert!(retries(&protection, &mut permits[0]));
    assert_eq!((gate.retries.load(Relaxed), gate.retries_refused.load(Relaxed)), (2, 2));
    permits.clear();
    assert_eq!(gate.retries.load(Relaxed), 0);
    // Leave that is not used is given back.
    let mut permit = RequestPermit::get(&gate, UNBOUNDED, 0).unwrap();
    (0..3).for_each(|_| drop(protection.retry(Some(&permit)).unwrap()));
    assert!(retries(&protection, &mut permit));
}

fn retries(protection: &UpstreamProtection, permit: &mut RequestPermit) -> bool {
    protection.retry(Some(permit)).map(|leave| permit.note_retry(leave)).is_ok()
}

#[test]
fn permit_stays_unless_the_new_endpoint_has_capacity() {
    let limits = json!({ "per_endpoint": { "max_requests": 1 }, "max_pending": 9 });
    let written = json!({ "nodes": { "10.0.0.1:1": 1, "10.0.0.2:1": 1 }, "limits": limits });
    let snapshot = compiler().replace_all(vec![Resource::new(Kind::Upstreams, "1", &written)], 1).snapshot;
    let (_, upstream) = snapshot.upstreams().next().unwrap();
    let protection = upstream.protection.as_ref().unwrap();
    let bench = TestWorker::default();
    let ex = bench.exchange("GET /");
    let admit = |tried: &TriedEndpoints, permit: &mut Option<RequestPermit>| {
        upstream.admit(protection, &ex, tried, permit, |_| false).map(|found| found.map(|found| found.index))
    };
    let counts = || protection.endpoints.iter().map(|tally| tally.requests.load(Relaxed)).collect::<Vec<_>>();
    let (mut first, mut second) = (None, None);
    let mut tried = TriedEndpoints::default();
    let index = admit(&tried, &mut first).unwrap().unwrap();
    tried.push(index);
    assert_eq!(admit(&TriedEndpoints::default(), &mut second), Ok(Some(1 - index)));
    assert_eq!((admit(&tried, &mut first), counts()), (Err(LimiterFull), vec![1, 1]));
    drop(second);
    let ticket = protection.gate.wait(9, 0, 1000, 1000).unwrap();
    let other = protection.gate.wait(9, 0, 1000, 1000).unwrap();
    let (wake_flag, waker) = wake_flag();
    assert!(ticket.is_woken(&waker, 1000), "a place may have come free before it was there");
    assert!(!ticket.is_woken(&waker, 1000));
    assert_eq!(admit(&tried, &mut first), Ok(Some(1 - index)));
    assert_eq!((counts()[index], was_set(&wake_flag)), (0, true));
    drop((other, ticket, first));
    assert_eq!(counts(), [0, 0]);
}

#[test]
fn every_one_of_many_endpoints_is_found_while_it_has_room() {
    let nodes: Vec<_> =
        (0..200).map(|at| json!({ "host": format!("10.0.0.{at}"), "port": 1, "weight": 1 })).collect();
    let limits = json!({ "per_endpoint": { "max_requests": 1 }, "max_pending": 9 });
    let written = json!({ "type": "chash", "key": "remote_addr", "nodes": nodes, "limits": limits });
    let snapshot = compiler().replace_all(vec![Resource::new(Kind::Upstreams, "1", &written)], 1).snapshot;
    let (_, upstream) = snapshot.upstreams().next().unwrap();
    let protection = upstream.protection.as_ref().unwrap();
    let bench = TestWorker::default();
    let ex = bench.exchange("GET /");
    let mut permits: Vec<Option<RequestPermit>> = (0..200).map(|_| None).collect();
    for permit in &mut permits {
        let admitted = upstream.admit(protection, &ex, &TriedEndpoints::default(), permit, |_| false);
        assert!(matches!(admitted, Ok(Some(_))), "{admitted:?}");
    }
}
