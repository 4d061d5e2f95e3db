//! The setup section: machine, doctor, ceilings, targets with their versions and configurations.
//!
//! Reads the record through its context.

use super::super::context::ReportContext;
use super::super::document::{CellEmphasis, ReportBlock, ReportTable, TableCell};
use crate::quantity::QuantityUnit;
use crate::record::{FindingLevel, MachineRecord, RunRecord};

pub(crate) fn blocks(context: ReportContext<'_>) -> Vec<ReportBlock> {
    let run = context.run;
    let mut blocks = vec![
        ReportBlock::Heading("Targets".to_owned()),
        ReportBlock::Table(targets(run)),
        ReportBlock::Heading("Machine".to_owned()),
        ReportBlock::Facts(machine(&run.machine)),
    ];
    if !run.skipped.is_empty() {
        blocks.insert(2, ReportBlock::Table(skipped(run)));
    }
    if !run.ceilings.is_empty() {
        blocks.push(ReportBlock::Table(ceilings(run)));
    }
    if !run.doctor.is_empty() {
        blocks.push(ReportBlock::Table(doctor(run)));
    }
    blocks
}

fn targets(run: &RunRecord) -> ReportTable {
    let columns = ["target", "version", "changes are applied by", "what to know"];
    let mut table = ReportTable::with_columns("What was measured", &columns);
    for target in &run.targets {
        let or_none = |text: &Option<String>| text.as_ref().map_or_else(TableCell::none, TableCell::text);
        let notes = target.notes.join(" ");
        table.rows.push(vec![
            TableCell::text(&target.name),
            or_none(&target.version),
            or_none(&target.changes_by),
            if notes.is_empty() { TableCell::none() } else { TableCell::text(notes) },
        ]);
    }
    table
}

fn skipped(run: &RunRecord) -> ReportTable {
    let mut table = ReportTable::with_columns("What was not measured", &["target", "why", "how to get it"]);
    for skipped in &run.skipped {
        table.push_texts([skipped.name.clone(), skipped.reason.clone(), skipped.hint.clone()]);
    }
    table
}

fn machine(machine: &MachineRecord) -> Vec<(String, String)> {
    let pinned = |cpus: &[usize]| match cpus {
        [] => "not pinned".to_owned(),
        cpus => cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
    };
    let or_unknown = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let threads = match machine.hyper_threads {
        Some(true) => "two threads share a core",
        Some(false) => "a core each",
        None => "SMT unknown",
    };
    let fact = |name: &str, value: String| (name.to_owned(), value);
    vec![
        fact("Processors", format!("{} × {}; {threads}", machine.cpus, machine.cpu)),
        fact("Memory", QuantityUnit::Bytes.show(machine.memory_bytes as f64)),
        fact("System", format!("{}, {}", machine.os, machine.kernel)),
        fact("Governor", or_unknown(&machine.governor)),
        fact("Hypervisor", or_unknown(&machine.hypervisor)),
        fact("Gateway on processors", pinned(&machine.pinning.gateway)),
        fact("Upstream on processors", pinned(&machine.pinning.upstream)),
        fact("Generator on processors", pinned(&machine.pinning.generator)),
    ]
}

fn ceilings(run: &RunRecord) -> ReportTable {
    let columns = ["ceiling of", "#connections", "#request", "#response", "#per second", "#median"];
    let mut table = ReportTable::with_columns("Ceilings, measured before the first round", &columns);
    for ceiling in &run.ceilings {
        table.push_texts([
            ceiling.name.clone(),
            ceiling.connections.to_string(),
            QuantityUnit::Bytes.show(ceiling.request_bytes as f64),
            QuantityUnit::Bytes.show(ceiling.response_bytes as f64),
            QuantityUnit::PerSecond.show(ceiling.per_second),
            QuantityUnit::Nanoseconds.show(ceiling.p50_ns as f64),
        ]);
    }
    table.notes.push(
        "link: payloads of these sizes to and fro without HTTP; upstream: the upstream alone.".to_owned(),
    );
    table
}

fn doctor(run: &RunRecord) -> ReportTable {
    let columns = ["looked at", "found", "wanted", "verdict", "what to do"];
    let mut table = ReportTable::with_columns("What the doctor found", &columns);
    for finding in &run.doctor {
        let (word, emphasis) = match finding.level {
            FindingLevel::Ok => ("ok", CellEmphasis::None),
            FindingLevel::Unknown => ("unknown", CellEmphasis::Quiet),
            FindingLevel::Warning => ("may distort", CellEmphasis::Loss),
            FindingLevel::Problem => ("cannot work", CellEmphasis::Loss),
        };
        table.rows.push(vec![
            TableCell::text(&finding.name),
            TableCell::text(&finding.found),
            TableCell::text(&finding.wanted),
            TableCell { emphasis, ..TableCell::text(word) },
            finding.hint.as_ref().map_or_else(TableCell::none, TableCell::text),
        ]);
    }
    table
}

/// Files and command line of each target.
pub(crate) fn configurations(context: ReportContext<'_>) -> Vec<ReportBlock> {
    let mut blocks = Vec::new();
    for target in &context.run.targets {
        let mut inside = Vec::new();
        if !target.command.is_empty() {
            inside.push(ReportBlock::Paragraph("Started with:".to_owned()));
            inside.push(ReportBlock::Code(target.command.join(" ")));
        }
        for (name, text) in &target.configuration {
            inside.push(ReportBlock::Paragraph(format!("`{name}`:")));
            inside.push(ReportBlock::Code(text.clone()));
        }
        if !inside.is_empty() {
            let version = target.version.as_deref().unwrap_or("version unknown");
            blocks.push(ReportBlock::Details(format!("{} ({version})", target.name), inside));
        }
    }
    blocks
}
