//! Parsing and formatting of durations, counts and sizes. Pure.

/// Parses a duration such as `500ms`, `10s`, `2m` or `1h` to milliseconds; a bare number is in seconds.
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

/// Parses a duration to nanoseconds; like [`parse_duration_ms`], with `us` and `ns` in addition.
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
    // `parse_duration_ms` rounds to milliseconds; fractions are parsed again.
    let exact = text[..split].parse::<f64>().ok().filter(|_| &text[split..] == "ms");
    Ok(exact.map_or(ms * 1_000_000, |number| (number * 1e6).round() as u64))
}

/// Parses a count such as `200`, `10k` or `1.5M`.
pub fn parse_count(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1e3),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    let number = number.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number.map(|number| number * scale).ok_or_else(|| "a number is expected, such as 200 or 10k".to_owned())
}

/// Parses a whole count; see [`parse_count`].
pub fn parse_whole(text: &str) -> Result<u64, String> {
    let count = parse_count(text)?;
    if count.fract() == 0.0 { Ok(count as u64) } else { Err("a whole number is expected".to_owned()) }
}

/// Parses a size such as `4096`, `64KiB` or `1.5MiB`.
pub fn parse_bytes(text: &str) -> Result<f64, String> {
    let units = [("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0), ("B", 1.0)];
    let (number, scale) = units
        .into_iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))
        .unwrap_or((text, 1.0));
    let number = number.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number.map(|number| number * scale).ok_or_else(|| "a size is expected, in B, KiB, MiB or GiB".to_owned())
}

/// Formats nanoseconds in a fitting unit.
pub fn duration(ns: f64) -> String {
    match ns {
        // A value that rounds up to 1000 is shown in the next unit.
        _ if ns < 999.5 => format!("{ns:.0} ns"),
        _ if ns < 999.5e3 => format!("{} us", three(ns / 1e3)),
        _ if ns < 999.5e6 => format!("{} ms", three(ns / 1e6)),
        _ => format!("{} s", three(ns / 1e9)),
    }
}

/// Formats a count with grouped thousands.
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

/// Formats a rate: grouped thousands, decimals only for small values.
pub fn rate(per_second: f64) -> String {
    if per_second < 100.0 { format!("{per_second:.2}") } else { grouped(per_second.round() as u64) }
}

/// Formats bytes in decimal units.
pub fn bytes(count: f64) -> String {
    match count {
        _ if count < 999.5 => format!("{count:.0} B"),
        _ if count < 999.5e3 => format!("{} kB", three(count / 1e3)),
        _ if count < 999.5e6 => format!("{} MB", three(count / 1e6)),
        _ => format!("{} GB", three(count / 1e9)),
    }
}

/// Three significant digits.
fn three(number: f64) -> String {
    match number {
        _ if number < 9.995 => format!("{number:.2}"),
        _ if number < 99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests;
