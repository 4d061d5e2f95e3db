//! Findings about configuration: object, path, message, hint.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// A range of characters in one line of a text. Lines and columns count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LineSpan {
    /// The line.
    pub line: u32,
    /// The first column, in characters.
    pub column: u32,
    /// Number of characters, at least 1; may exceed the line if the value continues on the next one.
    pub width: u32,
}

/// The place of a problem in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FilePlace {
    /// The file, as the user named it; empty if the text has no name.
    #[serde(skip_serializing_if = "is_empty_text")]
    pub file: Arc<str>,
    /// The characters within the file.
    #[serde(flatten)]
    pub span: LineSpan,
}

fn is_empty_text(text: &Arc<str>) -> bool {
    text.is_empty()
}

/// Formats as `routes.yaml:6:7`, which editors follow.
impl fmt::Display for FilePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.span.line, self.span.column)
    }
}

/// The severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProblemLevel {
    /// The object is active, but not entirely as written.
    Warning,
    /// The object is quarantined: its last good version, or a refusal, is active instead. Or a refusal
    /// replaces a part of it, such as a plugin that guards and is missing. For findings of lint and policy
    /// tests: the object is active, or would be, and does not serve its purpose.
    Error,
}

/// One configuration finding. Traffic failures are faults, not problems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The severity.
    pub level: ProblemLevel,
    /// The object as `kind/id`, such as `routes/1`; `file` if no object can be identified.
    pub object: String,
    /// Dotted path inside the object; empty for the whole object.
    pub path: String,
    /// The finding and the allowed values.
    pub message: String,
    /// Remedy, if one is known.
    pub hint: Option<String>,
    /// The allowed values or another notation, by the schema of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// Whether the last good version is active instead; a process that starts now does not have it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub last_good: bool,
    /// The place in the file that the object comes from, if the object comes from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<FilePlace>,
}

/// All findings of one compilation.
pub type Problems = Vec<Problem>;

impl Problem {
    /// A problem that quarantines its object.
    pub fn error(object: impl Into<String>, path: impl Into<String>, message: impl Into<String>) -> Self {
        Problem {
            level: ProblemLevel::Error,
            object: object.into(),
            path: path.into(),
            message: message.into(),
            hint: None,
            allowed: None,
            last_good: false,
            place: None,
        }
    }

    /// A problem that leaves its object active.
    pub fn warning(object: impl Into<String>, path: impl Into<String>, message: impl Into<String>) -> Self {
        Problem { level: ProblemLevel::Warning, ..Problem::error(object, path, message) }
    }

    /// Adds a remedy.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Marks errors after which the last good version is active.
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
        if let Some(place) = self.place.as_ref().filter(|place| !place.file.is_empty()) {
            write!(f, "{place}: ")?;
        }
        write!(f, "{level}: {}", self.object)?;
        if !self.path.is_empty() {
            write!(f, " at {}", self.path)?;
        }
        write!(f, ": {}", self.message)?;
        for hint in self.allowed.iter().chain(&self.hint) {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}
