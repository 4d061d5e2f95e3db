//! The report of a migration, as text and as JSON.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::assessment::{MigrationAssessment, MigrationFinding, MigrationVerdict};
use super::migration_source::MigrationSource;
use super::replay_report::ReplayReport;

const VERDICTS: [MigrationVerdict; 3] =
    [MigrationVerdict::Same, MigrationVerdict::Differs, MigrationVerdict::Refused];

/// The findings of a migration.
pub(super) struct MigrationReport<'r> {
    source: &'r MigrationSource,
    assessment: &'r MigrationAssessment<'r>,
    replay: Option<ReplayReport>,
}

impl<'r> MigrationReport<'r> {
    pub(super) fn new(
        source: &'r MigrationSource,
        assessment: &'r MigrationAssessment<'r>,
        replay: Option<ReplayReport>,
    ) -> MigrationReport<'r> {
        MigrationReport { source, assessment, replay }
    }

    fn count(&self, verdict: MigrationVerdict) -> usize {
        self.assessment.ingresses.iter().filter(|one| one.verdict() == verdict).count()
    }

    fn annotations(&self, verdict: MigrationVerdict) -> usize {
        self.assessment.ingresses.iter().map(|one| one.annotations_at(verdict)).sum()
    }

    /// Whether a part of an Ingress, a key that protects, or an object that cannot be read, is refused.
    pub(super) fn is_refused(&self) -> bool {
        self.count(MigrationVerdict::Refused) > 0
            || self.source.findings.iter().any(|(_, one)| one.is_error)
            || !self.assessment.unreadable.is_empty()
    }

    pub(super) fn differs(&self) -> bool {
        self.count(MigrationVerdict::Differs) > 0
    }

    pub(super) fn replay_differs(&self) -> bool {
        self.replay.as_ref().is_some_and(ReplayReport::differs)
    }

    /// The report for people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write_text(&mut text);
        text
    }

    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        for assessed in &self.assessment.ingresses {
            let place =
                assessed.ingress.place.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
            writeln!(text, "{}: {}{place}", assessed.ingress.name(), assessed.verdict().word())?;
            let mut findings: Vec<&MigrationFinding> = assessed.findings.iter().collect();
            findings.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
            for finding in findings {
                let verdict = match finding.verdict {
                    MigrationVerdict::Same => "note",
                    verdict => verdict.word(),
                };
                writeln!(text, "  {verdict} {}: {}", finding.place, finding.message)?;
                if let Some(instead) =
                    finding.instead.as_deref().filter(|_| finding.verdict > MigrationVerdict::Same)
                {
                    writeln!(text, "    instead: {instead}")?;
                }
            }
        }
        for problem in &self.assessment.unreadable {
            let place = problem.place.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
            writeln!(text, "{}: refused{place}\n  refused: {}", problem.object, problem.message)?;
        }
        self.write_controller(text)?;
        if let Some(replay) = &self.replay {
            replay.write_text(text)?;
        }
        self.write_totals(text)
    }

    /// Findings about flags and ConfigMap, and the settings that belong into the node's file.
    fn write_controller(&self, text: &mut String) -> std::fmt::Result {
        if !self.source.findings.is_empty() {
            text.push_str("\nController\n");
        }
        for (object, finding) in &self.source.findings {
            let level = if finding.is_error { "refused" } else { "note" };
            writeln!(text, "  {level} {object} {}: {}", finding.key, finding.message)?;
            if let Some(way) = &finding.way_over {
                writeln!(text, "    instead: {way}")?;
            }
        }
        let node = self.node_settings();
        if !node.as_object().is_none_or(Map::is_empty) {
            text.push_str("\nSettings for yumen.yaml\n");
            for line in serde_yaml_ng::to_string(&node).unwrap_or_default().lines() {
                writeln!(text, "  {line}")?;
            }
        }
        Ok(())
    }

    fn write_totals(&self, text: &mut String) -> std::fmt::Result {
        let [same, differs, refused] = VERDICTS.map(|verdict| self.count(verdict));
        let total = self.assessment.ingresses.len();
        let others = match self.source.of_others.len() {
            0 => String::new(),
            count => format!("; {count} of other classes"),
        };
        writeln!(text, "\n{total} Ingresses: {same} same, {differs} differ, {refused} refused{others}")?;
        let [same, differs, refused] = VERDICTS.map(|verdict| self.annotations(verdict));
        let total: usize = self.assessment.ingresses.iter().map(|one| one.annotations).sum();
        writeln!(text, "{total} annotations: {same} same, {differs} differ, {refused} refused")
    }

    /// The settings of the controller that a node has in its file.
    fn node_settings(&self) -> Value {
        let mut settings = Value::Object(Map::new());
        for setting in &self.source.controller.node {
            let mut place = &mut settings;
            for name in setting.path.split('.') {
                if !place.is_object() {
                    *place = Value::Object(Map::new());
                }
                place = &mut place[name];
            }
            *place = setting.value.clone();
        }
        settings
    }

    /// The report for programs.
    pub(super) fn json(&self) -> Value {
        let finding = |finding: &MigrationFinding| {
            let mut value = json!({
                "verdict": finding.verdict.word(), "place": finding.place, "message": finding.message,
            });
            if let Some(instead) = &finding.instead {
                value["instead"] = instead.as_str().into();
            }
            value
        };
        let ingresses: Vec<Value> = (self.assessment.ingresses.iter())
            .map(|assessed| {
                let mut value = json!({
                    "ingress": assessed.ingress.name(),
                    "verdict": assessed.verdict().word(),
                    "findings": assessed.findings.iter().map(finding).collect::<Vec<_>>(),
                });
                if let Some(place) = &assessed.ingress.place {
                    value["place"] = place.to_string().into();
                }
                value
            })
            .collect();
        let controller: Vec<Value> = (self.source.findings.iter())
            .map(|(object, one)| {
                json!({
                    "object": object, "key": &*one.key, "is_error": one.is_error, "message": one.message,
                    "instead": one.way_over,
                })
            })
            .collect();
        let counts = |count: &dyn Fn(MigrationVerdict) -> usize| -> Value {
            VERDICTS.iter().map(|verdict| (verdict.word().to_owned(), Value::from(count(*verdict)))).collect()
        };
        let mut value = json!({
            "ingresses": ingresses,
            "controller": controller,
            "unreadable": self.assessment.unreadable,
            "node": self.node_settings(),
            "other_classes": self.source.of_others,
            "counts": {
                "ingresses": counts(&|verdict| self.count(verdict)),
                "annotations": counts(&|verdict| self.annotations(verdict)),
            },
        });
        if let Some(replay) = &self.replay {
            value["replay"] = replay.json();
        }
        value
    }
}
