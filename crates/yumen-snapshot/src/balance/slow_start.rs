//! Endpoints that come into use little by little: their share grows with the time since they came.
//!
//! An upstream that does not ask for it has none of this. The time comes from the exchange.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::upstream::{Endpoint, Upstream};

/// The whole share of an endpoint.
pub(super) const WHOLE: u64 = 1000;

/// What an endpoint gets at once: enough to be seen to fail.
const SHARE_MIN: u64 = 100;

/// Not in use: it is new, or it was down when last looked at.
const OUT_OF_USE: u64 = 0;

/// It was in use before anybody asked since when.
const SINCE_EVER: u64 = u64::MAX;

/// How an upstream takes endpoints into use.
#[derive(Debug)]
pub struct SlowStart {
    window_us: u64,
    /// By endpoint.
    since: Box<[Arc<EndpointStart>]>,
}

/// Since when an endpoint is in use, in microseconds of the monotonic clock.
#[derive(Debug, Default)]
pub struct EndpointStart(pub(crate) AtomicU64);

impl SlowStart {
    /// Endpoints that `before` had go on where they stood; all others are new. `keep` gives what is carried.
    pub(crate) fn new(
        window_ms: u64,
        endpoints: &[Endpoint],
        before: Option<&Upstream>,
        keep: impl Fn(&Endpoint) -> Arc<EndpointStart>,
    ) -> SlowStart {
        let known = |endpoint: &Endpoint| {
            let before = before?;
            let at = before.endpoints.iter().position(|one| one.state.id == endpoint.state.id)?;
            let since =
                before.slow_start.as_ref().map_or_else(|| keep(endpoint), |slow| slow.since[at].clone());
            // Where there was nothing to choose, or nothing to do, nobody looked.
            if before.endpoints[at].is_up() && since.0.load(Relaxed) == OUT_OF_USE {
                since.0.store(SINCE_EVER, Relaxed);
            }
            Some(since)
        };
        let fresh = |endpoint: &Endpoint| {
            let since = keep(endpoint);
            // It may have been here some time ago.
            since.0.store(OUT_OF_USE, Relaxed);
            since
        };
        let since = |endpoint: &Endpoint| known(endpoint).unwrap_or_else(|| fresh(endpoint));
        SlowStart { window_us: window_ms * 1000, since: endpoints.iter().map(since).collect() }
    }

    /// Notes which endpoints are in use at `now_us`.
    pub(super) fn note(&self, endpoints: &[Endpoint], now_us: u64) {
        for (endpoint, since) in endpoints.iter().zip(&self.since) {
            match (endpoint.is_up(), since.0.load(Relaxed)) {
                (true, OUT_OF_USE) => since.0.store(now_us.max(1), Relaxed),
                (false, known) if known != OUT_OF_USE => since.0.store(OUT_OF_USE, Relaxed),
                _ => {}
            }
        }
    }

    /// The share of its weight that an endpoint gets, of [`WHOLE`].
    pub(super) fn share(&self, index: usize, now_us: u64) -> u64 {
        let since_us = self.since.get(index).map_or(OUT_OF_USE, |since| since.0.load(Relaxed));
        if matches!(since_us, OUT_OF_USE | SINCE_EVER) {
            return WHOLE;
        }
        let age_us = now_us.saturating_sub(since_us).min(self.window_us);
        (age_us * WHOLE / self.window_us.max(1)).max(SHARE_MIN)
    }
}
