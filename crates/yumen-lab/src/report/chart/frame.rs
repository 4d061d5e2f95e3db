//! Drawing area of a plot: edges, grid lines and axis numbers.
//!
//! Depends on axes, but not on the plotted data.

use super::super::markup::{MarkupWriter, coordinate};
use super::scale::AxisScale;
use super::{ChartAxis, text_width};

/// Minimum distance between two numbers of an axis.
const GAP: f64 = 8.0;

/// Rectangle between the axes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChartFrame {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

impl ChartFrame {
    pub(crate) fn x(&self, scale: &AxisScale, value: f64) -> Option<f64> {
        Some(self.left + scale.position(value)? * (self.right - self.left))
    }

    pub(crate) fn y(&self, scale: &AxisScale, value: f64) -> Option<f64> {
        Some(self.bottom - scale.position(value)? * (self.bottom - self.top))
    }

    /// Draws horizontal grid lines with their numbers, and the axis label above.
    pub(crate) fn draw_y(&self, markup: &mut MarkupWriter, axis: &ChartAxis, scale: &AxisScale) {
        markup.leaf("text", &[("class", "axis"), ("x", "0"), ("y", "12")], &axis.label);
        let number_x = coordinate(self.left - 7.0);
        for tick in scale.y_ticks() {
            let Some(y) = self.y(scale, tick) else { continue };
            let path = format!("M{} {}H{}", coordinate(self.left), coordinate(y), coordinate(self.right));
            markup.void("path", &[("class", "grid"), ("d", &path)]);
            let number_y = coordinate(y + 4.0);
            markup.leaf(
                "text",
                &[("class", "number end"), ("x", &number_x), ("y", &number_y)],
                &axis.unit.tick(tick),
            );
        }
    }

    /// Draws as many numbers below the plot as fit, always including the last one, and the axis label.
    pub(crate) fn draw_x(
        &self,
        markup: &mut MarkupWriter,
        axis: &ChartAxis,
        scale: &AxisScale,
        ticks: &[f64],
    ) {
        let base =
            format!("M{} {}H{}", coordinate(self.left), coordinate(self.bottom), coordinate(self.right));
        markup.void("path", &[("class", "base"), ("d", &base)]);
        let number_y = coordinate(self.bottom + 18.0);
        let mut free_until = self.right + 14.0;
        // From right to left, because the last number must not be dropped.
        for tick in ticks.iter().rev() {
            let Some(x) = self.x(scale, *tick) else { continue };
            let short = format!("M{} {}v5", coordinate(x), coordinate(self.bottom));
            markup.void("path", &[("class", "base"), ("d", &short)]);
            let text = axis.unit.tick(*tick);
            let half = text_width(&text) / 2.0;
            let middle = x.min(self.right + 14.0 - half).max(half);
            if middle + half > free_until {
                continue;
            }
            free_until = middle - half - GAP;
            let number_x = coordinate(middle);
            markup.leaf("text", &[("class", "number middle"), ("x", &number_x), ("y", &number_y)], &text);
        }
        let (x, y) = (coordinate(self.right), coordinate(self.bottom + 36.0));
        markup.leaf("text", &[("class", "axis end"), ("x", &x), ("y", &y)], &axis.label);
    }
}
