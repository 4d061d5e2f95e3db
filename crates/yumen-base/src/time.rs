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
