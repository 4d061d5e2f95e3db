//! What a change of configuration would do: to the objects, to what is wrong with them, and to requests.
//!
//! Compiles both states and asks both; nothing of either is served. Knows no store and no door.

mod diff;
mod render;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use serde::Serialize;
use yumen_base::{Now, Problem, ProblemLevel};
use yumen_config::{Kind, Resource};

use crate::explain::{RequestDestination, outcome};
use crate::lint::{CertificateFacts, LintInput, collect_names, lint};
use crate::{Compiler, Question, Snapshot, policy};

pub use diff::{ObjectChange, ObjectChangeKind, diff};

/// How many examples of each effect are kept.
const EXAMPLES_MAX: usize = 10;

/// What planning needs beside the two states.
pub struct PlanContext<'w> {
    /// Makes an empty compiler.
    pub compiler: &'w dyn Fn() -> Compiler,
    /// The time.
    pub now: Now,
    /// Reads the first certificate of a PEM text.
    pub certificate: &'w dyn Fn(&str) -> Result<CertificateFacts, String>,
    /// What checks say of an endpoint; `None` where nobody checks it.
    pub is_healthy: &'w dyn Fn(SocketAddr) -> Option<bool>,
    /// When a change needs somebody's word.
    pub limits: PlanLimits,
}

/// When a change needs somebody's word.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlanLimits {
    /// The share of the sample that may change without, from 0 to 1.
    pub changed_share_max: f64,
    /// How many routes may go without.
    pub deleted_routes_max: usize,
}

impl Default for PlanLimits {
    fn default() -> Self {
        PlanLimits { changed_share_max: 0.1, deleted_routes_max: 10 }
    }
}

/// What a change would do.
#[derive(Debug, Serialize)]
pub struct ChangePlan {
    /// Objects that differ, in the order of compiling.
    pub changes: Vec<ObjectChange>,
    /// What is wrong with the state after.
    pub problems: Vec<PlannedProblem>,
    /// What becomes of the sample.
    pub impact: TrafficImpact,
    /// Why somebody should say yes first.
    pub needs_confirmation: Option<String>,
}

/// A problem, and whether the change brings it.
#[derive(Debug, Serialize)]
pub struct PlannedProblem {
    /// The problem.
    #[serde(flatten)]
    pub problem: Problem,
    /// Whether the state before does not have it.
    pub is_new: bool,
    /// Whether it is about an object that changes, or one that such an object leads to.
    pub is_near: bool,
}

/// What becomes of sampled requests.
#[derive(Debug, Default, Serialize)]
pub struct TrafficImpact {
    /// How many were asked.
    pub asked: usize,
    /// How many go another way than before.
    pub changed: usize,
    /// How many of them would find no route.
    pub lose_route: usize,
    /// How many would get to another route.
    pub change_route: usize,
    /// How many would get another answer of the gateway.
    pub change_answer: usize,
    /// How many would go to another upstream.
    pub change_upstream: usize,
    /// How many were no requests at all.
    pub refused: usize,
    /// Some of those that change, those that lose their route first.
    pub examples: Vec<ImpactExample>,
}

/// One request before and after.
#[derive(Debug, Clone, Serialize)]
pub struct ImpactExample {
    /// Method and URL.
    pub request: String,
    /// Before.
    pub before: RequestDestination,
    /// After.
    pub after: RequestDestination,
}

impl ChangePlan {
    /// Whether the state after has an error that the state before does not have.
    pub fn introduces_errors(&self) -> bool {
        self.problems.iter().any(|planned| planned.is_new && planned.problem.level == ProblemLevel::Error)
    }
}

/// One of the two states, compiled.
struct CompiledState {
    snapshot: Arc<Snapshot>,
    problems: Vec<Problem>,
}

impl CompiledState {
    fn new(resources: &[Resource], workshop: &PlanContext<'_>) -> CompiledState {
        let mut compiler = (workshop.compiler)();
        let snapshot = compiler.replace_all(resources.to_vec(), 1).snapshot;
        let mut problems = compiler.problems();
        problems.extend(policy::run(&snapshot, resources, workshop.now));
        problems.extend(lint(&LintInput {
            resources,
            snapshot: &snapshot,
            now_unix_s: workshop.now.unix_s(),
            certificate: workshop.certificate,
            strict: false,
        }));
        problems.extend(unhealthy(&snapshot, workshop));
        CompiledState { snapshot, problems }
    }
}

/// Upstreams all of whose endpoints are down.
fn unhealthy(snapshot: &Snapshot, workshop: &PlanContext<'_>) -> Vec<Problem> {
    let is_down = |endpoint: &crate::Endpoint| (workshop.is_healthy)(endpoint.addr) == Some(false);
    let down = snapshot
        .upstreams()
        .map(|(_, upstream)| upstream)
        .filter(|upstream| !upstream.endpoints.is_empty() && upstream.endpoints.iter().all(is_down));
    down.map(|one| Problem::warning(&*one.origin, "nodes", "no endpoint is healthy now")).collect()
}

/// Thinks a change through: from the resources `before` to those `after`, for the requests of `sample`.
pub fn plan(
    before: &[Resource],
    after: &[Resource],
    sample: &[Question],
    workshop: &PlanContext<'_>,
) -> ChangePlan {
    let changes = diff(before, after);
    let (old, new) = (CompiledState::new(before, workshop), CompiledState::new(after, workshop));
    let known: HashSet<String> = old.problems.iter().map(ToString::to_string).collect();
    let near = near(&changes, after);
    let planned = |problem: Problem| PlannedProblem {
        is_new: !known.contains(&problem.to_string()),
        is_near: near.contains(object_of(&problem)),
        problem,
    };
    let impact = impact(&old.snapshot, &new.snapshot, sample, workshop.now);
    let needs_confirmation = confirmation(&changes, &impact, &workshop.limits);
    let problems = new.problems.into_iter().map(planned).collect();
    ChangePlan { changes, problems, impact, needs_confirmation }
}

/// The names of objects that change, and of all they lead to.
fn near(changes: &[ObjectChange], after: &[Resource]) -> BTreeSet<String> {
    let texts: HashMap<String, &Resource> = after.iter().map(|one| (one.to_string(), one)).collect();
    let mut near = BTreeSet::new();
    let mut left: Vec<String> =
        changes.iter().map(|change| format!("{}/{}", change.kind, change.id)).collect();
    while let Some(name) = left.pop() {
        if let Some(value) = texts.get(&name).and_then(|one| serde_json::from_str(&one.json).ok()) {
            let mut named = BTreeSet::new();
            collect_names(&value, &mut named);
            let named = named.into_iter().map(|(kind, id)| format!("{}/{id}", kind.name()));
            left.extend(named.filter(|named| !near.contains(named)));
        }
        near.insert(name);
    }
    near
}

/// The object of a problem; that of an upstream in its plugins' settings is told with its place.
fn object_of(problem: &Problem) -> &str {
    problem.object.split_once("/plugins.").map_or(&*problem.object, |(object, _)| object)
}

fn impact(before: &Snapshot, after: &Snapshot, sample: &[Question], now: Now) -> TrafficImpact {
    let mut impact = TrafficImpact::default();
    let mut examples: Vec<(bool, ImpactExample)> = Vec::new();
    for question in sample {
        let (Ok(old), Ok(new)) = (outcome(before, question, now), outcome(after, question, now)) else {
            impact.refused += 1;
            continue;
        };
        impact.asked += 1;
        if old == new {
            continue;
        }
        let loses_route = old.route.is_some() && new.route.is_none();
        impact.changed += 1;
        impact.lose_route += usize::from(loses_route);
        impact.change_route += usize::from(!loses_route && old.route != new.route);
        impact.change_answer += usize::from((old.status, old.plugin) != (new.status, new.plugin));
        let (goes_from, goes_to) = (&old.upstream, &new.upstream);
        impact.change_upstream +=
            usize::from(goes_from.is_some() && goes_to.is_some() && goes_from != goes_to);
        let request = format!("{} {}", question.method, question.url);
        let is_told = examples.iter().filter(|(lost, _)| *lost == loses_route).count() >= EXAMPLES_MAX;
        if !is_told {
            examples.push((loses_route, ImpactExample { request, before: old, after: new }));
        }
    }
    examples.sort_by_key(|(loses_route, _)| !loses_route);
    impact.examples = examples.into_iter().map(|(_, example)| example).collect();
    impact
}

/// The guard against a change that does more than was meant.
fn confirmation(changes: &[ObjectChange], impact: &TrafficImpact, limits: &PlanLimits) -> Option<String> {
    let mut reasons = Vec::new();
    let is_gone = |change: &&ObjectChange| {
        change.kind == Kind::Routes.name() && change.what == ObjectChangeKind::Removed
    };
    let gone = changes.iter().filter(is_gone).count();
    if gone > limits.deleted_routes_max {
        reasons.push(format!(
            "{gone} routes would be removed; the limit without confirmation is {}",
            limits.deleted_routes_max
        ));
    }
    let share = impact.changed as f64 / impact.asked.max(1) as f64;
    if share > limits.changed_share_max {
        let (changed, asked) = (impact.changed, impact.asked);
        let most = limits.changed_share_max * 100.0;
        reasons.push(format!("{changed} of {asked} sampled requests would change, more than {most} %"));
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}
