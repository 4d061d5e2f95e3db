//! Status of routes.

use serde_json::Map;

use super::attach::ParentVerdict;
use crate::derived::ConditionReason;
use crate::resources::ResourceName;
use crate::status::{ConditionDraft, ConditionValue, StatusDraft, StatusEntry, StatusPlace};

/// Findings about the rules of a route, equal for all parents.
#[derive(Debug, Clone, Default)]
pub(super) struct RuleFindings {
    /// Rules that are left out, with their positions.
    pub(super) dropped: Vec<(usize, ConditionReason)>,
    /// Whether another rule is in force.
    pub(super) has_sound_rule: bool,
    pub(super) unresolved: Option<ConditionReason>,
    /// The resources of the route.
    pub(super) needs: Vec<ResourceName>,
}

impl RuleFindings {
    /// Why the whole route is refused: none of its rules can be followed.
    pub(super) fn refusal(&self) -> Option<ConditionReason> {
        let (_, first) = self.dropped.first().filter(|_| !self.has_sound_rule)?;
        Some(ConditionReason::new(first.reason, self.dropped_message()))
    }

    fn dropped_message(&self) -> String {
        let rules = self.dropped.iter().map(|(rule, reason)| format!("rule {rule}: {}", reason.message));
        rules.collect::<Vec<_>>().join("; ")
    }
}

/// The draft of a route; `None` if none of its parents belongs to this controller.
pub(super) fn status_draft(
    generation: i64,
    verdicts: &[ParentVerdict],
    findings: &RuleFindings,
) -> Option<StatusDraft> {
    if verdicts.is_empty() {
        return None;
    }
    let refusal = findings.refusal();
    let entries = verdicts.iter().map(|verdict| StatusEntry {
        place: StatusPlace::Parent(verdict.reference.clone()),
        conditions: conditions(verdict, findings, refusal.as_ref()),
        fields: Map::new(),
    });
    Some(StatusDraft { generation, entries: entries.collect(), fields: Map::new() })
}

fn conditions(
    verdict: &ParentVerdict,
    findings: &RuleFindings,
    refusal: Option<&ConditionReason>,
) -> Vec<ConditionDraft> {
    let refusal = verdict.sections.as_ref().err().or(refusal);
    let accepted = match refusal {
        Some(reason) => no("Accepted", reason),
        None => ConditionDraft::depending(
            "Accepted",
            ConditionValue::UnlessFailed,
            "Accepted",
            findings.needs.clone(),
        ),
    };
    let resolved = match &findings.unresolved {
        Some(reason) => no("ResolvedRefs", reason),
        None => ConditionDraft::fixed("ResolvedRefs", true, "ResolvedRefs", ""),
    };
    let mut conditions = vec![accepted, resolved];
    if refusal.is_none() && !findings.dropped.is_empty() {
        // The API fixes the first two words.
        let message = format!("Dropped Rule: {}.", findings.dropped_message());
        conditions.push(ConditionDraft::fixed("PartiallyInvalid", true, "UnsupportedValue", message));
    }
    conditions
}

fn no(kind: &'static str, reason: &ConditionReason) -> ConditionDraft {
    ConditionDraft::fixed(kind, false, reason.reason, reason.message.clone())
}
