//! `limit-count`: limits the requests per time window and key.
//!
//! A limit of N admits exactly N requests with any number of workers: a window is only replaced while no
//! worker counts in it, see [`crate::limits::table`].

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, PluginBuildContext, PluginFactory,
    Step,
};

use crate::limits::remote::RedisPolicySettings;
use crate::limits::table::{TableShare, share};
use crate::limits::{
    CounterPolicy, LimitAmount, LimitKey, LimitKeyType, LimitQuantity, end_key_of_rule, refusal,
    rejected_code, schema, undecided, with_scratch,
};

mod delayed;
mod headers;
mod redis;
#[cfg(test)]
mod tests;
mod window;

use delayed::DelayedCounters;
pub(crate) use headers::LimitCountMetadata;
use headers::QuotaHeaderNames;
use redis::LimitCountRedis;
use window::{CountWindow, WindowDecision};

/// The algorithm of the windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WindowType {
    /// A window begins with its first request and has a fixed length.
    #[default]
    Fixed,
    /// Windows begin at multiples of their length. The previous window counts by the share that the last
    /// `time_window` seconds still cover.
    Sliding,
}

fn window_type_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "string", "enum": ["fixed", "sliding"], "default": "fixed"})
}

/// One of several limits.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct LimitCountRuleSettings {
    /// Most requests per window.
    pub count: LimitAmount<1>,
    /// Length of the window in seconds.
    pub time_window: LimitAmount<1>,
    /// Key, a template. The rule does not apply if none of its variables has a value.
    pub key: String,
    /// Prefix of the quota fields, such as `X-PREFIX-RateLimit-Limit`.
    pub header_prefix: Option<String>,
}

/// Settings of `limit-count`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[schemars(
    extend("oneOf" = [{"required": ["count", "time_window"]}, {"required": ["rules"]}]),
    extend("encrypt_fields" = ["redis_password", "sentinel_password"]),
    transform = schema::redis_with_sentinel
)]
pub(crate) struct LimitCountSettings {
    /// Most requests per window. A text with `$variables` must yield an integer from 1: a request for which it does not
    /// is answered 500, or passes with `allow_degradation`.
    pub count: Option<LimitAmount<1>>,
    /// Length of the window in seconds.
    pub time_window: Option<LimitAmount<1>>,
    /// Algorithm of the windows.
    #[serde(default)]
    #[schemars(schema_with = "window_type_schema")]
    pub window_type: WindowType,
    /// Several limits instead of one.
    #[schemars(length(min = 1))]
    pub rules: Option<Vec<LimitCountRuleSettings>>,
    /// Name of a group. All limits of a group with the same settings share their counters.
    pub group: Option<String>,
    /// Key; the requests of each value are counted separately.
    #[serde(default = "remote_addr")]
    pub key: String,
    /// Form of the key.
    #[serde(default)]
    #[schemars(schema_with = "schema::key_type_or_constant")]
    pub key_type: LimitKeyType,
    /// Status of the refusal.
    #[serde(default = "rejected_code")]
    #[schemars(range(min = 200, max = 599))]
    pub rejected_code: u16,
    /// Message in the body of the refusal.
    #[schemars(length(min = 1))]
    pub rejected_msg: Option<String>,
    /// Storage of the counters.
    #[serde(default)]
    #[schemars(schema_with = "schema::policy_or_sentinel")]
    pub policy: CounterPolicy,
    /// Whether requests pass if the limit cannot be determined.
    #[serde(default)]
    pub allow_degradation: bool,
    /// Whether responses carry the quota fields.
    #[serde(default = "yes")]
    pub show_limit_quota_header: bool,
    /// Interval between two synchronizations with Redis in seconds; -1 counts each request in Redis. Not used
    /// with the policy `local`.
    #[serde(default = "at_once")]
    pub sync_interval: f64,
    /// Settings of the Redis policies.
    #[serde(flatten)]
    #[schemars(skip)]
    pub redis: RedisPolicySettings,
}

fn remote_addr() -> String {
    "remote_addr".to_owned()
}

fn yes() -> bool {
    true
}

fn at_once() -> f64 {
    -1.0
}

struct LimitCountRule {
    key: LimitKey,
    count: LimitQuantity<1>,
    time_window_s: LimitQuantity<1>,
    names: QuotaHeaderNames,
}

/// The compiled settings with the counters.
pub(crate) struct LimitCount {
    rules: Box<[LimitCountRule]>,
    /// The object with the settings, for reports.
    owner: Box<str>,
    /// Whether the limits come from `rules`, which do not apply without a value of their key.
    is_ruled: bool,
    window_type: WindowType,
    counters: Arc<TableShare<CountWindow>>,
    rejected: LocalResponse,
    allow_degradation: bool,
    shows_quota: bool,
    backend: CounterBackend,
}

/// Storage of the counters.
enum CounterBackend {
    /// In this node.
    Local,
    /// In Redis, request by request.
    Redis(LimitCountRedis),
    /// In this node, synchronized with Redis at intervals.
    Delayed(Arc<DelayedCounters>),
}

impl CounterBackend {
    fn new(
        config: &LimitCountSettings,
        setup: &PluginBuildContext<'_>,
        name: &str,
        rules: usize,
    ) -> Result<CounterBackend, InvalidSettings> {
        Ok(match LimitCountRedis::new(config, setup)? {
            None => CounterBackend::Local,
            Some(remote) if delayed::is_requested(config)? => {
                CounterBackend::Delayed(DelayedCounters::new(remote, config, setup, name, rules))
            }
            Some(remote) => CounterBackend::Redis(remote),
        })
    }
}

impl PluginFactory for LimitCount {
    const NAME: &'static str = "limit-count";
    const PRIORITY: i32 = 1002;
    const ROLE: AccessRole = AccessRole::Guard;
    const VERSION: &'static str = "0.5";
    type Config = LimitCountSettings;

    fn reword(refusal: InvalidSettings, settings: &Value) -> InvalidSettings {
        let has = |name| settings.get(name).is_some();
        let has_both = (has("count") || has("time_window")) && has("rules");
        if has_both && refusal.message.contains("value should match only one schema") {
            return InvalidSettings::at(refusal.path, BOTH);
        }
        refusal
    }

    fn build(config: LimitCountSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        check(&config)?;
        let settings = format!("{config:?}");
        if let (Some(group), Some(objects)) = (&config.group, setup.objects) {
            objects.agree("group", group, &settings);
        }
        // Members of a group with different limits do not share counters, because their counts would not be
        // comparable.
        let name = match &config.group {
            Some(name) => format!("group/{name}/{}", meaning(&config)),
            None => format!("{}/{}", setup.owner, meaning(&config)),
        };
        let rules = rules(&config, &LimitCountMetadata::of(setup)?)?;
        Ok(LimitCount {
            counters: share(setup, Self::NAME, &name, rules.len()),
            backend: CounterBackend::new(&config, setup, &name, rules.len())?,
            rules,
            owner: setup.owner.into(),
            is_ruled: config.rules.is_some(),
            window_type: config.window_type,
            rejected: refusal(config.rejected_code, config.rejected_msg.as_deref()),
            allow_degradation: config.allow_degradation,
            shows_quota: config.show_limit_quota_header,
        })
    }
}

const BOTH: &str = "count/time_window and rules cannot be specified at the same time";

/// The settings that identify a limit, here and in Redis. Other settings may change and the limit keeps its
/// counters.
fn meaning(config: &LimitCountSettings) -> String {
    let LimitCountSettings { count, time_window, window_type, rules, key, key_type, .. } = config;
    format!("{count:?} {time_window:?} {window_type:?} {rules:?} {key} {key_type:?}")
}

fn check(config: &LimitCountSettings) -> Result<(), InvalidSettings> {
    let Some(rules) = &config.rules else { return Ok(()) };
    if config.count.is_some() || config.time_window.is_some() {
        return Err(InvalidSettings::new(BOTH));
    }
    if config.group.is_some() {
        return Err(InvalidSettings::new("group and rules cannot be specified at the same time"));
    }
    let seen_before = |at: &usize| rules[..*at].iter().any(|rule| rule.key == rules[*at].key);
    match (1..rules.len()).find(seen_before) {
        Some(at) => Err(InvalidSettings::new(format!("duplicate key '{}' in rules", rules[at].key))),
        None => Ok(()),
    }
}

fn rules(
    config: &LimitCountSettings,
    metadata: &LimitCountMetadata,
) -> Result<Box<[LimitCountRule]>, InvalidSettings> {
    let Some(rules) = &config.rules else {
        let (Some(count), Some(time_window)) = (&config.count, &config.time_window) else {
            return Err(InvalidSettings::new("count and time_window, or rules, are needed"));
        };
        return Ok(Box::new([LimitCountRule {
            key: LimitKey::new(&config.key, config.key_type),
            count: LimitQuantity::new(count, "count")?,
            time_window_s: LimitQuantity::new(time_window, "time_window")?,
            names: metadata.names(None),
        }]));
    };
    let rule = |(at, rule): (usize, &LimitCountRuleSettings)| {
        Ok(LimitCountRule {
            key: LimitKey::new(&rule.key, LimitKeyType::VarCombination),
            count: LimitQuantity::new(&rule.count, format!("rules[{at}].count"))?,
            time_window_s: LimitQuantity::new(&rule.time_window, format!("rules[{at}].time_window"))?,
            names: metadata.names(Some(rule.header_prefix.as_deref().unwrap_or(&(at + 1).to_string()))),
        })
    };
    rules.iter().enumerate().map(rule).collect()
}

impl Plugin for LimitCount {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let admitted = match &self.backend {
            CounterBackend::Local => {
                let count =
                    |ex: &Exchange<'_>, key: &[u8], limit, window_ms| self.count(ex, key, limit, window_ms);
                with_scratch(|scratch| self.admit(ex, scratch, count))
            }
            CounterBackend::Delayed(delayed) => {
                let count = |ex: &Exchange<'_>, key: &[u8], limit, window_ms| {
                    delayed.count(ex, key, limit, window_ms)
                };
                with_scratch(|scratch| self.admit(ex, scratch, count))
            }
            CounterBackend::Redis(remote) => return self.ask(remote, ex),
        };
        match admitted {
            Ok(()) => Step::Continue,
            Err(response) => Step::Respond(response),
        }
    }

    fn dry_run(&self, _phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        // A dry run sends nothing (`Plugin::dry_run`).
        if !matches!(self.backend, CounterBackend::Local) {
            return DryRunResult::Note("depends on the count in Redis".into());
        }
        let notes = std::cell::RefCell::new(Vec::new());
        let peek = |ex: &Exchange<'_>, key: &[u8], limit, window_ms| {
            let verdict = self.peek(ex, key, limit, window_ms);
            notes.borrow_mut().push(format!("leaves {} of {limit}", verdict.remaining));
            verdict
        };
        match with_scratch(|scratch| self.admit(ex, scratch, peek)) {
            Ok(()) => DryRunResult::Note(notes.into_inner().join(", ").into()),
            Err(response) => DryRunResult::Respond(response),
        }
    }
}

impl LimitCount {
    /// Whether all rules that apply admit the request; `count_request` counts it in one window.
    fn admit(
        &self,
        ex: &mut Exchange<'_>,
        scratch: &mut Vec<u8>,
        count_request: impl Fn(&Exchange<'_>, &[u8], u64, u64) -> WindowDecision,
    ) -> Result<(), LocalResponse> {
        // A rule counts before the next one is evaluated, so all amounts must be valid before the first rule
        // counts.
        if self.is_ruled && !self.rules_have_limits(ex, scratch) {
            return self.degrade(ex);
        }
        for (at, rule) in self.rules.iter().enumerate() {
            scratch.clear();
            match &self.backend {
                CounterBackend::Delayed(delayed) => delayed.begin_key(at, scratch),
                _ => self.counters.begin(at, scratch),
            }
            if !self.write_key(at, ex, scratch) {
                continue;
            }
            let count = rule.count.get(ex, scratch);
            let time_window_s = rule.time_window_s.get(ex, scratch);
            let (Some(count), Some(time_window_s)) = (count, time_window_s) else {
                return self.degrade(ex);
            };
            let verdict = count_request(ex, scratch, count, time_window_s.saturating_mul(1000));
            // Before a refusal, which carries the fields too, as in APISIX.
            if self.shows_quota {
                rule.names.set(&mut ex.response.fields, count, &verdict);
            }
            if !verdict.admitted {
                return Err(self.rejected.clone());
            }
        }
        Ok(())
    }

    /// Appends the key of the request under a rule; returns whether the rule applies.
    fn write_key(&self, rule: usize, ex: &Exchange<'_>, out: &mut Vec<u8>) -> bool {
        let has_key = self.rules[rule].key.write(ex, out);
        if self.is_ruled {
            end_key_of_rule(rule, out);
        }
        has_key || !self.is_ruled
    }

    /// Whether some rule applies and all that apply have valid amounts.
    fn rules_have_limits(&self, ex: &Exchange<'_>, scratch: &mut Vec<u8>) -> bool {
        let mut applying = 0;
        for rule in &self.rules {
            scratch.clear();
            if !rule.key.write(ex, scratch) {
                continue;
            }
            if rule.count.get(ex, scratch).is_none() || rule.time_window_s.get(ex, scratch).is_none() {
                return false;
            }
            applying += 1;
        }
        applying > 0
    }

    /// [`undecided`] for this instance.
    fn degrade(&self, ex: &Exchange<'_>) -> Result<(), LocalResponse> {
        undecided(ex, Self::NAME, &self.owner, self.allow_degradation)
    }

    /// The result of [`LimitCount::count`] without counting.
    fn peek(&self, ex: &Exchange<'_>, key: &[u8], limit: u64, window_ms: u64) -> WindowDecision {
        let in_window = |window: &CountWindow| match self.window_type {
            WindowType::Fixed => window.peek_fixed(limit, ex.now),
            WindowType::Sliding => window.preview_sliding(limit, window_ms, ex.now),
        };
        let fresh = || WindowDecision { admitted: true, remaining: limit - 1, reset_cs: window_ms / 10 };
        self.counters.table().look(key, in_window).unwrap_or_else(fresh)
    }

    fn count(&self, ex: &Exchange<'_>, key: &[u8], limit: u64, window_ms: u64) -> WindowDecision {
        let (table, now) = (self.counters.table(), ex.now);
        let in_window = |window: &CountWindow| match self.window_type {
            WindowType::Fixed => window.count_fixed(limit, now),
            WindowType::Sliding => window.count_sliding(limit, window_ms, now),
        };
        // A window that was just replaced counts in the next iteration, unless the clock leaps by a whole
        // window.
        loop {
            if let Some(verdict) = table.look(key, in_window) {
                return verdict;
            }
            table.change(key, now.mono_ms(), |window| match self.window_type {
                WindowType::Fixed => window.turn_fixed(window_ms, now),
                WindowType::Sliding => window.turn_sliding(window_ms, now),
            });
        }
    }
}
