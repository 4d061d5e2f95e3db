//! An index page over the reports of several runs: the result of each in a sentence, with a link.
//!
//! Depends on the records and the names of the pages, but not on the content of the pages.

use super::context::ReportContext;
use super::headline::sentence;
use super::html;
use super::rivals::standings;
use super::sections::gateways;
use crate::record::RunRecord;
use crate::threshold::judge;
use crate::verdict::VerdictLimits;

/// Writes the page. Each run has the file name of its page, relative to the index.
pub(crate) fn write(runs: &[(String, RunRecord)]) -> String {
    html::page("Benchmark reports", |page| {
        page.open("header", &[]).leaf("h1", &[], "Benchmark reports").close().line();
        page.open("main", &[]).line();
        for (file, run) in runs {
            let limits = VerdictLimits::default();
            let result = sentence(ReportContext::new(run), &standings(run, limits), limits);
            page.open("section", &[("class", "entry")]);
            page.open("h2", &[]).leaf("a", &[("href", file)], &run.scenario.name).close();
            html::rich(page, "p", &[("class", "subtitle")], &run.scenario.title);
            html::rich(page, "p", &[], &result);
            html::rich(page, "p", &[("class", "seen")], &facts(run));
            page.close().line();
        }
        page.close().line();
    })
}

fn facts(run: &RunRecord) -> String {
    let names: Vec<&str> = gateways(run).map(|target| target.name.as_str()).collect();
    let mut facts = vec![run.started.clone(), names.join(", "), super::build::rounds(run)];
    facts.extend(run.scenario.report.iter().map(|report| format!("repeats {report}")));
    let crossed = judge(run).iter().filter(|outcome| outcome.crossed).count();
    if !run.scenario.fail_if.is_empty() {
        facts.push(match crossed {
            0 => "all thresholds kept".to_owned(),
            1 => "1 threshold crossed".to_owned(),
            count => format!("{count} thresholds crossed"),
        });
    }
    facts.join(" · ")
}
