//! `limit-conn`: limits concurrent exchanges per key. Exchanges above the limit are delayed; those above the
//! burst are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    DryRunResult, Exchange, LocalResponse, Now, PhaseSet, Plugin, PluginBuildContext, PluginFactory,
    ServedTraffic, Step,
};

use crate::limits::remote::RedisPolicySettings;
use crate::limits::table::{KeyedState, TableShare, share};
use crate::limits::{
    CounterPolicy, LimitAmount, LimitKey, LimitKeyType, LimitQuantity, end_key_of_rule, refusal,
    rejected_code, schema, wait, with_scratch,
};

mod redis;
#[cfg(test)]
mod tests;

use redis::LimitConnRedis;

/// One of several limits.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct LimitConnRuleSettings {
    /// Exchanges at a time.
    pub conn: LimitAmount<1>,
    /// Exchanges that may wait.
    pub burst: LimitAmount<0>,
    /// A text with variables; the rule does not apply where none of them has a value.
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
    /// Exchanges at a time.
    pub conn: Option<LimitAmount<1>>,
    /// Exchanges that may wait.
    pub burst: Option<LimitAmount<0>>,
    /// Seconds that an exchange above the limit waits.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub default_conn_delay: Option<f64>,
    /// Whether waiting is told by `default_conn_delay` alone, which it always is.
    #[serde(default)]
    #[allow(dead_code, reason = "settings that other gateways took are accepted")]
    pub only_use_default_delay: bool,
    /// What exchanges are told apart by.
    pub key: Option<String>,
    /// How the key is understood.
    #[serde(default)]
    #[schemars(schema_with = "schema::key_type")]
    pub key_type: LimitKeyType,
    /// Where the counters are kept.
    #[serde(default)]
    #[schemars(schema_with = "schema::policy")]
    pub policy: CounterPolicy,
    /// Status of the refusal.
    #[serde(default = "rejected_code")]
    #[schemars(range(min = 200, max = 599))]
    pub rejected_code: u16,
    /// What a refused client is told.
    #[schemars(length(min = 1))]
    pub rejected_msg: Option<String>,
    /// Whether requests pass where the limit cannot be told.
    #[serde(default)]
    pub allow_degradation: bool,
    /// Several limits instead of one.
    pub rules: Option<Vec<LimitConnRuleSettings>>,
    /// Seconds after which Redis forgets an exchange whose node has died.
    #[schemars(skip)]
    pub key_ttl: Option<i64>,
    /// What the Redis policies ask for.
    #[serde(flatten)]
    #[schemars(skip)]
    pub redis: RedisPolicySettings,
}

/// Number of exchanges of a key.
#[derive(Debug, Default)]
pub(crate) struct KeyedConcurrency {
    here: Arc<AtomicU64>,
    /// Number in the predecessor process, as last exported.
    before: AtomicU64,
}

impl KeyedState for KeyedConcurrency {
    fn useless_at_ms(&self) -> Option<u64> {
        // Guards hold the counter too; none is created while the table is being changed.
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

    fn gone() -> Option<Vec<u64>> {
        Some(vec![0])
    }

    fn go_on_alone(&self) {
        self.before.store(0, Ordering::Relaxed);
    }

    fn since(before: Option<&[u64]>, now: &[u64]) -> Option<Vec<u64>> {
        (before != Some(now)).then(|| now.to_vec())
    }
}

/// The count of one exchange; released on drop.
struct LimitConnGuard(Arc<AtomicU64>);

impl Drop for LimitConnGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl KeyedConcurrency {
    /// Counts an exchange unless there are `most`; returns the new number.
    fn enter(&self, most: u64) -> Option<(LimitConnGuard, u64)> {
        let predecessor_requests = self.before.load(Ordering::Relaxed);
        let more =
            |running: u64| (running.saturating_add(predecessor_requests) < most).then_some(running + 1);
        let running = self.here.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some((LimitConnGuard(self.here.clone()), running.saturating_add(predecessor_requests) + 1))
    }

    /// Number of exchanges in both processes.
    fn count(&self) -> u64 {
        self.here.load(Ordering::Relaxed).saturating_add(self.before.load(Ordering::Relaxed))
    }
}

struct LimitConnRule {
    key: LimitKey,
    conn: LimitQuantity<1>,
    burst: LimitQuantity<0>,
}

/// The plugin.
pub(crate) struct LimitConn {
    rules: Box<[LimitConnRule]>,
    /// Whether a rule whose key has no value is skipped.
    is_ruled: bool,
    delay_s: f64,
    rejected: LocalResponse,
    allow_degradation: bool,
    running: Arc<TableShare<KeyedConcurrency>>,
    /// The remote counters; `None` for local ones.
    remote: Option<LimitConnRedis>,
}

impl PluginFactory for LimitConn {
    const NAME: &'static str = "limit-conn";
    const PRIORITY: i32 = 1003;
    const GUARDS: bool = true;
    const SERVES: ServedTraffic = ServedTraffic::Both;
    type Config = LimitConnSettings;

    fn build(config: LimitConnSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let name = format!("{}/{}", setup.owner, meaning(&config));
        let rules = rules(&config)?;
        Ok(LimitConn {
            running: share(setup, Self::NAME, &name, rules.len()),
            rules,
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

/// Identity of a limit's counters, here and in Redis; other settings may change without a reset.
fn meaning(config: &LimitConnSettings) -> String {
    let LimitConnSettings { conn, burst, key, key_type, rules, .. } = config;
    format!("{conn:?} {burst:?} {key:?} {key_type:?} {rules:?}")
}

fn rules(config: &LimitConnSettings) -> Result<Box<[LimitConnRule]>, InvalidSettings> {
    if let Some(rules) = &config.rules {
        let rule = |rule: &LimitConnRuleSettings| LimitConnRule {
            key: LimitKey::new(&rule.key, LimitKeyType::VarCombination),
            conn: LimitQuantity::new(&rule.conn),
            burst: LimitQuantity::new(&rule.burst),
        };
        return Ok(rules.iter().map(rule).collect());
    }
    let (Some(conn), Some(burst), Some(key)) = (&config.conn, &config.burst, &config.key) else {
        return Err(InvalidSettings::new("conn, burst and key, or rules, are needed"));
    };
    let key = LimitKey::new(key, config.key_type);
    Ok(Box::new([LimitConnRule { key, conn: LimitQuantity::new(conn), burst: LimitQuantity::new(burst) }]))
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
    /// Counts the exchange under every rule that applies; returns its delay in seconds.
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
                return Err(self.rejected.clone());
            };
            if let Some(guard) = guard {
                ex.leave(guard);
            }
            delay_s += self.delay_s * ((running - 1) / conn) as f64;
        }
        if applying == 0 && !self.allow_degradation {
            return Err(LocalResponse::status(500));
        }
        Ok(delay_s)
    }

    /// Appends the key of the exchange under a rule; returns whether it has a value.
    fn write_key(&self, rule: usize, ex: &Exchange<'_>, out: &mut Vec<u8>) -> bool {
        let has_key = self.rules[rule].key.write(ex, out);
        if self.is_ruled {
            end_key_of_rule(rule, out);
        }
        has_key
    }

    fn count(&self, ex: &Exchange<'_>, key: &[u8], most: u64) -> Option<(LimitConnGuard, u64)> {
        let table = self.running.table();
        table
            .look(key, |running| Some(running.enter(most)))
            .unwrap_or_else(|| table.change(key, ex.now.mono_ms(), |running| running.enter(most)))
    }
}
