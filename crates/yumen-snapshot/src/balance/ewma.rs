//! The better of two random endpoints by a peak-sensitive moving average of response times.

use std::sync::atomic::Ordering::Relaxed;

use yumen_plugin::Exchange;

use super::policy::{BalancingPolicy, PolicyContext};
use super::{EndpointCandidates, count_active, uncount_active};
use crate::endpoint::{Endpoint, EndpointState};

/// The time after which an average without observations has lost two thirds of its weight.
const DECAY_US: f64 = 10_000_000.0;

/// The policy `ewma`.
#[derive(Debug, Default)]
pub struct Ewma;

impl BalancingPolicy for Ewma {
    const NAME: &'static str = "ewma";

    fn build(_: &PolicyContext<'_>) -> Ewma {
        Ewma
    }

    fn pick(&self, pool: &EndpointCandidates<'_>, ex: &Exchange<'_>) -> Option<usize> {
        // One random number has enough bits for both draws.
        let lots = ex.host.random();
        // The caller offers a pool only if an endpoint is left, so the count is not zero.
        let count = pool.endpoints.len();
        let first = from(pool, (lots as u32) as usize % count, None)?;
        // With one candidate left there is no choice to make.
        let second = from(pool, (lots >> 32) as usize % count, Some(first)).unwrap_or(first);
        let cost = |index: usize| {
            let (share, whole) = pool.share(index);
            // A smaller share raises the cost, so that a new endpoint is chosen more rarely.
            cost(&pool.endpoints[index], ex.now.mono_us) * whole as f64 / share as f64
        };
        Some(if cost(second) < cost(first) { second } else { first })
    }

    #[inline]
    fn started(&self, endpoints: &[Endpoint], index: usize) {
        count_active(endpoints, index);
    }

    #[inline]
    fn answered(&self, endpoints: &[Endpoint], index: usize, duration_us: u64, now_us: u64) {
        // The attempt may have begun under another snapshot with more endpoints.
        if let Some(endpoint) = endpoints.get(index) {
            observe(&endpoint.state, duration_us, now_us);
        }
    }

    #[inline]
    fn ended(&self, endpoints: &[Endpoint], index: usize) {
        uncount_active(endpoints, index);
    }
}

/// The first endpoint of the pool at or after `start`, around the end, other than `not`.
fn from(pool: &EndpointCandidates<'_>, start: usize, not: Option<usize>) -> Option<usize> {
    let count = pool.endpoints.len();
    (start..count).chain(0..start).find(|index| Some(*index) != not && pool.has(*index))
}

/// The expected wait: the average, times the exchanges in flight plus one, by weight. Whole microseconds, so that
/// averages that have faded for long are equal.
fn cost(endpoint: &Endpoint, now_us: u64) -> f64 {
    let state = &endpoint.state;
    // An endpoint without requests recovers its chance in time; otherwise it would never be measured again.
    let average = state.ewma_us.load(Relaxed) as f64 * left(state, now_us);
    // At zero, every endpoint would cost the same whatever its load.
    (average.floor() + 1.0) * f64::from(state.active.load(Relaxed) + 1) / f64::from(endpoint.weight)
}

/// The share of the average that is left at this time.
fn left(state: &EndpointState, now_us: u64) -> f64 {
    let idle_us = now_us.saturating_sub(state.ewma_at_us.load(Relaxed));
    (-(idle_us as f64) / DECAY_US).exp()
}

/// A slower response raises the average at once; a faster one lowers it gradually. Workers may overwrite each other's
/// observations, which an average tolerates.
fn observe(state: &EndpointState, duration_us: u64, now_us: u64) {
    let left = left(state, now_us);
    let average = state.ewma_us.load(Relaxed);
    let blended = average as f64 * left + duration_us as f64 * (1.0 - left);
    // The peak counts at once, so a stalling endpoint is avoided before the average has followed.
    let next = if duration_us > average { duration_us } else { blended as u64 };
    state.ewma_us.store(next, Relaxed);
    state.ewma_at_us.store(now_us, Relaxed);
}
