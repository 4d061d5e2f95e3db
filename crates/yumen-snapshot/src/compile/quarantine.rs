//! Quarantine of objects whose text cannot be staged.
//!
//! The last good version stays in force; without one, the valid part of the object refuses its requests. An object that
//! is disabled is out of force.

use std::sync::Arc;

use serde_json::Value;
use yumen_base::{Problem, ProblemLevel, keep_last_good};
use yumen_config::Kind;
use yumen_config::resource::{ResourceDefect, defects, is_position_id, is_within, upstreams_in};

use super::kind_table::KindCompiler;
use super::names::ObjectName;
use super::{Compiler, misspelt_members, route};

/// The replacement for a text that cannot be staged.
pub(super) enum QuarantineDecision {
    /// Nothing: `status` of the text disables the object.
    Disabled,
    /// The last good text.
    LastGood(Arc<str>),
    /// The salvageable part of a text that was never valid.
    Partial,
    /// A refusal: the text names a guard or credential that cannot be built, and the last good version would serve
    /// without it, or accept the key that it replaces.
    Closed,
}

impl QuarantineDecision {
    /// The decision about a text. `lacks_guard`: whether it names a guard or credential that cannot be built.
    pub(super) fn of(
        name: &ObjectName,
        json: &str,
        good: Option<Arc<str>>,
        lacks_guard: bool,
    ) -> QuarantineDecision {
        // An id that is a position in a document may have belonged to another object.
        let good = good.filter(|_| !is_position_id(name.kind, &name.id));
        match good {
            // First: the operator switched the object off, and no fallback may switch it on again.
            _ if is_disabled(name.kind, json) => QuarantineDecision::Disabled,
            // Before the last good version, which would be open (decision 50).
            _ if lacks_guard => QuarantineDecision::Closed,
            Some(good) => QuarantineDecision::LastGood(good),
            None => QuarantineDecision::Partial,
        }
    }
}

/// A defect from the source of an object, as a problem.
pub(super) fn defect_problem(name: &ObjectName, defect: ResourceDefect) -> Problem {
    let ResourceDefect { path, message, hint } = defect;
    Problem { hint, ..Problem::error(name.to_string(), path, message) }
}

/// Whether `status` of a text, valid or not, disables the object.
fn is_disabled(kind: Kind, json: &str) -> bool {
    let has_status = kind.descriptor().has_status;
    let written = || serde_json::from_str::<Value>(json).ok();
    has_status && written().is_some_and(|value| route::number(&value["status"]) == Some(0.0))
}

impl Compiler {
    /// Puts the replacement of a broken object in force. Returns its problems; the first error has a hint on the effect.
    pub(super) fn quarantine(
        &mut self,
        name: &ObjectName,
        json: &str,
        decision: QuarantineDecision,
        mut problems: Vec<Problem>,
    ) -> Vec<Problem> {
        let stays = matches!(decision, QuarantineDecision::LastGood(_));
        let is_closed = matches!(decision, QuarantineDecision::Closed);
        if is_closed && matches!(name.kind, Kind::Routes | Kind::StreamRoutes) {
            // The route stays in its table: the salvage may have to refuse the requests that it matched so far.
            self.texts.clear_last_good(name);
            self.unbind(name);
        // A good version that may not stay, such as one under an id by position, is withdrawn.
        } else if matches!(decision, QuarantineDecision::Disabled) || !stays && self.is_good(name) {
            self.withdraw(name);
        }
        // After the withdrawal, which removes the bindings.
        self.bind_refused(name);
        self.register_missing_references(name, json);
        let defects = defects(json);
        let effect = match decision {
            QuarantineDecision::Disabled => "disabled by its status".to_owned(),
            QuarantineDecision::LastGood(text) => {
                self.texts.set_last_good(name, text);
                keep_last_good(&mut problems);
                "the last good version stays active until it is fixed".to_owned()
            }
            QuarantineDecision::Partial | QuarantineDecision::Closed => {
                (KindCompiler::of(name.kind).salvage)(self, name, json, &defects)
            }
        };
        if is_closed {
            // The salvage removed the references of the previous version, among them some of this text.
            self.register_missing_references(name, json);
        }
        let is_rule = name.kind == Kind::GlobalRules;
        // A hint on the error itself matters more than the effect, unless requests are refused or exposed.
        let is_route = matches!(name.kind, Kind::Routes | Kind::StreamRoutes);
        let shows_effect = !defects.is_empty() || is_closed || (is_rule || is_route) && !stays;
        if let Some(first) = problems.iter_mut().find(|one| one.level == ProblemLevel::Error) {
            match &mut first.hint {
                Some(hint) if shows_effect => {
                    *hint = format!("{hint}{} {effect}", if hint.ends_with('?') { "" } else { ";" })
                }
                hint => drop(hint.get_or_insert(effect)),
            }
        }
        let further = self.further_problems(name, json, &problems);
        let problems =
            misspelt_members::merge(with_details(problems, further), self.members_without_effect(name, json));
        let placed = problems.into_iter().flat_map(|problem| at_nodes(name, json, problem));
        placed.map(|problem| self.with_level(problem)).collect()
    }

    /// The problem, with a hint if an unknown member belongs into a member of its object.
    fn with_level(&self, problem: Problem) -> Problem {
        let member = problem.message.strip_prefix("additional properties forbidden, found ");
        let outer = match member {
            Some(member) if self.context.registry.get(member).is_some() => "plugins",
            Some("nodes" | "scheme" | "pass_host" | "checks" | "retries") => "upstream",
            _ => return problem,
        };
        if problem.allowed.is_some() || problem.path.contains('.') {
            return problem;
        }
        Problem { allowed: Some(format!("indent it under {outer}")), ..problem }
    }
}

/// A problem with the port of a node, in place of the object at the nodes: decoding knows no paths.
fn at_nodes(name: &ObjectName, json: &str, problem: Problem) -> Vec<Problem> {
    if !problem.path.is_empty() || !problem.message.starts_with("invalid port ") {
        return vec![problem];
    }
    let written: Value = serde_json::from_str(json).unwrap_or_default();
    let Value::Object(object) = written else { return vec![problem] };
    let mut placed = Vec::new();
    for (path, upstream) in upstreams_in(name.kind, &object) {
        for address in upstream.get("nodes").and_then(Value::as_object).into_iter().flat_map(|all| all.keys())
        {
            let Some(port) = invalid_port(address) else { continue };
            let path = if path.is_empty() { String::new() } else { format!("{path}.") };
            placed.push(Problem {
                path: format!("{path}nodes.{address}"),
                message: format!("invalid port {port}"),
                allowed: Some("write a port from 1 to 65535".to_owned()),
                // The effect belongs to the first problem.
                hint: problem.hint.clone().filter(|_| placed.is_empty()),
                ..problem.clone()
            });
        }
    }
    if placed.is_empty() { vec![problem] } else { placed }
}

/// The port of an address, if it is none.
fn invalid_port(address: &str) -> Option<&str> {
    let (host, port) = address.rsplit_once(':')?;
    let is_ipv6 = address.ends_with(']') || address.parse::<std::net::Ipv6Addr>().is_ok();
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0) && !port.starts_with(['+', '0']);
    (!is_ipv6 && !host.is_empty() && !is_port).then_some(port)
}

/// The problems with further ones. A problem of the form "none of the alternatives matches" is left out if others have
/// the details; the first of those takes over its hint.
fn with_details(mut problems: Vec<Problem>, mut further: Vec<Problem>) -> Vec<Problem> {
    let is_vague = |problem: &Problem| problem.message.ends_with("object matches none of the required");
    problems.retain_mut(|problem| {
        let is_detail =
            |other: &&mut Problem| other.path != problem.path && is_within(&other.path, &problem.path);
        match further.iter_mut().find(is_detail).filter(|_| is_vague(problem)) {
            None => true,
            Some(detail) => {
                detail.last_good = problem.last_good;
                detail.hint = detail.hint.take().or(problem.hint.take());
                false
            }
        }
    });
    problems.append(&mut further);
    problems
}

#[cfg(test)]
mod tests;
