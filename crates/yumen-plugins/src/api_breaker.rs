//! `api-breaker`: a circuit breaker by host and path. After repeated failures of an upstream it responds
//! locally for a while.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    DryRunResult, Exchange, ExchangeOutcome, LocalResponse, Now, PhaseSet, Plugin, PluginBuildContext,
    PluginFactory, Step,
};

use crate::limits::table::{KeyedState, TableShare, share};
use crate::text::TextTemplate;

/// Settings of `api-breaker`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ApiBreakerSettings {
    /// Status of the local response while the circuit is open.
    #[schemars(range(min = 200, max = 599))]
    break_response_code: u16,
    /// Body of the local response.
    break_response_body: Option<String>,
    /// Fields of the local response; only used together with a body.
    break_response_headers: Option<Vec<BreakResponseHeader>>,
    /// Longest time that the circuit stays open, in seconds.
    #[serde(default = "max_breaker_sec")]
    #[schemars(range(min = 3))]
    max_breaker_sec: u64,
    /// Statuses that count as failures, and the number of failures that opens the circuit.
    #[serde(default)]
    unhealthy: BreakerUnhealthy,
    /// Statuses that count as successes, and the number of successes that closes the circuit.
    #[serde(default)]
    healthy: BreakerHealthy,
}

fn max_breaker_sec() -> u64 {
    300
}

/// A field of the local response.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct BreakResponseHeader {
    /// Name of the field.
    #[schemars(length(min = 1))]
    key: String,
    /// Value of the field; may contain variables.
    #[schemars(length(min = 1))]
    value: String,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
struct BreakerUnhealthy {
    /// Statuses that count as failures.
    #[schemars(length(min = 1), inner(range(min = 500, max = 599)), extend("uniqueItems" = true))]
    http_statuses: Vec<u16>,
    /// Number of failures that opens the circuit. Every further multiple doubles the time that it stays open.
    #[schemars(range(min = 1))]
    failures: u32,
}

impl Default for BreakerUnhealthy {
    fn default() -> BreakerUnhealthy {
        BreakerUnhealthy { http_statuses: vec![500], failures: 3 }
    }
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
struct BreakerHealthy {
    /// Statuses that count as successes.
    #[schemars(length(min = 1), inner(range(min = 200, max = 499)), extend("uniqueItems" = true))]
    http_statuses: Vec<u16>,
    /// Number of successes without a failure in between that closes the circuit.
    #[schemars(range(min = 1))]
    successes: u32,
}

impl Default for BreakerHealthy {
    fn default() -> BreakerHealthy {
        BreakerHealthy { http_statuses: vec![200], successes: 3 }
    }
}

/// Counts of one host and path.
#[derive(Debug, Default)]
pub(crate) struct BreakerState {
    failures: u32,
    successes: u32,
    /// Time of the last opening in seconds.
    broken_at_s: Option<u64>,
    changed_at_ms: u64,
}

/// A full table evicts rows that did not change for this time.
const FORGET_MS: u64 = 60 * 60 * 1000;

impl KeyedState for BreakerState {
    fn useless_at_ms(&self) -> Option<u64> {
        // A row without failures has the same effect as no row.
        Some(if self.failures == 0 { 0 } else { self.changed_at_ms + FORGET_MS })
    }

    fn numbers(&self) -> Option<Vec<u64>> {
        let known = [self.failures.into(), self.successes.into(), self.changed_at_ms];
        (self.failures > 0).then(|| known.into_iter().chain(self.broken_at_s).collect())
    }

    fn take_over(&mut self, numbers: &[u64], _now: Now) {
        // The state that changed last wins.
        if let [failures, successes, changed_at_ms, ref broken @ ..] = *numbers
            && self.changed_at_ms < changed_at_ms
        {
            let whole = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
            let broken_at_s = broken.first().copied();
            *self = BreakerState {
                failures: whole(failures),
                successes: whole(successes),
                broken_at_s,
                changed_at_ms,
            };
        }
    }
}

/// The compiled settings and the counts, which all workers share.
pub(crate) struct ApiBreaker {
    config: ApiBreakerSettings,
    fields: Vec<(String, TextTemplate)>,
    rows: Arc<TableShare<BreakerState>>,
}

impl PluginFactory for ApiBreaker {
    const NAME: &'static str = "api-breaker";
    const PRIORITY: i32 = 1005;
    type Config = ApiBreakerSettings;

    fn build(config: ApiBreakerSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let headers = config.break_response_headers.iter().flatten();
        let names = headers.clone().map(|header| &header.key);
        crate::text::warn_of_message_fields(setup, "break_response_headers", false, names);
        let fields = headers.map(|header| (header.key.clone(), TextTemplate::parse(&header.value))).collect();
        Ok(ApiBreaker { fields, rows: share(setup, Self::NAME, setup.owner, 1), config })
    }
}

impl ApiBreaker {
    fn key(&self, ex: &Exchange<'_>) -> Vec<u8> {
        let mut key = Vec::new();
        self.rows.begin(0, &mut key);
        key.extend_from_slice(ex.request.host());
        key.extend_from_slice(ex.request.path());
        key
    }

    /// The time that the circuit stays open after this number of failures, in seconds.
    fn break_s(&self, failures: u32) -> u64 {
        // As in APISIX: 2, 4, 8 seconds and so on.
        let times = failures.div_ceil(self.config.unhealthy.failures).max(1);
        1u64.checked_shl(times).unwrap_or(u64::MAX).min(self.config.max_breaker_sec)
    }

    fn is_broken(&self, row: &BreakerState, now_s: u64) -> bool {
        row.broken_at_s.is_some_and(|since_s| since_s + self.break_s(row.failures) >= now_s)
    }

    fn refusal(&self, ex: &Exchange<'_>) -> LocalResponse {
        let mut response = LocalResponse::status(self.config.break_response_code);
        // As in APISIX, the fields are only sent together with a body.
        if let Some(body) = &self.config.break_response_body {
            for (name, text) in &self.fields {
                let mut value = Vec::new();
                text.render(ex, &mut value);
                response.fields_mut().add(name, &value);
            }
            response = response.body(body.clone());
        }
        response
    }

    fn count(&self, row: &mut BreakerState, status: u16, now_ms: u64) {
        let (unhealthy, healthy) = (&self.config.unhealthy, &self.config.healthy);
        row.changed_at_ms = now_ms;
        if unhealthy.http_statuses.contains(&status) {
            row.failures = row.failures.saturating_add(1);
            row.successes = 0;
            // Every further `failures` failures open the circuit again, for twice the time.
            if row.failures.is_multiple_of(unhealthy.failures) {
                row.broken_at_s = Some(now_ms / 1000);
            }
        } else if row.failures > 0 && healthy.http_statuses.contains(&status) {
            row.successes += 1;
            if row.successes >= healthy.successes {
                *row = BreakerState::default();
            }
        }
    }
}

impl Plugin for ApiBreaker {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS | PhaseSet::LOG
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        // The monotonic clock: a change of the wall clock neither opens nor closes a circuit.
        let now_s = ex.now.mono_ms() / 1000;
        // `look` takes only the read lock of the table, so that healthy requests do not contend.
        let look = |row: &BreakerState| self.is_broken(row, now_s).then_some(());
        match self.rows.table().look(&self.key(ex), look) {
            Some(()) => Step::Respond(self.refusal(ex)),
            None => Step::Continue,
        }
    }

    fn log(&self, ex: &Exchange<'_>, outcome: &ExchangeOutcome<'_>) {
        // An exchange that was aborted by the client or its deadline is no evidence about the upstream.
        let Some(status) = outcome.upstream_status.or(outcome.upstream_failure) else { return };
        let is_failure = self.config.unhealthy.http_statuses.contains(&status);
        let key = self.key(ex);
        // Successes matter only after failures, so healthy paths need no state.
        let has_failed = || self.rows.table().look(&key, |row| (row.failures > 0).then_some(())).is_some();
        if is_failure || has_failed() {
            let now_ms = ex.host.clock().mono_ms();
            self.rows.table().change(&key, now_ms, |row| self.count(row, status, now_ms));
        }
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
