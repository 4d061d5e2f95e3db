//! Style of a series: colour, dash pattern and marker, so that no two differ by colour alone.
//!
//! Independent of values. The page's style sheet assigns colours by style number.

use super::super::markup::{MarkupWriter, coordinate};

/// Number of styles. Style 0 is the neutral one for the baseline.
pub(crate) const STYLES: usize = 10;

/// Dash patterns by style.
const DASHES: [&str; STYLES] =
    ["2 3", "none", "7 3", "none", "8 3 2 3", "4 2", "none", "10 4", "3 2 1 2", "6 2 2 2 2 2"];

/// Marker outlines around 0 0 by style, about eight units wide.
const SHAPES: [&str; STYLES] = [
    "M-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0-6.8 0z",
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "M-3.6-3.6h7.2v7.2h-7.2z",
    "M0-4.6L4.4 3.4h-8.8z",
    "M0-5L4.4 0L0 5L-4.4 0z",
    "M0 4.6L4.4-3.4h-8.8z",
    "M-1.4-4.4h2.8v3h3v2.8h-3v3h-2.8v-3h-3v-2.8h3z",
    "M0-4.8L4.6-1.4L2.8 4h-5.6L-4.6-1.4z",
    "M-4.4-2.5h8.8v5h-8.8z",
    "M-2.5-4.4h5v8.8h-5z",
];

/// CSS class of a style.
pub(crate) fn class(style: usize) -> String {
    format!("s{}", style % STYLES)
}

/// Dash pattern of a style.
pub(crate) fn dash(style: usize) -> &'static str {
    DASHES[style % STYLES]
}

/// Draws the marker of a style, hollow if flagged.
pub(crate) fn draw(markup: &mut MarkupWriter, style: usize, x: f64, y: f64, flagged: bool) {
    let class = if flagged { "point hollow" } else { "point" };
    let transform = format!("translate({} {})", coordinate(x), coordinate(y));
    markup.void("path", &[("class", class), ("d", SHAPES[style % STYLES]), ("transform", &transform)]);
}

/// Draws a legend sample: a short line with its marker.
pub(crate) fn swatch(markup: &mut MarkupWriter, style: usize) {
    let class = format!("swatch {}", class(style));
    markup.open("svg", &[("class", &class), ("viewBox", "0 0 34 12"), ("aria-hidden", "true")]);
    markup.void("path", &[("class", "line"), ("stroke-dasharray", dash(style)), ("d", "M1 6H33")]);
    draw(markup, style, 17.0, 6.0, false);
    markup.close();
}
