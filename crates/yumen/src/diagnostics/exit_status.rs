//! Exit statuses of all commands.

use std::fmt;
use std::process::ExitCode;

/// Exit status of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ExitStatus {
    /// Done; there is no error.
    Done = 0,
    /// The configuration has an error.
    Problems = 1,
    /// Nothing was done: wrong usage, an unreadable file, an unreachable gateway, or a refused request.
    Failed = 2,
    /// A large change needs a confirmation.
    Unconfirmed = 3,
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> ExitCode {
        ExitCode::from(status as u8)
    }
}

/// Errors of the configuration that keep a command from its work: exit status 1. The text is complete, with a line end.
#[derive(Debug)]
pub(crate) struct ConfigProblems(pub(crate) String);

impl fmt::Display for ConfigProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.trim_end())
    }
}

impl std::error::Error for ConfigProblems {}
