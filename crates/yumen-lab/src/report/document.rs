//! A report as data: sections of paragraphs, tables and charts. HTML and Markdown are both written from this
//! form, so that their content is identical.
//!
//! Independent of the source of the figures and their presentation.

use super::chart::ReportChart;
use crate::record::FlameProfile;

/// A whole report.
#[derive(Debug, Clone)]
pub struct ReportDocument {
    /// Title.
    pub title: String,
    /// Subtitle of one line.
    pub subtitle: String,
    /// The result: a sentence and a chart, before everything else.
    pub headline: Vec<ReportBlock>,
    /// Key facts as names and values.
    pub facts: Vec<(String, String)>,
    /// Sections in reading order.
    pub sections: Vec<ReportSection>,
}

/// A section of a report with its own anchor.
#[derive(Debug, Clone)]
pub struct ReportSection {
    /// Anchor, unique in the document.
    pub id: String,
    /// Heading.
    pub title: String,
    /// Content.
    pub blocks: Vec<ReportBlock>,
}

/// One block of a section. In texts, backticks mark code.
#[derive(Debug, Clone)]
pub enum ReportBlock {
    /// A heading below that of the section.
    Heading(String),
    /// A paragraph.
    Paragraph(String),
    /// A highlighted remark.
    Notice(String),
    /// A list of short items.
    List(Vec<String>),
    /// Names and values.
    Facts(Vec<(String, String)>),
    /// A table of figures.
    Table(ReportTable),
    /// A chart with the same figures as a table.
    Figure(Box<ReportChart>, ReportTable),
    /// A flame graph with a table of its hottest functions.
    Flame(Box<FlameProfile>, ReportTable),
    /// Preformatted text of a program.
    Code(String),
    /// A collapsible block with a summary.
    Details(String, Vec<ReportBlock>),
}

/// A table of figures; the first cell of a row is its name.
#[derive(Debug, Clone, Default)]
pub struct ReportTable {
    /// Caption.
    pub caption: String,
    /// Column headings; numeric columns are aligned to the right.
    pub columns: Vec<TableColumn>,
    /// Rows of cells, one cell per column.
    pub rows: Vec<Vec<TableCell>>,
    /// Explanations of the flags.
    pub notes: Vec<String>,
}

/// A column of a table.
#[derive(Debug, Clone)]
pub struct TableColumn {
    /// Heading.
    pub label: String,
    /// Whether the cells are numbers.
    pub numeric: bool,
}

/// One cell.
#[derive(Debug, Clone, Default)]
pub struct TableCell {
    /// Text.
    pub text: String,
    /// Emphasis.
    pub emphasis: CellEmphasis,
    /// Letter after the text, explained by a note below the table.
    pub flag: Option<char>,
    /// Length of a bar behind the text, from 0 to 1.
    pub bar: Option<f64>,
}

/// Emphasis of a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CellEmphasis {
    /// No emphasis.
    #[default]
    None,
    /// The best value of its row.
    Best,
    /// A worse value than the one it is compared with.
    Loss,
    /// A value of low importance.
    Quiet,
}

impl ReportTable {
    /// An empty table. The first column names the rows; the other columns are numeric.
    pub fn of_numbers(caption: impl Into<String>, first: &str, numbers: &[String]) -> Self {
        let mut columns = vec![TableColumn { label: first.to_owned(), numeric: false }];
        columns.extend(numbers.iter().map(|label| TableColumn { label: label.clone(), numeric: true }));
        Self { caption: caption.into(), columns, ..Self::default() }
    }

    /// An empty table of text columns; labels with a leading `#` make numeric ones.
    pub fn with_columns(caption: impl Into<String>, labels: &[&str]) -> Self {
        let column = |label: &&str| match label.strip_prefix('#') {
            Some(label) => TableColumn { label: label.to_owned(), numeric: true },
            None => TableColumn { label: (*label).to_owned(), numeric: false },
        };
        Self { caption: caption.into(), columns: labels.iter().map(column).collect(), ..Self::default() }
    }

    /// Adds a row of plain texts.
    pub fn push_texts<const N: usize>(&mut self, texts: [String; N]) {
        self.rows.push(texts.into_iter().map(TableCell::text).collect());
    }
}

impl TableCell {
    /// A cell with a plain text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// An empty cell.
    pub fn none() -> Self {
        Self { text: "–".to_owned(), emphasis: CellEmphasis::Quiet, ..Self::default() }
    }
}
