//! Draws lines: paths, markers, confidence intervals and events.
//!
//! Depends only on the given chart.

use super::super::markup::{MarkupWriter, coordinate};
use super::frame::ChartFrame;
use super::scale::{AxisScale, AxisSpacing};
use super::{ChartMark, ChartSize, LinePlot, LineSeries, ReportChart, marker, text_width};

/// Number of markers on a line with many points.
const SHAPES_PER_LINE: usize = 8;

pub(super) fn draw(chart: &ReportChart, lines: &LinePlot, size: ChartSize) -> String {
    let marks_height = if lines.marks.is_empty() { 0.0 } else { 14.0 };
    let y = AxisScale::around(lines.y.spacing, values(lines), |high| lines.y.unit.grain(high));
    let numbers = y.y_ticks().into_iter().map(|tick| text_width(&lines.y.unit.tick(tick)));
    let frame = ChartFrame {
        left: numbers.fold(30.0, f64::max) + 9.0,
        right: size.width() - 16.0,
        top: 24.0 + marks_height,
        bottom: size.height() - 42.0,
    };
    let x = x_scale(lines);
    let ticks = lines.x_ticks.clone().unwrap_or_else(|| x.ticks(if size == ChartSize::Wide { 8 } else { 5 }));
    let mut markup = MarkupWriter::default();
    chart.open(&mut markup, size, size.height());
    frame.draw_y(&mut markup, &lines.y, &y);
    frame.draw_x(&mut markup, &lines.x, &x, &ticks);
    draw_marks(&mut markup, &lines.marks, &frame, &x);
    for series in &lines.series {
        draw_series(&mut markup, lines, series, &frame, &x, &y);
    }
    markup.close();
    markup.finish()
}

/// All values that determine the range of the vertical axis.
fn values(lines: &LinePlot) -> impl Iterator<Item = f64> {
    let points = lines.series.iter().flat_map(|series| &series.points);
    points.flat_map(|point| {
        let (low, high) = point.interval.map_or((point.y, point.y), |ends| (ends.low, ends.high));
        [point.y, low, high]
    })
}

fn x_scale(lines: &LinePlot) -> AxisScale {
    let points = || lines.series.iter().flat_map(|series| &series.points).map(|point| point.x);
    if lines.x.spacing == AxisSpacing::Nines {
        return AxisScale::around(AxisSpacing::Nines, points(), |_| 1.0);
    }
    let low = points().fold(f64::INFINITY, f64::min);
    let high = points().fold(f64::NEG_INFINITY, f64::max);
    AxisScale::between(lines.x.spacing, low, high)
}

fn draw_marks(markup: &mut MarkupWriter, marks: &[ChartMark], frame: &ChartFrame, x: &AxisScale) {
    let mut free_from = frame.left - 20.0;
    for mark in marks {
        let Some(position) = frame.x(x, mark.x) else { continue };
        let path =
            format!("M{} {}V{}", coordinate(position), coordinate(frame.top - 6.0), coordinate(frame.bottom));
        markup.void("path", &[("class", "mark"), ("d", &path)]);
        let half = text_width(&mark.label) / 2.0;
        let middle = position.min(frame.right + 14.0 - half);
        if middle - half < free_from {
            continue;
        }
        free_from = middle + half + 6.0;
        let (text_x, text_y) = (coordinate(middle), coordinate(frame.top - 10.0));
        markup.leaf("text", &[("class", "number middle"), ("x", &text_x), ("y", &text_y)], &mark.label);
    }
}

fn draw_series(
    markup: &mut MarkupWriter,
    lines: &LinePlot,
    series: &LineSeries,
    frame: &ChartFrame,
    x: &AxisScale,
    y: &AxisScale,
) {
    let class = marker::class(series.style);
    markup.open("g", &[("class", &class)]);
    let mut path = String::new();
    let mut pen_down = false;
    let every = if lines.every_point { 1 } else { series.points.len().div_ceil(SHAPES_PER_LINE).max(1) };
    let mut shapes = Vec::new();
    for (index, point) in series.points.iter().enumerate() {
        let (Some(px), Some(py)) = (frame.x(x, point.x), frame.y(y, point.y)) else {
            pen_down = false;
            continue;
        };
        let pen = if pen_down { 'L' } else { 'M' };
        path.push_str(&format!("{pen}{} {}", coordinate(px), coordinate(py)));
        pen_down = true;
        // Lines with many points have their markers at different positions, so that markers do not overlap.
        if index % every == series.style % every {
            shapes.push((px, py, *point));
        }
    }
    if !path.is_empty() {
        markup.void(
            "path",
            &[("class", "line"), ("stroke-dasharray", marker::dash(series.style)), ("d", &path)],
        );
    }
    for (px, py, point) in shapes {
        let ends = point.interval.and_then(|ends| Some((frame.y(y, ends.low)?, frame.y(y, ends.high)?)));
        if let Some((low, high)) = ends.filter(|(low, high)| low - high > 2.0) {
            let whisker = format!("M{} {}V{}", coordinate(px), coordinate(low), coordinate(high));
            markup.void("path", &[("class", "whisker"), ("d", &whisker)]);
        }
        marker::draw(markup, series.style, px, py, point.flagged);
    }
    markup.close();
}
