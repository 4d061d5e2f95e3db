//! Flame graphs of the gateway's processor time from `perf` samples. The drawing is pure.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Samples per second and processor; an odd number avoids lockstep with timers.
const FREQUENCY: &str = "499";

/// Samples the processes for `seconds` and returns the SVG.
pub(super) fn graph(pids: &[u32], seconds: f64, folder: &Path, title: &str) -> Result<String> {
    let data = folder.join("perf.data");
    let list = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let recorded = Command::new("perf")
        .args(["record", "-q", "-F", FREQUENCY, "-g", "-p", &list, "-o"])
        .arg(&data)
        .args(["--", "sleep", &seconds.to_string()])
        .stdin(Stdio::null())
        .output()
        .context("perf record: is perf installed?")?;
    ensure!(recorded.status.success(), "perf record: {}", String::from_utf8_lossy(&recorded.stderr).trim());
    let script = Command::new("perf")
        .args(["script", "-F", "comm,ip,sym", "-i"])
        .arg(&data)
        .stdin(Stdio::null())
        .output()
        .context("perf script")?;
    ensure!(script.status.success(), "perf script: {}", String::from_utf8_lossy(&script.stderr).trim());
    let folded = fold(&String::from_utf8_lossy(&script.stdout));
    ensure!(!folded.is_empty(), "perf saw no samples: did the gateway do anything?");
    Ok(draw(&folded, title))
}

/// Stacks from the program to the innermost function, with the number of samples.
type Folded = BTreeMap<Vec<String>, u64>;

/// Parses `perf script` output: blocks of a program name and frames, innermost first.
fn fold(script: &str) -> Folded {
    let mut folded = Folded::new();
    for block in script.split("\n\n") {
        let mut lines = block.lines().filter(|line| !line.trim().is_empty());
        let Some(program) = lines.next() else { continue };
        let mut stack: Vec<String> = lines.filter_map(frame).collect();
        stack.push(program.trim().to_owned());
        // perf lists the innermost frame first; the root of the graph is the program.
        stack.reverse();
        *folded.entry(stack).or_default() += 1;
    }
    folded
}

/// Function name of a frame, without the hash of Rust's name mangling.
fn frame(line: &str) -> Option<String> {
    let (_, name) = line.trim().split_once(' ')?;
    let name = name.split("+0x").next().unwrap_or(name);
    let hash = name.rfind("::h").filter(|at| name.len() - at == 19);
    Some(hash.map_or(name, |at| &name[..at]).to_owned())
}

/// A function with its callees.
#[derive(Default)]
struct FlameNode {
    samples: u64,
    called: BTreeMap<String, FlameNode>,
}

const WIDTH: f64 = 1200.0;
const ROW: usize = 17;
/// Frames narrower than this are not drawn.
const NARROWEST: f64 = 0.3;
/// Width of a character of the text.
const LETTER: f64 = 6.6;

fn draw(folded: &Folded, title: &str) -> String {
    let mut root = FlameNode::default();
    for (stack, count) in folded {
        root.samples += count;
        let mut node = &mut root;
        for name in stack {
            node = node.called.entry(name.clone()).or_default();
            node.samples += count;
        }
    }
    let rows = folded.keys().map(Vec::len).max().unwrap_or(0);
    let height = rows * ROW + 50;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"monospace\" font-size=\"11\">\n<title>{0}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n<text x=\"8\" y=\"18\" font-size=\"14\">{0}</text>\n",
        escape(title)
    );
    frames(&mut svg, &root, 0.0, height as f64 - 10.0, root.samples.max(1));
    svg + "</svg>\n"
}

/// Draws callees above their caller, ordered by name.
fn frames(svg: &mut String, node: &FlameNode, mut x: f64, bottom: f64, all: u64) {
    for (name, called) in &node.called {
        let width = WIDTH * called.samples as f64 / all as f64;
        if width >= NARROWEST {
            let (y, share) = (bottom - ROW as f64, 100.0 * called.samples as f64 / all as f64);
            let letters = (width / LETTER) as usize;
            let shown: String =
                if letters >= 3 { name.chars().take(letters).collect() } else { String::new() };
            let _ = writeln!(
                svg,
                "<g><title>{} ({} samples, {share:.1} %)</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
                 height=\"{}\" fill=\"{}\" stroke=\"#fff\" stroke-width=\"0.5\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
                escape(name),
                called.samples,
                ROW - 1,
                colour(name),
                x + 2.0,
                y + 12.0,
                escape(&shown)
            );
            frames(svg, called, x, y, all);
        }
        x += width;
    }
}

/// Colour of a name, identical in every graph.
fn colour(name: &str) -> String {
    let hash = name.bytes().fold(5381_u32, |hash, byte| hash.wrapping_mul(33) ^ u32::from(byte));
    format!("hsl({}, 80%, {}%)", 15 + hash % 40, 62 + hash / 64 % 14)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "yumen-0 \n\t    55d0 serve<T>::h0123456789abcdef\n\t    55d1 main+0x12\n\nyumen-0 \n\t    55d2 read\n\t    55d1 main+0x20\n\nyumen-0 \n\t    55d2 read\n\t    55d1 main\n\n";

    #[test]
    fn stacks_are_folded_from_the_outside_in() {
        let folded = fold(SCRIPT);
        let stack = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(folded[&stack(&["yumen-0", "main", "read"])], 2);
        assert_eq!(folded[&stack(&["yumen-0", "main", "serve<T>"])], 1);
        assert_eq!(folded.len(), 2);
    }

    #[test]
    fn frames_are_as_wide_as_their_share() {
        let svg = draw(&fold(SCRIPT), "a & b");
        assert!(svg.contains("<title>a &amp; b</title>"));
        assert!(svg.contains("read (2 samples, 66.7 %)") && svg.contains("width=\"800.0\""));
        assert!(svg.contains("serve&lt;T&gt; (1 samples, 33.3 %)"));
        assert_eq!(svg.matches("<g>").count(), svg.matches("</g>").count());
    }
}
