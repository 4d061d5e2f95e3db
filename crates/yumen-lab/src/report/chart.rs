//! Charts as data and as SVG: lines over an axis, or dots in rows. Each chart is drawn twice, for wide and
//! for narrow pages, with CSS classes for colours.
//!
//! Independent of scenarios and targets: names, values and styles are inputs.

mod dots;
mod frame;
mod lines;
mod marker;
mod scale;

use super::markup::MarkupWriter;
use crate::quantity::QuantityUnit;
use crate::statistics::ConfidenceInterval;

pub(crate) use marker::STYLES;
pub use scale::AxisSpacing;

/// Data of a chart.
#[derive(Debug, Clone)]
pub struct ReportChart {
    /// Id, unique in the page; prefix of the ids referenced by screen readers.
    pub id: String,
    /// Short title.
    pub title: String,
    /// Description of the content for screen readers, in one or two sentences.
    pub description: String,
    /// Lines over a common axis, or dots in rows.
    pub plot: ChartPlot,
    /// Name of each style, in the order of the legend.
    pub legend: Vec<LegendEntry>,
}

/// One entry of a legend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegendEntry {
    /// Name of the entry.
    pub name: String,
    /// Index of one of the [`STYLES`] styles.
    pub style: usize,
}

/// Kind of a chart.
#[derive(Debug, Clone)]
pub enum ChartPlot {
    /// Lines over a common axis.
    Lines(LinePlot),
    /// A row per case, a dot per series.
    Dots(DotPlot),
}

/// Lines over a common axis.
#[derive(Debug, Clone)]
pub struct LinePlot {
    /// Horizontal axis.
    pub x: ChartAxis,
    /// Vertical axis.
    pub y: ChartAxis,
    /// The lines.
    pub series: Vec<LineSeries>,
    /// Marked events.
    pub marks: Vec<ChartMark>,
    /// Positions of numbers on the horizontal axis, if not at round values.
    pub x_ticks: Option<Vec<f64>>,
    /// Whether every point has a marker; otherwise some do, enough to distinguish the lines.
    pub every_point: bool,
}

/// One axis.
#[derive(Debug, Clone)]
pub struct ChartAxis {
    /// Label of the axis.
    pub label: String,
    /// Spacing of the values.
    pub spacing: AxisSpacing,
    /// Unit of the numbers.
    pub unit: QuantityUnit,
}

/// One line.
#[derive(Debug, Clone)]
pub struct LineSeries {
    /// Index of one of the [`STYLES`] styles.
    pub style: usize,
    /// Points from left to right; a value that is not finite interrupts the line.
    pub points: Vec<ChartPoint>,
}

/// One value.
#[derive(Debug, Clone, Copy)]
pub struct ChartPoint {
    /// Horizontal value.
    pub x: f64,
    /// Vertical value.
    pub y: f64,
    /// 95 % confidence interval.
    pub interval: Option<ConfidenceInterval>,
    /// Drawn hollow: the value had another bottleneck than the gateway.
    pub flagged: bool,
}

/// A marked event.
#[derive(Debug, Clone)]
pub struct ChartMark {
    /// Horizontal position.
    pub x: f64,
    /// Short label.
    pub label: String,
}

/// Dots in rows.
#[derive(Debug, Clone)]
pub struct DotPlot {
    /// Horizontal axis.
    pub x: ChartAxis,
    /// Rows from top to bottom.
    pub rows: Vec<DotRow>,
}

/// One row of dots.
#[derive(Debug, Clone)]
pub struct DotRow {
    /// Label of the row.
    pub label: String,
    /// Style and value; the `y` of the point is not used.
    pub dots: Vec<(usize, ChartPoint)>,
}

/// The two sizes of a chart, in units that equal pixels at that page width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChartSize {
    /// For pages wider than about 600 pixels, and for print.
    Wide,
    /// For phones.
    Narrow,
}

impl ChartSize {
    fn width(self) -> f64 {
        match self {
            Self::Wide => 920.0,
            Self::Narrow => 360.0,
        }
    }

    fn height(self) -> f64 {
        match self {
            Self::Wide => 340.0,
            Self::Narrow => 270.0,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Narrow => "narrow",
        }
    }
}

impl ReportChart {
    /// Draws the chart for one page width.
    pub(crate) fn svg(&self, size: ChartSize) -> String {
        match &self.plot {
            ChartPlot::Lines(lines) => lines::draw(self, lines, size),
            ChartPlot::Dots(dots) => dots::draw(self, dots, size),
        }
    }

    /// Writes the legend: names with colour, dash pattern and marker.
    pub(crate) fn legend_markup(&self, markup: &mut MarkupWriter) {
        markup.open("ul", &[("class", "legend")]);
        for entry in &self.legend {
            markup.open("li", &[]);
            marker::swatch(markup, entry.style);
            markup.text(&entry.name).close();
        }
        markup.close();
    }

    /// Opens the SVG element with title and description for screen readers.
    fn open(&self, markup: &mut MarkupWriter, size: ChartSize, height: f64) {
        let (title, description) =
            (format!("{}-{}-title", self.id, size.name()), format!("{}-{}-desc", self.id, size.name()));
        let view = format!("0 0 {} {}", size.width(), markup::coordinate(height));
        let labels = format!("{title} {description}");
        let class = format!("chart {}", size.name());
        markup.open(
            "svg",
            &[("class", &class), ("viewBox", &view), ("role", "img"), ("aria-labelledby", &labels)],
        );
        markup.leaf("title", &[("id", &title)], &self.title);
        markup.leaf("desc", &[("id", &description)], &self.description);
    }
}

use super::markup;

/// Upper estimate of the width of a small text; generous, because fonts differ.
fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 7.0
}
