//! Evidence of each trap in a run, as a sentence of figures. Pure.

use std::collections::BTreeMap;

use crate::record::{BottleneckPart, RoundRecord, RunCase, RunRecord};
use crate::scenario::TrapEvidence;

/// Returns the sentence; `None` without evidence.
pub(super) fn seen(kind: TrapEvidence, run: &RunRecord) -> Option<String> {
    match kind {
        TrapEvidence::Connections => per_case(run, |round| {
            let counted = round.connections?;
            let accepted =
                counted.door.map_or(String::new(), |accepted| format!(" ({accepted} at the door)"));
            Some(format!("{} connections{accepted} for {} requests", counted.client, counted.requests))
        }),
        TrapEvidence::UpstreamConnections => per_case(run, |round| {
            let counted = round.connections?;
            Some(format!("{} upstream connections for {} requests", counted.upstream?, counted.requests))
        }),
        TrapEvidence::Bottlenecks => bottlenecks(run),
        TrapEvidence::Handshakes => per_case(run, |round| {
            let facts = round.summary.protocols.tls.as_ref()?;
            let key = facts.certificate_key.as_deref().unwrap_or("unknown key");
            let connections = &round.summary.connections;
            Some(format!(
                "{} {} {key}, {} full and {} resumed handshakes",
                facts.version,
                facts.cipher_suite,
                connections.full_handshakes,
                connections.resumed_handshakes
            ))
        }),
        TrapEvidence::Changes => per_case(run, |round| (!round.changes.is_empty()).then(|| changes(round))),
        TrapEvidence::Errors => per_case(run, |round| {
            let classes = round.summary.errors.by_class();
            let found: Vec<String> = classes
                .iter()
                .filter(|(_, count)| *count > 0)
                .map(|(class, count)| format!("{count} {class}"))
                .collect();
            Some(if found.is_empty() { "no errors".to_owned() } else { found.join(", ") })
        }),
        TrapEvidence::Correction => per_case(run, |round| {
            let corrected = round.summary.latencies.corrected.as_ref()?;
            let p99 = |latency: &yumen_load::LatencySummary| {
                let point = latency.percentiles.iter().find(|point| point.percentile >= 99.0)?;
                Some(point.ns as f64 / 1e6)
            };
            let (meant, sent) = (p99(corrected)?, p99(&round.summary.latencies.response)?);
            Some(format!("p99 {meant:.2} ms from the intended moment, {sent:.2} ms from the sent byte"))
        }),
    }
}

/// One figure of each target's last round in the last case that has the figure; equal targets are merged.
fn per_case(run: &RunRecord, figure: impl Fn(&RoundRecord) -> Option<String>) -> Option<String> {
    let of = |case: &RunCase| -> Vec<(String, String)> {
        let results = case.results.iter();
        results.filter_map(|result| Some((result.target.clone(), figure(result.rounds.last()?)?))).collect()
    };
    let mut parts = Vec::new();
    for case in &run.cases {
        let mut by_figure: Vec<(String, Vec<String>)> = Vec::new();
        for (target, figure) in of(case) {
            match by_figure.iter_mut().find(|(known, _)| *known == figure) {
                Some((_, targets)) => targets.push(target),
                None => by_figure.push((figure, vec![target])),
            }
        }
        let texts: Vec<String> =
            by_figure.iter().map(|(figure, targets)| format!("{}: {figure}", targets.join(", "))).collect();
        if !texts.is_empty() {
            parts.push(format!("{} - {}", case.label, texts.join("; ")));
        }
    }
    (!parts.is_empty()).then(|| parts.join(". "))
}

fn bottlenecks(run: &RunRecord) -> Option<String> {
    let mut by_target: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for result in run.cases.iter().flat_map(|case| &case.results) {
        let (limited, all) = by_target.entry(&result.target).or_default();
        *all += result.rounds.len();
        *limited +=
            result.rounds.iter().filter(|round| round.bottleneck.who == BottleneckPart::Gateway).count();
    }
    let gateway = |name: &str| {
        run.targets.iter().any(|t| t.name == name && t.role == crate::record::TargetRole::Gateway)
    };
    let texts: Vec<String> = by_target
        .iter()
        .filter(|(name, (_, all))| gateway(name) && *all > 0)
        .map(|(name, (limited, all))| format!("{name} was the bottleneck in {limited} of its {all} rounds"))
        .collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

fn changes(round: &RoundRecord) -> String {
    let mut took: Vec<f64> = round.changes.iter().map(|change| change.took_ms).collect();
    took.sort_by(f64::total_cmp);
    let failed = round.changes.iter().filter(|change| change.error.is_some()).count();
    let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    let mut seen: Vec<f64> = round.changes.iter().filter_map(|change| change.effective_ms).collect();
    seen.sort_by(f64::total_cmp);
    let seen =
        seen.get(seen.len() / 2).map_or(String::new(), |ms| format!(", seen in traffic after {ms:.0} ms"));
    let median = took.get(took.len() / 2).copied().unwrap_or(0.0);
    format!("{} changes, median {median:.1} ms at the interface{failed}{seen}", took.len())
}
