use super::{PERIOD_MAX, PERIOD_MIN, RequestSampler};

const PER_SECOND: u32 = 500;
const SAMPLES_PER_TICK: u32 = 250;

/// Draws `requests` per tick for `ticks` ticks. Returns the samples of the last tick and the sum of their
/// weights.
fn run(sampler: &RequestSampler, requests: u32, ticks: u32) -> (u32, u64) {
    let mut last = (0, 0);
    for _ in 0..ticks {
        last = (0, 0);
        for _ in 0..requests {
            let weight = sampler.draw();
            last.0 += u32::from(weight > 0);
            last.1 += u64::from(weight);
        }
        sampler.tick();
    }
    last
}

#[test]
fn every_request_is_taken_while_they_are_few() {
    let sampler = RequestSampler::new(7, PER_SECOND);
    assert_eq!(run(&sampler, SAMPLES_PER_TICK, 5), (SAMPLES_PER_TICK, u64::from(SAMPLES_PER_TICK)));
}

#[test]
fn one_in_many_is_taken_when_there_are_many() {
    for (requests, period) in [(SAMPLES_PER_TICK + 1, PERIOD_MIN), (40_000, 256), (10_000_000, PERIOD_MAX)] {
        let sampler = RequestSampler::new(7, PER_SECOND);
        run(&sampler, requests, 1);
        let mut taken = 0;
        for _ in 0..20 {
            taken += run(&sampler, requests, 1).0;
        }
        let expected = 20 * requests / period;
        assert!(taken > expected / 2 && taken < expected * 2, "{requests}: {taken}, not about {expected}");
    }
}

#[test]
fn a_burst_is_thinned_out_before_the_tick() {
    let sampler = RequestSampler::new(7, PER_SECOND);
    let (taken, _) = run(&sampler, 100_000, 1);
    assert!(taken < 16 * SAMPLES_PER_TICK, "{taken}");
}

#[test]
fn weights_add_up_to_the_requests() {
    let sampler = RequestSampler::new(7, PER_SECOND);
    let (mut requests, mut weights) = (0u64, 0u64);
    for span in [10, 3_000, 100_000, 40, 7, 0, 20_000, 300, 300, 5] {
        for _ in 0..span {
            requests += 1;
            weights += u64::from(sampler.draw());
        }
        sampler.tick();
    }
    // At most one gap is still open.
    let open = requests - weights;
    assert!(open < u64::from(2 * PERIOD_MIN), "{open}");
}

#[test]
fn the_rhythm_of_the_traffic_does_not_matter() {
    let sampler = RequestSampler::new(7, PER_SECOND);
    run(&sampler, 20_000, 1);
    let mut by_kind = [0u64; 16];
    for at in 0..1_600_000usize {
        by_kind[at % 16] += u64::from(sampler.draw());
        if at % 20_000 == 0 {
            sampler.tick();
        }
    }
    for weight in by_kind {
        assert!((70_000..130_000).contains(&weight), "each kind has about 100000: {by_kind:?}");
    }
}

#[test]
fn after_a_rush_every_request_is_taken_again_soon() {
    let sampler = RequestSampler::new(7, PER_SECOND);
    run(&sampler, 1_000_000, 3);
    run(&sampler, 10, 2);
    assert_eq!(run(&sampler, 10, 1), (10, 10));
}

#[test]
fn a_lost_sample_is_carried_by_the_next() {
    let sampler = RequestSampler::new(7, PER_SECOND);
    let lost = sampler.draw();
    sampler.give_back(lost);
    assert_eq!((sampler.draw(), sampler.draw()), (2, 1));
}

#[test]
fn none_is_taken_where_none_is_wanted() {
    assert_eq!(run(&RequestSampler::new(7, 0), 100_000, 3), (0, 0));
}
