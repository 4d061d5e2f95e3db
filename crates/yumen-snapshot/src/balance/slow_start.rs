//! Slow start: the share of a new endpoint grows with the time since it came into use.
//!
//! The time comes from the exchange.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::endpoint::Endpoint;

/// The whole share of an endpoint.
pub(super) const WHOLE: u64 = 1000;

/// The initial share: enough requests for passive checks to notice a failing endpoint.
const SHARE_MIN: u64 = 100;

/// Not in use: the endpoint is new, or was down at the last pick.
const OUT_OF_USE: u64 = 0;

/// In use since an unknown time before the first pick.
const SINCE_EVER: u64 = u64::MAX;

/// The slow start of the endpoints of an upstream.
#[derive(Debug)]
pub struct SlowStart {
    window_us: u64,
    /// By the index of the endpoint.
    since: Box<[Arc<EndpointStart>]>,
}

/// The time since which an endpoint is in use, in microseconds of the monotonic clock.
#[derive(Debug, Default)]
pub struct EndpointStart(pub(crate) AtomicU64);

/// The endpoints of the previous version of an upstream.
#[derive(Clone, Copy)]
pub(crate) struct PreviousEndpoints<'p> {
    pub(crate) endpoints: &'p [Endpoint],
    pub(crate) slow_start: Option<&'p SlowStart>,
}

impl SlowStart {
    /// Endpoints of the previous version go on with their share; all others are new. `carried` returns carried state.
    pub(crate) fn new(
        window_ms: u64,
        endpoints: &[Endpoint],
        previous: Option<PreviousEndpoints<'_>>,
        carried: impl Fn(&Endpoint) -> Arc<EndpointStart>,
    ) -> SlowStart {
        let known = |endpoint: &Endpoint| {
            let previous = previous?;
            // By identity, since indexes change with the configuration.
            let at = previous.endpoints.iter().position(|one| one.state.id == endpoint.state.id)?;
            // The previous version had no slow start, so the state starts with the carried one.
            let since = previous.slow_start.map_or_else(|| carried(endpoint), |slow| slow.since[at].clone());
            // An upstream with one endpoint, or without requests, never recorded the time.
            if previous.endpoints[at].is_up() && since.0.load(Relaxed) == OUT_OF_USE {
                since.0.store(SINCE_EVER, Relaxed);
            }
            Some(since)
        };
        let fresh = |endpoint: &Endpoint| {
            let since = carried(endpoint);
            // The endpoint may have been in the upstream earlier; it starts anew.
            since.0.store(OUT_OF_USE, Relaxed);
            since
        };
        let since = |endpoint: &Endpoint| known(endpoint).unwrap_or_else(|| fresh(endpoint));
        SlowStart { window_us: window_ms * 1000, since: endpoints.iter().map(since).collect() }
    }

    /// Records the endpoints that came into or out of use at `now_us`.
    pub(crate) fn note(&self, endpoints: &[Endpoint], now_us: u64) {
        for (endpoint, since) in endpoints.iter().zip(&self.since) {
            match (endpoint.is_up(), since.0.load(Relaxed)) {
                // Zero means not in use.
                (true, OUT_OF_USE) => since.0.store(now_us.max(1), Relaxed),
                // Written only at a change: every pick comes through here, on all workers.
                (false, known) if known != OUT_OF_USE => since.0.store(OUT_OF_USE, Relaxed),
                _ => {}
            }
        }
    }

    /// The share of its weight that an endpoint gets, of [`WHOLE`].
    pub(super) fn share(&self, index: usize, now_us: u64) -> u64 {
        let since_us = self.since.get(index).map_or(OUT_OF_USE, |since| since.0.load(Relaxed));
        // An endpoint that is out of use is not picked anyway; one in use for an unknown time is not new.
        if matches!(since_us, OUT_OF_USE | SINCE_EVER) {
            return WHOLE;
        }
        let age_us = now_us.saturating_sub(since_us).min(self.window_us);
        // A window of zero must not divide by zero.
        (age_us * WHOLE / self.window_us.max(1)).max(SHARE_MIN)
    }
}
