//! Writes the rounds of runs as CSV (RFC 4180): one line per round, times in nanoseconds, sizes in bytes.
//!
//! Depends on the record, but not on page layout.

use crate::metric::{RoundMetric, error_share, good_rate, part_name};
use crate::record::{RoundRecord, RunRecord};

const COLUMNS: [&str; 23] = [
    "scenario",
    "started",
    "case",
    "parameters",
    "target",
    "round",
    "position",
    "elapsed_ns",
    "responses",
    "good_per_second",
    "p50_ns",
    "p95_ns",
    "p99_ns",
    "p99_9_ns",
    "max_ns",
    "errors",
    "error_share",
    "cpu_ns_per_request",
    "memory_bytes",
    "memory_bytes_per_connection",
    "connections_opened",
    "bounded_by",
    "missing",
];

/// One header, then the rounds of all runs. A target without rounds has one line with the reason.
pub(crate) fn write(runs: &[RunRecord]) -> String {
    let mut out = line(COLUMNS.map(str::to_owned).to_vec());
    for run in runs {
        for case in &run.cases {
            let parameters = serde_json::Value::Object(case.parameters.clone()).to_string();
            for result in &case.results {
                let mut begin = vec![
                    run.scenario.name.clone(),
                    run.started.clone(),
                    case.label.clone(),
                    parameters.clone(),
                    result.target.clone(),
                ];
                for round in &result.rounds {
                    let mut cells = begin.clone();
                    cells.extend(figures(round));
                    cells.push(String::new());
                    out += &line(cells);
                }
                if let Some(reason) = &result.missing {
                    begin.resize(COLUMNS.len() - 1, String::new());
                    begin.push(reason.clone());
                    out += &line(begin);
                }
            }
        }
    }
    out
}

/// From the column `round` to `bounded_by`; a figure that was not measured is empty.
fn figures(round: &RoundRecord) -> Vec<String> {
    let summary = &round.summary;
    let of = |metric: RoundMetric| metric.of(round).map_or(String::new(), |value| value.to_string());
    vec![
        round.number.to_string(),
        round.position.to_string(),
        summary.elapsed_ns.to_string(),
        summary.totals.responses.to_string(),
        good_rate(summary).to_string(),
        of(RoundMetric::LatencyP50),
        of(RoundMetric::LatencyP95),
        of(RoundMetric::LatencyP99),
        of(RoundMetric::LatencyP999),
        summary.main_latency().max_ns.to_string(),
        summary.errors.total().to_string(),
        error_share(summary).to_string(),
        of(RoundMetric::CpuPerRequest),
        of(RoundMetric::Memory),
        of(RoundMetric::MemoryPerConnection),
        summary.connections.opened.to_string(),
        part_name(round.bottleneck.who).to_owned(),
    ]
}

fn line(cells: Vec<String>) -> String {
    let quoted = |cell: String| match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    };
    cells.into_iter().map(quoted).collect::<Vec<_>>().join(",") + "\n"
}
