//! The interface of load balancing policies, and the table of them.
//!
//! Health, priority and slow start are decided in the [`EndpointCandidates`], not here.

use std::sync::Arc;

use yumen_config::resource as config;
use yumen_plugin::{Carry, Exchange};

use super::EndpointCandidates;
use super::consistent_hash::ConsistentHash;
use super::ewma::Ewma;
use super::least_conn::LeastConn;
use super::round_robin::{RoundRobin, RoundRobinState};
use crate::endpoint::Endpoint;

/// Input to the construction of a policy for one upstream.
pub(crate) struct PolicyContext<'c> {
    /// The upstream as written, for settings of the policy.
    pub(crate) written: &'c config::UpstreamSpec,
    /// The stable name of the upstream, for names of carried state.
    pub(crate) origin: &'c str,
    /// The endpoints, in the order of the indexes that a policy picks.
    pub(crate) endpoints: &'c [Endpoint],
    /// The number of workers.
    pub(crate) workers: usize,
    /// State that outlives the snapshot.
    pub(crate) carry: &'c Carry,
    /// Shared positions for upstreams without a choice of endpoints; they never advance.
    pub(crate) no_turns: &'c Arc<RoundRobinState>,
}

/// A load balancing policy: picks one of several endpoints for an attempt.
///
/// All workers use one value at the same time. The methods run on the request path, so they neither lock nor allocate.
/// An upstream with a single endpoint does not call its policy.
pub(super) trait BalancingPolicy {
    /// The value of `type` of an upstream.
    const NAME: &'static str;

    /// Whether a pick changes the next one, so that `explain` needs [`BalancingPolicy::peek`].
    const TAKES_TURNS: bool = false;

    /// Builds the policy of an upstream.
    fn build(context: &PolicyContext<'_>) -> Self;

    /// Disables [`BalancingPolicy::pick_unchecked`]: each pick needs the candidates.
    fn require_pool(&mut self) {}

    /// Picks an endpoint for a first attempt without candidates; `None` if that is not possible.
    #[inline]
    fn pick_unchecked(&self, _worker: usize) -> Option<usize> {
        None
    }

    /// Picks a candidate; returns its index in the upstream.
    fn pick(&self, pool: &EndpointCandidates<'_>, ex: &Exchange<'_>) -> Option<usize>;

    /// The result of the next pick for a first attempt, without a change of state.
    fn peek(&self, pool: &EndpointCandidates<'_>, ex: &Exchange<'_>) -> Option<usize> {
        self.pick(pool, ex)
    }

    /// Records the start of an attempt.
    #[inline]
    fn started(&self, _endpoints: &[Endpoint], _index: usize) {}

    /// Records the response time of an attempt, or the time until its timeout. [`BalancingPolicy::ended`] follows.
    #[inline]
    fn answered(&self, _endpoints: &[Endpoint], _index: usize, _duration_us: u64, _now_us: u64) {}

    /// Records the end of an attempt, with or without a response.
    #[inline]
    fn ended(&self, _endpoints: &[Endpoint], _index: usize) {}
}

/// Makes [`Balancer`] from the table: an enum with one variant per policy, so that a pick costs one branch and no
/// dynamic call.
macro_rules! balancing_policies {
    ($(#[doc = $doc:literal] $written:ident => $policy:ident,)+) => {
        /// The load balancing policy of an upstream.
        #[derive(Debug)]
        pub enum Balancer {
            $(#[doc = $doc] $policy($policy),)+
        }

        impl Balancer {
            /// Builds the policy that an upstream names as its `type`.
            pub(crate) fn build(context: &PolicyContext<'_>) -> Balancer {
                match context.written.balance {
                    $(config::BalancerType::$written => Balancer::$policy($policy::build(context)),)+
                }
            }

            /// The name of the policy, as `type` of an upstream.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Balancer::$policy(_) => $policy::NAME,)+
                }
            }

            pub(crate) fn takes_turns(&self) -> bool {
                match self {
                    $(Balancer::$policy(_) => $policy::TAKES_TURNS,)+
                }
            }

            /// Has each pick look at the endpoints.
            pub(crate) fn require_pool(&mut self) {
                match self {
                    $(Balancer::$policy(policy) => policy.require_pool(),)+
                }
            }

            #[inline]
            pub(crate) fn pick_unchecked(&self, worker: usize) -> Option<usize> {
                match self {
                    $(Balancer::$policy(policy) => policy.pick_unchecked(worker),)+
                }
            }

            #[inline]
            pub(crate) fn pick(&self, pool: &EndpointCandidates<'_>, ex: &Exchange<'_>) -> Option<usize> {
                match self {
                    $(Balancer::$policy(policy) => policy.pick(pool, ex),)+
                }
            }

            pub(crate) fn peek(&self, pool: &EndpointCandidates<'_>, ex: &Exchange<'_>) -> Option<usize> {
                match self {
                    $(Balancer::$policy(policy) => policy.peek(pool, ex),)+
                }
            }

            #[inline]
            pub(crate) fn started(&self, endpoints: &[Endpoint], index: usize) {
                match self {
                    $(Balancer::$policy(policy) => policy.started(endpoints, index),)+
                }
            }

            #[inline]
            pub(crate) fn answered(
                &self,
                endpoints: &[Endpoint],
                index: usize,
                duration_us: u64,
                now_us: u64,
            ) {
                match self {
                    $(Balancer::$policy(policy) => {
                        policy.answered(endpoints, index, duration_us, now_us);
                    })+
                }
            }

            #[inline]
            pub(crate) fn ended(&self, endpoints: &[Endpoint], index: usize) {
                match self {
                    $(Balancer::$policy(policy) => policy.ended(endpoints, index),)+
                }
            }
        }
    };
}

balancing_policies! {
    /// In turn, by weight.
    Roundrobin => RoundRobin,
    /// By consistent hash of a part of the request.
    Chash => ConsistentHash,
    /// The endpoint with the fewest attempts under way, by weight.
    LeastConn => LeastConn,
    /// The better of two endpoints drawn by lot, by their recent response times.
    Ewma => Ewma,
}
