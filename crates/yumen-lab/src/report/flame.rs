//! Flame graphs on the page: the call tree as SVG, and the functions with the most time of their own.
//!
//! Depends on the recorded profiles, but not on their sampling.

use super::context::ReportContext;
use super::document::{ReportBlock, ReportTable, TableCell};
use super::markup::{MarkupWriter, coordinate};
use crate::quantity::QuantityUnit;
use crate::record::FlameProfile;

/// Width of the drawing; the page shows it at this size and scrolls on narrow screens.
const WIDTH: f64 = 950.0;
const ROW: f64 = 17.0;
/// Frames narrower than this are not drawn.
const NARROWEST: f64 = 1.0;
/// Width of a character of the text, an upper estimate.
const LETTER: f64 = 6.7;
/// Functions in the table beside a graph.
const FUNCTIONS_MAX: usize = 10;
/// Share of samples with an unknown frame or a cut stack from which a graph is doubtful.
const UNKNOWN_MAX: f64 = 0.05;

/// The section on processor time by function; empty without profiles.
pub(crate) fn blocks(context: ReportContext<'_>) -> Vec<ReportBlock> {
    let mut blocks = Vec::new();
    for profile in &context.run.flames {
        blocks.push(ReportBlock::Heading(format!("{}, {}", profile.target, profile.case)));
        if let Some(reason) = &profile.missing {
            blocks.push(ReportBlock::Paragraph(format!("No flame graph: {reason}.")));
            continue;
        }
        blocks.push(ReportBlock::Paragraph(format!(
            "{} samples under the load of this case, by {}; {} of them have an unknown frame or a cut stack. Callers are below their \
             callees; the width is the share of processor time.",
            QuantityUnit::Count.show(profile.samples as f64),
            profile.method,
            QuantityUnit::Share.show(profile.unknown)
        )));
        if profile.unknown >= UNKNOWN_MAX {
            blocks.push(ReportBlock::Notice(
                "Many stacks are incomplete: the program or one of its libraries has neither frame pointers nor unwind tables, \
                 or its stacks are deeper than the 32 KiB that are sampled. Shares of callers are lower bounds."
                    .to_owned(),
            ));
        }
        blocks.push(ReportBlock::Flame(Box::new(profile.clone()), functions(profile)));
    }
    blocks
}

/// Functions by the samples in themselves, without their callees.
fn functions(profile: &FlameProfile) -> ReportTable {
    let mut own: Vec<u64> = profile.frames.iter().map(|frame| frame.samples).collect();
    for frame in &profile.frames {
        if let Some(caller) = frame.caller.and_then(|caller| own.get_mut(caller)) {
            *caller = caller.saturating_sub(frame.samples);
        }
    }
    let mut by_name = vec![0_u64; profile.names.len()];
    for (frame, own) in profile.frames.iter().zip(&own) {
        if let Some(sum) = by_name.get_mut(frame.name) {
            *sum += own;
        }
    }
    let mut order: Vec<usize> = (0..by_name.len()).filter(|name| by_name[*name] > 0).collect();
    order.sort_by(|a, b| {
        by_name[*b].cmp(&by_name[*a]).then_with(|| profile.names[*a].cmp(&profile.names[*b]))
    });
    let caption = format!("Functions with the most time of their own: {}", profile.target);
    let mut table = ReportTable::with_columns(caption, &["function", "#share"]);
    for name in order.into_iter().take(FUNCTIONS_MAX) {
        let share = by_name[name] as f64 / profile.samples.max(1) as f64;
        table.rows.push(vec![
            TableCell::text(&profile.names[name]),
            TableCell { bar: Some(share), ..TableCell::text(QuantityUnit::Share.show(share)) },
        ]);
    }
    table
}

/// Place of a frame in the drawing.
#[derive(Clone, Copy)]
struct FramePlace {
    x: f64,
    depth: usize,
    /// Where the next callee begins.
    free_from: f64,
}

/// Draws the call tree. Frames are recorded with callers first, so one pass places them all.
pub(crate) fn svg(profile: &FlameProfile) -> String {
    let all = profile.samples.max(1) as f64;
    let mut places: Vec<FramePlace> = Vec::with_capacity(profile.frames.len());
    let mut free_from = 0.0;
    for frame in &profile.frames {
        let width = WIDTH * frame.samples as f64 / all;
        let (start, depth) = match frame.caller.and_then(|caller| places.get_mut(caller)) {
            Some(caller) => {
                let start = caller.free_from;
                caller.free_from += width;
                (start, caller.depth + 1)
            }
            None => {
                let start = free_from;
                free_from += width;
                (start, 0)
            }
        };
        places.push(FramePlace { x: start, depth, free_from: start });
    }
    let drawn = |index: usize| WIDTH * profile.frames[index].samples as f64 / all >= NARROWEST;
    let depth = (0..places.len()).filter(|index| drawn(*index)).map(|index| places[index].depth).max();
    let height = (depth.unwrap_or(0) + 1) as f64 * ROW;
    let mut markup = MarkupWriter::default();
    let view = format!("0 0 {} {}", coordinate(WIDTH), coordinate(height));
    let label = format!("Flame graph of {}, {}", profile.target, profile.case);
    markup.open("svg", &[("class", "flame"), ("viewBox", &view), ("role", "img"), ("aria-label", &label)]);
    for index in (0..places.len()).filter(|index| drawn(*index)) {
        let bottom = height - places[index].depth as f64 * ROW;
        draw_frame(&mut markup, profile, index, places[index].x, bottom);
    }
    markup.close();
    markup.finish()
}

fn draw_frame(markup: &mut MarkupWriter, profile: &FlameProfile, index: usize, x: f64, bottom: f64) {
    let frame = profile.frames[index];
    let name = profile.names.get(frame.name).map_or("?", String::as_str);
    let share = frame.samples as f64 / profile.samples.max(1) as f64;
    let (width, y) = (WIDTH * share, bottom - ROW);
    markup.open("g", &[]);
    markup.leaf("title", &[], &format!("{name} ({})", QuantityUnit::Share.show(share)));
    let (left, top, wide, high) =
        (coordinate(x), coordinate(y), coordinate((width - 0.5).max(0.5)), coordinate(ROW - 1.0));
    markup.void(
        "rect",
        &[("x", &left), ("y", &top), ("width", &wide), ("height", &high), ("fill", &colour(name))],
    );
    let letters = ((width - 4.0) / LETTER).max(0.0) as usize;
    if letters >= 3 {
        let (text_x, text_y) = (coordinate(x + 2.0), coordinate(y + 12.0));
        let shown: String = short_name(name).chars().take(letters).collect();
        markup.leaf("text", &[("x", &text_x), ("y", &text_y)], &shown);
    }
    markup.close();
}

/// The end of a path, which names the function; type parameters stay whole.
fn short_name(name: &str) -> &str {
    let plain = name.find(['<', '(', '{', ' ']).map_or(name, |end| &name[..end]);
    plain.rfind("::").filter(|_| plain.len() == name.len()).map_or(name, |at| &name[at + 2..])
}

/// Colour of a name, identical in every graph. Light enough for dark text.
fn colour(name: &str) -> String {
    let hash = name.bytes().fold(5381_u32, |hash, byte| hash.wrapping_mul(33) ^ u32::from(byte));
    format!("hsl({}, 80%, {}%)", 15 + hash % 40, 66 + hash / 64 % 14)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::FlameFrame;

    /// `main` calls `read` in two of three samples and `serve<T>` in the third.
    fn small() -> FlameProfile {
        let frame = |name, caller, samples| FlameFrame { name, caller, samples };
        FlameProfile {
            case: "a & b".to_owned(),
            target: "yumen".to_owned(),
            samples: 3,
            names: ["main", "io::read", "serve<T>"].map(str::to_owned).to_vec(),
            frames: vec![frame(0, None, 3), frame(1, Some(0), 2), frame(2, Some(0), 1)],
            ..FlameProfile::default()
        }
    }

    #[test]
    fn frames_are_as_wide_as_their_share() {
        let svg = svg(&small()).replace('\u{202f}', " ");
        assert!(svg.contains("aria-label=\"Flame graph of yumen, a &amp; b\""), "{svg}");
        assert!(svg.contains("io::read (66.7 %)") && svg.contains("width=\"632.8\""), "{svg}");
        assert!(svg.contains("serve&lt;T&gt; (33.3 %)") && svg.contains("x=\"633.3\""), "{svg}");
        assert!(svg.contains(">read</text>") && svg.contains("viewBox=\"0 0 950 34\""), "{svg}");
    }

    #[test]
    fn functions_are_ranked_by_their_own_time() {
        let rows: Vec<String> =
            functions(&small()).rows.iter().map(|row| format!("{} {}", row[0].text, row[1].text)).collect();
        assert_eq!(rows, ["io::read 66.7\u{202f}%", "serve<T> 33.3\u{202f}%"]);
    }
}
