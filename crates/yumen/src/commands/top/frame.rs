//! Rates, shares and percentiles between two samples of a gateway's sums.
//!
//! Pure computation: no I/O, no layout.

use clap::ValueEnum;
use serde_json::{Value, json};

/// Sort key of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortOrder {
    /// Requests per second
    Rate,
    /// 99th percentile
    Latency,
    /// CPU time
    Cpu,
    /// Errors per second
    Errors,
}

/// Usage between two samples.
#[derive(Debug, PartialEq)]
pub(crate) struct TopFrame {
    pub(crate) version: String,
    pub(crate) revision: u64,
    pub(crate) workers: u64,
    pub(crate) connections: i64,
    /// Line of all requests; its rates are exact, not sampled.
    pub(crate) total: TopLine,
    /// Whether any request of the interval was sampled.
    pub(crate) sampled: bool,
    pub(crate) sections: Vec<TopSection>,
    /// Sinks of log entries, traces and metrics.
    pub(crate) sinks: Vec<TopSink>,
    pub(crate) order: SortOrder,
    /// Time between the samples, in seconds.
    pub(crate) seconds: f64,
}

/// Lines of one kind of object.
#[derive(Debug, PartialEq)]
pub(crate) struct TopSection {
    pub(crate) title: &'static str,
    pub(crate) lines: Vec<TopLine>,
}

/// Usage of one object.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TopLine {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Requests per second.
    pub(crate) rate: f64,
    /// Requests per second with status 500 or above.
    pub(crate) error_rate: f64,
    /// Requests per second with a response from a plugin.
    pub(crate) answer_rate: f64,
    pub(crate) mean_us: f64,
    pub(crate) p99_us: f64,
    /// CPU time of the gateway, in percent of one CPU.
    pub(crate) cpu_percent: f64,
    pub(crate) bytes_rate: f64,
}

/// Entries of one sink.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TopSink {
    /// The plugin; `otlp` and `otlp-logs` are the node itself.
    pub(crate) plugin: String,
    pub(crate) address: String,
    /// Entries per second.
    pub(crate) sent_rate: f64,
    /// Lost entries per second.
    pub(crate) dropped_rate: f64,
    /// Lost entries since the start of the gateway.
    pub(crate) dropped: u64,
    pub(crate) waiting: u64,
    pub(crate) waiting_bytes: u64,
    /// The last error; empty while entries are sent.
    pub(crate) error: String,
}

const SECTIONS: [&str; 4] = ["routes", "upstreams", "plugins", "consumers"];

impl TopFrame {
    /// Usage from `before` to `now`. A null `before` means the start of the gateway.
    pub(crate) fn between(before: &Value, now: &Value, order: SortOrder) -> TopFrame {
        let uptime_ms = |look: &Value| look["uptime_ms"].as_u64().unwrap_or(0);
        // After a restart of the gateway, sums begin at zero.
        let before = if uptime_ms(before) > uptime_ms(now) { &Value::Null } else { before };
        let seconds = (uptime_ms(now) - uptime_ms(before)).max(1) as f64 / 1000.0;
        let mut total = line(&before["total"], &now["total"], seconds);
        let sampled = total.rate > 0.0;
        let exact = |key: &str| difference(&before["exact"], &now["exact"], key) as f64 / seconds;
        (total.rate, total.error_rate) = (exact("requests"), exact("errors"));
        let section = |title: &'static str| TopSection {
            title,
            lines: lines(&before[title], &now[title], seconds, order),
        };
        TopFrame {
            version: now["version"].as_str().unwrap_or_default().to_owned(),
            revision: now["revision"].as_u64().unwrap_or(0),
            workers: now["workers"].as_u64().unwrap_or(0),
            connections: now["exact"]["connections"].as_i64().unwrap_or(0),
            total,
            sampled,
            sections: SECTIONS.into_iter().map(section).collect(),
            sinks: sinks(&before["sinks"], &now["sinks"], seconds),
            order,
            seconds,
        }
    }

    pub(crate) fn json(&self) -> Value {
        let mut object = json!({
            "version": self.version,
            "revision": self.revision,
            "workers": self.workers,
            "connections": self.connections,
            "seconds": self.seconds,
            "total": self.total.json(),
        });
        for section in &self.sections {
            object[section.title] = section.lines.iter().map(TopLine::json).collect();
        }
        object["sinks"] = self.sinks.iter().map(TopSink::json).collect();
        object
    }
}

fn round(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

impl TopSink {
    fn json(&self) -> Value {
        json!({
            "plugin": self.plugin,
            "sink": self.address,
            "sent_per_second": round(self.sent_rate),
            "dropped_per_second": round(self.dropped_rate),
            "dropped": self.dropped,
            "waiting": self.waiting,
            "waiting_bytes": self.waiting_bytes,
            "error": self.error,
        })
    }
}

impl TopLine {
    fn json(&self) -> Value {
        json!({
            "id": self.id,
            "name": self.name,
            "requests_per_second": round(self.rate),
            "errors_per_second": round(self.error_rate),
            "answers_per_second": round(self.answer_rate),
            "mean_us": round(self.mean_us),
            "p99_us": round(self.p99_us),
            "cpu_percent": round(self.cpu_percent),
            "bytes_per_second": round(self.bytes_rate),
        })
    }

    fn sorts_by(&self, order: SortOrder) -> f64 {
        match order {
            SortOrder::Rate => self.rate,
            SortOrder::Latency => self.p99_us,
            SortOrder::Cpu => self.cpu_percent,
            SortOrder::Errors => self.error_rate,
        }
    }
}

/// Lines with requests in the interval, sorted.
fn lines(before: &Value, now: &Value, seconds: f64, order: SortOrder) -> Vec<TopLine> {
    let earlier: std::collections::HashMap<&str, &Value> =
        rows(before).filter_map(|row| Some((row["id"].as_str()?, row))).collect();
    let mut lines: Vec<TopLine> = rows(now)
        .map(|row| {
            let earlier = row["id"].as_str().and_then(|id| earlier.get(id)).copied();
            line(earlier.unwrap_or(&Value::Null), row, seconds)
        })
        .filter(|line| line.rate > 0.0)
        .collect();
    lines.sort_by(|a, b| {
        b.sorts_by(order).total_cmp(&a.sorts_by(order)).then(b.rate.total_cmp(&a.rate)).then(a.id.cmp(&b.id))
    });
    lines
}

/// All sinks, those with errors or losses first. A sink without entries is shown too: it may be the one that fails.
fn sinks(before: &Value, now: &Value, seconds: f64) -> Vec<TopSink> {
    let sink = |row: &Value| {
        let is_same = |other: &&Value| other["plugin"] == row["plugin"] && other["sink"] == row["sink"];
        let earlier = rows(before).find(is_same).unwrap_or(&Value::Null);
        let per_second = |key: &str| difference(earlier, row, key) as f64 / seconds;
        let count = |key: &str| row[key].as_u64().unwrap_or(0);
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        TopSink {
            plugin: text("plugin"),
            address: text("sink"),
            sent_rate: per_second("sent"),
            dropped_rate: per_second("dropped"),
            dropped: count("dropped"),
            waiting: count("waiting"),
            waiting_bytes: count("waiting_bytes"),
            error: text("error"),
        }
    };
    let mut sinks: Vec<TopSink> = rows(now).map(sink).collect();
    let rank = |sink: &TopSink| (!sink.error.is_empty(), sink.dropped_rate > 0.0);
    sinks.sort_by(|a, b| rank(b).cmp(&rank(a)).then(b.sent_rate.total_cmp(&a.sent_rate)));
    sinks
}

fn rows(table: &Value) -> impl Iterator<Item = &Value> {
    table.as_array().into_iter().flatten()
}

fn line(before: &Value, now: &Value, seconds: f64) -> TopLine {
    let count = |row: &Value, key: &str| row[key].as_u64().unwrap_or(0);
    // A row evicted from the gateway's table starts again at zero.
    let before = if count(before, "requests") > count(now, "requests") { &Value::Null } else { before };
    let requests = difference(before, now, "requests");
    let per_second = |key: &str| difference(before, now, key) as f64 / seconds;
    TopLine {
        id: now["id"].as_str().unwrap_or_default().to_owned(),
        name: now["name"].as_str().unwrap_or_default().to_owned(),
        rate: requests as f64 / seconds,
        error_rate: per_second("errors"),
        answer_rate: per_second("answers"),
        mean_us: difference(before, now, "duration_ns") as f64 / requests.max(1) as f64 / 1000.0,
        p99_us: percentile(before, now, 0.99),
        cpu_percent: per_second("busy_ns") / 1e9 * 100.0,
        bytes_rate: per_second("received_bytes") + per_second("sent_bytes"),
    }
}

fn difference(before: &Value, now: &Value, key: &str) -> u64 {
    now[key].as_u64().unwrap_or(0).saturating_sub(before[key].as_u64().unwrap_or(0))
}

/// Upper bound, in microseconds, of the bucket that contains the given share of all durations.
fn percentile(before: &Value, now: &Value, part: f64) -> f64 {
    let earlier: std::collections::HashMap<u64, u64> = buckets(before).collect();
    let counts: Vec<(u64, u64)> = buckets(now)
        .map(|(end_us, count)| (end_us, count.saturating_sub(earlier.get(&end_us).copied().unwrap_or(0))))
        .collect();
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    let mut seen = 0;
    for (end_us, count) in counts {
        seen += count;
        if count > 0 && seen as f64 >= all as f64 * part {
            return end_us as f64;
        }
    }
    0.0
}

fn buckets(row: &Value) -> impl Iterator<Item = (u64, u64)> {
    rows(&row["durations_us"]).filter_map(|bucket| Some((bucket[0].as_u64()?, bucket[1].as_u64()?)))
}

#[cfg(test)]
mod tests;
