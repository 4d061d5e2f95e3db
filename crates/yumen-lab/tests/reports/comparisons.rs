//! Regressions between two runs, and the resulting output and exit code for CI.

use yumen_lab::compare::{ComparisonOutcome, compare};
use yumen_lab::metric::RoundMetric;
use yumen_lab::record::RunRecord;
use yumen_lab::verdict::{VerdictDecision, VerdictLimits};

use super::pages::bench;
use super::synthetic::*;

/// A plain run in which each target has this fraction of its capacity.
fn plain(rounds: usize, seed: u64, scale: &[f64]) -> RunRecord {
    let models: Vec<Model> = MODELS[1..]
        .iter()
        .zip(scale)
        .map(|(model, scale)| Model { capacity: model.capacity * scale, ..*model })
        .collect();
    let points = [16, 64].map(|connections| {
        let label = format!("connections={connections}");
        Point::new(&label, serde_json::json!({ "connections": connections }), closed(connections), 1.0)
    });
    run("plain", "R1", Vec::new(), &points, &models, rounds, seed)
}

fn compared(earlier: &RunRecord, later: &RunRecord, relative_to: Option<&str>) -> ComparisonOutcome {
    compare(earlier, later, VerdictLimits::default(), &[], relative_to).expect("comparable")
}

fn decision(outcome: &ComparisonOutcome, target: &str, metric: RoundMetric) -> VerdictDecision {
    let row = outcome.rows.iter().find(|row| row.target == target && row.metric == metric);
    row.expect("a row").verdict.decision
}

#[test]
fn the_same_gateway_again_is_no_regression() {
    let outcome = compared(&plain(5, 1, &[1.0, 1.0]), &plain(5, 2, &[1.0, 1.0]), None);
    assert_eq!(decision(&outcome, "yumen", RoundMetric::Throughput), VerdictDecision::Same);
    assert_eq!(outcome.regressions(), 0, "{:?}", outcome.rows);
}

#[test]
fn a_slower_gateway_is_a_regression_and_stands_first() {
    let outcome = compared(&plain(5, 1, &[1.0, 1.0]), &plain(5, 2, &[0.8, 1.0]), None);
    assert_eq!(decision(&outcome, "yumen", RoundMetric::Throughput), VerdictDecision::Worse);
    assert_eq!(decision(&outcome, "nginx", RoundMetric::Throughput), VerdictDecision::Same);
    assert_eq!(outcome.rows[0].target, "yumen");
    assert_eq!(outcome.rows[0].verdict.decision, VerdictDecision::Worse);
}

#[test]
fn a_faster_gateway_is_better() {
    let outcome = compared(&plain(5, 1, &[1.0, 1.0]), &plain(5, 2, &[1.3, 1.0]), None);
    assert_eq!(decision(&outcome, "yumen", RoundMetric::Throughput), VerdictDecision::Better);
    assert_eq!(outcome.regressions(), 0);
}

#[test]
fn three_rounds_can_tell_and_two_cannot() {
    let outcome = compared(&plain(3, 1, &[1.0, 1.0]), &plain(3, 2, &[0.8, 1.0]), None);
    assert_eq!(decision(&outcome, "yumen", RoundMetric::Throughput), VerdictDecision::Worse);
    let outcome = compared(&plain(2, 1, &[1.0, 1.0]), &plain(2, 2, &[0.8, 1.0]), None);
    assert_eq!(decision(&outcome, "yumen", RoundMetric::Throughput), VerdictDecision::TooFew);
    assert_eq!(outcome.regressions(), 0);
}

#[test]
fn a_slower_machine_cancels_in_ratios_to_another_gateway() {
    let (earlier, later) = (plain(5, 1, &[1.0, 1.0]), plain(5, 2, &[0.8, 0.8]));
    assert_eq!(
        decision(&compared(&earlier, &later, None), "yumen", RoundMetric::Throughput),
        VerdictDecision::Worse
    );
    let outcome = compared(&earlier, &later, Some("nginx"));
    assert_eq!(decision(&outcome, "yumen", RoundMetric::Throughput), VerdictDecision::Same);
    assert!(outcome.rows.iter().all(|row| row.target != "nginx"));
}

#[test]
fn differences_between_runs_are_warned_of() {
    let earlier = plain(3, 1, &[1.0, 1.0]);
    let mut later = plain(3, 2, &[1.0]);
    later.machine.kernel = "Linux 7.0".to_owned();
    later.cases.remove(1);
    let warnings = compared(&earlier, &later, None).warnings;
    let expected = [
        "kernel differs: Linux 6.18.44, then Linux 7.0",
        "not in the later run: connections=64",
        "nginx is not in the later run",
    ];
    assert_eq!(warnings, expected);
}

#[test]
fn unlike_runs_are_refused_with_a_reason() {
    let check = |later: &RunRecord, targets: &[&str], reason: &str| {
        let targets: Vec<String> = targets.iter().map(|name| (*name).to_owned()).collect();
        let earlier = plain(3, 1, &[1.0, 1.0]);
        let error =
            compare(&earlier, later, VerdictLimits::default(), &targets, None).expect_err("not comparable");
        assert!(error.to_string().contains(reason), "{error}");
    };
    check(&rate_ramp(), &[], "different scenarios: `plain` and `rate-ramp`");
    check(&plain(3, 2, &[1.0]), &["nginx"], "target `nginx` is not in both runs; they share yumen");
    let mut renamed = plain(3, 2, &[1.0]);
    renamed.cases.iter_mut().for_each(|case| case.id.push('x'));
    check(&renamed, &[], "no case in which the same target was measured");
}

#[test]
fn exit_code_reports_the_verdict() {
    let runs = |scale: f64| vec![plain(5, 1, &[1.0, 1.0]), plain(5, 2, &[scale, 1.0])];
    let (output, _) = bench("compare-same", &runs(1.0), &["compare", "a.json", "b.json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));

    let (output, _) = bench("compare-worse", &runs(0.8), &["compare", "a.json", "b.json"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("worse")), "{text}");

    let lenient = ["compare", "a.json", "b.json", "--threshold", "40%"];
    assert_eq!(bench("compare-lenient", &runs(0.8), &lenient).0.status.code(), Some(0));

    let json = ["compare", "a.json", "b.json", "--json", "--targets", "yumen"];
    let (output, _) = bench("compare-json", &runs(0.8), &json);
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outcome["rows"][0]["verdict"]["decision"], "worse");

    let others = vec![plain(3, 1, &[1.0]), rate_ramp()];
    assert_eq!(bench("compare-unlike", &others, &["compare", "a.json", "b.json"]).0.status.code(), Some(2));
    let wrong = ["compare", "a.json", "b.json", "--threshold", "5"];
    assert_eq!(bench("compare-usage", &runs(1.0), &wrong).0.status.code(), Some(2));
}
