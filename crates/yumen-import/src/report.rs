//! The report of an import: objects converted exactly, with differences, or not at all.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde_json::{Value, json};

/// Accuracy of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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

impl ImportFinding {
    /// The part of the line after the object.
    fn message(&self) -> String {
        let mut text = String::new();
        if !self.field.is_empty() {
            text.push_str(&format!(" at {}", self.field));
        }
        text.push_str(&format!(": {}", self.instead));
        if !self.why.is_empty() {
            text.push_str(&format!("; {}", self.why));
        }
        if !self.hint.is_empty() {
            text.push_str(&format!(" (hint: {})", self.hint));
        }
        text
    }
}

impl fmt::Display for ImportFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}{}", self.level.name(), self.object, self.message())
    }
}

/// Most objects that one line of the summary names.
const NAMED_OBJECTS_MAX: usize = 3;

/// A line of the summary: the objects of findings with one message.
fn grouped_line(level: ImportLevel, objects: &[&str], message: &str) -> String {
    let (named, others) = objects.split_at(objects.len().min(NAMED_OBJECTS_MAX));
    let objects = match (named, others.len()) {
        ([one], _) => (*one).to_owned(),
        (named, 0) => format!("{} objects ({})", named.len(), named.join(", ")),
        (named, more) => format!("{} objects ({} and {more} more)", objects.len(), named.join(", ")),
    };
    format!("{}: {objects}{message}\n", level.name())
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
    known: HashSet<ImportFinding>,
    /// Number of findings on requests that are refused because a guard plugin is missing.
    refused: usize,
    /// Number of findings on guards that are missing or weaker without a refusal in their place.
    weakened: usize,
    objects: Vec<String>,
}

impl ImportReport {
    /// Adds a finding, once.
    pub fn add(&mut self, line: ImportFinding) {
        // One plugin of a service is converted for each of its routes.
        if self.known.insert(line.clone()) {
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

    /// Adds a finding on a guard that is missing or weaker without a refusal in its place, once.
    pub(crate) fn weaken(&mut self, line: ImportFinding) {
        let before = self.lines.len();
        self.add(line);
        self.weakened += self.lines.len() - before;
    }

    /// Number of findings on guards that are not kept, whether requests are refused in their place or not.
    pub fn refused(&self) -> usize {
        self.refused + self.weakened
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
        let reported: HashSet<&str> =
            // An object with any finding is not exact.
            self.lines.iter().map(|line| line.object.as_str()).collect();
        self.objects.iter().map(String::as_str).filter(move |object| !reported.contains(object))
    }

    /// The report as text: a line per finding, then the counts.
    pub fn text(&self) -> String {
        let lines: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        lines + &self.totals()
    }

    /// The report as text: a line per message with the number of its objects and the first of them, then the counts.
    pub fn summary(&self) -> String {
        let mut order: Vec<(ImportLevel, String, Vec<&str>)> = Vec::new();
        let mut places: HashMap<(ImportLevel, String), usize> = HashMap::new();
        for line in &self.lines {
            let message = line.message();
            let place = *places.entry((line.level, message.clone())).or_insert_with(|| {
                order.push((line.level, message, Vec::new()));
                order.len() - 1
            });
            order[place].2.push(&line.object);
        }
        let is_shortened = order.iter().any(|(_, _, objects)| objects.len() > NAMED_OBJECTS_MAX);
        let lines: String =
            order.iter().map(|(level, message, objects)| grouped_line(*level, objects, message)).collect();
        let note = if is_shortened { "--verbose lists all objects\n" } else { "" };
        lines + &self.totals() + note
    }

    fn totals(&self) -> String {
        let ImportCounts { exact, different, dropped } = self.counts();
        let mut text = format!("{exact} objects exact, {different} different, {dropped} dropped\n");
        if self.refused > 0 {
            let refused = self.refused;
            text.push_str(&format!("{refused} guards missing: requests that they guard are answered 503\n"));
        }
        if self.weakened > 0 {
            let weakened = self.weakened;
            text.push_str(&format!("{weakened} guards weaker than in Kong: no 503 takes their place\n"));
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
            "counts": {
                "exact": exact, "different": different, "dropped": dropped,
                "refused": self.refused, "weakened": self.weakened,
            },
            "exact": self.exact().collect::<Vec<_>>(),
            "lines": self.lines.iter().map(line).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_groups_findings_by_message() {
        let mut report = ImportReport::default();
        for route in ["a", "b", "c", "d", "e"] {
            report.add(different(&format!("route {route}"), "paths", "literal").why("no tilde"));
        }
        report.add(different("route f", "hosts", "literal").why("no tilde"));
        for route in ["g", "h"] {
            report.add(dropped(&format!("route {route}"), "", "left out").hint("add it"));
        }
        let expected = "\
            different: 5 objects (route a, route b, route c and 2 more) at paths: literal; no tilde\n\
            different: route f at hosts: literal; no tilde\n\
            dropped: 2 objects (route g, route h): left out (hint: add it)\n\
            0 objects exact, 6 different, 2 dropped\n\
            --verbose lists all objects\n";
        assert_eq!(report.summary(), expected);
        assert_eq!(report.text().lines().count(), 9);
    }
}
