//! What becomes of an object whose text cannot be staged: it keeps its last good version, what is left of it
//! refuses, or, where it asks for just that, it is out of force.

use std::sync::Arc;

use serde_json::Value;
use yumen_base::{Problem, keep_last_good};
use yumen_config::Kind;
use yumen_config::resource::{ResourceDefect, defects, is_place};

use super::kind_table::KindCompiler;
use super::{Compiler, ObjectName, route};

/// What is in force in place of a text that cannot be staged.
pub(super) enum QuarantineDecision {
    /// Nothing: the text says that the object is disabled, and that much of it is understood.
    Disabled,
    /// What this text says, the last good one.
    LastGood(Arc<str>),
    /// What can be salvaged of a text that never was good.
    Partial,
    /// A refusal: the text names a guard that is missing, and the last good version runs without it.
    Closed,
}

impl QuarantineDecision {
    /// The decision about a text; `lacks_guard` where it names a missing plugin that guards.
    pub(super) fn of(
        name: &ObjectName,
        json: &str,
        good: Option<Arc<str>>,
        lacks_guard: bool,
    ) -> QuarantineDecision {
        // What had a place before may be another object, which says nothing of this one.
        let good = good.filter(|_| !is_place(name.kind, &name.id));
        match good {
            _ if is_switched_off(name.kind, json) => QuarantineDecision::Disabled,
            _ if lacks_guard => QuarantineDecision::Closed,
            Some(good) => QuarantineDecision::LastGood(good),
            None => QuarantineDecision::Partial,
        }
    }
}

/// A defect that an object came with, as a problem.
pub(super) fn told(name: &ObjectName, defect: ResourceDefect) -> Problem {
    let ResourceDefect { path, message, hint } = defect;
    Problem { hint, ..Problem::error(name.to_string(), path, message) }
}

/// Whether a text says that its object is disabled, whatever else is wrong with it.
fn is_switched_off(kind: Kind, json: &str) -> bool {
    let has_status = kind.descriptor().has_status;
    let written = || serde_json::from_str::<Value>(json).ok();
    has_status && written().is_some_and(|value| route::number(&value["status"]) == Some(0.0))
}

impl Compiler {
    /// Leaves in force what is to be, and tells of it with the first error.
    pub(super) fn quarantine(
        &mut self,
        name: &ObjectName,
        json: &str,
        fate: QuarantineDecision,
        mut problems: Vec<Problem>,
    ) -> Vec<Problem> {
        let stays = matches!(fate, QuarantineDecision::LastGood(_));
        let is_closed = matches!(fate, QuarantineDecision::Closed);
        if is_closed && matches!(name.kind, Kind::Routes | Kind::StreamRoutes) {
            // What it matched stays known: the salvage may have to refuse just that.
            self.good.remove(name);
            self.unbind(name);
        } else if matches!(fate, QuarantineDecision::Disabled) || !stays && self.is_good(name) {
            self.withdraw(name);
        }
        drop(self.bind(name, false));
        self.register_missing_references(name, json);
        let defects = defects(json);
        let left = match fate {
            QuarantineDecision::Disabled => "disabled by its status".to_owned(),
            QuarantineDecision::LastGood(text) => {
                self.good.insert(name.clone(), text);
                keep_last_good(&mut problems);
                "the last good version stays active until it is fixed".to_owned()
            }
            QuarantineDecision::Partial | QuarantineDecision::Closed => {
                (KindCompiler::of(name.kind).salvage)(self, name, json, &defects)
            }
        };
        if is_closed {
            // The salvage has forgotten what the former version referred to.
            self.register_missing_references(name, json);
        }
        let is_rule = name.kind == Kind::GlobalRules;
        let always_tells = !defects.is_empty() || is_closed || is_rule && !stays;
        if let Some(first) = problems.iter_mut().find(|one| route::any_error(std::slice::from_ref(one))) {
            match &mut first.hint {
                Some(hint) if always_tells => {
                    *hint = format!("{hint}{} {left}", if hint.ends_with('?') { "" } else { ";" })
                }
                hint => drop(hint.get_or_insert(left)),
            }
        }
        problems.extend(self.further(name, json, &problems));
        problems
    }
}

#[cfg(test)]
mod tests;
