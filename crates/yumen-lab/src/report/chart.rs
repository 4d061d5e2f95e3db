//! Charts as data, and as SVG: lines over an axis, or dots in rows. Every chart is drawn twice, for wide pages and
//! for narrow ones, in classes that the page's style colours.
//!
//! Knows no scenario and no target: names, values and styles come in.

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

/// A chart before it is drawn.
#[derive(Debug, Clone)]
pub struct ReportChart {
    /// Unique in the page; names the parts that screen readers look up.
    pub id: String,
    /// What is shown, in a few words.
    pub title: String,
    /// What is seen, in a sentence or two: for those who cannot see it.
    pub description: String,
    /// Lines over a common axis, or dots in rows.
    pub plot: ChartPlot,
    /// What each style stands for, in the order of the legend.
    pub legend: Vec<LegendEntry>,
}

/// One name in a legend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegendEntry {
    /// The name.
    pub name: String,
    /// Which of the [`STYLES`] styles.
    pub style: usize,
}

/// The two kinds of charts.
#[derive(Debug, Clone)]
pub enum ChartPlot {
    /// Lines over a common axis.
    Lines(LinePlot),
    /// A row for each case, a dot for each series.
    Dots(DotPlot),
}

/// Lines over a common axis.
#[derive(Debug, Clone)]
pub struct LinePlot {
    /// The horizontal axis.
    pub x: ChartAxis,
    /// The vertical axis.
    pub y: ChartAxis,
    /// The lines.
    pub series: Vec<LineSeries>,
    /// Moments at which something happened.
    pub marks: Vec<ChartMark>,
    /// Where numbers stand on the horizontal axis, if not at round values.
    pub x_ticks: Option<Vec<f64>>,
    /// Whether each point is marked; else some of them are, which is enough to tell lines apart.
    pub every_point: bool,
}

/// One axis.
#[derive(Debug, Clone)]
pub struct ChartAxis {
    /// What it measures.
    pub label: String,
    /// How its values are spread.
    pub spacing: AxisSpacing,
    /// How its numbers are written.
    pub unit: QuantityUnit,
}

/// One line.
#[derive(Debug, Clone)]
pub struct LineSeries {
    /// Which of the [`STYLES`] styles.
    pub style: usize,
    /// From left to right; a value that is not finite interrupts the line.
    pub points: Vec<ChartPoint>,
}

/// One value.
#[derive(Debug, Clone, Copy)]
pub struct ChartPoint {
    /// Along.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// Where the value lies with 95 % confidence.
    pub interval: Option<ConfidenceInterval>,
    /// Drawn hollow: something other than what is compared decided this value.
    pub flagged: bool,
}

/// Something that happened at a moment.
#[derive(Debug, Clone)]
pub struct ChartMark {
    /// When.
    pub x: f64,
    /// What, as short as it can be.
    pub label: String,
}

/// Dots in rows.
#[derive(Debug, Clone)]
pub struct DotPlot {
    /// The horizontal axis.
    pub x: ChartAxis,
    /// From top to bottom.
    pub rows: Vec<DotRow>,
}

/// One row of dots.
#[derive(Debug, Clone)]
pub struct DotRow {
    /// What the row is.
    pub label: String,
    /// Style and value; the value stands along, its `y` is not read.
    pub dots: Vec<(usize, ChartPoint)>,
}

/// The two sizes in which charts are drawn, in units that are pixels where the page has just that width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChartSize {
    /// For pages of more than about 600 pixels, and for paper.
    Wide,
    /// For telephones.
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
    /// The chart for one width of page.
    pub(crate) fn svg(&self, size: ChartSize) -> String {
        match &self.plot {
            ChartPlot::Lines(lines) => lines::draw(self, lines, size),
            ChartPlot::Dots(dots) => dots::draw(self, dots, size),
        }
    }

    /// The legend: names with the colour, dash and shape of each.
    pub(crate) fn legend_markup(&self, markup: &mut MarkupWriter) {
        markup.open("ul", &[("class", "legend")]);
        for entry in &self.legend {
            markup.open("li", &[]);
            marker::swatch(markup, entry.style);
            markup.text(&entry.name).close();
        }
        markup.close();
    }

    /// Opens the picture and says what it is to those who cannot see it.
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

/// How wide a text of small print is at most; guessed generously, because fonts differ.
fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 7.0
}
