use yumen_load::{ErrorTotals, LatencyPercentile, LatencySummary, LoadLatencies, LoadPlan, RequestTotals};

use super::*;

/// 1000 good responses in a second, p99 of 4 ms, and one error.
fn load(kind: LoadShape) -> LoadSummary {
    let percentiles = vec![LatencyPercentile { percentile: 99.0, ns: 4_000_000 }];
    let response = LatencySummary { count: 1000, percentiles, ..LatencySummary::default() };
    LoadSummary {
        plan: LoadPlan { kind, ..LoadPlan::default() },
        elapsed_ns: 1_000_000_000,
        totals: RequestTotals { requests: 1001, responses: 1000, unanswered: 0 },
        errors: ErrorTotals { read: 1, ..ErrorTotals::default() },
        latencies: LoadLatencies { response, ..LoadLatencies::default() },
        ..LoadSummary::default()
    }
}

#[track_caller]
fn check(threshold: &str, crossed: bool, found: &str) {
    let parsed: FigureThreshold = threshold.parse().unwrap();
    let outcome = parsed.judge_load(&load(LoadShape::Closed));
    assert_eq!((outcome.crossed, outcome.found.replace('\u{202f}', " ").as_str()), (crossed, found));
}

#[test]
fn figures_are_compared_with_the_limit() {
    check("p99>5ms", false, "4.00 ms");
    check("p99>3500us", true, "4.00 ms");
    check("p99 >= 4ms", true, "4.00 ms");
    check("p99>4ms", false, "4.00 ms");
    check("errors>0.1%", false, "0.10 %");
    check("errors > 0", true, "0.10 %");
    check("throughput<1k", false, "1 000");
    check("throughput<=1k", true, "1 000");
}

#[test]
fn threshold_without_a_figure_fails() {
    check("p50<1s", true, "no measured latency p50");
    check("memory-per-connection>5KiB", true, "no measured memory per connection");
}

#[test]
fn answered_rate_of_an_open_loop_can_be_a_threshold() {
    let threshold: FigureThreshold = "throughput<2k".parse().unwrap();
    assert!(threshold.judge_load(&load(LoadShape::Open { rate: 2000.0 })).crossed);
}

#[track_caller]
fn check_refused(text: &str, reason: &str) {
    let error = text.parse::<FigureThreshold>().unwrap_err();
    assert!(error.contains(text) && error.contains(reason), "{error}");
}

#[test]
fn invalid_threshold_is_refused_with_the_allowed_form() {
    check_refused("p98>5ms", "figures are p50, p95, p99");
    check_refused("p99=5ms", "with >, >=, < or <=");
    check_refused("p99>5", "a unit is expected");
    check_refused("p99>soon", "ms, s, m and h are allowed");
    check_refused("memory>5X", "KiB");
}

#[test]
fn load_refuses_thresholds_of_gateways() {
    let unfit = |text: &str| text.parse::<FigureThreshold>().unwrap().unfit_for_load();
    assert!(unfit("nginx:p99>5ms").unwrap().contains("no targets"));
    assert!(unfit("cpu>50us").unwrap().contains("yumen-bench run"));
    assert_eq!(unfit("p99>5ms"), None);
}
