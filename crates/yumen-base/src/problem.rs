//! A finding about configuration: which object, where in it, what is wrong, what to do.

use std::fmt;

use serde::Serialize;

/// How much a problem matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProblemLevel {
    /// The object is in force, but not wholly as written.
    Warning,
    /// The object is quarantined: its last good version, or a refusal, is in force instead. Or a refusal stands in for
    /// a part of it, a plugin that guards and is missing. Of what lint and tests find: the object is in force, or
    /// would be, and does not do what it is there for.
    Error,
}

/// One configuration finding. Traffic failures are faults, not problems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How much it matters.
    pub level: ProblemLevel,
    /// The object as `kind/id`, such as `routes/1`; `file` where no object could be told.
    pub object: String,
    /// Dotted path inside the object, empty for the whole of it.
    pub path: String,
    /// What was found and what is allowed.
    pub message: String,
    /// What to do about it, where that is known.
    pub hint: Option<String>,
    /// Whether what was there before is in force instead: a process that starts now does not have it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub last_good: bool,
}

/// All findings of one compilation.
pub type Problems = Vec<Problem>;

impl Problem {
    /// A problem that puts its object into quarantine.
    pub fn error(object: impl Into<String>, path: impl Into<String>, message: impl Into<String>) -> Self {
        Problem {
            level: ProblemLevel::Error,
            object: object.into(),
            path: path.into(),
            message: message.into(),
            hint: None,
            last_good: false,
        }
    }

    /// A problem that leaves its object in force.
    pub fn warning(object: impl Into<String>, path: impl Into<String>, message: impl Into<String>) -> Self {
        Problem { level: ProblemLevel::Warning, ..Problem::error(object, path, message) }
    }

    /// The same problem with advice.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Notes of errors that what was there before is in force instead.
pub fn keep_last_good(problems: &mut [Problem]) {
    for problem in problems.iter_mut().filter(|problem| problem.level == ProblemLevel::Error) {
        problem.last_good = true;
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            ProblemLevel::Warning => "warning",
            ProblemLevel::Error => "error",
        };
        write!(f, "{level}: {}", self.object)?;
        if !self.path.is_empty() {
            write!(f, " at {}", self.path)?;
        }
        write!(f, ": {}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}
