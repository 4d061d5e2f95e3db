//! What becomes of an object whose text cannot be staged: it keeps its last good version, what is left of it
//! refuses, or, where it asks for just that, it is out of force.

use std::sync::Arc;

use serde_json::Value;
use yumen_base::{Problem, keep_last_good};
use yumen_config::Kind;
use yumen_config::resource::{Defect, defects, is_place};

use super::{Compiler, Name, certificate, route};

/// What is in force in place of a text that cannot be staged.
pub(super) enum Fate {
    /// Nothing: the text says that the object is disabled, and that much of it is understood.
    SwitchedOff,
    /// What this text says, the last good one.
    LastGood(Arc<str>),
    /// What can be salvaged of a text that never was good.
    Salvaged,
}

impl Fate {
    pub(super) fn of(name: &Name, json: &str, good: Option<Arc<str>>) -> Fate {
        // What had a place before may be another object, which says nothing of this one.
        let good = good.filter(|_| !is_place(name.kind, &name.id));
        match good {
            _ if is_switched_off(name.kind, json) => Fate::SwitchedOff,
            Some(good) => Fate::LastGood(good),
            None => Fate::Salvaged,
        }
    }
}

/// A defect that an object came with, as a problem.
pub(super) fn told(name: &Name, defect: Defect) -> Problem {
    let Defect { path, message, hint } = defect;
    Problem { hint, ..Problem::error(name.to_string(), path, message) }
}

/// Whether a text says that its object is disabled, whatever else is wrong with it.
fn is_switched_off(kind: Kind, json: &str) -> bool {
    let has_status = matches!(kind, Kind::Routes | Kind::Ssls);
    let written = || serde_json::from_str::<Value>(json).ok();
    has_status && written().is_some_and(|value| route::number(&value["status"]) == Some(0.0))
}

impl Compiler {
    /// Leaves in force what is to be, and tells of it with the first error.
    pub(super) fn quarantine(
        &mut self,
        name: &Name,
        json: &str,
        fate: Fate,
        mut problems: Vec<Problem>,
    ) -> Vec<Problem> {
        let stays = matches!(fate, Fate::LastGood(_));
        if matches!(fate, Fate::SwitchedOff) || !stays && self.is_good(name) {
            self.withdraw(name);
        }
        drop(self.bind(name, false));
        self.note_hopes(name, json);
        let defects = defects(json);
        let left = match fate {
            Fate::SwitchedOff => "it is disabled, as its status says".to_owned(),
            Fate::LastGood(text) => {
                self.good.insert(name.clone(), text);
                keep_last_good(&mut problems);
                "its last good version stays in force until it is mended".to_owned()
            }
            Fate::Salvaged => self.salvage(name, json, &defects),
        };
        let is_rule = name.kind == Kind::GlobalRules;
        let always_tells = !defects.is_empty() || is_rule && !stays;
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

    /// Puts in force what can be of a text that never was good; tells what that is.
    fn salvage(&mut self, name: &Name, json: &str, defects: &[Defect]) -> String {
        match name.kind {
            Kind::GlobalRules => return self.salvage_rule(name, json, defects),
            Kind::Routes => self.salvage_route(name, json, defects),
            Kind::Ssls => self.salvage_ssl(name, json),
            Kind::StreamRoutes => self.salvage_stream(name, json, defects),
            _ => {}
        }
        let told = match name.kind {
            // What it matches may be the very thing that cannot be understood.
            Kind::Routes if !self.routes.contains_key(&name.id) => {
                "requests it would match go to other routes until it is mended"
            }
            Kind::Routes => "requests it would match are answered 503 until it is mended",
            Kind::Ssls if certificate::asks_clients(json) => {
                "requests for its names are answered 400 until it is mended"
            }
            Kind::StreamRoutes if !self.streams_held.contains_key(&name.id) => {
                "connections it would match go to other stream routes until it is mended"
            }
            Kind::StreamRoutes => "connections it would match are closed until it is mended",
            _ => "it is not in force until it is mended",
        };
        told.to_owned()
    }
}

#[cfg(test)]
mod tests;
