//! Content of the pages in all three formats.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::json;
use yumen_lab::record::{BottleneckPart, RunRecord, ViewKind};
use yumen_lab::report::{ReportFormat, read_run, render};

use super::synthetic::*;

/// Folder of the goldens. `UPDATE_GOLDENS=1` writes them; check the difference then.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");

#[track_caller]
fn check_golden(name: &str, found: &str) {
    let path = Path::new(DATA).join(name);
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = expected.lines().zip(found.lines()).position(|(a, b)| a != b);
    let line = differs.unwrap_or(expected.lines().count().min(found.lines().count()));
    assert!(
        expected == found,
        "{name}, line {}: expected {:?}, found {:?}; UPDATE_GOLDENS=1 writes it anew",
        line + 1,
        expected.lines().nth(line),
        found.lines().nth(line),
    );
}

#[test]
fn a_small_run_reads_as_its_goldens_in_every_format() {
    let run = smallest();
    check_golden("smallest.html", &render(&run, ReportFormat::Html).unwrap());
    check_golden("smallest.md", &render(&run, ReportFormat::Markdown).unwrap());
    check_golden("smallest.json", &render(&run, ReportFormat::Json).unwrap());
}

#[test]
fn larger_runs_read_as_their_goldens() {
    for run in [dynamic_endpoints(), rate_ramp(), idle_connections()] {
        check_golden(&format!("{}.md", run.scenario.name), &render(&run, ReportFormat::Markdown).unwrap());
    }
}

/// The pages of all synthetic runs by name, rendered once.
pub(crate) fn pages() -> &'static [(String, String)] {
    static PAGES: OnceLock<Vec<(String, String)>> = OnceLock::new();
    let page = |run: RunRecord| (run.scenario.name.clone(), render(&run, ReportFormat::Html).unwrap());
    PAGES.get_or_init(|| all().into_iter().map(page).collect())
}

/// Start tags, attributes and end tags of a page, without the style.
fn tags(page: &str) -> Vec<&str> {
    let body = page.split_once("</style>").map_or(page, |(_, body)| body);
    let parts = body.split('<').skip(1);
    parts.map(|part| part.split_once('>').expect("every tag ends").0).collect()
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    rest.split('"').next()
}

#[test]
fn pages_nest() {
    for (_, page) in pages() {
        // `html` is open; `head` was opened before the style.
        let mut open = vec!["html", "head"];
        for tag in tags(page) {
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name), "in {name}"),
                None if tag.ends_with('/') => {}
                None => open.push(tag.split(' ').next().unwrap_or_default()),
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }
}

#[test]
fn pages_need_nothing_else() {
    for (name, page) in pages() {
        let style = page.split("</style>").next().unwrap_or_default();
        assert!(!style.contains("@import") && !style.contains("url("));
        for tag in tags(page) {
            let element = tag.split(' ').next().unwrap_or_default();
            let foreign = ["script", "iframe", "object", "embed", "img", "image", "use", "base"];
            assert!(!foreign.contains(&element), "{tag} in {name}");
            assert_eq!(attribute(tag, "src"), None);
        }
        let links: Vec<&str> = page.split(" href=\"").skip(1).collect();
        assert!(links.iter().all(|link| link.starts_with(['#']) || link.starts_with("data:,\"")));
    }
}

#[test]
fn links_and_labels_lead_to_what_is_there_once() {
    for (name, page) in pages() {
        let ids: Vec<&str> = tags(page).into_iter().filter_map(|tag| attribute(tag, "id")).collect();
        let known: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(known.len(), ids.len(), "an id stands twice in {name}");
        for tag in tags(page) {
            let labels = attribute(tag, "aria-labelledby").unwrap_or_default().split_whitespace();
            let target = attribute(tag, "href").and_then(|link| link.strip_prefix('#'));
            for id in labels.chain(target) {
                assert!(known.contains(id), "{id} is nowhere in {name}");
            }
        }
    }
}

#[test]
fn every_chart_has_words_and_a_table() {
    for (_, page) in pages() {
        for figure in page.split("<figure>").skip(1) {
            let figure = figure.split("</figure>").next().unwrap_or_default();
            assert_eq!(figure.matches("<svg class=\"chart").count(), 2);
            assert_eq!(figure.matches("<title ").count(), 2);
            assert_eq!(figure.matches("<desc ").count(), 2);
            assert_eq!(figure.matches("<table>").count(), 1);
            assert!(!figure.contains("></desc>"), "an empty description");
        }
    }
}

#[test]
fn recorded_text_is_escaped() {
    let page = render(&smallest(), ReportFormat::Html).unwrap();
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt; &amp; `odd"));
    assert!(page.contains("server &quot;&lt;b&gt;&amp;amp;&lt;/b&gt;&quot;;"));
    assert_eq!(page.matches("</style>").count(), 1);
    assert!(!page.contains('\u{1b}'));
    let text = render(&smallest(), ReportFormat::Markdown).unwrap();
    assert!(text.contains("A | pipe, a \\*star\\*, an \\<img src=x\\>"));
}

/// The lines of a Markdown table with this beginning of its caption.
fn rows<'a>(text: &'a str, caption: &str) -> Vec<&'a str> {
    let start = text.find(&format!("**{caption}")).map_or("", |start| &text[start..]);
    start
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .collect()
}

#[test]
fn losses_are_computed_and_listed() {
    let text = render(&rate_ramp(), ReportFormat::Markdown).unwrap();
    let losses = rows(&text, "Where yumen loses");
    // The synthetic nginx needs less memory, and is better in nothing else.
    assert_eq!(losses.len(), 1, "{losses:?}");
    assert!(losses[0].starts_with("| memory | all | nginx"), "{losses:?}");
}

#[test]
fn slower_yumen_is_reported_as_slower() {
    let slow = Model { capacity: 12_000.0, ..MODELS[1] };
    let points = [Point::new("plain", serde_json::json!({}), closed(16), 1.0)];
    let run = run("slower", "R1", Vec::new(), &points, &[slow, MODELS[2]], 5, 9);
    let text = render(&run, ReportFormat::Markdown).unwrap();
    assert!(
        rows(&text, "Where yumen loses")
            .iter()
            .any(|row| row.starts_with("| throughput | plain | nginx | 1"))
    );
    assert!(text.contains("| nginx | _0 : 1_ |"), "{text}");
}

#[test]
fn one_round_does_not_make_a_loss() {
    let slow = Model { capacity: 12_000.0, ..MODELS[1] };
    let points = [Point::new("plain", serde_json::json!({}), closed(16), 1.0)];
    let run = run("once", "R1", Vec::new(), &points, &[slow, MODELS[2]], 1, 9);
    let text = render(&run, ReportFormat::Markdown).unwrap();
    assert!(rows(&text, "Where yumen loses").is_empty());
    assert!(rows(&text, "Behind, but inconclusive").iter().any(|row| row.starts_with("| throughput")));
}

#[test]
fn without_yumen_there_is_nothing_to_lose() {
    let points = [Point::new("plain", serde_json::json!({}), closed(16), 1.0)];
    let run = run("others", "R1", Vec::new(), &points, &MODELS[2..], 3, 9);
    let text = render(&run, ReportFormat::Markdown).unwrap();
    assert!(text.contains("did not measure yumen beside another gateway"));
}

#[test]
fn figures_that_the_gateway_did_not_bound_are_marked() {
    let run = connection_close();
    let text = render(&run, ReportFormat::Markdown).unwrap();
    let throughput = rows(&text, "Throughput over connections");
    assert!(throughput[0].contains(" (g) |"), "{throughput:?}");
    assert!(!throughput[1].contains(" (g) |"), "{throughput:?}");
    let page = render(&run, ReportFormat::Html).unwrap();
    assert!(page.contains("class=\"point hollow\""));
    let mut all_gateway = rate_ramp();
    for round in
        all_gateway.cases.iter_mut().flat_map(|case| &mut case.results).flat_map(|result| &mut result.rounds)
    {
        round.bottleneck.who = BottleneckPart::Gateway;
    }
    assert!(!render(&all_gateway, ReportFormat::Html).unwrap().contains("class=\"point hollow\""));
}

#[test]
fn kept_connections_are_counted_and_never_win() {
    let mut run = connection_close();
    let text = render(&run, ReportFormat::Markdown).unwrap();
    let counted = rows(&text, "New client connections per 100 requests");
    assert!(counted[0].ends_with("| _1_ (k) |"), "{counted:?}");
    assert!(counted[4].ends_with("| 100 |"), "{counted:?}");
    assert!(text.contains(
        "Kept connections although the request said to close: kong at `Connection: Close, connections=100`"
    ));
    // At any speed.
    for result in
        run.cases.iter_mut().flat_map(|case| &mut case.results).filter(|result| result.target == "kong")
    {
        result.rounds.iter_mut().for_each(|round| round.summary.elapsed_ns /= 10);
    }
    let text = render(&run, ReportFormat::Markdown).unwrap();
    let throughput = rows(&text, "Throughput over connections");
    assert!(throughput[0].ends_with(" (k) |") && !throughput[0].ends_with("** (k) |"), "{throughput:?}");
}

#[test]
fn failures_are_summed_by_class_over_the_rounds() {
    let points = [Point::new("dynamic", json!({}), closed(16), 1.0)];
    let mut run = run("r2", "R2", vec![view(ViewKind::Failures, None)], &points, &MODELS[1..3], 3, 9);
    for round in &mut run.cases[0].results[1].rounds {
        round.summary.errors.read = 1500;
        round.summary.errors.connect_timeout = 1;
        round.summary.totals.unanswered = 2;
    }
    let text = render(&run, ReportFormat::Markdown).unwrap().replace('\u{202f}', " ");
    let found = rows(&text, "Failures: dynamic");
    for expected in [
        "| connection errors | 0 | 0 |",
        "| connection timeouts | 0 | _3_ |",
        "| read errors | 0 | _4 500_ |",
        "| cut off by the end | 0 | 6 |",
    ] {
        assert!(found.contains(&expected), "{expected}: {found:?}");
    }
}

#[test]
fn coordinated_omission_is_reported() {
    let text = render(&dynamic_endpoints(), ReportFormat::Markdown).unwrap();
    assert!(text.contains("Coordinated omission, p99.9 from the intended moment of sending"));
    assert!(text.contains("the interface answered 503"));
}

#[test]
fn json_holds_figures_comparisons_and_losses() {
    let text = render(&rate_ramp(), ReportFormat::Json).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["scenario"], "rate-ramp");
    assert_eq!(report["losses"][0]["metric"], "memory");
    assert_eq!(report["losses"][0]["rival"], "nginx");
    let memory = &report["cases"][0]["results"][1]["figures"]["memory"];
    assert_eq!(memory["unit"], "bytes");
    assert_eq!(memory["spread"]["count"], 3);
    assert!(report["comparisons"].as_array().unwrap().len() > 10);
}

#[test]
fn invalid_record_is_refused_with_a_reason() {
    let check = |text: &str, reason: &str| {
        let error = format!("{:#}", read_run(text).expect_err("not a record"));
        assert!(error.contains(reason), "{error}");
    };
    check("{", "not JSON");
    check("{}", "no `format`");
    check("{\"format\": 99}", "format 99 is newer than this program, which knows up to 1");
    check("{\"format\": 1}", "not the record of a run");
}

#[test]
fn a_record_survives_writing_and_reading() {
    let run = connection_close();
    let read = read_run(&serde_json::to_string(&run).unwrap()).unwrap();
    assert_eq!(render(&read, ReportFormat::Markdown).unwrap(), render(&run, ReportFormat::Markdown).unwrap());
}

/// Runs `yumen-bench` on records in its own folder.
pub(crate) fn bench(name: &str, runs: &[RunRecord], arguments: &[&str]) -> (Output, std::path::PathBuf) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    for (run, file) in runs.iter().zip(["a.json", "b.json"]) {
        std::fs::write(folder.join(file), serde_json::to_string(run).unwrap()).unwrap();
    }
    let output = Command::new(env!("CARGO_BIN_EXE_yumen-bench"))
        .args(arguments)
        .current_dir(&folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (output, folder)
}

#[test]
fn the_command_writes_the_format_that_is_asked_for() {
    let run = || vec![smallest()];
    let (output, _) = bench("html", &run(), &["report", "a.json"]);
    assert!(output.status.success());
    assert!(output.stdout.starts_with(b"<!DOCTYPE html>"));
    let (output, _) = bench("md", &run(), &["report", "a.json", "--md"]);
    assert!(output.stdout.starts_with(b"# smallest: yumen beside nginx"));
    let (output, folder) = bench("out", &run(), &["report", "a.json", "--out", "b.json"]);
    assert!(output.stdout.is_empty());
    assert!(std::fs::read_to_string(folder.join("b.json")).unwrap().starts_with("{\n  \"format\": 1"));
    let (output, _) = bench("absent", &[], &["report", "absent.json"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot read absent.json"));
}
