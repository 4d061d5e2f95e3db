use super::*;

fn id(low: u64) -> TraceId {
    (u128::from(u64::MAX) << 64 | u128::from(low)).to_be_bytes()
}

#[test]
fn samplers_decide_by_parent_and_identifier() {
    fn check(sampler: TraceSampler, parent: Option<bool>, low: u64, expected: bool) {
        assert_eq!(sampler.samples(parent, &id(low)), expected, "{sampler:?} {parent:?} {low:x}");
    }
    let half = 1 << 62;
    let share = |fraction| TraceSampler::Share(TraceShare::of(fraction));
    let parent = |fraction| TraceSampler::ParentBased(TraceShare::of(fraction));
    for decision in [None, Some(true), Some(false)] {
        check(share(1.0), decision, u64::MAX, true);
        check(share(0.0), decision, 0, false);
        check(share(0.5), decision, half - 1, true);
        check(share(0.5), decision, half, false);
        // The highest bit does not count.
        check(share(0.5), decision, (half - 1) | (1 << 63), true);
        check(share(-1.0), decision, 0, false);
        check(share(7.0), decision, u64::MAX, true);
    }
    for fraction in [0.0, 0.5, 1.0] {
        check(parent(fraction), Some(true), u64::MAX, true);
        check(parent(fraction), Some(false), 0, false);
    }
    check(parent(0.5), None, half - 1, true);
    check(parent(0.5), None, half, false);
    check(parent(0.0), None, 0, false);
    check(parent(1.0), None, u64::MAX, true);
}

#[test]
fn a_share_has_about_its_part_of_random_traces() {
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state ^ (state >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd)
    };
    let share = TraceShare::of(0.1);
    let count = (0..10_000).filter(|_| share.draws(random())).count();
    assert!((850..1150).contains(&count), "{count}");
}

#[test]
fn samplers_are_described() {
    fn check(sampler: TraceSampler, expected: &str) {
        assert_eq!(sampler.to_string(), expected);
    }
    check(TraceSampler::Share(TraceShare::of(1.0)), "all traces");
    check(TraceSampler::Share(TraceShare::of(0.01)), "1 % of traces");
    let root = TraceSampler::ParentBased(TraceShare::of(0.0));
    check(root, "no new traces, and those that the caller samples");
    assert!(!root.is_off() && TraceSampler::Share(TraceShare::of(0.0)).is_off());
}
