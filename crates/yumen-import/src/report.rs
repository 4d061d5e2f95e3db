//! The report of an import: objects converted exactly, with differences, or not at all.

use std::fmt;

use serde_json::{Value, json};

/// Accuracy of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImportLevel {
    /// The behaviour is the same.
    Exact,
    /// The behaviour differs as the finding describes.
    Different,
    /// Not converted.
    Dropped,
}

impl ImportLevel {
    /// Name in the report.
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
    /// Accuracy of the conversion.
    pub level: ImportLevel,
    /// The object in the terms of its gateway, such as `route orders`.
    pub object: String,
    /// Path of the field in the object; empty for the whole object.
    pub field: String,
    /// The resulting behaviour.
    pub instead: String,
    /// The reason; empty if obvious.
    pub why: String,
    /// Advice; empty if there is nothing to do.
    pub hint: String,
}

impl ImportFinding {
    /// Sets the reason.
    pub(crate) fn why(mut self, why: impl Into<String>) -> ImportFinding {
        self.why = why.into();
        self
    }

    /// Sets the advice.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> ImportFinding {
        self.hint = hint.into();
        self
    }
}

/// A finding of level `Different`.
pub(crate) fn different(object: &str, field: &str, instead: impl Into<String>) -> ImportFinding {
    line(ImportLevel::Different, object, field, instead)
}

/// A finding of level `Dropped`.
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

/// Counts of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportCounts {
    /// Objects converted exactly.
    pub exact: usize,
    /// Findings of level [`ImportLevel::Different`].
    pub different: usize,
    /// Findings of level [`ImportLevel::Dropped`].
    pub dropped: usize,
}

/// All findings of one import.
#[derive(Debug, Default)]
pub struct ImportReport {
    lines: Vec<ImportFinding>,
    /// Number of findings on requests that are refused because a guard plugin is missing.
    refused: usize,
    objects: Vec<String>,
}

impl ImportReport {
    /// Adds a finding, once.
    pub fn add(&mut self, line: ImportFinding) {
        // One plugin of a service is converted for each of its routes.
        if !self.lines.contains(&line) {
            self.lines.push(line);
        }
    }

    /// Adds a finding on requests that are refused because a guard plugin is missing, once.
    pub(crate) fn refuse(&mut self, line: ImportFinding) {
        let before = self.lines.len();
        self.add(line);
        // Counts a new line only.
        self.refused += self.lines.len() - before;
    }

    /// Number of findings on requests that are refused because a guard plugin is missing.
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// Adds an object to the count.
    pub(crate) fn object(&mut self, label: &str) {
        self.objects.push(label.to_owned());
    }

    /// Changes the label of an object once its parents are known.
    pub(crate) fn rename(&mut self, label: &str, better: &str) {
        if let Some(object) = self.objects.iter_mut().find(|object| *object == label) {
            better.clone_into(object);
        }
    }

    /// The findings in order.
    pub fn lines(&self) -> &[ImportFinding] {
        &self.lines
    }

    /// The counts by level.
    pub fn counts(&self) -> ImportCounts {
        let of = |level| self.lines.iter().filter(|line| line.level == level).count();
        ImportCounts {
            exact: self.exact().count(),
            different: of(ImportLevel::Different),
            dropped: of(ImportLevel::Dropped),
        }
    }

    fn exact(&self) -> impl Iterator<Item = &str> {
        let reported: std::collections::HashSet<&str> =
            // An object with any finding is not exact.
            self.lines.iter().map(|line| line.object.as_str()).collect();
        self.objects.iter().map(String::as_str).filter(move |object| !reported.contains(object))
    }

    /// The report as text: a line per finding, then the counts.
    pub fn text(&self) -> String {
        let ImportCounts { exact, different, dropped } = self.counts();
        let mut text: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        text.push_str(&format!("{exact} objects exact, {different} different, {dropped} dropped\n"));
        if self.refused > 0 {
            let refused = self.refused;
            text.push_str(&format!("{refused} guards missing: requests that they guard are answered 503\n"));
        }
        text
    }

    /// The report as JSON, with the labels of objects that were converted exactly.
    pub fn json(&self) -> Value {
        let ImportCounts { exact, different, dropped } = self.counts();
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
