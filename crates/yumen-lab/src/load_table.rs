//! A load result as a table in text. Pure.

use yumen_load::{LatencySummary, LoadShape, LoadSummary};

use crate::units::{bytes, duration, grouped, rate};

const SHOWN: [(&str, f64); 7] = [
    ("p50", 50.0),
    ("p90", 90.0),
    ("p99", 99.0),
    ("p99.9", 99.9),
    ("p99.99", 99.99),
    ("p99.999", 99.999),
    ("p99.9999", 99.9999),
];
/// Limit of the generator's p99 delay in nanoseconds. Beyond it, open loop latencies include the generator's
/// own.
const LAG_NS_MAX: u64 = 1_000_000;

/// Formats the whole result.
pub fn render(summary: &LoadSummary) -> String {
    let mut out = title(summary);
    out.push('\n');
    match &summary.plan.kind {
        LoadShape::Ramp { .. } => out.push_str(&ramp(summary)),
        LoadShape::Idle { .. } => out.push_str(&idle(summary)),
        LoadShape::Closed | LoadShape::Open { .. } => out.push_str(&rates(summary)),
    }
    out.push_str(&latencies(summary));
    out.push_str(&counts(summary));
    for note in notes(summary) {
        out.push_str(&format!("note: {note}\n"));
    }
    out
}

fn title(summary: &LoadSummary) -> String {
    let plan = &summary.plan;
    let first = plan.request.urls.first().map_or("", |url| url.url.as_str());
    let more = match plan.request.urls.len() {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let tls = summary.protocols.tls.as_ref().map_or_else(String::new, |tls| {
        let key = tls.certificate_key.as_ref().map_or_else(String::new, |key| format!(", {key}"));
        format!(" over {} ({}{key})", tls.version, tls.cipher_suite)
    });
    let kind = match &plan.kind {
        LoadShape::Closed => "closed loop".to_owned(),
        LoadShape::Open { rate: offered } => format!("open loop at {}/s", rate(*offered)),
        LoadShape::Ramp { low, high, .. } => {
            format!("ramp from {} to {} connections/s", rate(*low), rate(*high))
        }
        LoadShape::Idle { .. } => "idle connections".to_owned(),
    };
    let streams = if plan.streams > 1 { format!(" of {} streams", plan.streams) } else { String::new() };
    let connections = match &plan.kind {
        LoadShape::Ramp { connections_per_step, .. } => {
            format!("{} connections a step", grouped(*connections_per_step))
        }
        _ => format!("{}{streams}", plural(plan.connections as u64, "connection")),
    };
    let fresh = if plan.new_connection { ", a new one for each request" } else { "" };
    format!(
        "{} {first}{more}\n{}{tls}; {kind}, {}, {connections}{fresh}, {}\n",
        plan.request.method,
        summary.protocols.protocol,
        plural(plan.threads as u64, "thread"),
        duration(summary.elapsed_ns as f64)
    )
}

fn rates(summary: &LoadSummary) -> String {
    let seconds = summary.elapsed_ns as f64 / 1e9;
    let per_second = |count: u64| bytes(count as f64 / seconds.max(1e-9));
    table(&[
        ["responses", "per second", "read", "written"].map(str::to_owned).to_vec(),
        vec![
            grouped(summary.totals.responses),
            rate(summary.responses_per_second()),
            format!("{}/s", per_second(summary.transfer.bytes_received)),
            format!("{}/s", per_second(summary.transfer.bytes_sent)),
        ],
    ])
}

fn ramp(summary: &LoadSummary) -> String {
    let mut rows = vec![
        ["asked/s", "sent/s", "replies/s", "min", "max", "p50", "p99", "errors %"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for step in &summary.ramp {
        let at = |percentile| step.latency.at(percentile).map_or("-".to_owned(), |ns| duration(ns as f64));
        rows.push(vec![
            rate(step.demanded_request_rate),
            rate(step.request_rate),
            rate(step.reply_rate),
            rate(step.reply_rate_min),
            rate(step.reply_rate_max),
            at(50.0),
            at(99.0),
            format!("{:.2}", step.error_percent),
        ]);
    }
    table(&rows)
}

fn idle(summary: &LoadSummary) -> String {
    let Some(idle) = &summary.idle else { return String::new() };
    let per_connection = idle.rss_per_connection_bytes.map_or("not looked at".to_owned(), bytes);
    table(&[
        ["held", "wanted", "lost", "opened in", "held for", "memory each"].map(str::to_owned).to_vec(),
        vec![
            grouped(idle.held),
            grouped(idle.wanted),
            grouped(idle.lost),
            duration(idle.opening_ns as f64),
            duration(idle.held_ns as f64),
            per_connection,
        ],
    ])
}

fn latencies(summary: &LoadSummary) -> String {
    let named = [
        ("since it was due", summary.latencies.corrected.as_ref()),
        ("since it was sent", Some(&summary.latencies.response)),
        ("connecting", summary.latencies.connect.as_ref()),
        ("generator late by", summary.latencies.schedule_lag.as_ref()),
    ];
    let named: Vec<(&str, &LatencySummary)> = named
        .into_iter()
        .filter_map(|(name, latency)| Some((name, latency?)))
        .filter(|(_, l)| l.count > 0)
        .collect();
    let most = named.iter().map(|(_, latency)| latency.count).max().unwrap_or(0);
    let shown: Vec<(&str, f64)> = SHOWN.into_iter().filter(|(_, at)| means_something(*at, most)).collect();
    if named.is_empty() {
        return String::new();
    }
    let mut header = vec!["latency".to_owned()];
    header.extend(shown.iter().map(|(name, _)| (*name).to_owned()));
    header.extend(["max", "mean", "stdev"].map(str::to_owned));
    let mut rows = vec![header];
    for (name, latency) in named {
        let mut row = vec![name.to_owned()];
        row.extend(shown.iter().map(|(_, at)| match latency.at(*at) {
            Some(ns) if means_something(*at, latency.count) => duration(ns as f64),
            _ => "-".to_owned(),
        }));
        row.extend([latency.max_ns as f64, latency.mean_ns, latency.stdev_ns].map(duration));
        rows.push(row);
    }
    table(&rows)
}

/// Whether enough values lie beyond a percentile; otherwise it equals the maximum.
fn means_something(percentile: f64, count: u64) -> bool {
    percentile <= 50.0 || count as f64 * (100.0 - percentile) / 100.0 >= 1.0 - 1e-9
}

fn counts(summary: &LoadSummary) -> String {
    let connections = &summary.connections;
    let mut lines = vec![("connections", format!("{} opened", grouped(connections.opened)))];
    if summary.protocols.tls.is_some() {
        lines[0].1.push_str(&format!(
            ", {} full handshakes, {} resumed",
            grouped(connections.full_handshakes),
            grouped(connections.resumed_handshakes)
        ));
    }
    if connections.closed_by_server > 0 {
        lines[0].1.push_str(&format!(", {} closed by the server", grouped(connections.closed_by_server)));
    }
    let statuses: Vec<String> =
        summary.statuses.iter().map(|(status, count)| format!("{status}: {}", grouped(*count))).collect();
    lines.push(("statuses", if statuses.is_empty() { "none".to_owned() } else { statuses.join(", ") }));
    let errors = &summary.errors;
    if errors.total() == 0 {
        lines.push(("errors", "none".to_owned()));
    }
    let mut out = String::new();
    for (name, count) in errors.by_class().into_iter().filter(|(_, count)| *count > 0) {
        let example =
            errors.examples.get(name).map_or(String::new(), |example| format!(" (first: {example})"));
        lines.push(("errors", format!("{} {}{example}", grouped(count), name.replace('_', " "))));
    }
    if summary.totals.unanswered > 0 {
        lines.push(("cut off", format!("{} unanswered at the end", grouped(summary.totals.unanswered))));
    }
    lines.push(("generator", generator(summary)));
    for (name, value) in lines {
        out.push_str(&format!("{name:<13}{value}\n"));
    }
    out
}

fn generator(summary: &LoadSummary) -> String {
    let generator_cpu_ns = summary.generator.cost.cpu_ns() as f64;
    let busy = generator_cpu_ns / (summary.elapsed_ns.max(1) as f64) * 100.0;
    let each = match summary.totals.responses {
        0 => String::new(),
        _ => format!("{} of CPU per response, ", duration(summary.generator_ns_per_response())),
    };
    format!("{each}{busy:.0} % of one CPU")
}

/// Caveats of the figures.
fn notes(summary: &LoadSummary) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(lag) = summary.latencies.schedule_lag.as_ref().and_then(|lag| lag.at(99.0))
        && lag > LAG_NS_MAX
    {
        let late = duration(lag as f64);
        notes
            .push(format!("the generator was {late} late at its own p99: add threads, or free a CPU for it"));
    }
    if let LoadShape::Open { rate: offered } = summary.plan.kind
        && summary.responses_per_second() < offered * 0.99
    {
        notes.push(format!(
            "{}/s were answered of {}/s asked for",
            rate(summary.responses_per_second()),
            rate(offered)
        ));
    }
    let generator_cpu_ns = summary.generator.cost.cpu_ns();
    if generator_cpu_ns as f64 > 0.95 * summary.elapsed_ns as f64 * summary.plan.threads as f64 {
        notes.push("the generator's threads were busy all the time: it may be the bottleneck".to_owned());
    }
    notes
}

fn plural(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Formats columns aligned to the right; a column of names is aligned to the left.
fn table(rows: &[Vec<String>]) -> String {
    let names = rows.first().is_some_and(|row| row.first().is_some_and(|cell| cell == "latency"));
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate().take(columns) {
            let gap = if column == 0 { 0 } else { 3 };
            let width = width(column);
            match names && column == 0 {
                true => line.push_str(&format!("{cell:<width$}")),
                false => line.push_str(&format!("{:gap$}{cell:>width$}", "")),
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests;
