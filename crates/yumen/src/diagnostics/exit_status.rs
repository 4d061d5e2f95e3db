//! Exit statuses of all commands.

use std::fmt;
use std::process::ExitCode;

use yumen_base::Problem;

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

/// Errors of the configuration that keep a command from its work.
#[derive(Debug)]
pub(crate) struct ConfigProblems {
    pub(crate) status: ExitStatus,
    pub(crate) problems: Vec<Problem>,
    /// The problems with their source lines, for a terminal.
    pub(crate) rendered: String,
}

/// Formats the problems without source lines, as logs and other processes get them.
impl fmt::Display for ConfigProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigProblems {}
