//! Rates of the last minutes, as differences between readings of the sums since the start.
//!
//! Readings are taken by requests, so a gateway without watchers does nothing for them. Knows no clock but the age
//! in the readings.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::V1State;
use super::arguments::{ArgumentNames, StrictQuery};
use crate::refusal::ApiRefusal;
use crate::reply;

/// Interval of samples. A request within it gets those that exist.
const INTERVAL_MS: u64 = 2_000;
/// A longer pause between readings begins anew: its average would hide every change.
const PAUSE_MS_MAX: u64 = 15_000;
/// Samples kept, five minutes of them.
const SAMPLES_MAX: usize = 150;
/// Samples with rows in one response, unless it is about one row.
const ROW_SAMPLES_MAX: usize = 30;

/// The kinds of rows in a reading.
const TABLES: [&str; 4] = ["routes", "upstreams", "plugins", "consumers"];

/// The samples that the requests of all clients share.
#[derive(Default)]
pub(crate) struct LiveSamples(Mutex<SampleRing>);

#[derive(Default)]
struct SampleRing {
    last: Option<SumReading>,
    samples: VecDeque<Arc<LiveSample>>,
    taken: u64,
}

/// Sums since the start of the gateway.
struct SumReading {
    at_unix_ms: u64,
    uptime_ms: u64,
    sums: Value,
}

/// The rates between two readings.
#[derive(Debug, Serialize)]
struct LiveSample {
    /// Ascending by one; a client requests those after the last that it has.
    number: u64,
    /// End of the sample, in milliseconds since the Unix epoch.
    at_unix_ms: u64,
    /// Length of the sample.
    seconds: f64,
    /// Requests, by class of status: none, 1xx to 5xx.
    by_class: Vec<u64>,
    connections: i64,
    received_bytes: u64,
    sent_bytes: u64,
    /// CPU time of the process, in cores.
    cpu_cores: f64,
    memory_bytes: u64,
    /// Percentiles of the duration in microseconds, from samples; `null` without any.
    p50_us: Option<u64>,
    p99_us: Option<u64>,
    #[serde(skip)]
    tables: BTreeMap<&'static str, BTreeMap<String, RowSample>>,
}

/// The use of one object in a sample.
#[derive(Debug, Clone, PartialEq)]
struct RowSample {
    requests: u64,
    errors: u64,
    answers: u64,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
    busy_us: u64,
}

/// The requested samples and rows.
#[derive(Debug, Deserialize)]
pub(super) struct LiveQuery {
    /// Only samples with a higher number.
    after: Option<u64>,
    /// A table whose rows are added.
    rows: Option<String>,
    /// Only the row with this id.
    id: Option<String>,
}

impl ArgumentNames for LiveQuery {
    const NAMES: &'static [&'static str] = &["after", "rows", "id"];
}

/// `GET /yumen/v1/live`.
pub(super) async fn live(
    State(state): State<V1State>,
    StrictQuery(asked): StrictQuery<LiveQuery>,
) -> Result<Response, ApiRefusal> {
    let table = asked.rows.as_deref().map(|rows| table_of(rows)).transpose()?;
    let now_unix_ms = state.live.now().unix_ms;
    let mut ring = state.samples.0.lock().unwrap_or_else(PoisonError::into_inner);
    ring.read(now_unix_ms, || state.live.top());
    let sums = ring.last.as_ref().map(|last| &last.sums).unwrap_or(&Value::Null);
    let mut body = json!({
        "interval_ms": INTERVAL_MS,
        "version": sums["version"],
        "revision": sums["revision"],
        "uptime_ms": sums["uptime_ms"],
        "workers": sums["workers"],
        "total": sums["exact"],
    });
    let after = asked.after.unwrap_or(0);
    let mut samples: Vec<&Arc<LiveSample>> = ring.samples.iter().filter(|one| one.number > after).collect();
    if let Some(table) = table {
        let most = if asked.id.is_some() { SAMPLES_MAX } else { ROW_SAMPLES_MAX };
        samples.drain(..samples.len().saturating_sub(most));
        body["rows"] = rows(table, &samples, asked.id.as_deref(), sums).into();
    }
    body["samples"] = serde_json::to_value(&samples).expect("samples are plain data");
    Ok(reply::json(StatusCode::OK, &body))
}

fn table_of(name: &str) -> Result<&'static str, ApiRefusal> {
    let table = TABLES.into_iter().find(|table| *table == name);
    table.ok_or_else(|| ApiRefusal::invalid(format!("rows: \"{name}\" is none of {}", TABLES.join(", "))))
}

/// Rows by id: the name, the sums since the start, and per sample the requests, errors, own responses, percentiles and
/// time of the workers.
fn rows(table: &str, samples: &[&Arc<LiveSample>], id: Option<&str>, sums: &Value) -> Map<String, Value> {
    let mut rows = Map::new();
    for sum in sums[table].as_array().into_iter().flatten() {
        let Some(name) = sum["id"].as_str().filter(|name| id.is_none_or(|id| id == *name)) else { continue };
        let of = |sample: &&Arc<LiveSample>| {
            sample.tables.get(table).and_then(|rows| rows.get(name)).map_or(Value::Null, |row| {
                json!([row.requests, row.errors, row.answers, row.p50_us, row.p99_us, row.busy_us])
            })
        };
        let total = json!([number(sum, "requests"), number(sum, "errors"), number(sum, "busy_ns") / 1000]);
        let series: Vec<Value> = samples.iter().map(of).collect();
        rows.insert(name.to_owned(), json!({ "name": sum["name"], "total": total, "samples": series }));
    }
    rows
}

impl SampleRing {
    /// Takes a reading if the last one is old enough.
    fn read(&mut self, now_unix_ms: u64, read: impl FnOnce() -> Value) {
        let read_ms = self.last.as_ref().map(|last| last.at_unix_ms);
        // A tolerance, so that clients that poll in this interval get a sample each time.
        if read_ms.is_some_and(|at_ms| now_unix_ms.abs_diff(at_ms) < INTERVAL_MS - INTERVAL_MS / 10) {
            return;
        }
        let sums = read();
        let next = SumReading { at_unix_ms: now_unix_ms, uptime_ms: number(&sums, "uptime_ms"), sums };
        let Some(last) = self.last.replace(next) else { return };
        let next = self.last.as_ref().expect("it was just put there");
        let elapsed_ms = next.uptime_ms.saturating_sub(last.uptime_ms);
        if elapsed_ms > PAUSE_MS_MAX {
            self.samples.clear();
            return;
        }
        if elapsed_ms == 0 {
            return;
        }
        self.taken += 1;
        let sample = LiveSample::between(&last, next, self.taken, now_unix_ms);
        self.samples.push_back(Arc::new(sample));
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
    }
}

impl LiveSample {
    fn between(before: &SumReading, after: &SumReading, number_: u64, at_unix_ms: u64) -> LiveSample {
        let (old, new) = (&before.sums["exact"], &after.sums["exact"]);
        let elapsed_ms = after.uptime_ms - before.uptime_ms;
        let grown = |name: &str| number(new, name).saturating_sub(number(old, name));
        let classes = |sums: &Value| {
            let all = sums["by_class"].as_array();
            all.into_iter().flatten().map(|count| count.as_u64().unwrap_or(0)).collect::<Vec<_>>()
        };
        let by_class = classes(new).into_iter().zip(classes(old)).map(|(new, old)| new.saturating_sub(old));
        let cpu_ms = number(&after.sums, "cpu_ms").saturating_sub(number(&before.sums, "cpu_ms"));
        let (p50_us, p99_us) = percentiles(&before.sums["total"], &after.sums["total"]);
        LiveSample {
            number: number_,
            at_unix_ms,
            seconds: elapsed_ms as f64 / 1e3,
            by_class: by_class.collect(),
            connections: new["connections"].as_i64().unwrap_or(0),
            received_bytes: grown("received_bytes"),
            sent_bytes: grown("sent_bytes"),
            cpu_cores: cpu_ms as f64 / elapsed_ms as f64,
            memory_bytes: number(&after.sums, "memory_bytes"),
            p50_us,
            p99_us,
            tables: TABLES.into_iter().map(|table| (table, rows_between(table, before, after))).collect(),
        }
    }
}

/// The rows that were used in between.
fn rows_between(table: &str, before: &SumReading, after: &SumReading) -> BTreeMap<String, RowSample> {
    let list = |reading: &'_ SumReading| reading.sums[table].as_array().cloned().unwrap_or_default();
    let old: BTreeMap<String, Value> =
        list(before).into_iter().filter_map(|row| Some((row["id"].as_str()?.to_owned(), row))).collect();
    let mut rows = BTreeMap::new();
    for row in list(after) {
        let Some(id) = row["id"].as_str() else { continue };
        let none = Value::Null;
        let was = old.get(id).unwrap_or(&none);
        let grown = |name: &str| number(&row, name).saturating_sub(number(was, name));
        if grown("requests") == 0 {
            continue;
        }
        let (p50_us, p99_us) = percentiles(was, &row);
        let used = RowSample {
            requests: grown("requests"),
            errors: grown("errors"),
            answers: grown("answers"),
            p50_us,
            p99_us,
            busy_us: grown("busy_ns") / 1000,
        };
        rows.insert(id.to_owned(), used);
    }
    rows
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or(0)
}

/// The median and the 99th percentile of the durations between two sums, as upper bounds of their buckets.
fn percentiles(before: &Value, after: &Value) -> (Option<u64>, Option<u64>) {
    let buckets = |sums: &Value| -> BTreeMap<u64, u64> {
        let list = sums["durations_us"].as_array().into_iter().flatten();
        list.filter_map(|bucket| Some((bucket[0].as_u64()?, bucket[1].as_u64()?))).collect()
    };
    let old = buckets(before);
    let grown = |(end, count): (u64, u64)| (end, count.saturating_sub(old.get(&end).copied().unwrap_or(0)));
    let between: Vec<(u64, u64)> = buckets(after).into_iter().map(grown).collect();
    let total: u64 = between.iter().map(|(_, count)| count).sum();
    let at = |share: f64| {
        let wanted = ((total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let reached = between.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        reached.map(|(end, _)| *end)
    };
    (at(0.5), at(0.99))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(uptime_ms: u64, requests: u64, buckets: Value) -> Value {
        json!({
            "uptime_ms": uptime_ms, "cpu_ms": uptime_ms / 4, "memory_bytes": 7, "version": "1",
            "exact": { "by_class": [0, 0, requests, 0, 0, 1], "connections": 3, "received_bytes": 9, "sent_bytes": 9 },
            "total": { "durations_us": buckets },
            "routes": [{ "id": "1", "name": "a", "requests": requests, "errors": 0, "busy_ns": 5000, "durations_us": buckets }],
        })
    }

    #[test]
    fn sample_is_the_difference_of_two_readings() {
        let mut ring = SampleRing::default();
        ring.read(10_000, || reading(1_000, 10, json!([[100, 10]])));
        assert!(ring.samples.is_empty());
        ring.read(12_000, || reading(3_000, 40, json!([[100, 25], [200, 14], [900, 1]])));
        let sample = &ring.samples[0];
        assert_eq!((sample.by_class[2], sample.by_class[5], sample.cpu_cores), (30, 0, 0.25));
        assert_eq!((sample.p50_us, sample.p99_us), (Some(100), Some(900)));
        let row = &sample.tables["routes"]["1"];
        assert_eq!((row.requests, row.p50_us, row.busy_us), (30, Some(100), 0));
        let rows = rows("routes", &[sample], None, &ring.last.as_ref().unwrap().sums);
        assert_eq!(rows["1"]["samples"], json!([[30, 0, 0, 100, 900, 0]]));
        // Too early for another one.
        ring.read(13_000, || panic!("read within the interval"));
        assert_eq!(ring.samples.len(), 1);
    }

    #[test]
    fn long_pause_begins_anew_and_samples_are_bounded() {
        let mut ring = SampleRing::default();
        for at in 0..=SAMPLES_MAX as u64 + 5 {
            ring.read(at * 2_000, || reading(at * 2_000, at, json!([])));
        }
        assert_eq!(ring.samples.len(), SAMPLES_MAX);
        assert_eq!(ring.samples.back().unwrap().p50_us, None);
        ring.read(9_000_000, || reading(9_000_000, 1000, json!([])));
        assert!(ring.samples.is_empty());
        ring.read(9_002_000, || reading(9_002_000, 1004, json!([])));
        assert_eq!(ring.samples[0].by_class[2], 4);
    }
}
