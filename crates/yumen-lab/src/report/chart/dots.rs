//! Draws dots in rows, one row per case.
//!
//! Depends only on the given chart.

use super::super::markup::{MarkupWriter, coordinate};
use super::frame::ChartFrame;
use super::scale::AxisScale;
use super::{ChartPoint, ChartSize, DotPlot, DotRow, ReportChart, marker, text_width};

/// Height of the label of a row.
const LABEL_HEIGHT: f64 = 20.0;
/// Height per series in a row; each has its own line, so that equal values do not overlap.
const LANE_HEIGHT: f64 = 8.0;
/// Space below the last series of a row.
const ROW_GAP: f64 = 8.0;
/// Characters retained at the end of a truncated label: the value of its last parameter.
const TAIL_CHARACTERS: usize = 12;

pub(super) fn draw(chart: &ReportChart, dots: &DotPlot, size: ChartSize) -> String {
    let top = 8.0;
    let lanes = dots.rows.iter().map(|row| row.dots.len()).max().unwrap_or(0);
    let row_height = LABEL_HEIGHT + LANE_HEIGHT * lanes as f64 + ROW_GAP;
    let bottom = top + row_height * dots.rows.len() as f64;
    let frame = ChartFrame { left: 8.0, right: size.width() - 18.0, top, bottom };
    let points = || dots.rows.iter().flat_map(|row| &row.dots).map(|(_, point)| *point);
    let scale = AxisScale::around(dots.x.spacing, points().flat_map(ends), |high| dots.x.unit.grain(high));
    let ticks = scale.ticks(if size == ChartSize::Wide { 8 } else { 4 });
    let mut markup = MarkupWriter::default();
    chart.open(&mut markup, size, bottom + 42.0);
    for tick in ticks.iter().filter_map(|tick| frame.x(&scale, *tick)) {
        let path = format!("M{} {}V{}", coordinate(tick), coordinate(top), coordinate(bottom));
        markup.void("path", &[("class", "grid"), ("d", &path)]);
    }
    frame.draw_x(&mut markup, &dots.x, &scale, &ticks);
    for (index, row) in dots.rows.iter().enumerate() {
        draw_row(&mut markup, row, top + row_height * index as f64, &frame, &scale);
    }
    markup.close();
    markup.finish()
}

fn ends(point: ChartPoint) -> [f64; 3] {
    let (low, high) = point.interval.map_or((point.x, point.x), |ends| (ends.low, ends.high));
    [point.x, low, high]
}

fn draw_row(markup: &mut MarkupWriter, row: &DotRow, top: f64, frame: &ChartFrame, scale: &AxisScale) {
    let label = shortened(&row.label, frame.right - frame.left);
    let (label_x, label_y) = (coordinate(frame.left), coordinate(top + 13.0));
    markup.leaf("text", &[("class", "row"), ("x", &label_x), ("y", &label_y)], &label);
    for (lane, (style, point)) in row.dots.iter().enumerate() {
        let middle = top + LABEL_HEIGHT + LANE_HEIGHT * (lane as f64 + 0.5);
        let rail = format!("M{} {}H{}", coordinate(frame.left), coordinate(middle), coordinate(frame.right));
        markup.void("path", &[("class", "rail"), ("d", &rail)]);
        let Some(x) = frame.x(scale, point.x) else { continue };
        let class = marker::class(*style);
        markup.open("g", &[("class", &class)]);
        let ends =
            point.interval.and_then(|ends| Some((frame.x(scale, ends.low)?, frame.x(scale, ends.high)?)));
        if let Some((low, high)) = ends.filter(|(low, high)| high - low > 2.0) {
            let whisker = format!("M{} {}H{}", coordinate(low), coordinate(middle), coordinate(high));
            markup.void("path", &[("class", "whisker"), ("d", &whisker)]);
        }
        marker::draw(markup, *style, x, middle, point.flagged);
        markup.close();
    }
}

/// Truncates a text in the middle if necessary. The table beside the chart has the full text.
fn shortened(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let fits = (width / text_width("x")) as usize;
    let all: Vec<char> = text.chars().collect();
    let head = all.iter().take(fits.saturating_sub(TAIL_CHARACTERS + 1));
    head.chain(['…'].iter()).chain(&all[all.len() - TAIL_CHARACTERS..]).collect()
}
