//! The result of a run: first on the page, in the index, in CSV, and by thresholds.

use serde_json::json;
use yumen_lab::record::*;
use yumen_lab::report::{ReportFormat, render, render_csv, render_index, render_summary};

use super::pages::bench;
use super::synthetic::*;

fn text(run: &RunRecord) -> String {
    render(run, ReportFormat::Markdown).unwrap().replace('\u{202f}', " ")
}

/// Two gateways at one point.
fn pair(first: Model, second: Model, rounds: usize) -> RunRecord {
    let points = [Point::new("plain", json!({}), closed(16), 1.0)];
    run("pair", "R1", Vec::new(), &points, &[first, second], rounds, 9)
}

/// The sentence at the top of a report.
#[track_caller]
fn check_result(run: &RunRecord, expected: &str) {
    let text = text(run);
    assert_eq!(text.split("\n\n").nth(2), Some(expected));
}

const SLOW: Model = Model { capacity: 12_000.0, ..MODELS[1] };

#[test]
fn result_names_the_better_and_the_worse() {
    check_result(&pair(MODELS[1], MODELS[4], 3), "Throughput: yumen is better than envoy (2.35 ×).");
    check_result(
        &pair(SLOW, MODELS[2], 3),
        "Throughput: yumen is worse than nginx (0.31 ×). Worse in other figures: latency p50 (nginx), latency p99 (nginx), \
         latency p99.9 (nginx), CPU per request (nginx), memory (nginx).",
    );
}

#[test]
fn result_of_equal_gateways_is_level() {
    let twin = Model { name: "nginx", ..MODELS[1] };
    check_result(&pair(MODELS[1], twin, 5), "Throughput: yumen is level with nginx.");
}

#[test]
fn single_round_is_no_result() {
    let run = pair(MODELS[1], MODELS[2], 1);
    check_result(
        &run,
        "Too few rounds for a result: 1 of each gateway, and a comparison needs at least three.",
    );
    let text = text(&run);
    let overview = text.lines().find(|line| line.starts_with("| nginx |")).unwrap();
    assert!(overview.contains("too few rounds") && !overview.contains("0 : 0"), "{overview}");
    assert!(!text.contains("** |"), "no bold figure: {text}");
    assert!(text.contains("no difference of this run can be distinguished from chance"), "{text}");
}

#[test]
fn rates_that_the_gateway_did_not_bound_do_not_lead() {
    let mut run = pair(MODELS[1], MODELS[4], 3);
    let results = run.cases.iter_mut().flat_map(|case| &mut case.results);
    results
        .flat_map(|result| &mut result.rounds)
        .for_each(|round| round.bottleneck.who = BottleneckPart::Generator);
    let text = text(&run);
    let result = text.split("\n\n").nth(2).unwrap();
    assert!(result.starts_with("CPU per request: yumen is better than envoy"), "{result}");
    assert!(result.contains("2 of 2 were not bounded by the gateway alone"), "{result}");
}

#[test]
fn figures_within_the_noise_are_not_bold() {
    let twin = Model { name: "nginx", ..MODELS[1] };
    let bold = |run: &RunRecord| text(run).lines().filter(|line| line.contains("** |")).count();
    assert_eq!(bold(&pair(MODELS[1], twin, 5)), 0);
    assert!(bold(&pair(MODELS[1], MODELS[4], 5)) > 0);
}

#[test]
fn partial_last_second_is_not_shown() {
    let mut run = dynamic_endpoints();
    let rounds = |run: &mut RunRecord, change: fn(&mut RoundRecord)| {
        let results = run.cases.iter_mut().flat_map(|case| &mut case.results);
        results.flat_map(|result| &mut result.rounds).for_each(change);
    };
    let whole = text(&run);
    rounds(&mut run, |round| {
        let second = round.summary.timeline.len() as u64;
        round.summary.elapsed_ns += 250_000_000;
        let span_ns = 250_000_000;
        round.summary.timeline.push(yumen_load::SecondSummary { second, span_ns, ..Default::default() });
    });
    let seconds = |text: &str| {
        let lines = text.lines().filter(|line| line.starts_with("Lowest to highest second"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(seconds(&text(&run)), seconds(&whole));
    // A second without a response has no latency, neither the best nor the worst.
    rounds(&mut run, |round| {
        let second = &mut round.summary.timeline[3];
        (second.responses, second.p50_ns, second.p99_ns, second.max_ns) = (0, 0, 0, 0);
    });
    let latency: Vec<String> = seconds(&text(&run)).into_iter().filter(|line| line.contains("ms")).collect();
    assert!(!latency.is_empty() && latency.iter().all(|line| !line.contains(" 0 ns")), "{latency:?}");
}

#[test]
fn baseline_view_has_rate_p95_and_p99_with_their_deviations() {
    let text = text(&plugin_cost());
    let table = text.split("**yumen: rate and latency of each case**").nth(1).unwrap();
    let mut lines = table.lines().filter(|line| line.starts_with('|'));
    assert_eq!(lines.next(), Some("| case | QPS | ± | p95 | ± | p99 | ± |"));
    let row: Vec<&str> = lines.nth(1).unwrap().split(" | ").collect();
    assert_eq!(row[0], "| no plugin, workers=1");
    assert!(row.len() == 7 && row.iter().all(|cell| *cell != "–"), "{row:?}");
}

#[test]
fn thresholds_are_judged_in_every_format() {
    let run = plugin_cost();
    let text = text(&run);
    assert!(text.contains("## Thresholds"), "{text}");
    assert!(text.contains("| `errors>1%` | yumen | no plugin, workers=1 | 0 % | kept |"), "{text}");
    let summary = render_summary(&run).replace('\u{202f}', " ");
    assert!(summary.contains("kept     errors>1%  0 %  yumen no plugin, workers=1"), "{summary}");
    assert!(summary.starts_with("\nplugin-cost: Throughput: yumen is better than"), "{summary}");
    let json: serde_json::Value = serde_json::from_str(&render(&run, ReportFormat::Json).unwrap()).unwrap();
    assert_eq!(json["thresholds"][0]["threshold"], "errors>1%");
}

#[test]
fn flame_graphs_are_on_the_page_and_doubtful_ones_say_so() {
    let page = render(&plugin_cost(), ReportFormat::Html).unwrap();
    assert_eq!(page.matches("<svg class=\"flame\"").count(), 2);
    assert_eq!(page.matches("Many stacks are incomplete").count(), 1);
    let text = text(&plugin_cost());
    assert!(text.contains("**Functions with the most time of their own: yumen**"), "{text}");
    assert!(text.contains("| serve\\<T\\> | 40.0 % |"), "{text}");
    let mut run = plugin_cost();
    run.flames =
        vec![FlameProfile { missing: Some("perf is not installed".to_owned()), ..Default::default() }];
    assert!(render(&run, ReportFormat::Html).unwrap().contains("No flame graph: perf is not installed."));
}

#[test]
fn csv_has_a_line_for_every_round_and_every_missing_target() {
    let (small, ramp) = (smallest(), rate_ramp());
    let rounds = |run: &RunRecord| -> usize {
        run.cases.iter().flat_map(|case| &case.results).map(|result| result.rounds.len()).sum()
    };
    let csv = render_csv(&[small.clone(), ramp.clone()]);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + rounds(&small) + 1 + rounds(&ramp));
    let columns = lines[0].split(',').count();
    assert!(
        lines[1].starts_with("smallest,2026-11-21T14:03:00Z,<script>alert(1)</script> & `odd,{},yumen,1,")
    );
    assert!(
        lines[2].ends_with(",cannot do key-auth") && lines[2].split(',').count() == columns,
        "{}",
        lines[2]
    );
    assert!(lines.iter().all(|line| line.split(',').count() == columns));
}

#[test]
fn index_links_reports_with_their_results() {
    let page = render_index(&[("a.html".to_owned(), rate_ramp()), ("b.html".to_owned(), plugin_cost())]);
    assert!(
        page.contains("<a href=\"a.html\">rate-ramp</a>")
            && page.contains("<a href=\"b.html\">plugin-cost</a>")
    );
    assert!(page.contains("Latency p99: yumen is") && page.contains("repeats R5"), "{page}");
    assert!(page.contains("all thresholds kept"), "{page}");
}

#[test]
fn several_records_make_a_directory_of_reports() {
    let (output, folder) =
        bench("several", &[rate_ramp(), smallest()], &["report", "a.json", "b.json", "--out", "pages"]);
    assert!(output.status.success(), "{output:?}");
    for name in ["a.html", "b.html", "index.html"] {
        assert!(folder.join("pages").join(name).is_file(), "{name}");
    }
    let refused = |arguments: &[&str], reason: &str| {
        let (output, _) = bench("refused", &[rate_ramp(), smallest()], arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && message.contains(reason), "{message}");
    };
    refused(&["report", "a.json", "b.json"], "give a directory with --out");
    refused(&["report", "a.json", "a.json", "--out", "pages"], "two records would have this report");
    refused(&["report", "a.json", "b.json", "--json", "--out", "."], "this is a record");
    let (output, _) = bench("table", &[rate_ramp(), smallest()], &["report", "a.json", "b.json", "--csv"]);
    assert!(output.stdout.starts_with(b"scenario,started,case"), "{output:?}");
}
