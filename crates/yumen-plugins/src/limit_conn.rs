//! `limit-conn`: limits the concurrent exchanges per key. Exchanges above the limit are delayed, those above
//! the burst are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, LocalResponse, Now, PhaseSet, Plugin, PluginBuildContext,
    PluginFactory, ServedTraffic, Step,
};

use crate::limits::remote::RedisPolicySettings;
use crate::limits::table::{KeyedState, TableShare, share};
use crate::limits::{
    CounterPolicy, LimitAmount, LimitKey, LimitKeyType, LimitQuantity, end_key_of_rule, refusal,
    rejected_code, schema, undecided, wait, with_scratch,
};

mod redis;
#[cfg(test)]
mod tests;

use redis::LimitConnRedis;

/// One of several limits.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct LimitConnRuleSettings {
    /// Most concurrent exchanges without delay.
    pub conn: LimitAmount<1>,
    /// Most further exchanges, which are delayed.
    pub burst: LimitAmount<0>,
    /// Key, a template. The rule does not apply if none of its variables has a value.
    pub key: String,
}

/// Settings of `limit-conn`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(
    extend("oneOf" = [
        {"required": ["conn", "burst", "default_conn_delay", "key"]},
        {"required": ["default_conn_delay", "rules"]}
    ]),
    extend("encrypt_fields" = ["redis_password"]),
    transform = schema::redis_with_ttl
)]
pub(crate) struct LimitConnSettings {
    /// Most concurrent exchanges without delay. A text with `$variables` must yield an integer from 1: an exchange for
    /// which it does not is answered 500, or passes with `allow_degradation`.
    pub conn: Option<LimitAmount<1>>,
    /// Most further exchanges, which are delayed.
    pub burst: Option<LimitAmount<0>>,
    /// Delay in seconds of an exchange above the limit.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub default_conn_delay: Option<f64>,
    /// Accepted without effect: the delay is always `default_conn_delay`.
    #[serde(default)]
    #[allow(dead_code, reason = "settings that other gateways took are accepted")]
    pub only_use_default_delay: bool,
    /// Key; the exchanges of each value are counted separately.
    pub key: Option<String>,
    /// Form of the key.
    #[serde(default)]
    #[schemars(schema_with = "schema::key_type")]
    pub key_type: LimitKeyType,
    /// Storage of the counters.
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
    /// Whether requests pass if the limit cannot be determined.
    #[serde(default)]
    pub allow_degradation: bool,
    /// Several limits instead of one.
    #[schemars(length(min = 1))]
    pub rules: Option<Vec<LimitConnRuleSettings>>,
    /// Seconds after which Redis drops an exchange whose node does not renew it.
    #[schemars(skip)]
    pub key_ttl: Option<i64>,
    /// Settings of the Redis policies.
    #[serde(flatten)]
    #[schemars(skip)]
    pub redis: RedisPolicySettings,
}

/// The number of concurrent exchanges with one key.
#[derive(Debug, Default)]
pub(crate) struct KeyedConcurrency {
    here: Arc<AtomicU64>,
    /// Exchanges of the predecessor, as it last exported them during a handover.
    before: AtomicU64,
}

impl KeyedState for KeyedConcurrency {
    fn useless_at_ms(&self) -> Option<u64> {
        // Guards hold the counter too. No new guard can appear meanwhile, because the caller holds the
        // table's lock.
        let is_idle = Arc::strong_count(&self.here) == 1 && self.before.load(Ordering::Relaxed) == 0;
        is_idle.then_some(0)
    }

    fn numbers(&self) -> Option<Vec<u64>> {
        Some(self.count()).filter(|count| *count > 0).map(|count| vec![count])
    }

    fn take_over(&mut self, numbers: &[u64], _now: Now) {
        if let [running] = *numbers {
            self.before.store(running, Ordering::Relaxed);
        }
    }

    fn ended() -> Option<Vec<u64>> {
        Some(vec![0])
    }

    fn go_on_alone(&self) {
        self.before.store(0, Ordering::Relaxed);
    }

    fn since(before: Option<&[u64]>, now: &[u64]) -> Option<Vec<u64>> {
        (before != Some(now)).then(|| now.to_vec())
    }
}

/// Counts one exchange until it is dropped.
struct LimitConnGuard(Arc<AtomicU64>);

impl Drop for LimitConnGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl KeyedConcurrency {
    /// Counts one more exchange and returns the new number, or `None` at `most`.
    fn enter(&self, most: u64) -> Option<(LimitConnGuard, u64)> {
        // Relaxed: the count publishes no other memory.
        let before = self.before.load(Ordering::Relaxed);
        let more = |running: u64| (running.saturating_add(before) < most).then_some(running + 1);
        let running = self.here.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some((LimitConnGuard(self.here.clone()), running.saturating_add(before) + 1))
    }

    /// The number of exchanges in this process and in its predecessor.
    fn count(&self) -> u64 {
        self.here.load(Ordering::Relaxed).saturating_add(self.before.load(Ordering::Relaxed))
    }
}

struct LimitConnRule {
    key: LimitKey,
    conn: LimitQuantity<1>,
    burst: LimitQuantity<0>,
}

/// The compiled settings with the counters.
pub(crate) struct LimitConn {
    rules: Box<[LimitConnRule]>,
    /// The object with the settings, for reports.
    owner: Box<str>,
    /// Whether the limits come from `rules`, which do not apply without a value of their key.
    is_ruled: bool,
    delay_s: f64,
    rejected: LocalResponse,
    allow_degradation: bool,
    running: Arc<TableShare<KeyedConcurrency>>,
    /// Redis counters; `None` with the policy `local`.
    remote: Option<LimitConnRedis>,
}

impl PluginFactory for LimitConn {
    const NAME: &'static str = "limit-conn";
    const PRIORITY: i32 = 1003;
    const ROLE: AccessRole = AccessRole::Guard;
    const SERVES: ServedTraffic = ServedTraffic::Both;
    type Config = LimitConnSettings;

    fn build(config: LimitConnSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let name = format!("{}/{}", setup.owner, meaning(&config));
        let rules = rules(&config)?;
        Ok(LimitConn {
            running: share(setup, Self::NAME, &name, rules.len()),
            rules,
            owner: setup.owner.into(),
            is_ruled: config.rules.is_some(),
            delay_s: config
                .default_conn_delay
                .ok_or_else(|| InvalidSettings::new("default_conn_delay is needed"))?,
            rejected: refusal(config.rejected_code, config.rejected_msg.as_deref()),
            allow_degradation: config.allow_degradation,
            remote: LimitConnRedis::new(&config, setup)?,
        })
    }
}

/// The settings that identify a limit, here and in Redis. Other settings may change and the limit keeps its
/// counters.
fn meaning(config: &LimitConnSettings) -> String {
    let LimitConnSettings { conn, burst, key, key_type, rules, .. } = config;
    format!("{conn:?} {burst:?} {key:?} {key_type:?} {rules:?}")
}

fn rules(config: &LimitConnSettings) -> Result<Box<[LimitConnRule]>, InvalidSettings> {
    if let Some(rules) = &config.rules {
        let rule = |(at, rule): (usize, &LimitConnRuleSettings)| {
            Ok(LimitConnRule {
                key: LimitKey::new(&rule.key, LimitKeyType::VarCombination),
                conn: LimitQuantity::new(&rule.conn, format!("rules[{at}].conn"))?,
                burst: LimitQuantity::new(&rule.burst, format!("rules[{at}].burst"))?,
            })
        };
        return rules.iter().enumerate().map(rule).collect();
    }
    let (Some(conn), Some(burst), Some(key)) = (&config.conn, &config.burst, &config.key) else {
        return Err(InvalidSettings::new("conn, burst and key, or rules, are needed"));
    };
    let key = LimitKey::new(key, config.key_type);
    let (conn, burst) = (LimitQuantity::new(conn, "conn")?, LimitQuantity::new(burst, "burst")?);
    Ok(Box::new([LimitConnRule { key, conn, burst }]))
}

impl Plugin for LimitConn {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if let Some(remote) = &self.remote {
            return self.ask(remote, ex);
        }
        let count = |ex: &Exchange<'_>, key: &[u8], most| {
            self.count(ex, key, most).map(|(guard, running)| (Some(guard), running))
        };
        match with_scratch(|scratch| self.enter(ex, scratch, count)) {
            Ok(delay_s) => wait(ex, delay_s),
            Err(response) => Step::Respond(response),
        }
    }

    fn dry_run(&self, _phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        if self.remote.is_some() {
            return DryRunResult::Note("depends on the count in Redis".into());
        }
        let peek = |_: &Exchange<'_>, key: &[u8], most| {
            let running = self.running.table().look(key, |running| Some(running.count()));
            let running = running.unwrap_or(0);
            (running < most).then_some((None, running + 1))
        };
        match with_scratch(|scratch| self.enter(ex, scratch, peek)) {
            Ok(0.0) => DryRunResult::Continue,
            Ok(delay_s) => DryRunResult::Note(format!("above the limit: waits {delay_s} s").into()),
            Err(response) => DryRunResult::Respond(response),
        }
    }
}

impl LimitConn {
    /// Counts the exchange under every rule that applies, and returns the total delay in seconds.
    fn enter(
        &self,
        ex: &mut Exchange<'_>,
        scratch: &mut Vec<u8>,
        count: impl Fn(&Exchange<'_>, &[u8], u64) -> Option<(Option<LimitConnGuard>, u64)>,
    ) -> Result<f64, LocalResponse> {
        let mut applying = 0;
        let mut delay_s = 0.0;
        for (at, rule) in self.rules.iter().enumerate() {
            scratch.clear();
            self.running.begin(at, scratch);
            let has_key = self.write_key(at, ex, scratch);
            let (conn, burst) = (rule.conn.get(ex, scratch), rule.burst.get(ex, scratch));
            let (Some(conn), Some(burst), true) = (conn, burst, has_key || !self.is_ruled) else {
                continue;
            };
            applying += 1;
            let most = conn.saturating_add(burst);
            let Some((guard, running)) = count(ex, scratch, most) else {
                // The guards of earlier rules are released with the exchange.
                return Err(self.rejected.clone());
            };
            if let Some(guard) = guard {
                ex.leave(guard);
            }
            // One delay for each full multiple of `conn` that is already in flight.
            delay_s += self.delay_s * ((running - 1) / conn) as f64;
        }
        // Fails closed: no rule limits the exchange.
        if applying == 0 {
            undecided(ex, Self::NAME, &self.owner, self.allow_degradation)?;
        }
        Ok(delay_s)
    }

    /// Appends the key of the exchange under a rule; returns whether the key had a value.
    fn write_key(&self, rule: usize, ex: &Exchange<'_>, out: &mut Vec<u8>) -> bool {
        let has_key = self.rules[rule].key.write(ex, out);
        if self.is_ruled {
            end_key_of_rule(rule, out);
        }
        has_key
    }

    fn count(&self, ex: &Exchange<'_>, key: &[u8], most: u64) -> Option<(LimitConnGuard, u64)> {
        let table = self.running.table();
        // First under the read lock of the table: most keys exist already.
        table
            .look(key, |running| Some(running.enter(most)))
            .unwrap_or_else(|| table.change(key, ex.now.mono_ms(), |running| running.enter(most)))
    }
}
