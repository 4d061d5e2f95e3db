//! Rendering of a frame as text.

use std::fmt::Write;

use super::frame::{SortOrder, TopFrame, TopLine, TopSink};

/// Width of the first column in characters.
const LABEL_WIDTH: usize = 34;
/// Width of the last error of a sink.
const ERROR_WIDTH: usize = 80;

/// Renders a frame in at most `height` lines; each section shows its first rows.
pub(crate) fn render(frame: &TopFrame, height: usize) -> String {
    let mut out = String::new();
    header(&mut out, frame);
    let used: Vec<_> = frame.sections.iter().filter(|section| !section.lines.is_empty()).collect();
    if used.is_empty() {
        // Without a sampled request, only the counts are known.
        out.push_str(match (frame.total.rate > 0.0, frame.sampled) {
            (false, _) => "\nno requests\n",
            (true, true) => "\nno request had a route\n",
            (true, false) => "\nnone of the requests was sampled\n",
        });
    }
    let tables = used.len() + usize::from(!frame.sinks.is_empty());
    let above = if used.is_empty() { 5 } else { 3 };
    // A section has two lines besides its rows: a blank one and the titles.
    let rows = height.saturating_sub(above + 2 * tables) / tables.max(1);
    for section in used {
        out.push('\n');
        titles(&mut out, section.title, frame.order);
        for line in section.lines.iter().take(rows.max(1)) {
            row(&mut out, line);
        }
    }
    if !frame.sinks.is_empty() {
        sink_titles(&mut out);
        frame.sinks.iter().take(rows.max(1)).for_each(|sink| sink_row(&mut out, sink));
    }
    out
}

// Writing to a string does not fail: results of `write!` are dropped below.

fn header(out: &mut String, frame: &TopFrame) {
    let total = &frame.total;
    let _ = writeln!(
        out,
        "yumen {}   revision {}   workers {}   connections {}",
        frame.version, frame.revision, frame.workers, frame.connections
    );
    let _ = writeln!(
        out,
        "{} req/s   {} errors/s   p99 {}   mean {}   cpu {}   over {:.1} s",
        count(total.rate),
        count(total.error_rate),
        duration(total.p99_us),
        duration(total.mean_us),
        percent(total.cpu_percent),
        frame.seconds,
    );
}

/// Writes column titles; a star marks the sort column.
fn titles(out: &mut String, title: &str, order: SortOrder) {
    let mark = |text: &str, of: SortOrder| if of == order { format!("{text}*") } else { text.to_owned() };
    let _ = writeln!(
        out,
        "{:<LABEL_WIDTH$} {:>10} {:>10} {:>10} {:>9} {:>9} {:>8} {:>10}",
        title.to_uppercase(),
        mark("req/s", SortOrder::Rate),
        mark("errors/s", SortOrder::Errors),
        "answers/s",
        "mean",
        mark("p99", SortOrder::Latency),
        mark("cpu", SortOrder::Cpu),
        "bytes/s",
    );
}

fn row(out: &mut String, line: &TopLine) {
    let label = if line.name.is_empty() { line.id.clone() } else { format!("{} {}", line.id, line.name) };
    let _ = writeln!(
        out,
        "{:<LABEL_WIDTH$} {:>10} {:>10} {:>10} {:>9} {:>9} {:>8} {:>10}",
        fit(&label),
        count(line.rate),
        count(line.error_rate),
        count(line.answer_rate),
        duration(line.mean_us),
        duration(line.p99_us),
        percent(line.cpu_percent),
        count(line.bytes_rate),
    );
}

fn sink_titles(out: &mut String) {
    let _ = writeln!(
        out,
        "\n{:<LABEL_WIDTH$} {:>10} {:>10} {:>10} {:>10}  last error",
        "SINKS", "sent/s", "dropped/s", "dropped", "waiting"
    );
}

fn sink_row(out: &mut String, sink: &TopSink) {
    let _ = writeln!(
        out,
        "{:<LABEL_WIDTH$} {:>10} {:>10} {:>10} {:>10}  {}",
        fit(&format!("{} {}", sink.plugin, sink.address)),
        count(sink.sent_rate),
        count(sink.dropped_rate),
        whole(sink.dropped),
        whole(sink.waiting),
        fit_to(if sink.error.is_empty() { "-" } else { &sink.error }, ERROR_WIDTH),
    );
}

/// Truncates a label to the column.
fn fit(label: &str) -> String {
    fit_to(label, LABEL_WIDTH)
}

/// Truncates a text and replaces control characters, since names and errors come from the configuration and from other
/// servers, and could control the terminal.
fn fit_to(text: &str, width: usize) -> String {
    let printable = text.chars().map(|each| if each.is_control() { '?' } else { each });
    let text: String = printable.clone().take(width).collect();
    if printable.count() <= width {
        return text;
    }
    let mut text: String = text.chars().take(width - 1).collect();
    text.push('…');
    text
}

fn count(number: f64) -> String {
    match number {
        n if n >= 1e9 => format!("{:.1}G", n / 1e9),
        n if n >= 1e6 => format!("{:.1}M", n / 1e6),
        n if n >= 1e4 => format!("{:.1}k", n / 1e3),
        n if n >= 100.0 || n == 0.0 => format!("{n:.0}"),
        n => format!("{n:.1}"),
    }
}

/// A number of entries: exact while it is short.
fn whole(number: u64) -> String {
    if number < 10_000 { number.to_string() } else { count(number as f64) }
}

fn duration(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.1}s", us / 1e6),
        us if us >= 1e3 => format!("{:.1}ms", us / 1e3),
        us if us >= 10.0 || us == 0.0 => format!("{us:.0}us"),
        us => format!("{us:.1}us"),
    }
}

fn percent(number: f64) -> String {
    format!("{number:.1}%")
}

#[cfg(test)]
mod tests;
