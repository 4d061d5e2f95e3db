//! The locations of a host: the paths of its Ingresses by first come, first served, and the rest by default.

use std::collections::HashMap;
use std::sync::Arc;

use yumen_base::problem::Problem;

use super::host_names::{host_name, id_part};
use super::location_path::{IngressPathForm, closed_path, flaw_of_literal, flaw_of_path, flaw_of_pattern};
use super::members::HostMembers;
use crate::derived::ParsedIngress;
use crate::ingress_nginx::{
    AnnotationPolicy, IngressRewriteTarget, SnippetCondition, SnippetEffects, SnippetPathEdit,
};
use crate::model::{IngressPath, IngressService};

/// The service of a location.
#[derive(Debug, Clone, Copy)]
pub(super) enum LocationTarget<'t> {
    Service(&'t IngressService),
    /// The default backend of the controller.
    Default,
    /// Nothing: the location has a flaw.
    Unserved,
}

/// A path of a host.
#[derive(Debug)]
pub(super) struct HostLocation<'t> {
    pub(super) path: Arc<str>,
    pub(super) form: IngressPathForm,
    /// `None` for the rest of the catch-all host.
    pub(super) owner: Option<&'t Arc<ParsedIngress>>,
    pub(super) target: LocationTarget<'t>,
    /// The canary with its service.
    pub(super) canary: Option<(&'t Arc<ParsedIngress>, &'t IngressService)>,
    /// Id of the route.
    pub(super) id: String,
    /// Why requests get 503: the path is no pattern on a host whose paths are patterns, or cannot be served.
    pub(super) flaw: Option<String>,
}

/// The effects of the snippets on one branch of a location, with the conditions of the branch.
#[derive(Debug, Clone, Default)]
pub(super) struct SnippetUse<'t> {
    pub(super) conditions: Vec<&'t SnippetCondition>,
    pub(super) effects: Vec<&'t SnippetEffects>,
    /// The number of effects that are of the host: those of server snippets, which come first.
    pub(super) of_host: usize,
    /// The new path, if another location serves the requests (`rewrite … last`).
    pub(super) relocation: Option<&'t SnippetPathEdit>,
}

impl<'t> SnippetUse<'t> {
    /// A branch without effects.
    pub(super) fn under(conditions: &'t [SnippetCondition]) -> SnippetUse<'t> {
        SnippetUse { conditions: conditions.iter().collect(), ..SnippetUse::default() }
    }
}

/// The locations of a host.
#[derive(Debug, Default)]
pub(super) struct HostLocations<'t> {
    pub(super) all: Vec<HostLocation<'t>>,
    /// Positions in `all`.
    index: HashMap<(Arc<str>, IngressPathForm), usize>,
    /// Whether all paths are patterns.
    pub(super) has_patterns: bool,
    pub(super) problems: Vec<Problem>,
}

/// Puts together the locations of a host.
pub(super) fn locations_of<'t>(
    host: &str,
    members: &HostMembers<'t>,
    policy: &AnnotationPolicy,
) -> HostLocations<'t> {
    let mut locations = HostLocations::default();
    for parsed in &members.primary {
        for (id, path) in paths_of(parsed, host) {
            locations.add_path(host, parsed, id, path);
        }
    }
    // Without paths a canary makes no host of its own.
    for canary in members.canaries.iter().filter(|canary| canary.refusal.is_none()) {
        for (_, path) in paths_of(canary, host) {
            locations.add_canary(host, canary, path, policy);
        }
    }
    locations.has_patterns = locations
        .all
        .iter()
        .any(|location| location.owner.is_some_and(|owner| makes_patterns(owner, &location.path)));
    locations.add_rest(host, members);
    match locations.has_patterns {
        true => {
            locations
                .all
                .iter_mut()
                .for_each(|one| one.flaw = one.flaw.take().or_else(|| flaw_of_pattern(&one.path)));
        }
        false => locations.drop_unreachable(),
    }
    locations
}

/// Whether an Ingress turns the paths of its hosts into patterns.
fn makes_patterns(owner: &ParsedIngress, path: &str) -> bool {
    let rewrite = &owner.settings.rewrite;
    let rewrites = match &rewrite.target {
        Some(IngressRewriteTarget::Path(target) | IngressRewriteTarget::Redirect(target)) => {
            **target != *path
        }
        None => false,
    };
    rewrite.use_regex || rewrites
}

/// The paths of an Ingress for a host, with the ids of their routes.
fn paths_of<'t>(
    parsed: &'t Arc<ParsedIngress>,
    host: &str,
) -> impl Iterator<Item = (String, &'t IngressPath)> {
    let key = &parsed.key;
    let prefix = format!("{}/{}!ingress!{}", key.namespace, key.name, id_part(host));
    let host = host.to_owned();
    let rules = parsed.object.spec.rules.iter().enumerate();
    let rules = rules.filter(move |(_, rule)| match rule.host.as_deref().unwrap_or_default() {
        "" => host.is_empty(),
        written => host_name(written).is_some_and(|name| name == host),
    });
    rules.flat_map(move |(at, rule)| {
        let prefix = prefix.clone();
        let paths = rule.http.iter().flat_map(|http| &http.paths).enumerate();
        paths.map(move |(position, path)| (format!("{prefix}!{at}.{position}"), path))
    })
}

impl<'t> HostLocations<'t> {
    fn add_path(&mut self, host: &str, owner: &'t Arc<ParsedIngress>, id: String, written: &'t IngressPath) {
        let (mut path, mut form) = parts_of(written);
        // `strict-validate-path-type` is a rule of admission: a path without its route would fall to a wider one.
        let mut flaw = flaw_of_path(&path, form, false);
        if let Some(flaw) = &flaw {
            let message = format!("{flaw}: the path answers 503");
            self.problems.push(Problem::error(owner.key.to_string(), "spec.rules", message));
            (path, form) = (closed_path(&path).into(), IngressPathForm::Characters);
        }
        let target = match &written.backend.service {
            Some(service) => LocationTarget::Service(service),
            // A backend of another kind has a problem of its Ingress.
            None => {
                flaw.get_or_insert_with(|| "the backend is no Service".to_owned());
                LocationTarget::Unserved
            }
        };
        if let Some(first) = self.find(&path, form) {
            let name = first.owner.map(|owner| owner.key.to_string()).unwrap_or_default();
            let message = format!("path {path} of host {host:?} belongs to {name}, which is older");
            // Within one Ingress the first of two equal paths holds as well.
            self.problems.push(problem(owner, message));
            return;
        }
        self.index.insert(identity(&path, form), self.all.len());
        self.all.push(HostLocation { path, form, owner: Some(owner), target, canary: None, id, flaw });
    }

    fn add_canary(
        &mut self,
        host: &str,
        canary: &'t Arc<ParsedIngress>,
        written: &'t IngressPath,
        policy: &AnnotationPolicy,
    ) {
        let (path, form) = parts_of(written);
        let Some(service) = &written.backend.service else { return };
        let at = self.index.get(&identity(&path, form));
        let owner = at.and_then(|at| self.all.get(*at)?.owner);
        if let Some(owner) = owner.filter(|owner| !host.is_empty() && is_foreign(owner, canary, policy)) {
            return self.problems.push(foreign_canary(canary, owner, &path, host));
        }
        let found = at.and_then(|at| self.all.get_mut(*at));
        let message = match found {
            // The catch-all host has no canaries.
            _ if host.is_empty() => format!("the canary of {path} has no host and is ignored"),
            None => format!("the canary of {path} of host {host} has no Ingress to belong to and is ignored"),
            Some(location) => match (&location.target, &location.canary) {
                (_, Some((first, _))) => {
                    format!("{path} of host {host} has the canary {} already", first.key)
                }
                (LocationTarget::Service(primary), None)
                    if *primary == service
                        && location
                            .owner
                            .is_some_and(|owner| owner.key.namespace == canary.key.namespace) =>
                {
                    format!("the canary of {path} of host {host} has the same service and is ignored")
                }
                (_, None) => {
                    location.canary = Some((canary, service));
                    return;
                }
            },
        };
        self.problems.push(problem(canary, message));
    }

    /// Adds the location of all other paths, unless `/` has rules: the default backend of the first Ingress.
    fn add_rest(&mut self, host: &str, members: &HostMembers<'t>) {
        if self.find(&"/".into(), IngressPathForm::Prefix).is_some() {
            return;
        }
        // The catch-all host exists without Ingresses; the first default backend is its own.
        let has_default = |one: &&&Arc<ParsedIngress>| one.object.spec.default_backend.is_some();
        let with_default = members.primary.iter().find(|one| host.is_empty() && has_default(one));
        let creator = with_default.or(members.primary.first()).copied();
        let service = creator.and_then(|one| one.object.spec.default_backend.as_ref()?.service.as_ref());
        self.all.push(HostLocation {
            path: "/".into(),
            form: IngressPathForm::Prefix,
            owner: creator,
            target: service.map_or(LocationTarget::Default, LocationTarget::Service),
            canary: None,
            id: format!("ingress!rest!{}", id_part(host)),
            flaw: None,
        });
    }

    fn find(&self, path: &Arc<str>, form: IngressPathForm) -> Option<&HostLocation<'t>> {
        self.index.get(&identity(path, form)).and_then(|at| self.all.get(*at))
    }

    /// Removes literal paths that no request has.
    fn drop_unreachable(&mut self) {
        let problems = &mut self.problems;
        self.all.retain(|location| match (flaw_of_literal(&location.path), location.owner) {
            (Some(flaw), Some(owner)) => {
                problems.push(problem(owner, format!("{flaw}: the path is left out")));
                false
            }
            _ => true,
        });
    }
}

/// Whether a canary would take requests from an Ingress of another namespace.
fn is_foreign(owner: &ParsedIngress, canary: &ParsedIngress, policy: &AnnotationPolicy) -> bool {
    owner.key.namespace != canary.key.namespace && !policy.allows_cross_namespace
}

fn foreign_canary(canary: &ParsedIngress, owner: &ParsedIngress, path: &str, host: &str) -> Problem {
    let message =
        format!("{path} of host {host} belongs to {} of another namespace: the canary is ignored", owner.key);
    let hint = "move the canary to that namespace, or set allow-cross-namespace-resources in the ConfigMap";
    Problem::error(canary.key.to_string(), "spec.rules", message).hint(hint)
}

/// The key of a location. Both prefixes of the root match every path.
fn identity(path: &Arc<str>, form: IngressPathForm) -> (Arc<str>, IngressPathForm) {
    let is_rest = &**path == "/" && form != IngressPathForm::Exact;
    (path.clone(), if is_rest { IngressPathForm::Prefix } else { form })
}

fn parts_of(written: &IngressPath) -> (Arc<str>, IngressPathForm) {
    let path = written.path.clone().filter(|path| !path.is_empty()).unwrap_or_else(|| "/".into());
    (path, IngressPathForm::of(written.path_type.as_deref()))
}

fn problem(owner: &ParsedIngress, message: String) -> Problem {
    Problem::warning(owner.key.to_string(), "spec.rules", message)
}
