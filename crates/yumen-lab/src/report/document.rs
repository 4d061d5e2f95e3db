//! A report as data: sections of paragraphs, tables, charts. HTML and Markdown are written from it, so that they say
//! the same.
//!
//! Knows neither where the figures come from nor how they will look.

use super::chart::ReportChart;

/// A whole report.
#[derive(Debug, Clone)]
pub struct ReportDocument {
    /// What it is about.
    pub title: String,
    /// One line under the title.
    pub subtitle: String,
    /// What a reader must know at first sight, as names and values.
    pub facts: Vec<(String, String)>,
    /// In the order of reading.
    pub sections: Vec<ReportSection>,
}

/// A part of a report that a reader may jump to.
#[derive(Debug, Clone)]
pub struct ReportSection {
    /// Unique in the document, fit for a link.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// What stands in it.
    pub blocks: Vec<ReportBlock>,
}

/// One piece of a section. In texts, what stands in backticks is code.
#[derive(Debug, Clone)]
pub enum ReportBlock {
    /// A heading below the section's own.
    Heading(String),
    /// Prose.
    Paragraph(String),
    /// What must not be overlooked.
    Notice(String),
    /// Short items.
    List(Vec<String>),
    /// Names and values.
    Facts(Vec<(String, String)>),
    /// Figures in rows and columns.
    Table(ReportTable),
    /// A chart, and the same figures as a table.
    Figure(Box<ReportChart>, ReportTable),
    /// A program's text, as it is.
    Code(String),
    /// What only some readers want to see.
    Details(String, Vec<ReportBlock>),
}

/// Figures in rows and columns; the first cell of a row names it.
#[derive(Debug, Clone, Default)]
pub struct ReportTable {
    /// What the table shows.
    pub caption: String,
    /// Headings; numbers stand to the right.
    pub columns: Vec<TableColumn>,
    /// Cells, as many in each row as there are columns.
    pub rows: Vec<Vec<TableCell>>,
    /// What signs in the cells mean.
    pub notes: Vec<String>,
}

/// A heading of a table.
#[derive(Debug, Clone)]
pub struct TableColumn {
    /// Its text.
    pub label: String,
    /// Whether its cells are numbers.
    pub numeric: bool,
}

/// One cell.
#[derive(Debug, Clone, Default)]
pub struct TableCell {
    /// What it says.
    pub text: String,
    /// How it stands out.
    pub emphasis: CellEmphasis,
    /// A letter behind the text that a note under the table explains.
    pub flag: Option<char>,
    /// From 0 to 1: drawn as a bar behind the text.
    pub bar: Option<f64>,
}

/// How a cell stands out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CellEmphasis {
    /// Not at all.
    #[default]
    None,
    /// The best of its row.
    Best,
    /// Worse than what it is compared with.
    Loss,
    /// Of little weight.
    Quiet,
}

impl ReportTable {
    /// An empty table: the first column names rows, the others hold numbers.
    pub fn of_numbers(caption: impl Into<String>, first: &str, numbers: &[String]) -> Self {
        let mut columns = vec![TableColumn { label: first.to_owned(), numeric: false }];
        columns.extend(numbers.iter().map(|label| TableColumn { label: label.clone(), numeric: true }));
        Self { caption: caption.into(), columns, ..Self::default() }
    }

    /// An empty table whose columns are words, but for those marked with a leading `#`, which are numbers.
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
    /// A cell that only says something.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A cell where there is nothing to say.
    pub fn none() -> Self {
        Self { text: "–".to_owned(), emphasis: CellEmphasis::Quiet, ..Self::default() }
    }
}
