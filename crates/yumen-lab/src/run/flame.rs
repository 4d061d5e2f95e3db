//! Flame profiles of a gateway's processor time, sampled by `perf`. The folding of samples is pure.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};

use crate::record::{FlameFrame, FlameProfile};

/// Samples per second and processor; an odd number avoids lockstep with timers.
const FREQUENCY: &str = "499";
/// Share of samples with an unknown frame or a cut stack from which the other method is tried.
const UNKNOWN_MAX: f64 = 0.05;
/// Frames of a smaller share of the samples are not recorded: they would be narrower than a pixel.
const SHARE_MIN: f64 = 0.001;
/// Name that perf gives to a frame without a symbol, and to code outside all files.
const UNKNOWN: &str = "[unknown]";
/// Frame below a stack that ends in the middle of the program.
const CUT: &str = "[stack cut off]";
/// Beginnings of the outermost functions of threads: of C, of Rust, of Go, and of the kernel.
const ROOTS: [&str; 9] = [
    "_start",
    "__libc_start",
    "main",
    "clone",
    "__clone",
    "start_thread",
    "runtime.goexit",
    "runtime.m",
    "ret_from_fork",
];

/// Method of finding the callers of a sampled function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnwindMethod {
    /// From copies of the stack, by the tables that compilers write for exceptions. Rust and C without frame
    /// pointers need them.
    Tables,
    /// By the chain of frame pointers, which Go keeps.
    FramePointers,
}

impl UnwindMethod {
    pub(super) fn name(self) -> &'static str {
        match self {
            UnwindMethod::Tables => "unwind tables",
            UnwindMethod::FramePointers => "frame pointers",
        }
    }

    fn argument(self) -> &'static str {
        match self {
            // 32 KiB of each stack: the default of 8 KiB cuts the deep stacks of compiled futures.
            UnwindMethod::Tables => "dwarf,32768",
            UnwindMethod::FramePointers => "fp",
        }
    }
}

/// Why `perf` cannot sample here; `None` if it can.
pub(super) fn obstacle(folder: &Path) -> Option<String> {
    let data = folder.join("perf-trial.data");
    let trial = perf(&["record", "-q", "-F", FREQUENCY, "-g", "-o"], &data, &["--", "true"]);
    let _ = std::fs::remove_file(&data);
    match trial {
        Err(_) => Some("perf is not installed (Debian: apt-get install linux-perf)".to_owned()),
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!(
            "perf cannot sample here: {}; root or kernel.perf_event_paranoid=1 is needed",
            first_line(&output.stderr)
        )),
    }
}

fn perf(before: &[&str], data: &Path, after: &[&str]) -> std::io::Result<Output> {
    Command::new("perf").args(before).arg(data).args(after).stdin(Stdio::null()).output()
}

fn first_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no message").trim().to_owned()
}

/// Samples the processes for `seconds`.
pub(super) fn sample(
    pids: &[u32],
    seconds: f64,
    method: UnwindMethod,
    folder: &Path,
) -> Result<FlameProfile> {
    let data = folder.join("perf.data");
    let list = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let record = ["record", "-q", "-F", FREQUENCY, "--call-graph", method.argument(), "-p", &list, "-o"];
    let recorded = perf(&record, &data, &["--", "sleep", &seconds.to_string()]);
    let recorded = recorded.context("perf record")?;
    ensure!(recorded.status.success(), "perf record: {}", first_line(&recorded.stderr));
    // Inlined functions would be looked up one by one, which takes minutes.
    let script = perf(&["script", "--no-inline", "-F", "comm,ip,sym,dso", "-i"], &data, &[]);
    let script = script.context("perf script")?;
    let _ = std::fs::remove_file(&data);
    ensure!(script.status.success(), "perf script: {}", first_line(&script.stderr));
    let profile = profile(&fold(&String::from_utf8_lossy(&script.stdout)), method);
    ensure!(profile.samples > 0, "perf saw no samples: did the gateway do anything?");
    Ok(profile)
}

/// The profile with fewer unnamed frames, by the other method if the first one leaves too many.
pub(super) fn better(
    first: FlameProfile,
    second: impl FnOnce() -> Result<FlameProfile>,
) -> Result<FlameProfile> {
    if first.unknown < UNKNOWN_MAX {
        return Ok(first);
    }
    let second = second()?;
    Ok(if second.unknown < first.unknown { second } else { first })
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
        // Without its outermost function, a stack would look like one of another program.
        if !stack.last().is_some_and(|outermost| is_root(outermost)) {
            stack.push(CUT.to_owned());
        }
        stack.push(program.trim().to_owned());
        // perf lists the innermost frame first; the root of the graph is the program.
        stack.reverse();
        // A chain of frames without a symbol shows no more than one of them.
        stack.dedup_by(|next, before| next == before && (next == UNKNOWN || next.ends_with(NO_SYMBOL)));
        *folded.entry(stack).or_default() += 1;
    }
    folded
}

/// End of the name of a frame in a file that has no symbol for it, such as a static function of a stripped program.
const NO_SYMBOL: &str = " (no symbol)";

fn is_root(name: &str) -> bool {
    ROOTS.iter().any(|root| name.starts_with(root))
}

/// Function name of a frame `ADDRESS NAME (FILE)`, without the hash of Rust's name mangling.
fn frame(line: &str) -> Option<String> {
    let (_, rest) = line.trim().split_once(' ')?;
    let (name, file) = rest.rsplit_once(" (").unwrap_or((rest, ""));
    let file = file.trim_end_matches(')').rsplit('/').next().unwrap_or_default();
    if name == UNKNOWN {
        // A file without a symbol is known code all the same.
        return Some(if file.is_empty() || file == UNKNOWN {
            name.to_owned()
        } else {
            format!("{file}{NO_SYMBOL}")
        });
    }
    let name = name.split("+0x").next().unwrap_or(name);
    let hash = name.rfind("::h").filter(|at| name.len() - at == 19);
    Some(hash.map_or(name, |at| &name[..at]).to_owned())
}

/// A function with its callees.
#[derive(Default)]
struct CallNode {
    samples: u64,
    called: BTreeMap<String, CallNode>,
}

/// The call tree, without frames too narrow to be seen.
fn profile(folded: &Folded, method: UnwindMethod) -> FlameProfile {
    let mut root = CallNode::default();
    for (stack, count) in folded {
        root.samples += count;
        let mut node = &mut root;
        for name in stack {
            node = node.called.entry(name.clone()).or_default();
            node.samples += count;
        }
    }
    let is_unknown = |stack: &&Vec<String>| stack.iter().any(|name| name == UNKNOWN || name == CUT);
    let unknown: u64 = folded.keys().filter(is_unknown).map(|stack| folded[stack]).sum();
    let mut profile = FlameProfile {
        method: method.name().to_owned(),
        samples: root.samples,
        unknown: unknown as f64 / root.samples.max(1) as f64,
        ..FlameProfile::default()
    };
    let least = (root.samples as f64 * SHARE_MIN).max(1.0) as u64;
    let mut names = BTreeMap::new();
    add_frames(&mut profile, &mut names, &root, None, least);
    profile
}

fn add_frames(
    profile: &mut FlameProfile,
    names: &mut BTreeMap<String, usize>,
    node: &CallNode,
    caller: Option<usize>,
    least: u64,
) {
    for (name, called) in node.called.iter().filter(|(_, called)| called.samples >= least) {
        let index = *names.entry(name.clone()).or_insert_with(|| {
            profile.names.push(name.clone());
            profile.names.len() - 1
        });
        profile.frames.push(FlameFrame { name: index, caller, samples: called.samples });
        let own = profile.frames.len() - 1;
        add_frames(profile, names, called, Some(own), least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "y-0 \n\t 55d0 serve<T>::h0123456789abcdef (/bin/y)\n\t 55d1 main+0x12 (/bin/y)\n\n\
        y-0 \n\t 55d2 read (/lib/libc.so)\n\t 55d1 main+0x20 (/bin/y)\n\n\
        y-0 \n\t 55d2 read (/lib/libc.so)\n\t 55d1 main (/bin/y)\n\n\
        y-0 \n\t 55d2 [unknown] (/bin/y)\n\t 55d8 [unknown] (/bin/y)\n\t 55d1 main (/bin/y)\n\n\
        y-0 \n\t 55d2 read (/lib/libc.so)\n\n\
        y-0 \n\t 7f01 [unknown] ([unknown])\n\t 7f02 [unknown] ([unknown])\n\t 55d1 main (/bin/y)\n\n";

    #[test]
    fn stacks_are_folded_from_the_outside_in() {
        let folded = fold(SCRIPT);
        let stack = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(folded[&stack(&["y-0", "main", "read"])], 2);
        assert_eq!(folded[&stack(&["y-0", "main", "serve<T>"])], 1);
        assert_eq!(folded[&stack(&["y-0", "main", "y (no symbol)"])], 1);
        assert_eq!(folded[&stack(&["y-0", "[stack cut off]", "read"])], 1);
        assert_eq!(folded[&stack(&["y-0", "main", "[unknown]"])], 1);
        assert_eq!(folded.len(), 5);
    }

    #[test]
    fn profile_is_a_tree_of_named_frames() {
        let profile = profile(&fold(SCRIPT), UnwindMethod::Tables);
        assert_eq!((profile.samples, profile.method.as_str()), (6, "unwind tables"));
        // One unknown frame and one cut stack.
        assert!((profile.unknown - 2.0 / 6.0).abs() < 1e-9);
        let named: Vec<(&str, Option<usize>, u64)> = profile
            .frames
            .iter()
            .map(|frame| (profile.names[frame.name].as_str(), frame.caller, frame.samples))
            .collect();
        let expected = [
            ("y-0", None, 6),
            ("[stack cut off]", Some(0), 1),
            ("read", Some(1), 1),
            ("main", Some(0), 5),
            ("[unknown]", Some(3), 1),
            ("read", Some(3), 2),
            ("serve<T>", Some(3), 1),
            ("y (no symbol)", Some(3), 1),
        ];
        assert_eq!(named, expected);
    }

    #[test]
    fn frames_too_narrow_to_be_seen_are_left_out() {
        let mut folded: Folded = [(vec!["p".to_owned(), "wide".to_owned()], 2999)].into();
        folded.insert(vec!["p".to_owned(), "narrow".to_owned()], 1);
        let profile = profile(&folded, UnwindMethod::FramePointers);
        assert_eq!(profile.names, ["p", "wide"]);
        assert_eq!(profile.frames[0].samples, 3000);
    }

    #[test]
    fn unnamed_frames_ask_for_the_other_method() {
        let with = |unknown| FlameProfile { unknown, ..FlameProfile::default() };
        let check = |first, second, expected| {
            assert_eq!(better(with(first), || Ok(with(second))).unwrap().unknown, expected);
        };
        check(0.04, 0.0, 0.04);
        check(0.30, 0.01, 0.01);
        check(0.30, 0.40, 0.30);
    }
}
