//! Compares with values computed by SciPy 1.17, and checks properties of any sample.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const SLOW: [f64; 5] = [13.0, 12.7, 13.4, 12.5, 13.1];
const FAST: [f64; 5] = [12.1, 11.8, 12.6, 12.0, 11.9];
const TIED_FIRST: [f64; 5] = [1.0, 2.0, 2.0, 3.0, 5.0];
const TIED_SECOND: [f64; 6] = [2.0, 4.0, 4.0, 5.0, 6.0, 7.0];
const LONG_FIRST: [f64; 7] = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91];
const LONG_SECOND: [f64; 4] = [1.64, 0.73, 1.46, 1.15];

#[track_caller]
fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{found} is not {expected}");
}

/// `expected` is U, then p for the two-sided, greater and less alternatives.
#[track_caller]
fn check_mann_whitney(first: &[f64], second: &[f64], exact: bool, expected: [f64; 4]) {
    for (tail, p) in [TestTail::Both, TestTail::Greater, TestTail::Less].into_iter().zip(&expected[1..]) {
        let test = mann_whitney(first, second, tail).expect("both samples have values");
        near(test.statistic, expected[0]);
        near(test.p_value, *p);
        assert_eq!(test.exact, exact);
    }
}

#[test]
fn small_samples_have_exact_rank_tests() {
    check_mann_whitney(
        &FAST,
        &SLOW,
        true,
        [1.0, 0.015873015873015872, 0.996031746031746, 0.007936507936507936],
    );
    check_mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], true, [0.0, 0.1, 1.0, 0.05]);
    check_mann_whitney(
        &LONG_FIRST,
        &LONG_SECOND,
        true,
        [15.0, 0.9272727272727272, 0.4636363636363636, 0.6060606060606061],
    );
}

#[test]
fn ties_are_counted_and_not_approximated() {
    check_mann_whitney(
        &TIED_FIRST,
        &TIED_SECOND,
        true,
        [5.5, 0.09956709956709957, 0.9675324675324676, 0.049783549783549784],
    );
    check_mann_whitney(&[4.0; 6], &[4.0; 6], true, [18.0, 1.0, 1.0, 1.0]);
}

#[test]
fn large_samples_use_the_normal_approximation() {
    let first: Vec<f64> = (0..30).map(|i| f64::from((i * 37) % 101)).collect();
    let second: Vec<f64> = (0..40).map(|i| f64::from((i * 53) % 97 + 9)).collect();
    check_mann_whitney(
        &first,
        &second,
        false,
        [544.5, 0.5138972746418009, 0.7468628289157112, 0.25694863732090045],
    );
    let first: Vec<f64> = (0..30).map(|i| f64::from((i * 7) % 11) / 2.0).collect();
    let second: Vec<f64> = (0..35).map(|i| f64::from((i * 5) % 13) / 2.0).collect();
    check_mann_whitney(
        &first,
        &second,
        false,
        [461.0, 0.40180756543327345, 0.8027820632508935, 0.20090378271663673],
    );
}

/// `expected` is the sum of positive ranks, then p for the two-sided, greater and less alternatives.
#[track_caller]
fn check_wilcoxon(first: &[f64], second: &[f64], expected: [f64; 4]) {
    for (tail, p) in [TestTail::Both, TestTail::Greater, TestTail::Less].into_iter().zip(&expected[1..]) {
        let test = wilcoxon(first, second, tail).expect("pairs that differ");
        near(test.statistic, expected[0]);
        near(test.p_value, *p);
    }
}

#[test]
fn pairs_are_tested_by_signed_ranks() {
    let before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.07, 1.30];
    let after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.15, 1.29];
    check_wilcoxon(&before, &after, [40.0, 0.0390625, 0.01953125, 0.986328125]);
}

#[test]
fn pairs_may_tie_and_may_not_differ() {
    let first = [125.0, 115.0, 130.0, 140.0, 140.0, 115.0, 140.0, 125.0, 140.0, 135.0];
    let second = [110.0, 122.0, 125.0, 120.0, 140.0, 124.0, 123.0, 137.0, 135.0, 145.0];
    check_wilcoxon(&first, &second, [27.0, 0.6328125, 0.31640625, 0.705078125]);
    assert_eq!(wilcoxon(&[1.0, 2.0], &[1.0, 2.0], TestTail::Both), None);
    assert_eq!(wilcoxon(&[1.0], &[1.0, 2.0], TestTail::Both), None);
}

#[test]
fn many_pairs_use_the_normal_approximation() {
    let first: Vec<f64> =
        (0..60).map(|i| f64::from((i * 37) % 101) + 0.5 * f64::from((i * 13) % 7)).collect();
    let second: Vec<f64> = (0..60).map(|i| f64::from((i * 41) % 97)).collect();
    check_wilcoxon(&first, &second, [899.5, 0.736266941450745, 0.3681334707253725, 0.6347812141078516]);
}

#[test]
fn the_normal_tail_is_accurate_in_the_middle_and_far_out() {
    let cases = [
        (-4.0, 0.9999683287581669),
        (-1.5, 0.9331927987311419),
        (0.0, 0.5),
        (0.5, 0.3085375387259869),
        (1.96, 0.024997895148220435),
        (2.99, 0.0013948872354922468),
        (3.01, 0.0013062384487694675),
        (6.0, 9.865876450376946e-10),
    ];
    for (z, expected) in cases {
        assert!((upper_tail(z) / expected - 1.0).abs() < 1e-9, "{z}: {} is not {expected}", upper_tail(z));
    }
}

#[test]
fn spread_is_what_everybody_calls_it() {
    let spread = SampleSpread::of(&FAST).expect("five values");
    near(spread.median, 12.0);
    near(spread.mean, 12.08);
    near(spread.standard_deviation, 0.31144823004794836);
    assert_eq!((spread.count, spread.min, spread.max), (5, 11.8, 12.6));
    assert_eq!(SampleSpread::of(&[]), None);
    assert_eq!(SampleSpread::of(&[f64::NAN, 3.0]).map(|spread| spread.count), Some(1));
}

#[test]
fn quantiles_lie_between_neighbours() {
    let all: Vec<f64> = FAST.into_iter().chain(SLOW).collect();
    let expected = [(0.0, 11.8), (0.1, 11.89), (0.25, 12.025), (0.5, 12.55), (0.9, 13.13), (1.0, 13.4)];
    for (share, value) in expected {
        near(quantile(&all, share).expect("ten values"), value);
    }
}

#[test]
fn the_median_of_eleven_values_has_the_interval_scipy_gives() {
    let values: Vec<f64> = (10..=20).map(f64::from).collect();
    assert_eq!(interval_of_median(&values), Some(ConfidenceInterval { low: 12.0, high: 18.0 }));
}

#[test]
fn a_ratio_of_medians_has_an_interval_around_it() {
    let interval = interval_of_ratio(&SLOW, &FAST).expect("positive values");
    assert!(interval.low < 13.0 / 12.0 && 13.0 / 12.0 < interval.high, "{interval:?}");
    assert_eq!(interval_of_ratio(&SLOW, &[0.0, 1.0]), None);
}

#[test]
fn too_few_rounds_cannot_decide() {
    near(smallest_p(3, 3, TestTail::Both), 0.1);
    near(smallest_p(3, 3, TestTail::Less), 0.05);
    near(smallest_p(1, 1, TestTail::Both), 1.0);
    near(smallest_p(5, 5, TestTail::Both), 2.0 / 252.0);
}

#[test]
fn deltas_have_words() {
    near(cliffs_delta(&SLOW, &FAST).expect("values"), 0.92);
    near(cliffs_delta(&FAST, &FAST).expect("values"), 0.0);
    let words = [(0.0, "negligible"), (-0.2, "small"), (0.4, "medium"), (-1.0, "large")];
    for (delta, word) in words {
        assert_eq!(EffectSize::of(delta).as_str(), word);
    }
}

#[test]
fn paired_ratios_cancel_what_both_share() {
    let ratio = PairedRatio::of(&[2.0, 20.0, 200.0], &[1.0, 10.0, 100.0]).expect("pairs");
    assert_eq!(
        (ratio.pairs, ratio.median, ratio.interval),
        (3, 2.0, ConfidenceInterval { low: 2.0, high: 2.0 })
    );
    assert_eq!(PairedRatio::of(&[1.0], &[0.0]), None);
}

fn samples() -> impl Strategy<Value = Vec<f64>> {
    vec((0_u32..40).prop_map(f64::from), 1..12)
}

proptest! {
    #[test]
    fn swapping_the_samples_swaps_the_tails(a in samples(), b in samples()) {
        let forth = mann_whitney(&a, &b, TestTail::Greater).unwrap();
        let back = mann_whitney(&b, &a, TestTail::Less).unwrap();
        prop_assert!((forth.p_value - back.p_value).abs() < 1e-12);
        prop_assert!((forth.statistic + back.statistic - (a.len() * b.len()) as f64).abs() < 1e-9);
    }

    #[test]
    fn ranks_do_not_care_for_the_scale(a in samples(), b in samples()) {
        let stretch = |values: &[f64]| values.iter().map(|value| value.powi(3) * 7.0 + 1.0).collect::<Vec<_>>();
        let plain = mann_whitney(&a, &b, TestTail::Both).unwrap();
        prop_assert_eq!(mann_whitney(&stretch(&a), &stretch(&b), TestTail::Both), Some(plain));
        prop_assert_eq!(cliffs_delta(&stretch(&a), &stretch(&b)), cliffs_delta(&a, &b));
    }

    #[test]
    fn p_values_are_shares_and_never_below_the_smallest(a in samples(), b in samples()) {
        let p = mann_whitney(&a, &b, TestTail::Both).unwrap().p_value;
        prop_assert!(p > 0.0 && p <= 1.0);
        prop_assert!(p >= smallest_p(a.len(), b.len(), TestTail::Both) - 1e-12);
    }

    #[test]
    fn delta_is_u_on_another_scale(a in samples(), b in samples()) {
        let u = mann_whitney(&a, &b, TestTail::Both).unwrap().statistic;
        let delta = cliffs_delta(&a, &b).unwrap();
        prop_assert!((delta - (2.0 * u / (a.len() * b.len()) as f64 - 1.0)).abs() < 1e-9);
    }

    #[test]
    fn the_median_lies_in_its_interval_and_the_interval_in_the_range(values in samples()) {
        let spread = SampleSpread::of(&values).unwrap();
        prop_assert!(spread.min <= spread.interval.low && spread.interval.high <= spread.max);
        prop_assert!(spread.interval.low <= spread.median && spread.median <= spread.interval.high);
        prop_assert_eq!(spread.median, quantile(&values, 0.5).unwrap());
    }
}
