//! Node log: lines on standard error.
//!
//! Owns the output, not the content, except for escaping: external texts, such as discovered names, must not
//! start a new line or control a terminal. If standard error is not read, lines are dropped and the gateway
//! serves on.

mod forwarded_lines;

use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use yumen_config::node::{LogConfig, LogLevel, NodeLogFormat};

use crate::diagnostics::has_colors;
use forwarded_lines::ForwardedLines;
pub(crate) use forwarded_lines::forward_to;

/// A pipe that polls as writable takes this many bytes at once: `PIPE_BUF` on Linux (pipe(7)).
const CHUNK_BYTES: usize = 4096;

/// Time for a slow reader to drain the pipe.
const DRAIN_WITHIN: Duration = Duration::from_millis(100);

/// Writer of log lines to standard error.
pub(crate) struct NodeLog {
    state: Mutex<NodeLogState>,
    has_colours: bool,
}

struct NodeLogState {
    format: NodeLogFormat,
    /// Lines dropped since the last successful write.
    lost: u64,
    /// Whether the last write ended within a line.
    is_torn: bool,
}

impl NodeLog {
    /// With colours, SGR escape sequences are passed through.
    pub(crate) fn new(format: NodeLogFormat, has_colours: bool) -> NodeLog {
        let state = Mutex::new(NodeLogState { format, lost: 0, is_torn: false });
        NodeLog { state, has_colours }
    }
}

/// Installs the global subscriber, which writes to the node log.
pub(crate) fn start(logs: &LogConfig) {
    let level = match logs.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let mut filter = EnvFilter::default().add_directive(level.into());
    if level <= LevelFilter::INFO {
        // The HTTP/2 and QUIC crates log protocol errors of peers: a peer must not be able to fill the log.
        filter = filter.add_directive("h2=off".parse().expect("a target and a level"));
        filter = filter.add_directive("quinn=off".parse().expect("a target and a level"));
        filter = filter.add_directive("quinn_proto=off".parse().expect("a target and a level"));
    }
    // Colours only on a terminal: files and log collectors get plain text.
    let has_colours = has_colors(&std::io::stderr());
    // `tracing` requires a writer that lives as long as the process.
    let log: &NodeLog = Box::leak(Box::new(NodeLog::new(logs.format, has_colours)));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || log)
        .with_ansi(has_colours)
        .with_target(false);
    // An existing global subscriber stays in place.
    let _ = match logs.format {
        NodeLogFormat::Text => builder.finish().with(ForwardedLines).try_init(),
        NodeLogFormat::Json => builder.json().finish().with(ForwardedLines).try_init(),
    };
}

/// Each write is one line.
impl io::Write for &NodeLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // The log must be text, whatever a peer has sent as a name.
        let text = String::from_utf8_lossy(line);
        let text = escaped(&text, self.has_colours);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.write(rustix::stdio::stderr(), text.as_bytes());
        // Dropped lines are counted here; the caller cannot handle an error.
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Escapes control characters, line ends and bidirectional controls, except colours if enabled and the final
/// line feed. A JSON line stays valid JSON.
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
                // All unsafe characters have at most four hexadecimal digits.
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

/// Control characters, line and paragraph separators, and bidirectional controls.
fn is_unsafe(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Length of a leading SGR sequence, if there is one.
fn colour_len(text: &str) -> Option<usize> {
    let numbers = text.strip_prefix("\u{1b}[")?;
    let length = numbers.find(|char: char| !matches!(char, '0'..='9' | ';'))?;
    numbers[length..].starts_with('m').then_some(2 + length + 1)
}

impl NodeLogState {
    fn write(&mut self, to: BorrowedFd<'_>, line: &[u8]) {
        // After a timeout, do not wait again until a write succeeds.
        let mut wait = if self.lost == 0 { DRAIN_WITHIN } else { Duration::ZERO };
        let mut text = Vec::new();
        if self.is_torn {
            // The torn line is ended first, so that the next one can be parsed.
            text.push(b'\n');
        }
        if self.lost > 0 {
            // In front of the new line, where the gap is.
            text.extend_from_slice(self.lost_lines().as_bytes());
        }
        let own_bytes = text.len();
        text.extend_from_slice(line);
        let mut sent = 0;
        while sent < text.len() {
            // One chunk per poll: a larger write to a blocking pipe would wait for the reader.
            let chunk = &text[sent..text.len().min(sent + CHUNK_BYTES)];
            match write_chunk(to, chunk, wait) {
                Some(bytes) => sent += bytes,
                None => break,
            }
            // The reader has taken something, so it is alive.
            wait = DRAIN_WITHIN;
        }
        if sent > 0 {
            self.is_torn = text[sent - 1] != b'\n';
        }
        // The report counts as written only when all of it was.
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

/// Writes as much as fits at once; `None` on timeout or error.
fn write_chunk(to: BorrowedFd<'_>, chunk: &[u8], wait: Duration) -> Option<usize> {
    let wait = Timespec::try_from(wait).ok()?;
    let mut ready = [PollFd::from_borrowed_fd(to.as_fd(), PollFlags::OUT)];
    loop {
        match poll(&mut ready, Some(&wait)) {
            // A signal is no timeout.
            Err(rustix::io::Errno::INTR) => continue,
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
        match rustix::io::write(to, chunk) {
            Err(rustix::io::Errno::INTR) => {}
            written => return written.ok().filter(|bytes| *bytes > 0),
        }
    }
}

#[cfg(test)]
mod tests;
