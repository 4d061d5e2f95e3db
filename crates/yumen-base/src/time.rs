//! Moments as plain numbers, so that pure code never reads a clock.

/// The time of an exchange or a compilation, passed in by the owner of a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Microseconds on the process's monotonic clock.
    pub mono_us: u64,
    /// Milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

impl Now {
    /// Seconds since the Unix epoch.
    pub fn unix_s(self) -> u64 {
        self.unix_ms / 1000
    }

    /// Milliseconds on the monotonic clock.
    pub fn mono_ms(self) -> u64 {
        self.mono_us / 1000
    }
}

/// Year, month (from 1) and day (from 1) in the proleptic Gregorian calendar.
///
/// Counts in eras of 400 years that begin on March 1, so that the leap day is the last day of its year (Hinnant,
/// "chrono-compatible date algorithms").
pub fn civil_date(days_since_epoch: u64) -> (u64, u64, u64) {
    // Days from 0000-03-01 to 1970-01-01; an era has 146 097.
    let days = days_since_epoch + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Five months from March on, and the next five, have 153 days.
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// A time in UTC by ISO 8601, to the second: `2026-11-21T13:40:12Z`. Years beyond 9999 have more digits.
pub fn utc_text(unix_s: u64) -> String {
    let (year, month, day) = civil_date(unix_s / 86_400);
    let second = unix_s % 86_400;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::utc_text;

    fn check(unix_s: u64, expected: &str) {
        assert_eq!(utc_text(unix_s), expected);
    }

    #[test]
    fn times_have_the_form_of_iso_8601() {
        check(0, "1970-01-01T00:00:00Z");
        check(951_782_399, "2000-02-28T23:59:59Z");
        check(951_782_400, "2000-02-29T00:00:00Z");
        check(1_795_268_412, "2026-11-21T13:40:12Z");
        check(253_402_300_799, "9999-12-31T23:59:59Z");
    }
}
