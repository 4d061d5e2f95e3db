//! Least connections: the endpoint with the fewest exchanges in flight for its weight.

use std::sync::atomic::Ordering::Relaxed;

use yumen_plugin::Exchange;

use super::policy::{BalancingPolicy, PolicyContext};
use super::{EndpointCandidates, count_active, uncount_active};
use crate::endpoint::Endpoint;

/// The policy `least_conn`.
#[derive(Debug, Default)]
pub struct LeastConn;

impl BalancingPolicy for LeastConn {
    const NAME: &'static str = "least_conn";

    fn build(_: &PolicyContext<'_>) -> LeastConn {
        LeastConn
    }

    /// Ties are broken at random, so that idle endpoints share evenly.
    fn pick(&self, pool: &EndpointCandidates<'_>, ex: &Exchange<'_>) -> Option<usize> {
        let mut best: Option<(usize, u64, u64)> = None;
        let mut ties = 1;
        for (index, endpoint) in pool.iter() {
            let (share, whole) = pool.share(index);
            // The request itself counts, so that weights decide among idle endpoints.
            let load = (u64::from(endpoint.state.active.load(Relaxed)) + 1).saturating_mul(whole);
            let weight = u64::from(endpoint.weight) * share;
            // Compares load / weight with that of the best endpoint, without a division.
            let order = best.map_or(std::cmp::Ordering::Less, |(_, best_load, best_weight)| {
                load.saturating_mul(best_weight).cmp(&best_load.saturating_mul(weight))
            });
            match order {
                std::cmp::Ordering::Less => {
                    best = Some((index, load, weight));
                    ties = 1;
                }
                std::cmp::Ordering::Equal => {
                    ties += 1;
                    // Reservoir sampling: each of n equal endpoints is chosen with probability 1/n, in one pass.
                    if ex.host.random().is_multiple_of(ties) {
                        best = Some((index, load, weight));
                    }
                }
                std::cmp::Ordering::Greater => {}
            }
        }
        best.map(|(index, _, _)| index)
    }

    #[inline]
    fn started(&self, endpoints: &[Endpoint], index: usize) {
        count_active(endpoints, index);
    }

    #[inline]
    fn ended(&self, endpoints: &[Endpoint], index: usize) {
        uncount_active(endpoints, index);
    }
}
