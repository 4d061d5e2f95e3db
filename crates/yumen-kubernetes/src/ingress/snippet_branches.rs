//! Branches of a location by the conditions of its snippets.

use serde_json::{Value, json};
use yumen_base::problem::Problem;

use super::effects::HostContext;
use super::locations::{HostLocation, SnippetUse};
use crate::ingress_nginx::{SnippetCondition, SnippetPlan, SnippetTest};

/// Branches of one location, over all its snippets.
const BRANCHES_MAX: usize = 16;

/// The branches of a location, the last of which has no conditions: each combination of those of the snippets of the
/// controller, the host and the path.
pub(super) fn branches_of<'t>(
    context: &HostContext<'_, 't>,
    location: &HostLocation<'t>,
    problems: &mut Vec<Problem>,
) -> Vec<SnippetUse<'t>> {
    let defaults = &context.defaults.snippets;
    let own = location.owner.and_then(|owner| owner.settings.snippets.location.as_deref());
    let of_host = [defaults.1.as_deref(), context.server_snippet].map(|plan| (plan, true));
    let of_paths = [defaults.0.as_deref(), own].map(|plan| (plan, false));
    let mut branches = vec![SnippetUse::default()];
    for (plan, is_of_host) in of_host.into_iter().chain(of_paths) {
        let Some(plan) = plan else { continue };
        let combined = combine(&branches, plan, is_of_host);
        if combined.len() > BRANCHES_MAX {
            if let Some(owner) = location.owner {
                let message =
                    format!("snippets with more than {BRANCHES_MAX} combinations of conditions are left out");
                problems.push(Problem::error(owner.key.to_string(), "snippet", message));
            }
            return vec![SnippetUse::default()];
        }
        branches = combined;
    }
    branches
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
        SnippetTest::Matches { pattern, ignore_case: true } => ("~~", format!("(?i){pattern}")),
        SnippetTest::Matches { pattern, ignore_case: false } => ("~~", pattern.to_string()),
    };
    match condition.negated {
        true => json!([name, "!", operator, value]),
        false => json!([name, operator, value]),
    }
}
