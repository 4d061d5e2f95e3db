//! What was measured, and where: machine, doctor, ceilings, targets with their versions and configurations.
//!
//! Knows the record through its context.

use super::super::context::Context;
use super::super::document::{Block, Cell, Emphasis, Table};
use crate::quantity::Unit;
use crate::record::{Level, Machine, Run};

pub(crate) fn blocks(context: Context<'_>) -> Vec<Block> {
    let run = context.run;
    let mut blocks = vec![
        Block::Heading("Targets".to_owned()),
        Block::Table(targets(run)),
        Block::Heading("Machine".to_owned()),
        Block::Facts(machine(&run.machine)),
    ];
    if !run.skipped.is_empty() {
        blocks.insert(2, Block::Table(skipped(run)));
    }
    if !run.ceilings.is_empty() {
        blocks.push(Block::Table(ceilings(run)));
    }
    if !run.doctor.is_empty() {
        blocks.push(Block::Table(doctor(run)));
    }
    blocks
}

fn targets(run: &Run) -> Table {
    let columns = ["target", "version", "changes are applied by", "what to know"];
    let mut table = Table::with_columns("What was measured", &columns);
    for target in &run.targets {
        let or_none = |text: &Option<String>| text.as_ref().map_or_else(Cell::none, Cell::text);
        let notes = target.notes.join(" ");
        table.rows.push(vec![
            Cell::text(&target.name),
            or_none(&target.version),
            or_none(&target.changes_by),
            if notes.is_empty() { Cell::none() } else { Cell::text(notes) },
        ]);
    }
    table
}

fn skipped(run: &Run) -> Table {
    let mut table = Table::with_columns("What was not measured", &["target", "why", "how to get it"]);
    for skipped in &run.skipped {
        table.push_texts([skipped.name.clone(), skipped.reason.clone(), skipped.hint.clone()]);
    }
    table
}

fn machine(machine: &Machine) -> Vec<(String, String)> {
    let pinned = |cpus: &[usize]| match cpus {
        [] => "not pinned".to_owned(),
        cpus => cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
    };
    let told = |value: &Option<String>| value.clone().unwrap_or_else(|| "not told".to_owned());
    let threads = match machine.hyper_threads {
        Some(true) => "two threads share a core",
        Some(false) => "a core each",
        None => "whether threads share a core is not told",
    };
    let fact = |name: &str, value: String| (name.to_owned(), value);
    vec![
        fact("Processors", format!("{} × {}; {threads}", machine.cpus, machine.cpu)),
        fact("Memory", Unit::Bytes.show(machine.memory_bytes as f64)),
        fact("System", format!("{}, {}", machine.os, machine.kernel)),
        fact("Governor", told(&machine.governor)),
        fact("Hypervisor", told(&machine.hypervisor)),
        fact("Gateway on processors", pinned(&machine.pinning.gateway)),
        fact("Upstream on processors", pinned(&machine.pinning.upstream)),
        fact("Generator on processors", pinned(&machine.pinning.generator)),
    ]
}

fn ceilings(run: &Run) -> Table {
    let columns = ["ceiling of", "#connections", "#request", "#response", "#per second", "#median"];
    let mut table = Table::with_columns("Ceilings, measured before the first round", &columns);
    for ceiling in &run.ceilings {
        table.push_texts([
            ceiling.name.clone(),
            ceiling.connections.to_string(),
            Unit::Bytes.show(ceiling.request_bytes as f64),
            Unit::Bytes.show(ceiling.response_bytes as f64),
            Unit::PerSecond.show(ceiling.per_second),
            Unit::Nanoseconds.show(ceiling.p50_ns as f64),
        ]);
    }
    table.notes.push(
        "link: payloads of these sizes to and fro without HTTP; upstream: the upstream alone.".to_owned(),
    );
    table
}

fn doctor(run: &Run) -> Table {
    let columns = ["looked at", "found", "wanted", "verdict", "what to do"];
    let mut table = Table::with_columns("What the doctor found", &columns);
    for finding in &run.doctor {
        let (word, emphasis) = match finding.level {
            Level::Ok => ("ok", Emphasis::None),
            Level::Unknown => ("cannot be told", Emphasis::Quiet),
            Level::Warning => ("may distort", Emphasis::Loss),
            Level::Problem => ("cannot work", Emphasis::Loss),
        };
        table.rows.push(vec![
            Cell::text(&finding.name),
            Cell::text(&finding.found),
            Cell::text(&finding.wanted),
            Cell { emphasis, ..Cell::text(word) },
            finding.hint.as_ref().map_or_else(Cell::none, Cell::text),
        ]);
    }
    table
}

/// The files each target ran with, and its command line.
pub(crate) fn configurations(context: Context<'_>) -> Vec<Block> {
    let mut blocks = Vec::new();
    for target in &context.run.targets {
        let mut inside = Vec::new();
        if !target.command.is_empty() {
            inside.push(Block::Paragraph("Started with:".to_owned()));
            inside.push(Block::Code(target.command.join(" ")));
        }
        for (name, text) in &target.configuration {
            inside.push(Block::Paragraph(format!("`{name}`:")));
            inside.push(Block::Code(text.clone()));
        }
        if !inside.is_empty() {
            let version = target.version.as_deref().unwrap_or("no version told");
            blocks.push(Block::Details(format!("{} ({version})", target.name), inside));
        }
    }
    blocks
}
