//! Calendar dates from Unix seconds, in UTC, in the formats of access logs.

use std::io::Write;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Year, month (from 1) and day (from 1) in the proleptic Gregorian calendar.
///
/// Counts in eras of 400 years that begin on March 1, so that the leap day is the last day of its year.
fn civil(days_since_epoch: u64) -> (u64, usize, u64) {
    // Days from 0000-03-01 to 1970-01-01; an era has 146 097.
    let days = days_since_epoch + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Five months from March on, and the next five, have 153 days.
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month as usize, day)
}

/// `2026-11-20T12:13:14+00:00`.
pub(super) fn iso8601(out: &mut Vec<u8>, unix_s: u64) {
    let (year, month, day) = civil(unix_s / 86_400);
    let (hour, minute, second) = clock(unix_s);
    write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}+00:00")
        .expect("a vector takes every write");
}

/// `20/Nov/2026:12:13:14 +0000`, the time of the Common Log Format.
pub(super) fn log_time(out: &mut Vec<u8>, unix_s: u64) {
    let (year, month, day) = civil(unix_s / 86_400);
    let (hour, minute, second) = clock(unix_s);
    let month = MONTHS[month - 1];
    write!(out, "{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000")
        .expect("a vector takes every write");
}

fn clock(unix_s: u64) -> (u64, u64, u64) {
    let second_of_day = unix_s % 86_400;
    (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60)
}
