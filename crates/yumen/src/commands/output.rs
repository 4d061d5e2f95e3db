//! Standard output of all commands.
//!
//! A failed write is an error, so that a truncated document is never taken for a complete one. A closed pipe
//! (`| head`) is not an error.

use std::io::{self, ErrorKind, Write};

use anyhow::Context;

/// State of the reader of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputReader {
    /// No write has failed.
    Reads,
    /// The pipe is closed.
    Gone,
}

/// Prints a text in full.
pub(crate) fn print(text: &str) -> anyhow::Result<OutputReader> {
    let mut out = io::stdout().lock();
    // Data left in the buffer at process exit would be dropped without an error.
    classify_write(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Result of a write to standard output.
pub(crate) fn classify_write(written: io::Result<()>) -> anyhow::Result<OutputReader> {
    match written {
        Ok(()) => Ok(OutputReader::Reads),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(OutputReader::Gone),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}
