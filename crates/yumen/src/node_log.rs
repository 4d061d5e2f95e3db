//! The node's own log: lines on standard error.
//!
//! Knows how lines get out and not what is in them, but for one thing: texts of others, such as names that discovery
//! gave, may stand in them, so nothing in a line can begin another one or speak to a terminal. Where nobody reads,
//! lines are lost: a gateway whose log is not read serves on, and ends when it is told to.

use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use yumen_config::node::NodeLogFormat;

/// A pipe that has room takes so many bytes at once (POSIX's least `PIPE_BUF` is smaller; this is Linux's).
const PIECE_BYTES: usize = 4096;

/// A reader that is only slow gets so long to make room.
const PATIENCE: Duration = Duration::from_millis(100);

/// Who writes lines to standard error.
pub(crate) struct NodeLog {
    state: Mutex<NodeLogState>,
    has_colours: bool,
}

struct NodeLogState {
    format: NodeLogFormat,
    /// Lines that were lost since one got out.
    lost: u64,
    /// What got out last stopped within a line.
    is_torn: bool,
}

impl NodeLog {
    /// With colours, lines may hold what sets them.
    pub(crate) fn new(format: NodeLogFormat, has_colours: bool) -> NodeLog {
        let state = Mutex::new(NodeLogState { format, lost: 0, is_torn: false });
        NodeLog { state, has_colours }
    }
}

/// Each write is a line.
impl io::Write for &NodeLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let text = escaped(&text, self.has_colours);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.write(rustix::stdio::stderr(), text.as_bytes());
        // What is lost is counted here; the one who logs can do nothing about it.
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line without anything that ends it, turns its direction or speaks to a terminal, but for colours where it has
/// them and its end. What is left is a line of JSON where it was one.
fn escaped(line: &str, has_colours: bool) -> Cow<'_, str> {
    let (text, end) = match line.strip_suffix('\n') {
        Some(text) => (text, "\n"),
        None => (line, ""),
    };
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(line);
    }
    let mut safe = String::with_capacity(line.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(is_unsafe) {
        safe.push_str(&rest[..at]);
        rest = &rest[at..];
        let colour = if has_colours { colour_len(rest) } else { None };
        let taken = match (colour, rest.chars().next()) {
            (Some(length), _) => {
                safe.push_str(&rest[..length]);
                length
            }
            (None, Some(char)) => {
                // None of them is beyond four digits.
                safe.push_str(&format!("\\u{:04x}", u32::from(char)));
                char.len_utf8()
            }
            (None, None) => break,
        };
        rest = &rest[taken..];
    }
    safe.push_str(rest);
    safe.push_str(end);
    Cow::Owned(safe)
}

/// Control characters, and those that end lines or turn the direction of what is written.
fn is_unsafe(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The length of what sets a colour, where the text begins with it.
fn colour_len(text: &str) -> Option<usize> {
    let numbers = text.strip_prefix("\u{1b}[")?;
    let length = numbers.find(|char: char| !matches!(char, '0'..='9' | ';'))?;
    numbers[length..].starts_with('m').then_some(2 + length + 1)
}

impl NodeLogState {
    fn write(&mut self, to: BorrowedFd<'_>, line: &[u8]) {
        // Whoever was waited for in vain is not waited for again.
        let mut patience = if self.lost == 0 { PATIENCE } else { Duration::ZERO };
        let mut text = Vec::new();
        if self.is_torn {
            text.push(b'\n');
        }
        if self.lost > 0 {
            text.extend_from_slice(self.lost_lines().as_bytes());
        }
        let own_bytes = text.len();
        text.extend_from_slice(line);
        let mut sent = 0;
        while sent < text.len() {
            let piece = &text[sent..text.len().min(sent + PIECE_BYTES)];
            match write_piece(to, piece, patience) {
                Some(bytes) => sent += bytes,
                None => break,
            }
            patience = PATIENCE;
        }
        if sent > 0 {
            self.is_torn = text[sent - 1] != b'\n';
        }
        if sent >= own_bytes && sent > 0 {
            self.lost = 0;
        }
        if sent < text.len() {
            self.lost += 1;
        }
    }

    fn lost_lines(&self) -> String {
        let lost = self.lost;
        match self.format {
            NodeLogFormat::Text => {
                format!(" WARN node log lines lost: the reader is too slow lines={lost}\n")
            }
            NodeLogFormat::Json => {
                let message = "node log lines lost: the reader is too slow";
                let fields = serde_json::json!({ "message": message, "lines": lost });
                format!("{}\n", serde_json::json!({ "level": "WARN", "fields": fields }))
            }
        }
    }
}

/// Writes what there is room for at once; `None` where there is none in time, or nobody will ever read.
fn write_piece(to: BorrowedFd<'_>, piece: &[u8], patience: Duration) -> Option<usize> {
    let patience = Timespec::try_from(patience).ok()?;
    let mut ready = [PollFd::from_borrowed_fd(to.as_fd(), PollFlags::OUT)];
    loop {
        match poll(&mut ready, Some(&patience)) {
            Err(rustix::io::Errno::INTR) => continue,
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
        match rustix::io::write(to, piece) {
            Err(rustix::io::Errno::INTR) => {}
            written => return written.ok().filter(|bytes| *bytes > 0),
        }
    }
}

#[cfg(test)]
mod tests;
