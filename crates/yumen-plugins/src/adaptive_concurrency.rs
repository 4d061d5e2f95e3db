//! `adaptive-concurrency`: limits the exchanges in flight to the number that the upstream serves without
//! added latency. The limit is derived from measured latency; exchanges above it are refused.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_http::ResponseHead;
use yumen_plugin::{
    DryRunResult, Exchange, ExchangeOutcome, LocalResponse, PhaseSet, Plugin, PluginBuildContext,
    PluginFactory, ResponseHeadPhase, Step, UpstreamRequestPhase,
};

mod limiter;
mod metrics;

use limiter::{AdaptiveLimitGuard, AdaptiveLimitRules, AdaptiveLimiter, ConcurrencySample};
pub use metrics::{AdaptiveLimiters, example, metrics};

/// Settings of `adaptive-concurrency`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct AdaptiveConcurrencySettings {
    /// Smallest concurrency limit, and the limit while the baseline latency is measured.
    #[serde(default = "min_concurrency")]
    #[schemars(range(min = 1, max = 1000000))]
    min_concurrency: u32,
    /// Largest concurrency limit.
    #[serde(default = "max_concurrency")]
    #[schemars(range(min = 1, max = 1000000))]
    max_concurrency: u32,
    /// Concurrency limit before the first adjustment.
    #[serde(default = "initial_concurrency")]
    #[schemars(range(min = 1, max = 1000000))]
    initial_concurrency: u32,
    /// Latency above the baseline, in percent, up to which the limit does not shrink.
    #[serde(default = "tolerance_percent")]
    #[schemars(range(min = 0, max = 1000))]
    tolerance_percent: u32,
    /// Interval between two adjustments of the limit, in seconds.
    #[serde(default = "window")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    window: f64,
    /// Interval between two measurements of the baseline latency, in seconds. Each interval varies by up to a
    /// tenth, so that the nodes do not measure at the same time.
    #[serde(default = "measure_interval")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    measure_interval: f64,
    /// Number of exchanges in one measurement of the baseline latency.
    #[serde(default = "measure_requests")]
    #[schemars(range(min = 1, max = 100000))]
    measure_requests: u32,
    /// Status of the refusal.
    #[serde(default = "rejected_code")]
    #[schemars(range(min = 200, max = 599))]
    rejected_code: u16,
    /// Message in the body of the refusal.
    #[serde(default = "rejected_msg")]
    #[schemars(length(min = 1))]
    rejected_msg: String,
}

fn min_concurrency() -> u32 {
    3
}

fn max_concurrency() -> u32 {
    1000
}

fn initial_concurrency() -> u32 {
    20
}

fn tolerance_percent() -> u32 {
    25
}

fn window() -> f64 {
    0.1
}

fn measure_interval() -> f64 {
    60.0
}

fn measure_requests() -> u32 {
    50
}

fn rejected_code() -> u16 {
    503
}

fn rejected_msg() -> String {
    "the upstream is at its concurrency limit".to_owned()
}

/// The compiled settings: the shared limiter and the response for refused exchanges.
pub(crate) struct AdaptiveConcurrency {
    limiter: Arc<AdaptiveLimiter>,
    rejected: LocalResponse,
    _shown: Arc<AdaptiveLimiters>,
}

impl PluginFactory for AdaptiveConcurrency {
    const NAME: &'static str = "adaptive-concurrency";
    const PRIORITY: i32 = 1001;
    type Config = AdaptiveConcurrencySettings;

    fn build(
        config: AdaptiveConcurrencySettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<Self, InvalidSettings> {
        if config.min_concurrency > config.max_concurrency {
            let message = "`min_concurrency` is larger than `max_concurrency`";
            return Err(InvalidSettings::at("min_concurrency", message));
        }
        // Bounds the settings so that sums of two times cannot overflow.
        const LONGEST_US: u64 = 365 * 86_400 * 1_000_000;
        let micros = |seconds: f64| ((seconds * 1e6).ceil() as u64).clamp(1, LONGEST_US);
        let rules = AdaptiveLimitRules {
            min: config.min_concurrency,
            max: config.max_concurrency,
            first: config.initial_concurrency.clamp(config.min_concurrency, config.max_concurrency),
            tolerance: 1.0 + f64::from(config.tolerance_percent) / 100.0,
            window_us: micros(config.window),
            measure_interval_us: micros(config.measure_interval),
            measure_requests: config.measure_requests,
        };
        // The rules are part of the name, so that changed settings begin with a new limiter.
        let name = format!("adaptive-concurrency {} {rules:?}", setup.owner);
        let limiter = setup.carry.keep(&name, || AdaptiveLimiter::new(rules));
        let shown = metrics(setup.carry);
        shown.show(setup.owner, &limiter);
        let rejected =
            LocalResponse::error_msg(config.rejected_code, &config.rejected_msg).field("Retry-After", "1");
        Ok(AdaptiveConcurrency { limiter, rejected, _shown: shown })
    }
}

impl AdaptiveConcurrency {
    /// The guard of this limiter. A global rule may have left a guard of another limiter in the exchange.
    fn guard<'e>(&self, ex: &'e Exchange<'_>) -> Option<&'e AdaptiveLimitGuard> {
        ex.notes::<AdaptiveLimitGuard>().find(|guard| guard.is_of(&self.limiter))
    }

    fn learn(&self, ex: &Exchange<'_>, guard: &AdaptiveLimitGuard, sample: ConcurrencySample, now_us: u64) {
        self.limiter.learn(guard, sample, now_us, ex.host.random());
    }
}

impl Plugin for AdaptiveConcurrency {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS | PhaseSet::UPSTREAM_REQUEST | PhaseSet::RESPONSE_HEAD | PhaseSet::LOG
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        match AdaptiveLimitGuard::enter(&self.limiter, ex.now.mono_us) {
            Some(guard) => {
                ex.leave(guard);
                Step::Continue
            }
            None => Step::Respond(self.rejected.clone()),
        }
    }

    fn upstream_request(&self, ex: &mut UpstreamRequestPhase<'_, '_>) {
        if let Some(guard) = self.guard(ex) {
            guard.note_attempt(ex.host.clock().mono_us);
        }
    }

    /// Measures and counts up to the response head: the time in which clients read, or a tunnel stays open,
    /// is no property of the upstream, and a few slow clients would block all others.
    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, _head: &mut ResponseHead) {
        let ex = &*ex;
        let Some(guard) = self.guard(ex) else { return };
        let now_us = ex.host.clock().mono_us;
        match (ex.endpoint.status, guard.took_us(now_us)) {
            // The response is not from the upstream.
            (0, _) | (_, None) => {}
            // Statuses by which an upstream reports overload or a timeout (RFC 9110 §15.6).
            (503 | 504, _) => self.learn(ex, guard, ConcurrencySample::Overload, now_us),
            (_, Some(took_us)) => self.learn(ex, guard, ConcurrencySample::Latency(took_us), now_us),
        }
        guard.release();
    }

    /// Counts an upstream failure before or after the response head. A client that disconnected is no failure
    /// of the upstream.
    fn log(&self, ex: &Exchange<'_>, outcome: &ExchangeOutcome<'_>) {
        if outcome.upstream_failure.is_some()
            && let Some(guard) = self.guard(ex)
        {
            self.learn(ex, guard, ConcurrencySample::Overload, ex.host.clock().mono_us);
        }
    }

    fn dry_run(&self, phase: PhaseSet, _ex: &mut Exchange<'_>) -> DryRunResult {
        if phase != PhaseSet::ACCESS {
            return DryRunResult::Continue;
        }
        let (running, limit) = (self.limiter.limited(), self.limiter.limit());
        if running >= limit {
            return DryRunResult::Respond(self.rejected.clone());
        }
        DryRunResult::Note(format!("{running} of {limit} exchanges under way").into())
    }
}

#[cfg(test)]
mod tests;
