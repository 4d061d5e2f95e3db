//! What commands print: the one place that writes to standard output.
//!
//! What could not be written is an error, so that half a document is never taken for a whole one. A reader that has
//! gone (`| head`) has seen enough.

use std::io::{self, ErrorKind, Write};

use anyhow::Context;

/// Whether anybody still reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputReader {
    /// As far as anybody knows.
    Reads,
    /// The other end of the pipe was closed.
    Gone,
}

/// Prints a text to its end.
pub(crate) fn print(text: &str) -> anyhow::Result<OutputReader> {
    let mut out = io::stdout().lock();
    // What stands in a buffer when the process ends is dropped without a word.
    judge(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// What became of a write to standard output.
pub(crate) fn judge(written: io::Result<()>) -> anyhow::Result<OutputReader> {
    match written {
        Ok(()) => Ok(OutputReader::Reads),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(OutputReader::Gone),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}
