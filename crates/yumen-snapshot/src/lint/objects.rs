//! Unused objects, and upstreams without endpoints.

use std::collections::BTreeSet;

use serde_json::Value;
use yumen_base::Problem;
use yumen_config::Kind;
use yumen_config::resource::{KindDescriptor, ReferencePlace, ReferenceRule};

use super::{LintInput, ResourceTexts};
use crate::scope::HostMap;
use crate::{Snapshot, Upstream};

/// The kind of objects that a field refers to.
fn kind_named_by(field: &str) -> Option<Kind> {
    let is_it = |rule: &ReferenceRule| rule.field == field && rule.position != ReferencePlace::StreamProtocol;
    let named = |one: &&KindDescriptor| one.references.rule.as_ref().is_some_and(is_it);
    Kind::descriptors().iter().find(named).map(|one| one.kind)
}

pub(super) fn check(input: &LintInput<'_>, texts: &ResourceTexts<'_>) -> Vec<Problem> {
    let mut problems = unused(texts);
    problems.extend(keyless(texts));
    problems.extend(missing_anonymous_consumers(texts));
    problems.extend(scopeless(input.snapshot));
    for (_, upstream) in input.snapshot.upstreams() {
        problems.extend(nowhere(upstream));
        if input.strict && upstream.protocol.scheme.is_tls() && !upstream.tls.settings.verify {
            let path = format!("{}tls.verify", inside(upstream));
            let message = "the endpoints' certificates are not checked";
            problems.push(Problem::warning(&*upstream.origin, path, message).hint("set tls.verify to true"));
        }
    }
    problems
}

/// Listeners that no scope names.
fn scopeless(snapshot: &Snapshot) -> impl Iterator<Item = Problem> {
    let without = snapshot.listeners().filter(|listener| matches!(listener.hosts, HostMap::None));
    without.map(|listener| {
        let message = "no scope names this listener: requests get 404, and other connections are closed";
        Problem::warning(format!("listeners/{}", listener.id), "", message)
            .hint("name it in listeners of a scope")
    })
}

fn unused(texts: &ResourceTexts<'_>) -> Vec<Problem> {
    let mut named = BTreeSet::new();
    for (_, value) in texts.iter() {
        collect(value, &mut named);
    }
    let is_unreferenced = |kind: Kind, id: &str| {
        let reference = kind.descriptor().references.rule.as_ref();
        reference.is_some_and(|rule| rule.position.is_only_use()) && !named.contains(&(kind, id.to_owned()))
    };
    let unused = texts.iter().filter(|(one, _)| is_unreferenced(one.kind, &one.id));
    unused
        .map(|(one, _)| Problem::warning(one.to_string(), "", "unused: no other object references this one"))
        .collect()
}

/// Collects references anywhere in a text, since plugins refer to upstreams too.
pub(crate) fn collect(value: &Value, named: &mut BTreeSet<(Kind, String)>) {
    match value {
        Value::Object(members) => {
            for (field, member) in members {
                match (kind_named_by(field), member) {
                    (Some(kind), Value::String(id)) => drop(named.insert((kind, id.clone()))),
                    (Some(kind), Value::Number(id)) => drop(named.insert((kind, id.to_string()))),
                    (_, member) => collect(member, named),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, named)),
        _ => {}
    }
}

/// Consumers without a key or a credential that no plugin uses as the anonymous consumer.
fn keyless(texts: &ResourceTexts<'_>) -> Vec<Problem> {
    let of_kind = |kind: Kind| texts.iter().filter(move |(one, _)| one.kind == kind);
    let owners: BTreeSet<&str> =
        of_kind(Kind::Credentials).filter_map(|(one, _)| Some(one.id.split_once('/')?.0)).collect();
    let anonymous: BTreeSet<&str> = texts
        .iter()
        .filter_map(|(_, value)| value.get("plugins")?.as_object())
        .flat_map(|plugins| plugins.values())
        .filter_map(|settings| settings.get("anonymous_consumer")?.as_str())
        .collect();
    let has_key = |value: &Value| {
        let plugins = value.get("plugins").and_then(Value::as_object);
        // The names of plugins that authenticate end with `-auth`.
        plugins.is_some_and(|plugins| plugins.keys().any(|name| name.ends_with("-auth")))
    };
    let keyless = of_kind(Kind::Consumers).filter(|(one, value)| {
        !has_key(value) && !owners.contains(&*one.id) && !anonymous.contains(&*one.id)
    });
    let problem = |name: String| {
        Problem::warning(name, "plugins", "unreachable consumer: it has neither a key nor a credential")
    };
    keyless.map(|(one, _)| problem(one.to_string())).collect()
}

/// Anonymous consumers that do not exist.
fn missing_anonymous_consumers(texts: &ResourceTexts<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (one, value) in texts.iter() {
        let plugins = value.get("plugins").and_then(Value::as_object).into_iter().flatten();
        for (plugin, settings) in plugins {
            let name = settings.get("anonymous_consumer").and_then(Value::as_str);
            let Some(name) = name.filter(|name| texts.get(&format!("consumers/{name}")).is_none()) else {
                continue;
            };
            let message = format!("consumer {name} does not exist: requests without a key are refused");
            let path = format!("plugins.{plugin}.anonymous_consumer");
            problems.push(Problem::warning(one.to_string(), path, message));
        }
    }
    problems
}

fn inside(upstream: &Upstream) -> &'static str {
    // The origin of an upstream in plugin settings contains its whole path.
    let is_whole = upstream.origin.starts_with("upstreams/") || upstream.origin.contains("/plugins.");
    if is_whole { "" } else { "upstream." }
}

fn nowhere(upstream: &Upstream) -> Option<Problem> {
    let message = match &*upstream.endpoints {
        [] if upstream.unresolved.is_empty() => "no endpoint: requests get 503",
        // Only a serving node resolves these names.
        [] => return None,
        all if all.iter().all(|endpoint| endpoint.weight == 0) => {
            "all endpoints have weight 0: requests get 503"
        }
        _ => return None,
    };
    Some(Problem::error(&*upstream.origin, format!("{}nodes", inside(upstream)), message))
}
