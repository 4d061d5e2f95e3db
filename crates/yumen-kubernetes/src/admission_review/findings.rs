//! Findings about an object: reasons that refuse it, and warnings.

use serde_json::Value;
use yumen_base::problem::Problem;
use yumen_config::Kind;

use crate::engine::{ResourceTransition, TrialEffect};
use crate::model::ObjectKey;
use crate::status::{ConditionState, ConditionValue};

/// Reasons of the condition `Accepted` that lie in the object itself. Others depend on objects that may come later.
const REFUSED_REASONS: [&str; 3] = ["UnsupportedValue", "IncompatibleFilters", "InvalidSpec"];
/// Conditions that hold if all is well.
const POSITIVE: [&str; 3] = ["Accepted", "ResolvedRefs", "Programmed"];
/// End of a message about an object that may be created later.
const ABSENT: &str = "does not exist";

/// Checks the text of a resource as the compiler does. The error is the reason why the compiler would quarantine it.
pub type ResourceCheck<'c> = &'c dyn Fn(Kind, &Value) -> Result<(), String>;

/// Findings about an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdmissionFindings {
    /// Reasons that refuse the object; none for an object that is allowed.
    pub refusals: Vec<String>,
    /// Parts that are not followed as written.
    pub warnings: Vec<String>,
}

impl AdmissionFindings {
    /// A finding that refuses the object.
    pub fn refused(reason: impl Into<String>) -> AdmissionFindings {
        AdmissionFindings { refusals: vec![reason.into()], warnings: Vec::new() }
    }

    pub(crate) fn refuse(&mut self, reason: String) {
        if !self.refusals.contains(&reason) {
            self.refusals.push(reason);
        }
    }

    pub(crate) fn warn(&mut self, text: String) {
        if !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }
}

/// A problem without the name of its object, which the API server writes itself.
fn problem_text(problem: &Problem) -> String {
    let hint = problem.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    match problem.path.as_str() {
        "" => format!("{}{hint}", problem.message),
        path => format!("{path}: {}{hint}", problem.message),
    }
}

/// Adds resources that the change breaks.
pub(crate) fn resource_findings(
    effect: &TrialEffect,
    check: ResourceCheck<'_>,
    findings: &mut AdmissionFindings,
) {
    for changed in &effect.resources {
        let Some(reason) = flaw_of(changed, check) else { continue };
        let message = format!("{}: {reason}", changed.name);
        // Objects may be created in any order: a reference that is open now closes later.
        match effect.lacks_references || reason.contains(ABSENT) {
            true => findings.warn(message),
            false => findings.refuse(message),
        }
    }
}

/// Why the compiler would quarantine a resource that it did not quarantine before.
fn flaw_of(changed: &ResourceTransition, check: ResourceCheck<'_>) -> Option<String> {
    let kind = changed.name.kind.kind()?;
    let flaw = |text: &str| match serde_json::from_str::<Value>(text) {
        Ok(value) => check(kind, &value).err(),
        Err(error) => Some(error.to_string()),
    };
    let after = flaw(changed.after.as_deref()?)?;
    let was_broken = changed.before.as_deref().is_some_and(|before| flaw(before).is_some());
    (!was_broken).then_some(after)
}

/// Adds conditions of the object's status that do not hold.
pub(crate) fn condition_findings(effect: &TrialEffect, findings: &mut AdmissionFindings) {
    let entries = effect.status.iter().flat_map(|status| &status.entries);
    for condition in entries.flat_map(|entry| &entry.conditions) {
        let is_positive = POSITIVE.contains(&condition.kind);
        let bad = if is_positive { ConditionState::False } else { ConditionState::True };
        let is_known = is_positive || condition.kind == "PartiallyInvalid" || condition.kind == "Conflicted";
        if condition.value != ConditionValue::Fixed(bad) || !is_known || condition.kind == "Programmed" {
            continue;
        }
        let message = condition.message.trim_end_matches('.');
        let text =
            format!("condition {} would be {:?}, {}: {message}", condition.kind, bad, condition.reason);
        let is_own = condition.kind == "Accepted" && REFUSED_REASONS.contains(&condition.reason);
        match is_own && !effect.lacks_references && !message.contains(ABSENT) {
            true => findings.refuse(text),
            false => findings.warn(text),
        }
    }
}

/// The problems of an object, as warnings.
pub(crate) fn problem_findings(key: &ObjectKey, effect: &TrialEffect, findings: &mut AdmissionFindings) {
    let name = key.to_string();
    effect.problems.iter().filter(|one| one.object == name).for_each(|one| findings.warn(problem_text(one)));
}
