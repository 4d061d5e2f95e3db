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

/// Seconds of a duration as Go writes it, such as `1m30s` or `1.5s`; `None` for every other text, and for durations
/// below zero.
pub(crate) fn parse_go_duration_s(text: &str) -> Option<f64> {
    if text == "0" {
        return Some(0.0);
    }
    let (mut rest, mut total) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let number: f64 = rest[..digits].parse().ok()?;
        let unit = rest[digits..].find(|one: char| one.is_ascii_digit() || one == '.');
        let unit_end = unit.map_or(rest.len(), |length| digits + length);
        total += number
            * match &rest[digits..unit_end] {
                "h" => 3_600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        rest = &rest[unit_end..];
    }
    (!text.is_empty() && total.is_finite()).then_some(total)
}
