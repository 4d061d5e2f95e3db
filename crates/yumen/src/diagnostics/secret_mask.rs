//! Secrets in shown source lines: output of commands ends up in logs of build systems.
//!
//! Works on the text, since a document may be broken: the names around a value come from indentation and brackets. A
//! masked line keeps its columns.

mod line_scan;
mod secret_names;

use std::ops::Range;

use yumen_base::Problem;
use yumen_config::masking::hide_in_urls;

use line_scan::{LineToken, enclosing_names, scan};
use secret_names::SecretArea;

/// Lines of a private key in PEM at most; an RSA key of 16384 bits has 200.
const KEY_LINES_MAX: usize = 250;

/// Longest line that is read from its start.
const LINE_CHARS_MAX: usize = 16 * 1024;

/// Characters before the shown part of a longer line that are read for the names around it.
const CONTEXT_CHARS: usize = 2048;

/// The characters of a line, with secrets masked. `None` for a line of a private key, and behind the end of the text.
pub(super) fn visible(
    lines: &[&str],
    number: u32,
    problem: &Problem,
    shown: impl FnOnce(usize) -> Range<usize>,
) -> Option<Vec<char>> {
    let index = (number as usize).checked_sub(1)?;
    let line = lines.get(index)?;
    if is_private_key(&lines[..=index]) {
        return None;
    }
    let mut characters: Vec<char> = line.chars().collect();
    let Range { start, end } = shown(characters.len());
    // A whole document may be one line, so only a part of it is read.
    let from = if characters.len() > LINE_CHARS_MAX { start.saturating_sub(CONTEXT_CHARS) } else { 0 };
    let outer = if from == 0 { enclosing_names(&lines[..=index]) } else { Vec::new() };
    let area = SecretArea::of(problem, from > 0);
    for LineToken { range, names, is_name } in scan(&characters[from..], outer) {
        let text: String = characters[from..][range.clone()].iter().collect();
        if range.start + from < end && (area.hides(&names, &text, is_name) || has_credentials(&text)) {
            characters[from..][range].fill('*');
        }
    }
    Some(characters)
}

/// Whether a value has a URL with a password or an argument that grants access.
fn has_credentials(text: &str) -> bool {
    let mut shown = text.to_owned();
    hide_in_urls(&mut shown);
    shown != text
}

/// Whether the last line is part of a private key in PEM.
fn is_private_key(lines: &[&str]) -> bool {
    let Some((last, before)) = lines.split_last() else { return false };
    let near = before.iter().rev().take(KEY_LINES_MAX);
    let mut marks = near.filter(|line| line.contains("-----BEGIN ") || line.contains("-----END "));
    let begin = marks.next();
    last.contains("PRIVATE KEY")
        || begin.is_some_and(|line| line.contains("PRIVATE KEY") && !line.contains("-----END "))
}

#[cfg(test)]
mod tests;
