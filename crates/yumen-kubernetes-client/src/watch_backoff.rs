//! Growing pauses between failed requests of one watch.

/// The first pause, in milliseconds. All figures are those of kube-runtime and client-go's reflector.
const PAUSE_FIRST_MS: u64 = 800;
/// The longest pause, in milliseconds.
const PAUSE_MAX_MS: u64 = 30_000;
/// The time without a failure after which pauses start from the first again, in milliseconds.
const RESET_MS: u64 = 120_000;

/// Doubling pauses with jitter.
#[derive(Debug)]
pub(crate) struct WatchBackoff {
    next_ms: u64,
    failed_at_ms: u64,
    random: u64,
}

impl WatchBackoff {
    pub(crate) fn new(seed: u64) -> WatchBackoff {
        // The generator must not start at zero.
        WatchBackoff { next_ms: PAUSE_FIRST_MS, failed_at_ms: 0, random: seed | 1 }
    }

    /// The pause after a failure at `now_ms`, in milliseconds: up to half longer than the doubled one.
    pub(crate) fn pause_ms(&mut self, now_ms: u64) -> u64 {
        if now_ms.saturating_sub(self.failed_at_ms) > RESET_MS {
            self.next_ms = PAUSE_FIRST_MS;
        }
        self.failed_at_ms = now_ms;
        let pause_ms = self.next_ms;
        self.next_ms = (pause_ms * 2).min(PAUSE_MAX_MS);
        (pause_ms + self.draw() % (pause_ms / 2)).min(PAUSE_MAX_MS)
    }

    /// Xorshift (Marsaglia): jitter needs no quality.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

#[cfg(test)]
mod tests {
    use super::WatchBackoff;

    #[test]
    fn pauses_double_to_a_bound_and_start_again_after_two_minutes() {
        let mut backoff = WatchBackoff::new(7);
        let mut now_ms = 10_000;
        for expected in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            let pause_ms = backoff.pause_ms(now_ms);
            assert!(
                (expected..=expected * 3 / 2).contains(&pause_ms) && pause_ms <= 30_000,
                "{pause_ms} {expected}"
            );
            now_ms += pause_ms;
        }
        assert!(backoff.pause_ms(now_ms + 120_001) <= 1200);
    }
}
