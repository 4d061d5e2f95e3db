//! Times in log lines.

use std::io::Write;

use yumen_base::civil_date;

/// Appends `2026-11-26T13:00:00.123Z` (RFC 5424 §6.2.3).
pub(crate) fn write_utc_ms(out: &mut Vec<u8>, unix_ms: u64) {
    let unix_s = unix_ms / 1000;
    let (year, month, day) = civil_date(unix_s / 86_400);
    let second = unix_s % 86_400;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let ms = unix_ms % 1000;
    write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
        .expect("a vector takes every write");
}

/// Appends the time by a format of strftime with the fields of a date and a time of day, in UTC.
pub(crate) fn write_strftime(out: &mut Vec<u8>, format: &str, unix_ms: u64) {
    let unix_s = unix_ms / 1000;
    let (year, month, day) = civil_date(unix_s / 86_400);
    let second = unix_s % 86_400;
    let mut rest = format.chars();
    while let Some(character) = rest.next() {
        let field = if character == '%' { rest.next() } else { None };
        let written = match (character, field) {
            ('%', Some('Y')) => write!(out, "{year:04}"),
            ('%', Some('y')) => write!(out, "{:02}", year % 100),
            ('%', Some('m')) => write!(out, "{month:02}"),
            ('%', Some('d')) => write!(out, "{day:02}"),
            ('%', Some('H')) => write!(out, "{:02}", second / 3600),
            ('%', Some('M')) => write!(out, "{:02}", second / 60 % 60),
            ('%', Some('S')) => write!(out, "{:02}", second % 60),
            ('%', Some('%')) => write!(out, "%"),
            ('%', Some(other)) => write!(out, "%{other}"),
            (other, _) => write!(out, "{other}"),
        };
        written.expect("a vector takes every write");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        fn check(write: impl FnOnce(&mut Vec<u8>), expected: &str) {
            let mut out = Vec::new();
            write(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
        let unix_ms = 1_700_000_000_123;
        check(|out| write_utc_ms(out, unix_ms), "2023-11-14T22:13:20.123Z");
        check(|out| write_strftime(out, "%Y.%m.%d", unix_ms), "2023.11.14");
        check(|out| write_strftime(out, "%y%m%d-%H:%M:%S %q%%", unix_ms), "231114-22:13:20 %q%");
    }
}
