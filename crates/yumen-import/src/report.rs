//! What became of each object: carried over exactly, differently, or not at all.

use std::fmt;

use serde_json::{Value, json};

/// How far something was carried over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImportLevel {
    /// It behaves as it did.
    Exact,
    /// It does nearly the same; the line says what is not.
    Different,
    /// It is not in force.
    Dropped,
}

impl ImportLevel {
    /// The word in the report.
    pub fn name(self) -> &'static str {
        match self {
            ImportLevel::Exact => "exact",
            ImportLevel::Different => "different",
            ImportLevel::Dropped => "dropped",
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportFinding {
    /// How far it was carried over.
    pub level: ImportLevel,
    /// The object in Kong's words: `route orders`.
    pub object: String,
    /// The field inside it, dotted; empty for the whole of it.
    pub field: String,
    /// What was done instead.
    pub instead: String,
    /// Why, empty where it explains itself.
    pub why: String,
    /// What the user can do; empty where nothing need be done.
    pub hint: String,
}

impl ImportFinding {
    /// With the reason.
    pub(crate) fn why(mut self, why: impl Into<String>) -> ImportFinding {
        self.why = why.into();
        self
    }

    /// With advice.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> ImportFinding {
        self.hint = hint.into();
        self
    }
}

/// A line that says something is done in another way.
pub(crate) fn different(object: &str, field: &str, instead: impl Into<String>) -> ImportFinding {
    line(ImportLevel::Different, object, field, instead)
}

/// A line that says something is missing.
pub(crate) fn dropped(object: &str, field: &str, instead: impl Into<String>) -> ImportFinding {
    line(ImportLevel::Dropped, object, field, instead)
}

fn line(level: ImportLevel, object: &str, field: &str, instead: impl Into<String>) -> ImportFinding {
    let (why, hint) = (String::new(), String::new());
    ImportFinding { level, object: object.into(), field: field.into(), instead: instead.into(), why, hint }
}

impl fmt::Display for ImportFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.level.name(), self.object)?;
        if !self.field.is_empty() {
            write!(f, " at {}", self.field)?;
        }
        write!(f, ": {}", self.instead)?;
        if !self.why.is_empty() {
            write!(f, "; {}", self.why)?;
        }
        if !self.hint.is_empty() {
            write!(f, " (hint: {})", self.hint)?;
        }
        Ok(())
    }
}

/// All findings of one import.
#[derive(Debug, Default)]
pub struct ImportReport {
    lines: Vec<ImportFinding>,
    /// How many of them say that requests are refused for want of a plugin that guards.
    refused: usize,
    objects: Vec<String>,
}

impl ImportReport {
    /// Notes a finding, once.
    pub fn add(&mut self, line: ImportFinding) {
        if !self.lines.contains(&line) {
            self.lines.push(line);
        }
    }

    /// Notes, once, that requests are refused for want of a plugin that guards.
    pub(crate) fn refuse(&mut self, line: ImportFinding) {
        let before = self.lines.len();
        self.add(line);
        self.refused += self.lines.len() - before;
    }

    /// How many findings say that requests are refused for want of a plugin that guards.
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// Notes that an object was looked at, so that it can be counted.
    pub(crate) fn object(&mut self, label: &str) {
        self.objects.push(label.to_owned());
    }

    /// Calls an object by a better name, once what it belongs to is known.
    pub(crate) fn rename(&mut self, label: &str, better: &str) {
        if let Some(object) = self.objects.iter_mut().find(|object| *object == label) {
            better.clone_into(object);
        }
    }

    /// The findings, in the order they were made.
    pub fn lines(&self) -> &[ImportFinding] {
        &self.lines
    }

    /// How many objects were carried over exactly, and how many lines there are of the other levels.
    pub fn counts(&self) -> (usize, usize, usize) {
        let of = |level| self.lines.iter().filter(|line| line.level == level).count();
        let exact = self.exact().count();
        (exact, of(ImportLevel::Different), of(ImportLevel::Dropped))
    }

    fn exact(&self) -> impl Iterator<Item = &str> {
        let noted: std::collections::HashSet<&str> =
            self.lines.iter().map(|line| line.object.as_str()).collect();
        self.objects.iter().map(String::as_str).filter(move |object| !noted.contains(object))
    }

    /// For people: a line per finding, then the counts.
    pub fn text(&self) -> String {
        let (exact, different, dropped) = self.counts();
        let mut text: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        text.push_str(&format!("{exact} objects exact, {different} different, {dropped} dropped\n"));
        if self.refused > 0 {
            let refused = self.refused;
            text.push_str(&format!("{refused} guards missing: requests that they guard are answered 503\n"));
        }
        text
    }

    /// For programs: the same, and the names of what was carried over exactly.
    pub fn json(&self) -> Value {
        let (exact, different, dropped) = self.counts();
        let line = |line: &ImportFinding| {
            json!({
                "level": line.level.name(), "object": line.object, "field": line.field,
                "instead": line.instead, "why": line.why, "hint": line.hint,
            })
        };
        json!({
            "counts": { "exact": exact, "different": different, "dropped": dropped, "refused": self.refused },
            "exact": self.exact().collect::<Vec<_>>(),
            "lines": self.lines.iter().map(line).collect::<Vec<_>>(),
        })
    }
}
