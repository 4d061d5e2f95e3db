//! Branches of a location by the conditions of its snippets.

use serde_json::{Value, json};
use yumen_plugin::{BacktrackBudget, PatternOptions, RegexPattern};

use super::effects::HostContext;
use super::locations::{HostLocation, SnippetUse};
use crate::ingress_nginx::{SnippetCondition, SnippetPlan, SnippetTest};

/// Branches of one location, over all its snippets.
const BRANCHES_MAX: usize = 16;

/// The branches of a location, the last of which has no conditions: each combination of those of the snippets of the
/// controller, the host and the path.
///
/// # Errors
/// The combinations are too many.
pub(super) fn branches_of<'t>(
    context: &HostContext<'_, 't>,
    location: &HostLocation<'t>,
) -> Result<Vec<SnippetUse<'t>>, String> {
    let defaults = &context.defaults.snippets;
    let own = location.owner.and_then(|owner| owner.settings.snippets.location.as_deref());
    let of_host = [defaults.1.as_deref(), context.server_snippet].map(|plan| (plan, true));
    let of_paths = [defaults.0.as_deref(), own].map(|plan| (plan, false));
    let mut branches = vec![SnippetUse::default()];
    for (plan, is_of_host) in of_host.into_iter().chain(of_paths) {
        let Some(plan) = plan else { continue };
        let combined = combine(&branches, plan, is_of_host);
        if combined.len() > BRANCHES_MAX {
            return Err(format!("the snippets have more than {BRANCHES_MAX} combinations of conditions"));
        }
        branches = combined;
    }
    Ok(branches)
}

fn combine<'t>(branches: &[SnippetUse<'t>], plan: &'t SnippetPlan, is_of_host: bool) -> Vec<SnippetUse<'t>> {
    let mut combined = Vec::new();
    for before in branches {
        for branch in &plan.branches {
            let mut one = before.clone();
            one.conditions.extend(&branch.conditions);
            one.effects.push(&branch.effects);
            one.of_host += usize::from(is_of_host);
            combined.push(one);
        }
        if plan.branches.is_empty() {
            combined.push(before.clone());
        }
    }
    combined
}

/// The member `vars`.
pub(super) fn conditions_value(conditions: &[&SnippetCondition]) -> Value {
    conditions.iter().map(|condition| condition_value(condition)).collect()
}

fn condition_value(condition: &SnippetCondition) -> Value {
    let name = &*condition.variable;
    let (operator, value) = match &condition.test {
        // Neither empty nor `0`.
        SnippetTest::IsSet => ("~~", "^(?:[^0]|0.)".to_owned()),
        SnippetTest::Equals(text) if text.is_empty() => ("~~", "^$".to_owned()),
        SnippetTest::Equals(text) => ("==", text.to_string()),
        SnippetTest::Matches { pattern, ignore_case } => {
            let value = if *ignore_case { format!("(?i){pattern}") } else { pattern.to_string() };
            if matches_empty_text(&value) {
                return absent_or_matching(name, &value, condition.negated);
            }
            ("~~", value)
        }
    };
    match condition.negated {
        true => json!([name, "!", operator, value]),
        false => json!([name, operator, value]),
    }
}

/// Whether a pattern matches the empty text. One that is too costly to try may.
fn matches_empty_text(pattern: &str) -> bool {
    let compiled = RegexPattern::new(pattern, PatternOptions::default());
    compiled.is_ok_and(|compiled| compiled.is_match(b"", &BacktrackBudget::default()).unwrap_or(true))
}

/// A variable without a value is the empty text in NGINX, and matches no pattern in an expression.
fn absent_or_matching(name: &str, pattern: &str, is_negated: bool) -> Value {
    let any = "^";
    match is_negated {
        false => json!(["OR", [name, "~~", pattern], [name, "!", "~~", any]]),
        true => json!(["AND", [name, "~~", any], [name, "!", "~~", pattern]]),
    }
}
