//! Charts as data, and as SVG: lines over an axis, or dots in rows. Every chart is drawn twice, for wide pages and
//! for narrow ones, in classes that the page's style colours.
//!
//! Knows no scenario and no target: names, values and styles come in.

mod dots;
mod frame;
mod lines;
mod marker;
mod scale;

use super::markup::Markup;
use crate::quantity::Unit;
use crate::statistics::Interval;

pub(crate) use marker::STYLES;
pub use scale::Spacing;

/// A chart before it is drawn.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Unique in the page; names the parts that screen readers look up.
    pub id: String,
    /// What is shown, in a few words.
    pub title: String,
    /// What is seen, in a sentence or two: for those who cannot see it.
    pub description: String,
    /// Lines over a common axis, or dots in rows.
    pub plot: Plot,
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
pub enum Plot {
    /// Lines over a common axis.
    Lines(Lines),
    /// A row for each case, a dot for each series.
    Dots(Dots),
}

/// Lines over a common axis.
#[derive(Debug, Clone)]
pub struct Lines {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
    /// Moments at which something happened.
    pub marks: Vec<Mark>,
    /// Where numbers stand on the horizontal axis, if not at round values.
    pub x_ticks: Option<Vec<f64>>,
    /// Whether each point is marked; else some of them are, which is enough to tell lines apart.
    pub every_point: bool,
}

/// One axis.
#[derive(Debug, Clone)]
pub struct Axis {
    /// What it measures.
    pub label: String,
    /// How its values are spread.
    pub spacing: Spacing,
    /// How its numbers are written.
    pub unit: Unit,
}

/// One line.
#[derive(Debug, Clone)]
pub struct Series {
    /// Which of the [`STYLES`] styles.
    pub style: usize,
    /// From left to right; a value that is not finite interrupts the line.
    pub points: Vec<Point>,
}

/// One value.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// Along.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// Where the value lies with 95 % confidence.
    pub interval: Option<Interval>,
    /// Drawn hollow: something other than what is compared decided this value.
    pub flagged: bool,
}

/// Something that happened at a moment.
#[derive(Debug, Clone)]
pub struct Mark {
    /// When.
    pub x: f64,
    /// What, as short as it can be.
    pub label: String,
}

/// Dots in rows.
#[derive(Debug, Clone)]
pub struct Dots {
    /// The horizontal axis.
    pub x: Axis,
    /// From top to bottom.
    pub rows: Vec<DotRow>,
}

/// One row of dots.
#[derive(Debug, Clone)]
pub struct DotRow {
    /// What the row is.
    pub label: String,
    /// Style and value; the value stands along, its `y` is not read.
    pub dots: Vec<(usize, Point)>,
}

/// The two sizes in which charts are drawn, in units that are pixels where the page has just that width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// For pages of more than about 600 pixels, and for paper.
    Wide,
    /// For telephones.
    Narrow,
}

impl Size {
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

impl Chart {
    /// The chart for one width of page.
    pub(crate) fn svg(&self, size: Size) -> String {
        match &self.plot {
            Plot::Lines(lines) => lines::draw(self, lines, size),
            Plot::Dots(dots) => dots::draw(self, dots, size),
        }
    }

    /// The legend: names with the colour, dash and shape of each.
    pub(crate) fn legend_markup(&self, markup: &mut Markup) {
        markup.open("ul", &[("class", "legend")]);
        for entry in &self.legend {
            markup.open("li", &[]);
            marker::swatch(markup, entry.style);
            markup.text(&entry.name).close();
        }
        markup.close();
    }

    /// Opens the picture and says what it is to those who cannot see it.
    fn open(&self, markup: &mut Markup, size: Size, height: f64) {
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
