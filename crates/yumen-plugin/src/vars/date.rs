//! Calendar dates from Unix seconds, in UTC, in the formats of access logs.

use std::io::Write;

use yumen_base::civil_date;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `2026-11-20T12:13:14+00:00`.
pub(super) fn iso8601(out: &mut Vec<u8>, unix_s: u64) {
    let (year, month, day) = civil_date(unix_s / 86_400);
    let (hour, minute, second) = clock(unix_s);
    write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}+00:00")
        .expect("a vector takes every write");
}

/// `20/Nov/2026:12:13:14 +0000`, the time of the Common Log Format.
pub(super) fn log_time(out: &mut Vec<u8>, unix_s: u64) {
    let (year, month, day) = civil_date(unix_s / 86_400);
    let (hour, minute, second) = clock(unix_s);
    let month = MONTHS[month as usize - 1];
    write!(out, "{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000")
        .expect("a vector takes every write");
}

fn clock(unix_s: u64) -> (u64, u64, u64) {
    let second_of_day = unix_s % 86_400;
    (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60)
}
