//! Writes a document as one self-contained HTML page with inline style and graphics and without scripts.
//!
//! Depends on documents, but not on their subject.

use super::chart::{ChartSize, ReportChart};
use super::document::{
    CellEmphasis, ReportBlock, ReportDocument, ReportSection, ReportTable, TableCell, TableColumn,
};
use super::flame;
use super::markup::MarkupWriter;

const STYLE: &str = include_str!("style.css");

/// Writes the page, which is also well-formed XML.
pub(crate) fn write(document: &ReportDocument) -> String {
    page(&document.title, |page| {
        write_head(page, document);
        page.open("main", &[]).line();
        for section in &document.sections {
            write_section(page, section);
        }
        page.close();
    })
}

/// A page with the style of reports around a body.
pub(crate) fn page(title: &str, body: impl FnOnce(&mut MarkupWriter)) -> String {
    let mut page = MarkupWriter::default();
    page.raw("<!DOCTYPE html>\n").open("html", &[("lang", "en")]).open("head", &[]);
    page.void("meta", &[("charset", "utf-8")]);
    page.void("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]);
    page.void("meta", &[("name", "color-scheme"), ("content", "light dark")]);
    page.void("link", &[("rel", "icon"), ("href", "data:,")]);
    page.leaf("title", &[], title).line();
    page.open("style", &[]).raw(STYLE).close().close().line();
    page.open("body", &[]).line();
    body(&mut page);
    page.close().close().line();
    page.finish()
}

fn write_head(page: &mut MarkupWriter, document: &ReportDocument) {
    page.open("header", &[]);
    page.leaf("h1", &[], &document.title);
    rich(page, "p", &[("class", "subtitle")], &document.subtitle);
    for block in &document.headline {
        match block {
            ReportBlock::Paragraph(text) => rich(page, "p", &[("class", "result")], text),
            // The figures stay closed, so that the result and its chart fit on the first screen.
            ReportBlock::Figure(chart, table) => write_figure(page, chart, table, &[]),
            other => write_block(page, other),
        }
        page.line();
    }
    write_facts(page, &document.facts, "facts head");
    page.open("nav", &[("aria-label", "Sections")]).open("ul", &[]);
    for section in &document.sections {
        let target = format!("#{}", section.id);
        page.open("li", &[]).leaf("a", &[("href", &target)], &section.title).close();
    }
    page.close().close().close().line();
}

fn write_section(page: &mut MarkupWriter, section: &ReportSection) {
    let heading = format!("{}-heading", section.id);
    page.open("section", &[("id", &section.id), ("aria-labelledby", &heading)]);
    page.leaf("h2", &[("id", &heading)], &section.title).line();
    write_blocks(page, &section.blocks);
    page.close().line();
}

fn write_blocks(page: &mut MarkupWriter, blocks: &[ReportBlock]) {
    for block in blocks {
        write_block(page, block);
        page.line();
    }
}

fn write_block(page: &mut MarkupWriter, block: &ReportBlock) {
    match block {
        ReportBlock::Heading(text) => rich(page, "h3", &[], text),
        ReportBlock::Paragraph(text) => rich(page, "p", &[], text),
        ReportBlock::Notice(text) => rich(page, "p", &[("class", "notice"), ("role", "note")], text),
        ReportBlock::List(items) => {
            page.open("ul", &[("class", "items")]);
            for item in items {
                rich(page, "li", &[], item);
            }
            page.close();
        }
        ReportBlock::Facts(facts) => write_facts(page, facts, "facts"),
        ReportBlock::Table(table) => write_table(page, table, true),
        ReportBlock::Figure(chart, table) => write_figure(page, chart, table, &[("open", "open")]),
        ReportBlock::Flame(profile, table) => {
            let label = format!("Flame graph of {}, {}", profile.target, profile.case);
            page.open(
                "div",
                &[("class", "scroll"), ("role", "region"), ("tabindex", "0"), ("aria-label", &label)],
            );
            page.raw(&flame::svg(profile)).close();
            write_table(page, table, true);
        }
        ReportBlock::Code(text) => {
            page.open("pre", &[("tabindex", "0")]).leaf("code", &[], text).close();
        }
        ReportBlock::Details(summary, blocks) => {
            page.open("details", &[]);
            rich(page, "summary", &[], summary);
            write_blocks(page, blocks);
            page.close();
        }
    }
}

/// A chart with its table, which is open or closed by the attributes.
fn write_figure(page: &mut MarkupWriter, chart: &ReportChart, table: &ReportTable, details: &[(&str, &str)]) {
    page.open("figure", &[]);
    page.leaf("figcaption", &[], &chart.title);
    chart.legend_markup(page);
    page.raw(&chart.svg(ChartSize::Wide)).line().raw(&chart.svg(ChartSize::Narrow)).line();
    rich(page, "p", &[("class", "seen")], &chart.description);
    page.open("details", details).leaf("summary", &[], "The figures");
    write_table(page, table, false);
    page.close().close();
}

fn write_facts(page: &mut MarkupWriter, facts: &[(String, String)], class: &str) {
    page.open("dl", &[("class", class)]);
    for (name, value) in facts {
        page.open("div", &[]);
        rich(page, "dt", &[], name);
        rich(page, "dd", &[], value);
        page.close();
    }
    page.close();
}

fn write_table(page: &mut MarkupWriter, table: &ReportTable, captioned: bool) {
    // A focusable region, so that wide tables scroll sideways by keyboard too.
    page.open(
        "div",
        &[("class", "scroll"), ("role", "region"), ("tabindex", "0"), ("aria-label", &table.caption)],
    );
    page.open("table", &[]);
    if captioned {
        page.leaf("caption", &[], &table.caption);
    }
    page.open("thead", &[]).open("tr", &[]);
    for column in &table.columns {
        rich(page, "th", &[("scope", "col"), ("class", column_class(column))], &column.label);
    }
    page.close().close().open("tbody", &[]);
    for row in &table.rows {
        page.open("tr", &[]);
        for (index, (cell, column)) in row.iter().zip(&table.columns).enumerate() {
            write_cell(page, cell, column, index == 0);
        }
        page.close();
    }
    page.close().close().close();
    if !table.notes.is_empty() {
        page.open("ul", &[("class", "notes")]);
        for note in &table.notes {
            rich(page, "li", &[], note);
        }
        page.close();
    }
}

fn write_cell(page: &mut MarkupWriter, cell: &TableCell, column: &TableColumn, names_row: bool) {
    let emphasis = match cell.emphasis {
        CellEmphasis::None => "",
        CellEmphasis::Best => " best",
        CellEmphasis::Loss => " loss",
        CellEmphasis::Quiet => " quiet",
    };
    let bar = if cell.bar.is_some() { " bar" } else { "" };
    let class = format!("{}{emphasis}{bar}", column_class(column));
    let mut attributes = vec![("class", class.as_str())];
    if names_row {
        attributes.push(("scope", "row"));
    }
    let width = cell.bar.map(|share| format!("--share:{:.0}%", share.clamp(0.0, 1.0) * 100.0));
    if let Some(width) = &width {
        attributes.push(("style", width));
    }
    page.open(if names_row { "th" } else { "td" }, &attributes);
    rich_text(page, &cell.text);
    if let Some(flag) = cell.flag {
        page.leaf("sup", &[("class", "flag")], &flag.to_string());
    }
    page.close();
}

fn column_class(column: &TableColumn) -> &'static str {
    if column.numeric { "number" } else { "word" }
}

/// An element with text that may contain code in backticks.
pub(crate) fn rich(page: &mut MarkupWriter, name: &'static str, attributes: &[(&str, &str)], text: &str) {
    page.open(name, attributes);
    rich_text(page, text);
    page.close();
}

fn rich_text(page: &mut MarkupWriter, text: &str) {
    // An odd number of backticks cannot mark code.
    if text.matches('`').count() % 2 == 1 {
        page.text(text);
        return;
    }
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 1 {
            page.leaf("code", &[], part);
        } else {
            page.text(part);
        }
    }
}
