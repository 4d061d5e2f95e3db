//! The unit of an Ingress: its class, its annotations, the groups that it belongs to, its status.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::json;
use yumen_base::problem::Problem;

use super::class::served_class;
use super::effects::{annotation_path, plugin_set};
use super::host_names::host_name;
use super::route_writer::plugin_set_id;
use super::status::add_status;
use crate::derived::{IngressGroup, IngressMember, ParsedIngress};
use crate::engine::{DerivedOutput, TrackedView, UnitOutput};
use crate::ingress_nginx::{
    AnnotationConsequence, AnnotationProblem, ControllerSettings, IngressSettings, read_annotations,
};
use crate::model::{IngressBackend, IngressObject, ObjectKey};
use crate::resources::TranslatedKind;

pub(crate) fn translate_ingress(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    if !view.settings().ingress.is_enabled {
        return output;
    }
    let (Some(object), Some(defaults)) = (view.get::<IngressObject>(key), view.ingress_defaults()) else {
        return output;
    };
    let Some(class) = served_class(view, object) else { return output };
    let (settings, problems) = read_annotations(&object.meta, defaults);
    let refusing = problems.iter().find(|one| one.consequence == AnnotationConsequence::IngressRefused);
    let refusal = refusing.map(|one| format!("{}: {}", one.annotation, one.reason));
    let refusal = object.spec.unreadable.as_ref().map(|reason| reason.to_string()).or(refusal);
    let mut settings = if refusal.is_some() { refused_settings(settings, defaults) } else { settings };
    if refusal.is_some() && requests_patterns(object, defaults) {
        settings.rewrite.use_regex = true;
    }
    // A difference is a fact about the annotation, which the documentation has.
    let reported = problems.into_iter().filter(|one| one.consequence != AnnotationConsequence::Differs);
    output.problems.extend(reported.map(|problem| problem_of(key, problem)));
    output.problems.extend(rule_problems(key, object));
    let parsed = ParsedIngress { key: key.clone(), object: object.clone(), settings, refusal };
    let member = IngressMember::new(&object.meta);
    let groups = groups_of(&parsed, defaults).into_iter();
    output.groups = groups.map(|group| (group, member.clone())).collect();
    if let Some(plugins) = plugin_set(&parsed, defaults) {
        let value = json!({ "plugins": plugins, "labels": { "origin": key.origin_label() } });
        output.add_resource(TranslatedKind::PluginConfigs, plugin_set_id(&parsed), &value);
    }
    add_status(view, &parsed, class, defaults, &mut output);
    output.derived = Some(DerivedOutput::Ingress(Arc::new(parsed)));
    output
}

/// The settings of a refused version. None is used but those that decide which requests its paths match, which are
/// refused, whether it is a canary, and the client certificates and the server snippet of its hosts, which protect the
/// paths of others too.
fn refused_settings(written: IngressSettings, defaults: &ControllerSettings) -> IngressSettings {
    let mut settings = defaults.defaults.clone();
    settings.rewrite = written.rewrite;
    settings.canary = written.canary;
    settings.server.client = written.server.client;
    settings.server.is_denied = written.server.is_denied;
    settings.snippets.server = written.snippets.server;
    settings
}

/// Whether an Ingress writes an annotation of pattern mode, also with a value that is not valid. As literals, the patterns
/// of a refused Ingress would match no request, and requests would fall to the wider paths of others.
fn requests_patterns(object: &IngressObject, defaults: &ControllerSettings) -> bool {
    let value = |name: &str| {
        let written = object.meta.annotations.get(&*annotation_path(defaults, name));
        written.map(|value| value.trim()).filter(|value| !value.is_empty())
    };
    value("rewrite-target").is_some() || value("use-regex").is_some_and(|value| value != "false")
}

fn problem_of(key: &ObjectKey, found: AnnotationProblem) -> Problem {
    let (object, path) = (key.to_string(), &*found.annotation);
    let problem = match found.consequence {
        AnnotationConsequence::Differs | AnnotationConsequence::NoEffect | AnnotationConsequence::LeftOut => {
            Problem::warning(object, path, found.reason)
        }
        AnnotationConsequence::IngressDenied => {
            Problem::error(object, path, format!("{}: every path of the Ingress answers 503", found.reason))
        }
        AnnotationConsequence::HostDenied => {
            Problem::error(object, path, format!("{}: the hosts of the Ingress answer 403", found.reason))
        }
        AnnotationConsequence::IngressRefused => Problem::error(
            object,
            path,
            format!("{}: this version of the Ingress is not taken", found.reason),
        ),
    };
    match found.way_over {
        Some(way) => problem.hint(way),
        None => problem,
    }
}

/// Parts of the rules that cannot be served.
fn rule_problems(key: &ObjectKey, object: &IngressObject) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (at, rule) in object.spec.rules.iter().enumerate() {
        let host = rule.host.as_deref().unwrap_or_default();
        if !host.is_empty() && host_name(host).is_none() {
            let message = format!("{host:?} is no host name: the rule is left out");
            let path = format!("spec.rules[{at}].host");
            problems
                .push(Problem::error(key.to_string(), path, message).hint("write a name, or *. and a name"));
        }
        let paths = rule.http.iter().flat_map(|http| &http.paths).enumerate();
        for (position, path) in paths.filter(|(_, path)| path.backend.service.is_none()) {
            let resource = path.backend.resource.as_ref();
            let found = resource.map_or_else(
                || "has no service".to_owned(),
                |resource| format!("refers to {} {:?}", resource.kind, resource.name),
            );
            let message = format!("the backend {found}: the path answers 503");
            let place = format!("spec.rules[{at}].http.paths[{position}].backend");
            problems.push(Problem::error(key.to_string(), place, message).hint("refer to a Service"));
        }
    }
    problems
}

fn groups_of(parsed: &ParsedIngress, defaults: &ControllerSettings) -> BTreeSet<IngressGroup> {
    let spec = &parsed.object.spec;
    let mut groups = BTreeSet::from([IngressGroup::Served]);
    let takes_any = !defaults.flags.is_set("disable-catch-all");
    for rule in &spec.rules {
        match rule.host.as_deref().filter(|host| !host.is_empty()) {
            Some(host) => groups.extend(host_name(host).map(|host| IngressGroup::Host(host.into()))),
            None if takes_any => drop(groups.insert(IngressGroup::Host("".into()))),
            None => {}
        }
    }
    if spec.rules.is_empty() && spec.default_backend.is_some() && takes_any {
        groups.insert(IngressGroup::Host("".into()));
    }
    if !parsed.is_canary() {
        let aliases = parsed.settings.server.aliases.iter().filter_map(|alias| host_name(alias));
        groups.extend(aliases.map(|alias| IngressGroup::Alias(alias.into())));
    }
    let paths = spec.rules.iter().flat_map(|rule| &rule.http).flat_map(|http| &http.paths);
    let backends = paths.map(|path| &path.backend).chain(&spec.default_backend);
    let service = |backend: &IngressBackend| {
        let service = backend.service.as_ref()?;
        let namespace = parsed.key.namespace.clone();
        Some(IngressGroup::Service { namespace, service: service.name.clone() })
    };
    groups.extend(backends.filter_map(service));
    groups
}
