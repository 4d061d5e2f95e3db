//! Formatting of quantities: three significant digits and a fitting unit, identical in all output formats.
//!
//! Pure arithmetic.

/// Narrow no-break space, between a number and its unit and between thousands.
const THIN: char = '\u{202f}';

/// Unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityUnit {
    /// A count, whole or on average.
    Count,
    /// A rate per second.
    PerSecond,
    /// Time in nanoseconds.
    Nanoseconds,
    /// Time in seconds since a start.
    Seconds,
    /// Memory in bytes.
    Bytes,
    /// A share from 0 to 1, shown in percent.
    Share,
    /// A factor.
    Ratio,
    /// A latency percentile as a share from 0 to 1.
    Percentile,
}

impl QuantityUnit {
    /// The number with its unit, for tables and sentences.
    pub fn show(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".to_owned();
        }
        match self {
            Self::Count | Self::PerSecond => grouped(value),
            Self::Nanoseconds => in_steps(value, &TIMES, digits),
            Self::Seconds => format!("{}{THIN}s", digits(value)),
            Self::Bytes => in_steps(value, &SIZES, digits),
            Self::Share => format!("{}{THIN}%", digits(value * 100.0)),
            Self::Ratio => format!("{value:.2}{THIN}×"),
            Self::Percentile => percentile(value),
        }
    }

    /// Base of round tick values. Bytes are shown in powers of 1024.
    pub(crate) fn grain(self, high: f64) -> f64 {
        let fits = |(size, _): &&(f64, &str)| high >= *size;
        match self {
            Self::Bytes => SIZES.iter().find(fits).map_or(1.0, |(size, _)| *size),
            _ => 1.0,
        }
    }

    /// The number at an axis tick, in the shortest form.
    pub fn tick(self, value: f64) -> String {
        match self {
            Self::Count | Self::PerSecond => compact(value),
            Self::Seconds => trimmed(value),
            Self::Share => format!("{}{THIN}%", trimmed(value * 100.0)),
            Self::Ratio => format!("{}{THIN}×", trimmed(value)),
            _ if value == 0.0 => "0".to_owned(),
            Self::Nanoseconds => in_steps(value, &TIMES, trimmed),
            Self::Bytes => in_steps(value, &SIZES, trimmed),
            Self::Percentile => percentile(value),
        }
    }
}

const KIBI: f64 = 1024.0;
const MEBI: f64 = KIBI * 1024.0;
const GIBI: f64 = MEBI * 1024.0;

const TIMES: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
const SIZES: [(f64, &str); 4] = [(GIBI, "GiB"), (MEBI, "MiB"), (KIBI, "KiB"), (1.0, "B")];

/// Formats with the largest unit that leaves at least one digit before the decimal point.
fn in_steps(value: f64, steps: &[(f64, &str)], write: fn(f64) -> String) -> String {
    let fits = |(size, _): &&(f64, &str)| value.abs() >= size * 0.9995;
    let smallest = steps.last().copied().unwrap_or((1.0, ""));
    let (size, name) = steps.iter().find(fits).copied().unwrap_or(smallest);
    format!("{}{THIN}{name}", write(value / size))
}

/// Three significant digits; whole numbers from 100.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.0995 => 2,
        size if size >= 0.000_995 => 4,
        _ => 6,
    };
    trim_zeros(format!("{value:.decimals$}"), decimals)
}

/// Removes trailing zeros of small numbers. `12.0` and `1.20` keep theirs, which show the precision.
fn trim_zeros(text: String, decimals: usize) -> String {
    if decimals > 2 { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Shortest form of a number, for ticks.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

fn compact(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        size if size >= 1e3 => format!("{}k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}

/// Groups thousands; below 100, three significant digits.
fn grouped(value: f64) -> String {
    if value.abs() < 99.95 {
        return if value.fract() == 0.0 { format!("{value:.0}") } else { digits(value) };
    }
    let whole = format!("{:.0}", value.abs());
    let mut text = String::with_capacity(whole.len() + whole.len() / 3 + 1);
    if value < 0.0 {
        text.push('-');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            text.push(THIN);
        }
        text.push(digit);
    }
    text
}

/// `p50`, `p99.9`; `max` for 1.
fn percentile(share: f64) -> String {
    if share >= 1.0 {
        return "max".to_owned();
    }
    let text = format!("{:.6}", share * 100.0);
    format!("p{}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(unit: QuantityUnit, value: f64, shown: &str, tick: &str) {
        assert_eq!(unit.show(value).replace(THIN, " "), shown);
        assert_eq!(unit.tick(value).replace(THIN, " "), tick);
    }

    #[test]
    fn numbers_have_three_digits_and_a_fitting_unit() {
        check(QuantityUnit::PerSecond, 24_129.4, "24 129", "24.1294k");
        check(QuantityUnit::PerSecond, 1_250_000.0, "1 250 000", "1.25M");
        check(QuantityUnit::Count, 12.0, "12", "12");
        check(QuantityUnit::Count, 0.25, "0.25", "0.25");
        check(QuantityUnit::Nanoseconds, 93_100.0, "93.1 µs", "93.1 µs");
        check(QuantityUnit::Nanoseconds, 999_900.0, "1.00 ms", "0.9999 ms");
        check(QuantityUnit::Nanoseconds, 32.4e9, "32.4 s", "32.4 s");
        check(QuantityUnit::Nanoseconds, 0.0, "0 ns", "0");
        check(QuantityUnit::Bytes, 13.5 * MEBI, "13.5 MiB", "13.5 MiB");
        check(QuantityUnit::Share, 0.5, "50.0 %", "50 %");
        check(QuantityUnit::Share, 0.000_01, "0.001 %", "0.001 %");
        check(QuantityUnit::Ratio, 1.7, "1.70 ×", "1.7 ×");
        check(QuantityUnit::Percentile, 0.999_999, "p99.9999", "p99.9999");
        check(QuantityUnit::Percentile, 0.5, "p50", "p50");
        check(QuantityUnit::Percentile, 1.0, "max", "max");
    }

    #[test]
    fn unrepresentable_value_is_a_dash() {
        assert_eq!(QuantityUnit::PerSecond.show(f64::NAN), "–");
    }
}
