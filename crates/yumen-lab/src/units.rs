//! Numbers as people write and read them: durations, counts, sizes. Pure.

/// A duration in milliseconds from text such as `500ms`, `10s`, `2m` or `1h`; a bare number is seconds.
pub fn parse_duration_ms(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ms" => 1.0,
        "" | "s" => 1e3,
        "m" | "min" => 60e3,
        "h" => 3600e3,
        _ => return Err(format!("unit {unit:?}; ms, s, m and h are allowed")),
    };
    let number = number.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    let number = number.ok_or_else(|| "a number is expected, such as 10s or 500ms".to_owned())?;
    Ok((number * scale).round() as u64)
}

/// A duration in nanoseconds; like [`parse_duration_ms`], and `us` and `ns` are allowed too.
pub fn parse_duration_ns(text: &str) -> Result<u64, String> {
    for (unit, scale) in [("us", 1e3), ("ns", 1.0)] {
        if let Some(number) = text.strip_suffix(unit) {
            let number = number.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
            return number
                .map(|number| (number * scale).round() as u64)
                .ok_or_else(|| "a number is expected, such as 250us".to_owned());
        }
    }
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let ms = parse_duration_ms(text)?;
    // Parts of a millisecond are lost above.
    let exact = text[..split].parse::<f64>().ok().filter(|_| &text[split..] == "ms");
    Ok(exact.map_or(ms * 1_000_000, |number| (number * 1e6).round() as u64))
}

/// A count such as `200`, `10k` or `1.5M`.
pub fn parse_count(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1e3),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    let number = number.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number.map(|number| number * scale).ok_or_else(|| "a number is expected, such as 200 or 10k".to_owned())
}

/// A whole count; see [`parse_count`].
pub fn parse_whole(text: &str) -> Result<u64, String> {
    let count = parse_count(text)?;
    if count.fract() == 0.0 { Ok(count as u64) } else { Err("a whole number is expected".to_owned()) }
}

/// Nanoseconds in the unit that reads best.
pub fn duration(ns: f64) -> String {
    match ns {
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e6 => format!("{} us", three(ns / 1e3)),
        _ if ns < 1e9 => format!("{} ms", three(ns / 1e6)),
        _ => format!("{} s", three(ns / 1e9)),
    }
}

/// A count with its thousands set apart.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// A rate: thousands set apart, decimals only where they tell something.
pub fn rate(per_second: f64) -> String {
    if per_second < 100.0 { format!("{per_second:.2}") } else { grouped(per_second.round() as u64) }
}

/// Bytes in decimal units.
pub fn bytes(count: f64) -> String {
    match count {
        _ if count < 1e3 => format!("{count:.0} B"),
        _ if count < 1e6 => format!("{} kB", three(count / 1e3)),
        _ if count < 1e9 => format!("{} MB", three(count / 1e6)),
        _ => format!("{} GB", three(count / 1e9)),
    }
}

/// Three significant digits.
fn three(number: f64) -> String {
    match number {
        _ if number < 10.0 => format!("{number:.2}"),
        _ if number < 100.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
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
        let check =
            |text: &str, expected: Option<u64>| assert_eq!(parse_whole(text).ok(), expected, "{text}");
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
        check(duration(45_678_901.0), "45.7 ms");
        check(duration(2e9), "2.00 s");
        check(grouped(0), "0");
        check(grouped(1_234_567), "1 234 567");
        check(rate(12.345), "12.35");
        check(rate(41_234.5), "41 235");
        check(bytes(181.0), "181 B");
        check(bytes(2.5e6), "2.50 MB");
    }
}
