//! Writes a document as Markdown. Tables replace the charts.
//!
//! Depends on documents, but not on their subject.

use std::fmt::Write;

use super::document::{CellEmphasis, ReportBlock, ReportDocument, ReportTable, TableCell};

/// Writes the text, in a dialect with pipe tables.
pub(crate) fn write(document: &ReportDocument) -> String {
    let mut text = format!("# {}\n\n{}\n\n", escape(&document.title), escape(&document.subtitle));
    write_blocks(&mut text, &document.headline);
    write_facts(&mut text, &document.facts);
    for section in &document.sections {
        let _ = write!(text, "## {}\n\n", escape(&section.title));
        write_blocks(&mut text, &section.blocks);
    }
    let trimmed = text.trim_end().len();
    text.truncate(trimmed);
    text.push('\n');
    text
}

fn write_blocks(text: &mut String, blocks: &[ReportBlock]) {
    for block in blocks {
        write_block(text, block);
    }
}

fn write_block(text: &mut String, block: &ReportBlock) {
    let _ = match block {
        ReportBlock::Heading(heading) => write!(text, "### {}\n\n", escape(heading)),
        ReportBlock::Paragraph(paragraph) => write!(text, "{}\n\n", escape(paragraph)),
        ReportBlock::Notice(notice) => write!(text, "> **Note:** {}\n\n", escape(notice)),
        ReportBlock::List(items) => {
            for item in items {
                let _ = writeln!(text, "- {}", escape(item));
            }
            writeln!(text)
        }
        ReportBlock::Facts(facts) => {
            write_facts(text, facts);
            Ok(())
        }
        ReportBlock::Table(table) | ReportBlock::Flame(_, table) => {
            let _ = write!(text, "**{}**\n\n", escape(&table.caption));
            write_table(text, table);
            Ok(())
        }
        ReportBlock::Figure(chart, table) => {
            let _ = write!(text, "**{}**\n\n{}\n\n", escape(&chart.title), escape(&chart.description));
            write_table(text, table);
            Ok(())
        }
        ReportBlock::Code(code) => {
            let fence = fence_for(code);
            write!(text, "{fence}text\n{}\n{fence}\n\n", code.trim_end())
        }
        ReportBlock::Details(summary, blocks) => {
            let _ = write!(text, "**{}**\n\n", escape(summary));
            write_blocks(text, blocks);
            Ok(())
        }
    };
}

fn write_facts(text: &mut String, facts: &[(String, String)]) {
    for (name, value) in facts {
        let _ = writeln!(text, "- **{}:** {}", escape(name), escape(value));
    }
    text.push('\n');
}

fn write_table(text: &mut String, table: &ReportTable) {
    let headings: Vec<String> = table.columns.iter().map(|column| in_cell(&column.label)).collect();
    let rules: Vec<&str> =
        table.columns.iter().map(|column| if column.numeric { "--:" } else { ":--" }).collect();
    let _ = writeln!(text, "| {} |\n| {} |", headings.join(" | "), rules.join(" | "));
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(write_cell).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text.push('\n');
    for note in &table.notes {
        let _ = writeln!(text, "- {}", escape(note));
    }
    if !table.notes.is_empty() {
        text.push('\n');
    }
}

fn write_cell(cell: &TableCell) -> String {
    let flag = cell.flag.map(|flag| format!(" ({flag})")).unwrap_or_default();
    let text = in_cell(&cell.text);
    match cell.emphasis {
        CellEmphasis::Best => format!("**{text}**{flag}"),
        CellEmphasis::Loss => format!("_{text}_{flag}"),
        CellEmphasis::None | CellEmphasis::Quiet => format!("{text}{flag}"),
    }
}

fn in_cell(text: &str) -> String {
    escape(text).replace('|', "\\|").replace('\n', " ")
}

/// Escapes markup characters, except in code in backticks.
fn escape(text: &str) -> String {
    let code_pairs = text.matches('`').count().is_multiple_of(2);
    let mut escaped = String::with_capacity(text.len());
    let mut in_code = false;
    for character in text.chars() {
        in_code ^= code_pairs && character == '`';
        let is_mark =
            matches!(character, '*' | '_' | '<' | '>' | '[' | ']' | '#') || (character == '`' && !code_pairs);
        if is_mark && !in_code {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// A fence that does not occur in the code.
fn fence_for(code: &str) -> String {
    let longest = code.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.max(2) + 1)
}
