//! Times of the fetches of one value. Pure: the caller gives the time and the lot.

/// First pause after a failure; doubles with each further one.
const BACKOFF_MIN_MS: u64 = 1_000;
/// Maximum pause after failures.
const BACKOFF_MAX_MS: u64 = 60_000;
/// Minimum interval by a lifetime of the server.
const INTERVAL_MIN_MS: u64 = 60_000;
/// Minimum time between two fetches that requests ask for.
const ASKED_PAUSE_MS: u64 = 10_000;
/// Share of the pause by which a lot changes it.
const JITTER: f64 = 0.1;

/// The time of the next fetch.
#[derive(Debug)]
pub(super) struct FetchSchedule {
    interval_ms: u64,
    due_ms: u64,
    /// Time of the last fetch that a request asked for, or `None`.
    asked_ms: Option<u64>,
    failures: u32,
    fetches: u64,
}

impl FetchSchedule {
    /// The schedule of a value that is due now.
    pub(super) fn new(interval_s: u32, now_ms: u64) -> FetchSchedule {
        let interval_ms = u64::from(interval_s.max(1)) * 1000;
        FetchSchedule { interval_ms, due_ms: now_ms, asked_ms: None, failures: 0, fetches: 0 }
    }

    /// Number of fetches so far.
    pub(super) fn fetches(&self) -> u64 {
        self.fetches
    }

    /// The time until the next fetch.
    pub(super) fn pause_ms(&self, now_ms: u64) -> u64 {
        // A clock that was set back delays no fetch beyond its interval.
        self.due_ms.saturating_sub(now_ms).min(2 * self.interval_ms.max(BACKOFF_MAX_MS))
    }

    /// Continues the schedule of a value that was fetched earlier. `lot` is from 0 to 1.
    pub(super) fn resume(&mut self, fetched_ms: u64, lot: f64) {
        self.due_ms = fetched_ms + spread(self.interval_ms, lot);
    }

    /// Plans the next fetch after a success. The lifetime by the server shortens the interval, but not below a minute.
    pub(super) fn succeeded(&mut self, now_ms: u64, max_age_s: Option<u32>, lot: f64) {
        self.failures = 0;
        self.fetches += 1;
        let lifetime_ms = max_age_s.map(|age_s| (u64::from(age_s) * 1000).max(INTERVAL_MIN_MS));
        let interval_ms =
            lifetime_ms.map_or(self.interval_ms, |lifetime_ms| lifetime_ms.min(self.interval_ms));
        self.due_ms = now_ms + spread(interval_ms, lot);
    }

    /// Plans the next fetch after a failure.
    pub(super) fn failed(&mut self, now_ms: u64, lot: f64) {
        self.fetches += 1;
        let doubled = BACKOFF_MIN_MS << self.failures.min(16);
        self.failures = self.failures.saturating_add(1);
        // A short interval is kept: its user wants fresh values.
        let pause_ms = doubled.min(BACKOFF_MAX_MS).min(self.interval_ms.max(BACKOFF_MIN_MS));
        self.due_ms = now_ms + spread(pause_ms, lot);
    }

    /// Plans a fetch that a request asks for: now, or ten seconds after the last one.
    pub(super) fn ask(&mut self, now_ms: u64) {
        let at_ms = self.asked_ms.map_or(now_ms, |last_ms| now_ms.max(last_ms + ASKED_PAUSE_MS));
        if at_ms < self.due_ms || self.due_ms <= now_ms {
            self.due_ms = self.due_ms.min(at_ms);
            self.asked_ms = Some(at_ms);
        }
    }
}

/// The pause, changed by up to a tenth, so that nodes and values do not stay in step.
fn spread(pause_ms: u64, lot: f64) -> u64 {
    (pause_ms as f64 * (1.0 - JITTER + 2.0 * JITTER * lot)) as u64
}

#[cfg(test)]
mod tests;
