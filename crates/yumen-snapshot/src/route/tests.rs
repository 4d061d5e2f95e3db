use super::*;

fn targets(weights: &[(u32, Option<u32>)]) -> WeightedTargets {
    let target = |(weight, slot): &(u32, Option<u32>)| WeightedTarget {
        weight: *weight,
        slot: slot.map(UpstreamSlotId),
        status: 500,
        key: slot.map_or(0, u64::from),
        edits: None,
    };
    let total = weights.iter().map(|(weight, _)| u64::from(*weight)).sum();
    WeightedTargets { targets: weights.iter().map(target).collect(), total, canary: None }
}

/// The picks of each target among a thousand per unit of weight.
fn picks(of: &WeightedTargets) -> Vec<usize> {
    let mut counts = vec![0; of.targets.len()];
    let mut state = 1u64;
    for _ in 0..of.total * 1000 {
        // xorshift64, as workers have.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let picked = of.pick(state).expect("the total is not 0");
        counts[of.targets.iter().position(|target| std::ptr::eq(target, picked)).expect("one of them")] += 1;
    }
    counts
}

#[test]
fn backends_get_their_shares() {
    for weights in [&[70, 30, 0][..], &[1], &[0, 1], &[1, 1, 1], &[90, 9, 1]] {
        let of = targets(&weights.iter().map(|weight| (*weight, Some(*weight))).collect::<Vec<_>>());
        for (weight, count) in weights.iter().zip(picks(&of)) {
            let expected = f64::from(*weight) * 1000.0;
            // Five standard deviations of the binomial distribution.
            let tolerance = 5.0 * (expected * (1.0 - f64::from(*weight) / of.total as f64)).sqrt();
            assert!((count as f64 - expected).abs() <= tolerance, "{weights:?}: {count} of {weight}");
        }
    }
}

#[test]
fn no_weight_means_no_backend() {
    assert!(targets(&[]).pick(7).is_none());
    assert!(targets(&[(0, Some(1)), (0, None)]).pick(7).is_none());
}

#[test]
fn a_session_finds_its_backend_at_weight_0() {
    let of = targets(&[(1, Some(1)), (0, Some(2)), (1, None)]);
    let slots = |key| of.of_session(key).filter_map(|target| Some(target.slot?.0)).collect::<Vec<_>>();
    assert_eq!(slots(2), [2]);
    assert!(slots(3).is_empty());
    // The endpoint decides about a session of the time before the route had several backends.
    assert_eq!(slots(0), [1, 2]);
}

#[test]
fn shares_are_described_in_words() {
    let check = |weights: &[(u32, Option<u32>)], expected: &str| {
        let name = |slot: UpstreamSlotId| (slot.0 < 9).then(|| Arc::from(format!("upstreams/{}", slot.0)));
        assert_eq!(targets(weights).describe(name), expected);
    };
    check(&[(2, Some(1)), (1, None)], "2 of 3 to upstreams/1, 1 of 3 with status 500");
    check(&[(1, Some(9)), (0, Some(1))], "1 of 1 nowhere");
    check(&[(0, Some(1))], "no backend: status 500");
    check(&[], "no backend: status 500");
}

#[test]
fn pauses_double_up_to_a_bound() {
    let pauses = |backoff_ms, backoff_ms_max| {
        let retry = StatusRetry { statuses: Box::default(), attempts: 9, backoff_ms, backoff_ms_max };
        [1, 2, 3, 4, 90].map(|attempts| retry.pause_ms(attempts))
    };
    assert_eq!(pauses(0, 0), [0; 5]);
    assert_eq!(pauses(25, 150), [25, 50, 100, 150, 150]);
    assert_eq!(pauses(3_600_000, 3_600_000), [3_600_000; 5]);
}
