use super::*;

#[test]
fn durations_are_read_with_their_units() {
    let check = |text: &str, expected: Option<u64>| {
        assert_eq!(parse_duration_ns(text).ok(), expected, "{text}");
    };
    check("10", Some(10_000_000_000));
    check("1.5s", Some(1_500_000_000));
    check("0.25ms", Some(250_000));
    check("250us", Some(250_000));
    check("7ns", Some(7));
    check("2m", Some(120_000_000_000));
    check("1h", Some(3_600_000_000_000));
    check("", None);
    check("s", None);
    check("-1s", None);
    check("3 days", None);
}

#[test]
fn counts_are_read_with_their_multiples() {
    let check = |text: &str, expected: Option<u64>| assert_eq!(parse_whole(text).ok(), expected, "{text}");
    check("0", Some(0));
    check("10k", Some(10_000));
    check("1.5M", Some(1_500_000));
    check("1.5", None);
    check("k", None);
    check("-3", None);
}

#[test]
fn figures_have_three_digits_and_a_unit() {
    let check = |found: String, expected: &str| assert_eq!(found, expected);
    check(duration(999.0), "999 ns");
    check(duration(1_234.0), "1.23 us");
    check(duration(999_600.0), "1.00 ms");
    check(duration(9_996.0), "10.0 us");
    check(duration(45_678_901.0), "45.7 ms");
    check(duration(2e9), "2.00 s");
    check(grouped(0), "0");
    check(grouped(1_234_567), "1 234 567");
    check(rate(12.345), "12.35");
    check(rate(41_234.5), "41 235");
    check(bytes(181.0), "181 B");
    check(bytes(2.5e6), "2.50 MB");
}
