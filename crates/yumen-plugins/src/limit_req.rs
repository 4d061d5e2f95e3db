//! `limit-req`: a leaky bucket per key. Requests above the rate are delayed, those above the burst are
//! refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, LocalResponse, Now, PhaseSet, Plugin, PluginBuildContext,
    PluginFactory, Step,
};

use crate::limits::remote::RedisPolicySettings;
use crate::limits::table::{KeyedState, TableShare, share};
use crate::limits::{
    CounterPolicy, LimitKey, LimitKeyType, refusal, rejected_code, schema, wait, with_scratch,
};

mod redis;
#[cfg(test)]
mod tests;

use redis::LimitReqRedis;

/// Settings of `limit-req`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("encrypt_fields" = ["redis_password"]), transform = schema::redis)]
pub(crate) struct LimitReqSettings {
    /// Requests per second.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub rate: f64,
    /// Most requests above the rate, which are delayed.
    #[schemars(range(min = 0))]
    pub burst: f64,
    /// Key; each value has its own bucket.
    pub key: String,
    /// Form of the key.
    #[serde(default)]
    #[schemars(schema_with = "schema::key_type")]
    pub key_type: LimitKeyType,
    /// Storage of the buckets.
    #[serde(default)]
    #[schemars(schema_with = "schema::policy")]
    pub policy: CounterPolicy,
    /// Status of the refusal.
    #[serde(default = "rejected_code")]
    #[schemars(range(min = 200, max = 599))]
    pub rejected_code: u16,
    /// Message in the body of the refusal.
    #[schemars(length(min = 1))]
    pub rejected_msg: Option<String>,
    /// Whether requests within the burst pass without delay.
    #[serde(default)]
    pub nodelay: bool,
    /// Whether requests pass if Redis fails. Local buckets cannot fail.
    #[serde(default)]
    pub allow_degradation: bool,
    /// Settings of the Redis policies.
    #[serde(flatten)]
    #[schemars(skip)]
    pub redis: RedisPolicySettings,
}

/// The level of a bucket, stored as the time at which the bucket is empty, in nanoseconds of the monotonic
/// clock. One word, so that concurrent updates are atomic.
#[derive(Debug, Default)]
pub(crate) struct LeakyBucket {
    empty_at_ns: AtomicU64,
}

impl KeyedState for LeakyBucket {
    fn useless_at_ms(&self) -> Option<u64> {
        Some(self.empty_at_ns.load(Relaxed).div_ceil(1_000_000))
    }

    fn numbers(&self) -> Option<Vec<u64>> {
        Some(vec![self.empty_at_ns.load(Relaxed)])
    }

    /// The fuller level of the two processes; levels are not added.
    fn take_over(&mut self, numbers: &[u64], _now: Now) {
        if let [empty_at_ns] = *numbers {
            self.empty_at_ns.fetch_max(empty_at_ns, Relaxed);
        }
    }

    fn since(before: Option<&[u64]>, now: &[u64]) -> Option<Vec<u64>> {
        (before != Some(now)).then(|| now.to_vec())
    }
}

impl LeakyBucket {
    /// Adds a request and returns the excess over the rate in thousandths of a request; `None` above the
    /// burst.
    fn pour(&self, pace: &BucketRate, now: Now) -> Option<u64> {
        let now_ns = now.mono_us.saturating_mul(1000);
        let pour = |empty_at_ns: u64| {
            // A bucket that was empty for a while admits no more than an empty one.
            let fits = pace.fits(pace.excess(empty_at_ns, now_ns));
            fits.then(|| empty_at_ns.max(now_ns).saturating_add(pace.request_ns))
        };
        let before = self.empty_at_ns.fetch_update(Relaxed, Relaxed, pour).ok()?;
        Some(pace.excess(before, now_ns))
    }

    /// The result of [`LeakyBucket::pour`] without adding a request.
    fn peek(&self, pace: &BucketRate, now: Now) -> Option<u64> {
        let excess = pace.excess(self.empty_at_ns.load(Relaxed), now.mono_us.saturating_mul(1000));
        pace.fits(excess).then_some(excess)
    }
}

#[derive(Debug)]
struct BucketRate {
    /// Requests per second.
    rate: f64,
    /// Excess over the rate, in requests.
    burst: f64,
    /// Time in which the bucket leaks one request.
    request_ns: u64,
}

impl BucketRate {
    /// Excess over the rate in thousandths of a request.
    fn excess(&self, empty_at_ns: u64, now_ns: u64) -> u64 {
        (empty_at_ns.saturating_sub(now_ns) as f64 / 1e6 * self.rate) as u64
    }

    fn fits(&self, excess: u64) -> bool {
        excess as f64 <= self.burst * 1000.0
    }
}

/// The compiled settings with the buckets.
pub(crate) struct LimitReq {
    key: LimitKey,
    pace: BucketRate,
    waits: bool,
    rejected: LocalResponse,
    buckets: Arc<TableShare<LeakyBucket>>,
    /// Redis buckets; `None` with the policy `local`.
    remote: Option<LimitReqRedis>,
}

impl PluginFactory for LimitReq {
    const NAME: &'static str = "limit-req";
    const PRIORITY: i32 = 1001;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = LimitReqSettings;

    fn build(config: LimitReqSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let name = format!("{}/{}", setup.owner, meaning(&config));
        Ok(LimitReq {
            key: LimitKey::new(&config.key, config.key_type),
            pace: BucketRate {
                rate: config.rate,
                burst: config.burst,
                request_ns: (1e9 / config.rate) as u64,
            },
            waits: !config.nodelay,
            rejected: refusal(config.rejected_code, config.rejected_msg.as_deref()),
            buckets: share(setup, Self::NAME, &name, 1),
            remote: LimitReqRedis::new(&config, setup)?,
        })
    }
}

/// The settings that identify a limit, here and in Redis. Other settings may change and the limit keeps its
/// buckets.
fn meaning(config: &LimitReqSettings) -> String {
    let LimitReqSettings { rate, burst, key, key_type, .. } = config;
    format!("{rate} {burst} {key} {key_type:?}")
}

impl Plugin for LimitReq {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if let Some(remote) = &self.remote {
            return self.ask(remote, ex);
        }
        let Some(excess) = with_scratch(|scratch| self.pour(ex, scratch)) else {
            return Step::Respond(self.rejected.clone());
        };
        if !self.waits {
            return Step::Continue;
        }
        // The excess is in thousandths of a request, as in NGINX.
        wait(ex, excess as f64 / 1000.0 / self.pace.rate)
    }

    fn dry_run(&self, _phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        if self.remote.is_some() {
            return DryRunResult::Note("depends on the bucket in Redis".into());
        }
        let Some(excess) = with_scratch(|scratch| self.peek(ex, scratch)) else {
            return DryRunResult::Respond(self.rejected.clone());
        };
        if !self.waits || excess == 0 {
            return DryRunResult::Continue;
        }
        let wait_s = excess as f64 / 1000.0 / self.pace.rate;
        DryRunResult::Note(format!("above the rate: waits {wait_s:.3} s").into())
    }
}

impl LimitReq {
    fn peek(&self, ex: &Exchange<'_>, key: &mut Vec<u8>) -> Option<u64> {
        self.buckets.begin(0, key);
        self.key.write(ex, key);
        let peek = |bucket: &LeakyBucket| Some(bucket.peek(&self.pace, ex.now));
        // A key without a bucket is below its rate.
        self.buckets.table().look(key, peek).unwrap_or(Some(0))
    }

    fn pour(&self, ex: &Exchange<'_>, key: &mut Vec<u8>) -> Option<u64> {
        self.buckets.begin(0, key);
        self.key.write(ex, key);
        let table = self.buckets.table();
        let pour = |bucket: &LeakyBucket| bucket.pour(&self.pace, ex.now);
        // First under the read lock of the table: most keys exist already.
        table
            .look(key, |bucket| Some(pour(bucket)))
            .unwrap_or_else(|| table.change(key, ex.now.mono_ms(), |bucket| pour(bucket)))
    }
}
