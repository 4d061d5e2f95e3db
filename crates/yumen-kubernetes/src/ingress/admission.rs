//! Reviews of Ingresses: the refusals of ingress-nginx's admission webhook, and parts that are not followed.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use regex::Regex;

use super::class::{ServedClass, served_class};
use super::host_names::host_name;
use super::location_path::{IngressPathForm, flaw_of_path};
use crate::admission_review::{AdmissionFindings, ResourceCheck, problem_findings, resource_findings};
use crate::derived::{IngressGroup, IngressMember};
use crate::engine::{TrackedView, TrialEffect};
use crate::ingress_nginx::{
    AnnotationConsequence, AnnotationPolicy, AnnotationProblem, ControllerSettings, PathTypeRule,
    read_annotations,
};
use crate::model::{ClusterObject, IngressObject, LeanObject, ObjectKey};

/// The prefix of annotations without `--annotations-prefix`.
const USUAL_PREFIX: &str = "nginx.ingress.kubernetes.io";

/// Texts in hosts and paths by which directives were injected into the configuration of NGINX. They are harmless here,
/// and their author expects another server.
static INJECTIONS: LazyLock<Regex> = LazyLock::new(|| {
    let directives = r"(?s)(?:^|[\s;{}])(?:alias|root)\s.*;|_by_lua";
    let files = "/etc/(?:passwd|shadow|group|nginx|ingress-controller)|/var/run/secrets";
    Regex::new(&format!("{directives}|{files}")).expect("a valid pattern")
});

/// A path of the reviewed Ingress: host, path.
type HostPath = (Arc<str>, Arc<str>);

/// Judges the effect of a new or changed Ingress.
pub(crate) fn review_ingress(
    view: &TrackedView<'_>,
    key: &ObjectKey,
    is_new: bool,
    effect: &TrialEffect,
    check: ResourceCheck<'_>,
) -> AdmissionFindings {
    let mut findings = AdmissionFindings::default();
    let settings = &view.settings().ingress;
    let (Some(object), Some(defaults)) = (view.get::<IngressObject>(key), view.ingress_defaults()) else {
        return findings;
    };
    if !settings.is_enabled || !is_served(view, object) {
        return findings;
    }
    let (own, problems) = read_annotations(&object.meta, defaults);
    prefix_finding(object, &defaults.policy, &mut findings);
    problems.iter().for_each(|problem| annotation_finding(problem, &mut findings));
    catch_all_finding(object, defaults, &mut findings);
    rule_findings(object, defaults, &mut findings);
    let former = if is_new { None } else { effect.former.as_ref().and_then(ingress_of) };
    let is_canary = own.canary.is_some();
    // A version of another class, or on the other side of a canary, held none of the paths that are judged here.
    let held = |former: &&Arc<IngressObject>| {
        let was_canary = read_annotations(&former.meta, defaults).0.canary.is_some();
        is_served(view, former) && was_canary == is_canary
    };
    let former = former.filter(held);
    let allows_foreign = defaults.policy.allows_cross_namespace;
    let review = OverlapReview { view, key, object, former, is_canary, allows_foreign };
    review.add_overlaps(&mut findings);
    problem_findings(key, effect, &mut findings);
    // The routes of a refused Ingress are marked as broken for the same reasons.
    if findings.refusals.is_empty() {
        resource_findings(effect, check, &mut findings);
    }
    findings
}

/// Whether this controller judges an Ingress.
fn is_served(view: &TrackedView<'_>, object: &IngressObject) -> bool {
    match served_class(view, object) {
        Some(ServedClass::Own) => true,
        // The webhook of a running ingress-nginx judges it.
        Some(ServedClass::Adopted) => view.settings().ingress.take_over,
        None => false,
    }
}

fn ingress_of(object: &ClusterObject) -> Option<&Arc<IngressObject>> {
    IngressObject::of(&object.body)
}

fn prefix_finding(object: &IngressObject, policy: &AnnotationPolicy, findings: &mut AdmissionFindings) {
    let is_usual =
        |name: &Arc<str>| name.strip_prefix(USUAL_PREFIX).is_some_and(|rest| rest.starts_with('/'));
    if *policy.prefix == *USUAL_PREFIX {
        return;
    }
    if let Some(name) = object.meta.annotations.keys().find(|name| is_usual(name)) {
        let prefix = &policy.prefix;
        findings.refuse(format!("annotation {name}: the prefix of annotations is {prefix:?} here"));
    }
}

fn annotation_finding(problem: &AnnotationProblem, findings: &mut AdmissionFindings) {
    let way = problem.way_over.as_ref().map(|way| format!(" ({way})")).unwrap_or_default();
    let text = format!("annotation {}: {}{way}", problem.annotation, problem.reason);
    if problem.is_inadmissible {
        findings.refuse(text);
    } else if problem.consequence == AnnotationConsequence::Differs {
        // The translation reports the other consequences itself.
        findings.warn(text);
    }
}

fn catch_all_finding(
    object: &IngressObject,
    defaults: &ControllerSettings,
    findings: &mut AdmissionFindings,
) {
    let is_catch_all = object.spec.rules.is_empty() && object.spec.default_backend.is_some();
    if is_catch_all && defaults.flags.is_set("disable-catch-all") {
        let hint = "remove spec.defaultBackend, or the flag --disable-catch-all";
        findings.refuse(format!("spec.defaultBackend: an Ingress without rules is not served ({hint})"));
    }
}

/// Hosts and paths that cannot be served, or that carry directives.
fn rule_findings(object: &IngressObject, defaults: &ControllerSettings, findings: &mut AdmissionFindings) {
    let is_strict = defaults.policy.path_types == PathTypeRule::Strict;
    let inspects = defaults.flags.is_set("deep-inspect");
    for (at, rule) in object.spec.rules.iter().enumerate() {
        let host = rule.host.as_deref().unwrap_or_default();
        if !host.is_empty() && host_name(host).is_none() {
            findings.refuse(format!("spec.rules[{at}].host: {host:?} is no host name"));
        }
        for (position, written) in rule.http.iter().flat_map(|http| &http.paths).enumerate() {
            let path = written.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
            let place = format!("spec.rules[{at}].http.paths[{position}]");
            let form = IngressPathForm::of(written.path_type.as_deref());
            if inspects && let Some(found) = INJECTIONS.find(path) {
                findings.refuse(format!("{place}.path: path {path:?} has {:?}", found.as_str()));
            } else if let Some(flaw) = flaw_of_path(path, form, is_strict) {
                findings.refuse(format!("{place}.path: {flaw}"));
            }
        }
    }
}

/// The search for paths that belong to another Ingress.
struct OverlapReview<'r, 't> {
    view: &'r TrackedView<'t>,
    key: &'r ObjectKey,
    object: &'r IngressObject,
    /// The version in force, if it held its paths in the same way.
    former: Option<&'r Arc<IngressObject>>,
    is_canary: bool,
    /// Whether canaries may belong to Ingresses of other namespaces.
    allows_foreign: bool,
}

impl OverlapReview<'_, '_> {
    /// Refuses paths of a host that another Ingress has. As in ingress-nginx the type of the path does not count, since
    /// an exact path would take requests from a prefix of another team.
    fn add_overlaps(&self, findings: &mut AdmissionFindings) {
        let own = paths_of(self.object);
        let former = self.former.map(|former| paths_of(former)).unwrap_or_default();
        let hosts: BTreeSet<&Arc<str>> = own.iter().map(|(host, _)| host).collect();
        let me = IngressMember::new(&self.object.meta);
        for host in hosts {
            for member in self.view.ingresses(&IngressGroup::Host(host.clone())) {
                let other = member.key();
                let Some(parsed) = self.view.parsed_ingress(&other).filter(|_| other != *self.key) else {
                    continue;
                };
                let common = paths_of(&parsed.object);
                let mut taken = common.iter().filter(|path| path.0 == *host && own.contains(*path));
                let is_foreign = other.namespace != self.key.namespace && !self.allows_foreign;
                if self.is_canary && is_foreign {
                    // The canary of a third namespace has no effect.
                    if let Some((_, path)) = taken.next().filter(|_| !parsed.is_canary()) {
                        findings.refuse(format!(
                            "host {host:?} and path {path:?} belongs to ingress {}/{} of another namespace, which \
                             takes no canary from here",
                            other.namespace, other.name
                        ));
                    }
                    continue;
                }
                // A canary shares the path of its primary Ingress.
                if parsed.is_canary() != self.is_canary {
                    continue;
                }
                let is_older = *member < me;
                for path in taken.filter(|path| is_older || !former.contains(*path)) {
                    findings.refuse(format!(
                        "host \"{}\" and path \"{}\" is already defined in ingress {}/{}",
                        path.0, path.1, other.namespace, other.name
                    ));
                }
            }
        }
    }
}

/// The paths with a Service, by host in lower case; the host of all requests is empty.
fn paths_of(object: &IngressObject) -> BTreeSet<HostPath> {
    let mut all = BTreeSet::new();
    for rule in &object.spec.rules {
        let host = match rule.host.as_deref().filter(|host| !host.is_empty()) {
            Some(written) => host_name(written),
            None => Some(String::new()),
        };
        let Some(host) = host.map(Arc::<str>::from) else { continue };
        let paths = rule.http.iter().flat_map(|http| &http.paths);
        for path in paths.filter(|path| path.backend.service.is_some()) {
            let text = path.path.clone().filter(|path| !path.is_empty());
            all.insert((host.clone(), text.unwrap_or_else(|| "/".into())));
        }
    }
    all
}
