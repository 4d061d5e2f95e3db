//! State of all fetched values: for a successor, the saved documents, metrics and operators.
//!
//! Receives the state from the fetching tasks; makes no requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_plugin::FetchRequest;
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
    successes: u64,
    errors: u64,
}

impl FetchStanding {
    pub(super) fn succeeded(&mut self, body: KnownDocument) {
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

    /// The failure as a problem should have it; `None` while an earlier version is fresh enough.
    pub(super) fn told(&self, failure: FetchFailure, interval_s: u32, now_ms: u64) -> Option<FetchFailure> {
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
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_millis(unix_ms))
}

/// State of all fetched values.
#[derive(Debug, Default)]
pub(crate) struct FetchLedger {
    lines: Mutex<FetchLines>,
}

#[derive(Debug, Default)]
struct FetchLines {
    values: BTreeMap<Arc<FetchRequest>, FetchStanding>,
    /// Successes and failures of forgotten values, by format.
    forgotten: BTreeMap<&'static str, (u64, u64)>,
}

impl FetchLedger {
    fn lines(&self) -> MutexGuard<'_, FetchLines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
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

impl MetricSource for FetchLedger {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        let (lines, now_ms) = (self.lines(), now_ms());
        let mut totals = lines.forgotten.clone();
        let mut ages: BTreeMap<&'static str, u64> = BTreeMap::new();
        for (request, standing) in &lines.values {
            let total = totals.entry(request.format.name).or_default();
            *total = (total.0 + standing.successes, total.1 + standing.errors);
            if let Some(body) = &standing.body {
                let age_ms = ages.entry(request.format.name).or_default();
                *age_ms = (*age_ms).max(now_ms.saturating_sub(body.fetched_ms));
            }
        }
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
        let ages = ages.iter().map(|(format, age_ms)| MetricSeries {
            labels: vec![("format", (*format).to_owned())],
            value: MetricValue::Number(*age_ms as f64 / 1000.0),
        });
        family(
            "yumen_fetched_age_seconds",
            "Age of the oldest fetched value in use, by format.",
            MetricKind::Gauge,
            ages.collect(),
        );
        let stale = lines.values.values().filter(|standing| standing.failing_since_ms.is_some()).count();
        family(
            "yumen_fetched_stale",
            "Fetched values whose last fetch failed; the last value stays in use.",
            MetricKind::Gauge,
            vec![MetricSeries { labels: Vec::new(), value: MetricValue::Number(stale as f64) }],
        );
    }
}

#[cfg(test)]
mod tests;
