//! Views of the cases of a run, one file each. A scenario lists the views of its report.
//!
//! Views read the record; the chart modules are independent of it.

mod baseline;
mod connections;
mod curves;
mod failures;
mod idle;
mod percentiles;
mod ramp;
mod table;
mod timeline;

use super::context::ReportContext;
use super::document::{ReportBlock, ReportSection};
use crate::record::{ReportView, ViewKind};

pub(crate) use curves::y_label;
pub(crate) use table::heading;

/// Sections of all views in the order of the scenario; without views, a table of the cases.
pub(crate) fn sections(context: ReportContext<'_>) -> Vec<ReportSection> {
    let fallback = [ReportView { kind: ViewKind::Table, over: None, title: None }];
    let views =
        if context.run.scenario.views.is_empty() { &fallback[..] } else { &context.run.scenario.views };
    views.iter().enumerate().map(|(index, view)| section(context, view, index + 1)).collect()
}

fn section(context: ReportContext<'_>, view: &ReportView, number: usize) -> ReportSection {
    let id = format!("view-{number}");
    let mut blocks = match view.kind {
        ViewKind::Curves => curves::blocks(context, view, &id),
        ViewKind::Percentiles => percentiles::blocks(context, &id),
        ViewKind::Failures => failures::blocks(context),
        ViewKind::Timeline => timeline::blocks(context, &id),
        ViewKind::Ramp => ramp::blocks(context, &id),
        ViewKind::Table => table::blocks(context, &id),
        ViewKind::Baseline => baseline::blocks(context),
        ViewKind::Connections => connections::blocks(context, &id),
        ViewKind::IdleMemory => idle::blocks(context, view, &id),
    };
    if blocks.is_empty() {
        blocks.push(ReportBlock::Paragraph("Nothing was measured that could be shown here.".to_owned()));
    }
    ReportSection { id, title: title(view), blocks }
}

fn title(view: &ReportView) -> String {
    if let Some(title) = &view.title {
        return title.clone();
    }
    let over = view.over.as_deref().unwrap_or("cases");
    match view.kind {
        ViewKind::Curves => format!("Throughput, latency and errors over {over}"),
        ViewKind::Percentiles => "Latency by percentile".to_owned(),
        ViewKind::Failures => "Failures".to_owned(),
        ViewKind::Timeline => "Over time".to_owned(),
        ViewKind::Ramp => "Over the offered rate".to_owned(),
        ViewKind::Table => "Case by case".to_owned(),
        ViewKind::Baseline => "Rate, p95 and p99 by case".to_owned(),
        ViewKind::Connections => "Connections, counted".to_owned(),
        ViewKind::IdleMemory => "Memory of idle connections".to_owned(),
    }
}
