//! Conflicting plugins of a route, and public routes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use yumen_base::Problem;
use yumen_config::Kind;
use yumen_plugin::PluginInstance;

use super::{LintInput, ResourceTexts};
use crate::{Route, RouteTarget};

pub(super) fn check(input: &LintInput<'_>, texts: &ResourceTexts<'_>) -> Vec<Problem> {
    let routes = input.snapshot.routes();
    let global = input.snapshot.global.all();
    let all = || routes.values().flat_map(|route| route.chain.all()).chain(global);
    let rules = |route: &Route| input.snapshot.global_rules(Some(route)).all();
    let mut problems: Vec<Problem> =
        routes.values().flat_map(|route| together(route, rules(route), texts)).collect();
    problems.extend(doubled(texts));
    // Settings in a service are reported once, not for each of its routes.
    let mut seen = BTreeSet::new();
    let first = |one: &&Arc<PluginInstance>| seen.insert((one.origin.clone(), one.name));
    problems.extend(all().filter(first).filter_map(|instance| alone(instance, texts)));
    // Without any authentication in the configuration, every route would be reported.
    if input.strict || all().any(|instance| identifies_client(instance)) {
        problems.extend(routes.values().filter_map(|route| open(route, rules(route))));
    }
    problems
}

/// Plugins in several global rules: all of them run, although the Admin API accepts only one.
fn doubled(texts: &ResourceTexts<'_>) -> Vec<Problem> {
    let is_on = |settings: &&Value| settings.pointer("/_meta/disable") != Some(&Value::Bool(true));
    let mut rules: Vec<(String, &Value)> = texts
        .iter()
        // Rules of scopes meet only in part.
        .filter(|(one, value)| one.kind == Kind::GlobalRules && value.get("scopes").is_none())
        .map(|(one, value)| (one.to_string(), value))
        .collect();
    // The rule with the lowest id counts as the first, whatever the order of the texts.
    rules.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    let mut problems = Vec::new();
    for (rule, value) in &rules {
        let plugins = value.get("plugins").and_then(Value::as_object).into_iter().flatten();
        for (plugin, _) in plugins.filter(|(_, settings)| is_on(settings)) {
            let other = *first.entry(plugin).or_insert(rule);
            if other != rule {
                let message = format!(
                    "also configured in {other}, and both run: the Admin API accepts only one of them"
                );
                problems.push(Problem::warning(rule, format!("plugins.{plugin}"), message));
            }
        }
    }
    problems
}

/// A problem in the settings of one plugin.
fn alone(instance: &PluginInstance, texts: &ResourceTexts<'_>) -> Option<Problem> {
    let settings = texts.settings(&instance.origin, instance.name)?;
    let is = |field: &str, value: &str| settings.get(field).and_then(Value::as_str) == Some(value);
    let credentials = settings.get("allow_credential").and_then(Value::as_bool) == Some(true);
    if instance.name == "cors" && credentials && is("allow_origins", "**") {
        let path = "plugins.cors.allow_origins";
        let message = "every site on the web may read responses with its visitors' credentials";
        let problem = Problem::warning(&*instance.origin, path, message);
        return Some(problem.hint("name the origins, or leave allow_credential off"));
    }
    None
}

/// Problems between the plugins of a route.
fn together(route: &Route, global: &[Arc<PluginInstance>], texts: &ResourceTexts<'_>) -> Vec<Problem> {
    let object = format!("routes/{}", route.info.id);
    let chain = route.chain.all();
    let find = |name: &str| chain.iter().find(|instance| instance.name == name);
    let mut problems = Vec::new();
    let auth: Vec<&str> = chain.iter().filter(|one| one.is_auth).map(|one| one.name).collect();
    if auth.len() > 1 {
        let message =
            format!("several authentication plugins: a client must satisfy all of {}", auth.join(" and "));
        problems.push(Problem::warning(&*object, "plugins", message).hint("keep one of them on a route"));
    }
    // A redirection contains nothing of the rewritten request; the compiler reports plugins that never run.
    if let (Some(first), Some(second)) = (find("redirect"), find("proxy-rewrite"))
        && first.plugin.responds_always_in().is_some()
        && first.meta.filter.is_none()
    {
        let from = origins(first, second, route);
        let message = format!("redirect responds to every request, so proxy-rewrite has no effect{from}");
        problems.push(Problem::warning(&*object, "plugins.proxy-rewrite", message));
    }
    let has_auth = chain.iter().chain(global).any(|one| one.is_auth);
    if let Some(restriction) = find("consumer-restriction").filter(|_| !has_auth) {
        let kind = texts.settings(&restriction.origin, restriction.name).and_then(|it| it.get("type"));
        let kind = kind.and_then(Value::as_str).unwrap_or("consumer_name");
        if kind.starts_with("consumer") {
            let message = "refuses every request: no plugin of the route identifies a consumer";
            let problem = Problem::error(&*object, "plugins.consumer-restriction", message);
            problems.push(problem.hint("add an authentication plugin, such as key-auth"));
        }
    }
    problems
}

/// Names the objects with the settings, unless both are in the route itself.
fn origins(first: &PluginInstance, second: &PluginInstance, route: &Route) -> String {
    let own = format!("routes/{}", route.info.id);
    if *first.origin == *own && *second.origin == *own {
        return String::new();
    }
    format!(" ({} of {}, {} of {})", first.name, first.origin, second.name, second.origin)
}

/// Whether the plugin identifies the client, itself or through a subrequest.
fn identifies_client(instance: &PluginInstance) -> bool {
    instance.is_auth || instance.name == "forward-auth"
}

/// A route that forwards requests of any client from any address.
fn open(route: &Route, global: &[Arc<PluginInstance>]) -> Option<Problem> {
    let guards = |instance: &Arc<PluginInstance>| {
        identifies_client(instance) || instance.name == "ip-restriction" || instance.plugin.is_stand_in()
    };
    let is_guarded = route.chain.all().iter().chain(global).any(guards);
    let filters = route.matching.filters.as_ref();
    let is_local = filters.is_some_and(|filters| !filters.remote_addrs.is_empty());
    if is_guarded || is_local || !matches!(route.target, RouteTarget::Upstream(_) | RouteTarget::Weighted(_))
    {
        return None;
    }
    let message = "public route: no plugin authenticates the client";
    let problem = Problem::warning(format!("routes/{}", route.info.id), "plugins", message);
    Some(problem.hint("add an authentication plugin or ip-restriction if that is not intended"))
}
