//! State of all fetched values: for a successor, the saved documents, metrics and operators.
//!
//! Receives the state from the fetching tasks; makes no requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_plugin::{FetchRequest, FetchSource};
use yumen_snapshot::compile::FetchFailure;

use super::{digest, now_ms};
use crate::endpoints::inputs::{KnownDocument, KnownDocuments};

/// Failures in a row after which a value with an earlier version has a problem.
const FAILURES_REPORTED: u32 = 3;

/// State of one value, kept by its task.
#[derive(Debug, Clone, Default)]
pub(crate) struct FetchStanding {
    /// The last good body.
    pub(super) body: Option<KnownDocument>,
    pub(super) failures: u32,
    pub(super) failing_since_ms: Option<u64>,
    pub(super) error: Option<Box<str>>,
    /// Whether the control thread has a first result.
    pub(super) is_reported: bool,
    /// The failure that the control thread knows.
    pub(super) reported: Option<FetchFailure>,
    /// Time at which the value was first fetched or last changed in this process.
    changed_ms: Option<u64>,
    successes: u64,
    errors: u64,
}

impl FetchStanding {
    pub(super) fn succeeded(&mut self, body: KnownDocument, is_new: bool) {
        if is_new {
            self.changed_ms = Some(body.fetched_ms);
        }
        self.body = Some(body);
        self.failures = 0;
        self.failing_since_ms = None;
        self.error = None;
        self.successes += 1;
    }

    pub(super) fn failed(&mut self, error: &str, now_ms: u64) {
        self.failures = self.failures.saturating_add(1);
        self.failing_since_ms.get_or_insert(now_ms);
        self.error = Some(error.into());
        self.errors += 1;
    }

    /// The state for operators, without the value.
    fn document(&self, now_ms: u64) -> Value {
        let state = match (&self.body, self.failing_since_ms) {
            (Some(_), None) => "current",
            (Some(_), Some(_)) => "stale",
            (None, Some(_)) => "failing",
            (None, None) => "awaited",
        };
        json!({
            "state": state,
            "age_ms": self.body.as_ref().map(|body| now_ms.saturating_sub(body.fetched_ms)),
            "changed_ms": self.changed_ms,
            "length": self.body.as_ref().map(|body| body.bytes.len()),
            "failing_since_ms": self.failing_since_ms,
            "error": self.error,
        })
    }

    /// The failure as a problem should have it; `None` while an earlier version is fresh enough.
    pub(super) fn reportable(
        &self,
        failure: FetchFailure,
        interval_s: u32,
        now_ms: u64,
    ) -> Option<FetchFailure> {
        let Some(body) = &self.body else { return Some(failure) };
        let age_ms = now_ms.saturating_sub(body.fetched_ms);
        let is_stale = self.failures >= FAILURES_REPORTED || age_ms >= 2000 * u64::from(interval_s);
        // The time of the last success stays the same, so the text does not change with every failure.
        let of = time(body.fetched_ms);
        let message = format!("{}; the value of {of} stays in use", failure.message).into();
        (is_stale || failure.is_absent).then_some(FetchFailure { message, ..failure })
    }
}

/// A time as text, in UTC.
fn time(unix_ms: u64) -> String {
    yumen_base::utc_text(unix_ms / 1000)
}

/// A value and the request to its task.
type ValueAsk = (Arc<FetchRequest>, FetchAsk);

/// State of all fetched values, and the way to ask for a fetch.
#[derive(Debug)]
pub(crate) struct FetchLedger {
    lines: Mutex<FetchLines>,
    asked: UnboundedSender<ValueAsk>,
    /// Taken by the fetching service.
    asks: Mutex<Option<UnboundedReceiver<ValueAsk>>>,
}

/// A request to the task of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchAsk {
    /// A fetch now.
    Refresh,
    /// The known value is dropped, then fetched.
    Forget,
}

impl Default for FetchLedger {
    fn default() -> FetchLedger {
        let (asked, asks) = unbounded_channel();
        FetchLedger { lines: Mutex::default(), asked, asks: Mutex::new(Some(asks)) }
    }
}

#[derive(Debug, Default)]
struct FetchLines {
    values: BTreeMap<Arc<FetchRequest>, FetchStanding>,
    /// Successes and failures of forgotten values, by format.
    forgotten: FetchTotals,
}

impl FetchLedger {
    fn lines(&self) -> MutexGuard<'_, FetchLines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fetches that are asked for. The first caller gets them.
    pub(super) fn listen(&self) -> UnboundedReceiver<ValueAsk> {
        let taken = self.asks.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.unwrap_or_else(|| unbounded_channel().1)
    }

    /// Passes a request to the fetching service.
    pub(super) fn ask(&self, request: &Arc<FetchRequest>, ask: FetchAsk) {
        // Fails only after the fetching service has ended.
        let _ = self.asked.send((request.clone(), ask));
    }

    /// Asks for a fetch of all secrets; returns their number.
    pub(crate) fn refresh_secrets(&self) -> usize {
        let lines = self.lines();
        let secrets = lines.values.keys().filter(|request| matches!(request.source, FetchSource::Secret(_)));
        secrets.map(|request| self.ask(request, FetchAsk::Refresh)).count()
    }

    /// Drops the value of a secret, `vault/1/jack/key`, and fetches it again. False if no object uses it.
    pub(crate) fn forget_secret(&self, name: &str) -> bool {
        let lines = self.lines();
        let is_named = |request: &&Arc<FetchRequest>| match &request.source {
            FetchSource::Secret(fetch) => name
                .strip_prefix(&*fetch.manager)
                .and_then(|rest| rest.strip_prefix('/'))
                .is_some_and(|key| key == fetch.key),
            FetchSource::Http(_) => false,
        };
        // Under new settings of the manager, the earlier request may still be here.
        let named = lines.values.keys().filter(is_named);
        named.map(|request| self.ask(request, FetchAsk::Forget)).count() > 0
    }

    /// The states of all secrets in use, by manager and key: `vault/1/jack/key`.
    pub(crate) fn secrets(&self) -> BTreeMap<String, Value> {
        let (lines, now_ms) = (self.lines(), now_ms());
        let secrets = lines.values.iter().filter_map(|(request, standing)| match &request.source {
            FetchSource::Secret(fetch) => {
                Some((format!("{}/{}", fetch.manager, fetch.key), standing.document(now_ms)))
            }
            FetchSource::Http(_) => None,
        });
        secrets.collect()
    }

    /// The values of all secrets in use, which no output may show.
    pub(crate) fn secret_values(&self) -> Vec<String> {
        let lines = self.lines();
        let secrets =
            lines.values.iter().filter(|(request, _)| matches!(request.source, FetchSource::Secret(_)));
        let bodies = secrets.filter_map(|(_, standing)| standing.body.as_ref());
        bodies.filter_map(|body| Some(std::str::from_utf8(&body.bytes).ok()?.to_owned())).collect()
    }

    pub(super) fn note(&self, request: &Arc<FetchRequest>, standing: &FetchStanding) {
        self.lines().values.insert(request.clone(), standing.clone());
    }

    pub(super) fn forget(&self, request: &FetchRequest) {
        let mut lines = self.lines();
        if let Some(standing) = lines.values.remove(request) {
            let total = lines.forgotten.entry(request.format.name).or_default();
            *total = (total.0 + standing.successes, total.1 + standing.errors);
        }
    }

    /// The last good bodies of the values that `select` chooses, by the digest of their request.
    pub(crate) fn documents(&self, select: fn(&FetchRequest) -> bool) -> KnownDocuments {
        let lines = self.lines();
        let chosen = lines.values.iter().filter(|(request, _)| select(request));
        chosen.filter_map(|(request, standing)| Some((digest(request), standing.body.clone()?))).collect()
    }
}

/// Successes and failures by format.
type FetchTotals = BTreeMap<&'static str, (u64, u64)>;

impl MetricSource for FetchLedger {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        let (lines, now_ms) = (self.lines(), now_ms());
        let mut totals = lines.forgotten.clone();
        let mut ages_ms: BTreeMap<&'static str, u64> = BTreeMap::new();
        for (request, standing) in &lines.values {
            let total = totals.entry(request.format.name).or_default();
            *total = (total.0 + standing.successes, total.1 + standing.errors);
            if let Some(body) = &standing.body {
                let age_ms = ages_ms.entry(request.format.name).or_default();
                *age_ms = (*age_ms).max(now_ms.saturating_sub(body.fetched_ms));
            }
        }
        let stale = lines.values.values().filter(|standing| standing.failing_since_ms.is_some()).count();
        gather(&totals, &ages_ms, stale, out);
    }
}

fn gather(
    totals: &FetchTotals,
    ages_ms: &BTreeMap<&'static str, u64>,
    stale: usize,
    out: &mut Vec<MetricFamily>,
) {
    let mut family = |name: &'static str, help: &'static str, kind, samples| {
        out.push(MetricFamily { name: name.into(), help: help.into(), kind, samples });
    };
    let fetches = totals.iter().flat_map(|(format, (good, bad))| {
        [("success", *good), ("failure", *bad)].map(|(result, count)| MetricSeries {
            labels: vec![("format", (*format).to_owned()), ("result", result.to_owned())],
            value: MetricValue::Number(count as f64),
        })
    });
    family(
        "yumen_fetches_total",
        "Fetches of documents, key sets and secrets that the configuration refers to, by format and result.",
        MetricKind::Counter,
        fetches.collect(),
    );
    let ages = ages_ms.iter().map(|(format, age_ms)| MetricSeries {
        labels: vec![("format", (*format).to_owned())],
        value: MetricValue::Number(*age_ms as f64 / 1000.0),
    });
    family(
        "yumen_fetched_age_seconds",
        "Age of the oldest fetched value in use, by format.",
        MetricKind::Gauge,
        ages.collect(),
    );
    family(
        "yumen_fetched_stale",
        "Fetched values whose last fetch failed; the last value stays in use.",
        MetricKind::Gauge,
        vec![MetricSeries { labels: Vec::new(), value: MetricValue::Number(stale as f64) }],
    );
}

/// Metric families without values, for the generated reference.
pub(crate) fn describe(out: &mut Vec<MetricFamily>) {
    gather(&BTreeMap::from([("secret", (0, 0))]), &BTreeMap::from([("secret", 0)]), 0, out);
}

#[cfg(test)]
mod tests;
