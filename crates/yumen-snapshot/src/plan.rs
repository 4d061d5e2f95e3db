//! Plans a change of configuration: its effects on objects, on problems, and on requests.
//!
//! Compiles both states and compares them, but serves neither. Independent of stores and listeners.

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

/// The number of examples per effect.
const EXAMPLES_MAX: usize = 10;

/// Context of a plan beside the two states.
pub struct PlanContext<'w> {
    /// Creates an empty compiler.
    pub compiler: &'w dyn Fn() -> Compiler,
    /// The current time.
    pub now: Now,
    /// Reads the first certificate of a PEM text.
    pub certificate: &'w dyn Fn(&str) -> Result<CertificateFacts, String>,
    /// The result of an endpoint's health checks; `None` without checks.
    pub is_healthy: &'w dyn Fn(SocketAddr) -> Option<bool>,
    /// The limits beyond which a change needs a confirmation.
    pub limits: PlanLimits,
    /// Whether tests and sampled requests are simulated.
    pub simulates: bool,
}

/// The limits beyond which a change needs a confirmation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlanLimits {
    /// The share of sampled requests that may change without a confirmation, from 0 to 1.
    pub changed_share_max: f64,
    /// The number of routes that may be deleted without a confirmation.
    pub deleted_routes_max: usize,
}

impl Default for PlanLimits {
    fn default() -> Self {
        PlanLimits { changed_share_max: 0.1, deleted_routes_max: 10 }
    }
}

/// The effects of a change.
#[derive(Debug, Serialize)]
pub struct ChangePlan {
    /// Objects that differ, in the order of compilation.
    pub changes: Vec<ObjectChange>,
    /// Problems of the state after the change.
    pub problems: Vec<PlannedProblem>,
    /// Effects on the sampled requests.
    pub impact: TrafficImpact,
    /// Why the change needs a confirmation.
    pub needs_confirmation: Option<String>,
}

/// A problem and its relation to the change.
#[derive(Debug, Serialize)]
pub struct PlannedProblem {
    /// The problem.
    #[serde(flatten)]
    pub problem: Problem,
    /// Whether the change introduces it.
    pub is_new: bool,
    /// Whether its object changes, or a changed object refers to it, directly or not.
    pub is_near: bool,
}

/// Effects on sampled requests.
#[derive(Debug, Default, Serialize)]
pub struct TrafficImpact {
    /// Requests that were simulated.
    pub asked: usize,
    /// Requests with another destination than before.
    pub changed: usize,
    /// Requests that lose their route.
    pub lose_route: usize,
    /// Requests that get another route.
    pub change_route: usize,
    /// Requests that get another local response.
    pub change_answer: usize,
    /// Requests that go to another upstream.
    pub change_upstream: usize,
    /// Entries that are no valid request.
    pub refused: usize,
    /// Examples of requests that change, those that lose their route first.
    pub examples: Vec<ImpactExample>,
}

/// The destinations of one request.
#[derive(Debug, Clone, Serialize)]
pub struct ImpactExample {
    /// Method and URL.
    pub request: String,
    /// The destination before the change.
    pub before: RequestDestination,
    /// The destination after the change.
    pub after: RequestDestination,
}

impl ChangePlan {
    /// Whether the change introduces an error.
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
        // A fresh compiler: the verdict must not depend on last good versions or carried state (decision 19).
        let snapshot = compiler.replace_all(resources.to_vec(), 1).snapshot;
        let mut problems = compiler.problems();
        if workshop.simulates {
            problems.extend(policy::run(&snapshot, resources, workshop.now));
        }
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

/// Warnings about upstreams without a healthy endpoint.
fn unhealthy(snapshot: &Snapshot, workshop: &PlanContext<'_>) -> Vec<Problem> {
    let is_down = |endpoint: &crate::Endpoint| (workshop.is_healthy)(endpoint.addr) == Some(false);
    let down = snapshot
        .upstreams()
        .map(|(_, upstream)| upstream)
        // `all` holds for an empty list, where no check has failed.
        .filter(|upstream| !upstream.endpoints.is_empty() && upstream.endpoints.iter().all(is_down));
    down.map(|one| Problem::warning(&*one.origin, "nodes", "no endpoint is healthy now")).collect()
}

/// Plans the change from the resources `before` to `after`, for the requests of `sample`.
pub fn plan(
    before: &[Resource],
    after: &[Resource],
    sample: &[Question],
    workshop: &PlanContext<'_>,
) -> ChangePlan {
    let changes = diff(before, after);
    let (old, new) = (CompiledState::new(before, workshop), CompiledState::new(after, workshop));
    // A problem has no identity apart from its text.
    let known: HashSet<String> = old.problems.iter().map(ToString::to_string).collect();
    let near = near(&changes, after);
    let planned = |problem: Problem| PlannedProblem {
        is_new: !known.contains(&problem.to_string()),
        is_near: near.contains(object_of(&problem)),
        problem,
    };
    let sample = if workshop.simulates { sample } else { &[] };
    let impact = impact(&old.snapshot, &new.snapshot, sample, workshop.now);
    let needs_confirmation = confirmation(&changes, &impact, &workshop.limits);
    let problems = new.problems.into_iter().map(planned).collect();
    ChangePlan { changes, problems, impact, needs_confirmation }
}

/// The names of changed objects, and of all objects that they refer to, directly or not.
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
            // Each object is visited once, however many objects refer to it.
            left.extend(named.filter(|named| !near.contains(named)));
        }
        near.insert(name);
    }
    near
}

/// The object of a problem, without the path of an upstream in its plugin settings.
fn object_of(problem: &Problem) -> &str {
    problem.object.split_once("/plugins.").map_or(&*problem.object, |(object, _)| object)
}

fn impact(before: &Snapshot, after: &Snapshot, sample: &[Question], now: Now) -> TrafficImpact {
    let mut impact = TrafficImpact::default();
    let mut examples: Vec<(bool, ImpactExample)> = Vec::new();
    for question in sample {
        // A sample that either state cannot parse proves nothing about the change.
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
        // Each of the two groups has its own limit, so that other changes do not crowd out lost routes.
        let is_full = examples.iter().filter(|(lost, _)| *lost == loses_route).count() >= EXAMPLES_MAX;
        if !is_full {
            examples.push((loses_route, ImpactExample { request, before: old, after: new }));
        }
    }
    // Requests that lose their route come first.
    examples.sort_by_key(|(loses_route, _)| !loses_route);
    impact.examples = examples.into_iter().map(|(_, example)| example).collect();
    impact
}

/// Why a change needs a confirmation: it may do more than intended.
fn confirmation(changes: &[ObjectChange], impact: &TrafficImpact, limits: &PlanLimits) -> Option<String> {
    let mut reasons = Vec::new();
    let is_removed = |change: &&ObjectChange| {
        change.kind == Kind::Routes.name() && change.what == ObjectChangeKind::Removed
    };
    let removed = changes.iter().filter(is_removed).count();
    // Counted without traffic: the sample may miss a route that is called once a night.
    if removed > limits.deleted_routes_max {
        reasons.push(format!(
            "{} would be removed; the limit without confirmation is {}",
            yumen_base::quantity(removed, "route"),
            limits.deleted_routes_max
        ));
    }
    // An empty sample has a share of 0.
    let share = impact.changed as f64 / impact.asked.max(1) as f64;
    if share > limits.changed_share_max {
        let (changed, asked) = (impact.changed, impact.asked);
        let most = limits.changed_share_max * 100.0;
        reasons.push(format!("{changed} of {asked} sampled requests would change, more than {most} %"));
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}
