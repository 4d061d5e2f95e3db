use super::{BUCKETS_MAX, DurationHistogram, bucket_of, end_of};

fn check(us: u64, end_us: u64) {
    assert_eq!(end_of(bucket_of(us)), end_us, "{us} us");
}

#[test]
fn a_duration_is_in_the_bucket_that_ends_after_it() {
    for (us, end_us) in
        [(0, 1), (1, 2), (3, 4), (4, 5), (7, 8), (8, 10), (9, 10), (10, 12), (15, 16), (16, 20), (1000, 1024)]
    {
        check(us, end_us);
    }
}

#[test]
fn buckets_have_no_gaps_and_are_at_most_a_quarter_wide() {
    for bucket in 1..BUCKETS_MAX {
        let (start, end) = (end_of(bucket - 1), end_of(bucket));
        assert_eq!(bucket_of(start), bucket);
        assert_eq!(bucket_of(end - 1), bucket);
        assert!(start < 4 || (end - start) * 4 <= start, "{start}..{end}");
    }
    assert!(end_of(BUCKETS_MAX - 2) > 120_000_000, "the last is for all above two minutes");
}

#[test]
fn longest_values_count_in_the_last_bucket() {
    assert_eq!(bucket_of(u64::MAX / 2), BUCKETS_MAX - 1);
}

#[test]
fn weights_count_and_merge() {
    let (mut one, mut other) = (DurationHistogram::default(), DurationHistogram::default());
    one.add(5_000, 3);
    other.add(5_900, 1);
    other.add(1_000_000, 2);
    one.merge(&other);
    assert_eq!(one.buckets().collect::<Vec<_>>(), [(6, 4), (1024, 2)]);
    assert_eq!(one.sum_ns, 15_000 + 5_900 + 2_000_000);
}
