//! Size limits of functions and files. `xtask/long.txt` lists the exceptions; its entries only shrink.

use std::collections::BTreeMap;

use crate::Finding;
use crate::ratchet::RatchetList;
use crate::sources::{Sources, is_test};

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;
const TEST_FILE_LINES_MAX: usize = 1000;
const LIST: &str = "xtask/long.txt";

/// Everything too long that is not listed, and every listed entry that grew, shrank or disappeared.
pub(crate) fn check(sources: &Sources) -> Vec<Finding> {
    let mut long = BTreeMap::new();
    for (path, text) in sources.rust() {
        let test = is_test(path);
        let file_max = if test { TEST_FILE_LINES_MAX } else { FILE_LINES_MAX };
        let lines = text.lines().count();
        if lines > file_max {
            long.insert(path.to_owned(), lines);
        }
        let functions = functions(text).into_iter().filter(|_| !test);
        for (name, lines) in functions.filter(|(_, lines)| *lines > FUNCTION_LINES_MAX) {
            long.insert(format!("{path} {name}"), lines);
        }
    }
    let text = sources.text(LIST).unwrap_or_default();
    RatchetList { path: LIST, text }
        .compare(long, |subject, lines| format!("{subject}: {lines} lines; split it"))
}

/// Every function with a body and its length. Relies on rustfmt: the closing brace is alone on its line, at
/// the indentation of the line that opened the function.
pub(crate) fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let length = match body_start(&lines[start..]) {
            Some(body) => body + closing(&lines[start + body..], indent(line)),
            None => 1,
        };
        found.push((name, length));
    }
    found
}

/// The line on which the body opens: the end of the signature, unless that is a semicolon or all is one line.
fn body_start(lines: &[&str]) -> Option<usize> {
    let end = lines.iter().position(|line| line.ends_with(['{', ';']) || one_line(line))?;
    lines[end].ends_with('{').then_some(end)
}

/// The number of lines up to the brace that closes at this indentation.
fn closing(lines: &[&str], indent: &str) -> usize {
    let closes = |line: &&str| line.strip_prefix(indent) == Some("}");
    lines.iter().position(closes).map_or(lines.len(), |last| last + 1)
}

/// The white space before the code of a line.
pub(crate) fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

fn one_line(line: &str) -> bool {
    line.ends_with('}') && line.contains("fn ")
}

fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if rest.starts_with("pub") {
        rest = rest.split_once(' ')?.1.trim_start_matches("in ");
    }
    for word in ["const ", "async ", "unsafe ", "extern \"C\" "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let name = rest.strip_prefix("fn ")?;
    let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    Some(&name[..end])
}
