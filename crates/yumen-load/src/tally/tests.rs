use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::serialization::Deserializer;

use super::*;

const MS: u64 = 1_000_000;
const GOOD: StatusRange = StatusRange { first: 200, last: 399 };

fn near(found: u64, expected: f64) {
    let off = (found as f64 - expected).abs() / expected;
    assert!(off < 0.002, "{found} is not within 0.2 % of {expected}");
}

#[test]
fn percentiles_of_a_known_distribution_are_found_out_to_the_last_nine() {
    // Exponential distribution with a mean of 1 ms: one million values, each the quantile of its rank.
    let count = 1_000_000_u32;
    let quantile = |rank: f64| -(1.0 - (rank - 0.5) / f64::from(count)).ln() * MS as f64;
    let mut exponential = histogram(3);
    for rank in 1..=count {
        exponential.saturating_record(quantile(f64::from(rank)) as u64);
    }
    let found = latency(&exponential);
    assert_eq!(found.count, u64::from(count));
    for at in [10.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999] {
        near(found.at(at).unwrap(), quantile((f64::from(count) * at / 100.0).round()));
    }
    near(found.mean_ns as u64, MS as f64);
    near(found.stdev_ns as u64, MS as f64);
}

#[test]
fn one_slow_request_in_a_million_is_the_last_percentile() {
    let mut recorded = histogram(3);
    recorded.saturating_record_n(2 * MS, 999_999);
    recorded.saturating_record(60_000 * MS);
    let found = latency(&recorded);
    near(found.at(99.999).unwrap(), 2.0 * MS as f64);
    near(found.max_ns, 60_000.0 * MS as f64);
    // The point at p99.9999 is the last ordinary value; only the maximum is beyond.
    near(found.at(99.9999).unwrap(), 2.0 * MS as f64);
}

#[test]
fn the_histogram_in_the_result_is_read_back_whole() {
    let mut recorded = histogram(3);
    for value in [1, 999, 12_345, 7 * MS, 3_599_000 * MS] {
        recorded.saturating_record_n(value, value % 5 + 1);
    }
    let text = latency(&recorded).histogram;
    assert!(text.starts_with("HISTFAA"), "compressed V2: {text}");
    let bytes = BASE64_STANDARD.decode(text).unwrap();
    let back: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
    assert_eq!(back, recorded);
}

#[test]
fn nothing_recorded_has_no_percentiles() {
    let found = latency(&histogram(3));
    assert_eq!((found.count, found.at(50.0), found.max_ns, found.min_ns), (0, None, 0, 0));
}

fn moments(intended_ms: Option<u64>, sent_ms: Option<u64>, ended_ms: u64) -> RequestMoments {
    RequestMoments {
        intended_ns: intended_ms.map(|ms| ms * MS),
        sent_ns: sent_ms.map(|ms| ms * MS),
        ended_ns: ended_ms * MS,
    }
}

fn tally(counted_from_ms: u64) -> ThreadTally {
    let mut tally = ThreadTally::new(GOOD, None);
    tally.count_from(counted_from_ms * MS);
    tally
}

#[test]
fn a_late_answer_counts_from_when_it_was_due() {
    let mut tally = tally(0);
    tally.answered(moments(Some(100), Some(900), 1000), 200);
    near(tally.latencies.response.max(), 100.0 * MS as f64);
    near(tally.latencies.corrected.max(), 900.0 * MS as f64);
}

#[test]
fn aborted_requests_count_with_their_wait() {
    let mut tally = tally(0);
    tally.failed(moments(Some(0), Some(10), 500), RequestFailure::new(ErrorClass::ResponseTimeout, "late"));
    tally.failed(moments(Some(0), None, 500), RequestFailure::new(ErrorClass::Connect, "refused"));
    tally.cut_off(moments(Some(0), None, 700));
    assert_eq!(tally.latencies.corrected.len(), 2, "a refused connection is no latency");
    assert_eq!(tally.latencies.response.len(), 0);
    near(tally.latencies.corrected.max(), 700.0 * MS as f64);
    assert_eq!((tally.totals.requests, tally.totals.responses, tally.totals.unanswered), (1, 0, 1));
    assert_eq!(tally.errors.by_class().map(|(_, count)| count), [1, 0, 0, 0, 1, 0, 0]);
    assert_eq!(tally.errors.examples["connect"], "refused");
}

#[test]
fn the_warm_up_does_not_count() {
    let mut tally = tally(100);
    tally.answered(moments(None, Some(99), 120), 200);
    tally.failed(moments(Some(99), Some(120), 130), RequestFailure::new(ErrorClass::Read, "ended"));
    tally.answered(moments(None, Some(100), 120), 503);
    tally.finish();
    assert_eq!((tally.totals.responses, tally.totals.requests, tally.errors.total()), (1, 1, 1));
    assert_eq!(tally.take_statuses(), BTreeMap::from([(503, 1)]));
}

#[test]
fn seconds_are_handed_over_when_they_are_over() {
    let (sender, intervals) = std::sync::mpsc::channel();
    let mut tally = ThreadTally::new(GOOD, Some(sender));
    tally.count_from(500 * MS);
    for ended_ms in [600, 700, 1600, 3600] {
        tally.answered(moments(None, Some(ended_ms - 10), ended_ms), 200);
    }
    tally.finish();
    let seconds: Vec<_> = intervals.iter().map(|interval| (interval.second, interval.responses)).collect();
    assert_eq!(seconds, [(0, 2), (1, 1), (3, 1)]);
}
