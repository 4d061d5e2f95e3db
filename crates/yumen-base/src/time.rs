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

/// A time in UTC by ISO 8601, to the second: `2026-11-21T13:40:12Z`. Years beyond 9999 have more digits.
pub fn utc_text(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // Days from 1 March of year 0, so that the leap day ends a year (Hinnant, "chrono-compatible date algorithms").
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
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
