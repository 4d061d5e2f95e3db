//! Durations of the Gateway API (GEP-2257).

/// Milliseconds of a duration such as `1m30s`: one to four numbers of at most five digits, each with a unit of
/// `h`, `m`, `s` or `ms`. `None` for every other text.
pub(crate) fn parse_duration_ms(text: &str) -> Option<u64> {
    let (mut rest, mut total, mut count) = (text, 0, 0);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if !(1..=5).contains(&digits) || count == 4 {
            return None;
        }
        let number: u64 = rest[..digits].parse().ok()?;
        let unit_end = digits + rest[digits..].bytes().take_while(u8::is_ascii_lowercase).count();
        total += number
            * match &rest[digits..unit_end] {
                "h" => 3_600_000,
                "m" => 60_000,
                "s" => 1_000,
                "ms" => 1,
                _ => return None,
            };
        count += 1;
        rest = &rest[unit_end..];
    }
    (count > 0).then_some(total)
}
