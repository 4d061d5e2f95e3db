//! Routes, services, plugin configs and global rules: staged from text, then linked to each other.

use std::sync::Arc;

use serde_json::{Map, Value};
use yumen_base::{IpSet, Problem, ProblemLevel};
use yumen_config::resource as config;
use yumen_config::resource::ResourceDefect;
use yumen_config::{InvalidSettings, Kind, closest, decode};
use yumen_plugin::{ConditionExpr, Method, RouteInfo};

use super::plugins::{self, PluginEntry, PluginSet};
use super::settings::PluginOwner;
use super::validate::ObjectError;
use super::{Compiler, ObjectName, StageResult, invalid, upstream};
use crate::snapshot::{Route, RouteFilters, RouteMatching, RouteTarget, UpstreamSlotId};

/// Where an object sends requests, as written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum StagedTarget {
    None,
    Inline(UpstreamSlotId),
    Named(Arc<str>),
}

/// What is kept of a route to link it again.
#[derive(Debug)]
pub(super) struct StagedRoute {
    /// As linked last.
    pub(super) route: Arc<Route>,
    /// Its own hosts, where the linked ones may be its service's.
    hosts: Arc<[Box<str>]>,
    own: Box<[PluginEntry]>,
    service: Option<Arc<str>>,
    plugin_config: Option<Arc<str>>,
    goes: StagedTarget,
    enable_websocket: Option<bool>,
    enabled: bool,
    /// Whether the router has `route`.
    routed: bool,
    /// Whether only its matching part was understood.
    pub(super) broken: bool,
}

/// What is kept of a service.
#[derive(Debug)]
pub(super) struct StagedService {
    pub(super) name: Box<str>,
    hosts: Arc<[Box<str>]>,
    pub(super) plugins: PluginSet,
    pub(super) goes: StagedTarget,
    enable_websocket: Option<bool>,
}

fn lower(hosts: impl Iterator<Item = impl AsRef<str>>) -> Arc<[Box<str>]> {
    hosts.map(|host| host.as_ref().to_ascii_lowercase().into()).collect()
}

fn matching(written: &config::RouteSpec) -> Result<RouteMatching, (String, String)> {
    if written.filter_func.is_some() {
        return Err(("filter_func".into(), "Lua functions are not supported".into()));
    }
    let filters = conditions(written).map_err(|flaw| match flaw {
        ObjectError::Vars(message) => ("vars".to_owned(), message),
        ObjectError::Address(at) => {
            let found = written.remote_addrs().iter().nth(at).unwrap_or_default();
            ("remote_addrs".to_owned(), format!("\"{found}\" is neither an address nor a network"))
        }
        other => (String::new(), format!("{other:?}")),
    })?;
    let methods = written.methods.iter().flatten();
    Ok(RouteMatching {
        uris: written.uris().iter().map(Box::from).collect(),
        hosts: lower(written.hosts().iter()),
        priority: written.priority.clamp(i32::MIN.into(), i32::MAX.into()) as i32,
        created: written.create_time.map_or(0, |at| at.max(0) as u64),
        methods: methods.fold(0, |bits, method| bits | Method::of(method.as_str().as_bytes()).bit()),
        filters,
    })
}

/// A star inside a path stands for itself here, while APISIX's router lets it stand for anything: the route would be
/// passed over without a word.
fn literal_star(name: &ObjectName, uri: &str) -> Option<Problem> {
    let (parents, last) = uri.rsplit_once('/').unwrap_or(("", uri));
    let is_named_rest = last.starts_with('*');
    let inside = if is_named_rest { parents } else { uri.strip_suffix('*').unwrap_or(uri) };
    let message = format!("the * inside {uri} is literal: only a trailing * is a wildcard");
    let hint =
        "use a path parameter, as in /a/:any/b, or end the path before the * and match the rest in vars";
    inside.contains('*').then(|| Problem::warning(name.to_string(), "uri", message).hint(hint))
}

/// All that is wrong with what a route asks for, of what is left of it.
pub(super) fn faults_of_conditions(left: &Map<String, Value>) -> Vec<InvalidSettings> {
    let asked = ["vars", "remote_addr", "remote_addrs", "filter_func"];
    let mut alone =
        Map::from_iter([("uri".into(), "/".into()), ("plugins".into(), Value::Object(Map::new()))]);
    alone.extend(asked.iter().filter_map(|field| Some(((*field).to_owned(), left.get(*field)?.clone()))));
    let mut faults = Vec::new();
    while let Ok(written) = config::decode_value::<config::RouteSpec>(Value::Object(alone.clone())) {
        let Err((path, message)) = matching(&written) else { break };
        let told = alone.remove(&path).is_some();
        // Where it is one address that stands alone, it is told as one of many.
        if !told && alone.remove("remote_addr").is_none() {
            break;
        }
        faults.push(InvalidSettings::at(path, message));
    }
    faults
}

/// What a route asks for beside path, host and method.
pub(super) fn conditions(written: &config::RouteSpec) -> Result<Option<Arc<RouteFilters>>, ObjectError> {
    for (at, one) in written.remote_addrs().iter().enumerate() {
        IpSet::parse([one]).map_err(|_| ObjectError::Address(at))?;
    }
    let remote_addrs = IpSet::parse(written.remote_addrs().iter()).map_err(|_| ObjectError::Address(0))?;
    let vars = match written.vars.as_deref() {
        None | Some([]) => None,
        Some(vars) => Some(ConditionExpr::parse(&Value::Array(vars.to_vec())).map_err(ObjectError::Vars)?),
    };
    Ok((!remote_addrs.is_empty() || vars.is_some()).then(|| Arc::new(RouteFilters { remote_addrs, vars })))
}

/// The fields a broken route is still matched by.
const MATCHING_FIELDS: [&str; 14] = [
    "uri",
    "uris",
    "host",
    "hosts",
    "remote_addr",
    "remote_addrs",
    "methods",
    "priority",
    "vars",
    "filter_func",
    "status",
    "name",
    "create_time",
    // Whose hosts are those of a route that has none.
    "service_id",
];

/// Those among them that say nothing of which requests a route is for.
const MATCHES_NOTHING: [&str; 4] = ["priority", "status", "name", "create_time"];

/// What a broken object says of what it matches; none where that cannot be told.
pub(super) fn matched_by(
    kind: Kind,
    json: &str,
    matching: &[&str],
    defects: &[ResourceDefect],
) -> Option<Map<String, Value>> {
    let mut written: Value = serde_json::from_str(json).ok()?;
    drop(config::take_defects(&mut written));
    let Value::Object(mut written) = written else { return None };
    // What is wrong with the whole of it may be what it matches.
    if defects.iter().any(|defect| defect.path.is_empty()) {
        return None;
    }
    // What is for hosts of its own is for them whatever its service is.
    let is_said = |value: &Value| value.as_array().is_none_or(|items| !items.is_empty());
    let has_hosts = ["host", "hosts"].iter().any(|field| written.get(*field).is_some_and(is_said));
    let fields = matching.iter().copied().filter(|field| !has_hosts || *field != "service_id");
    let matching: &[&str] = &fields.collect::<Vec<_>>();
    let is_told = |field: &str| !defects.iter().any(|defect| defect.is_within(field));
    if !matching.iter().filter(|field| !MATCHES_NOTHING.contains(*field)).all(|field| is_told(field)) {
        return None;
    }
    let kept: Map<String, Value> = matching
        .iter()
        .filter_map(|field| written.remove(*field).map(|value| ((*field).to_owned(), value)))
        .collect();
    (!may_narrow(kind, &kept, &written, matching)).then_some(kept)
}

/// Whether a field nobody knows may have been meant to narrow what the `kept` ones match: refusing all of that
/// would take requests from other routes.
fn may_narrow(kind: Kind, kept: &Map<String, Value>, left: &Map<String, Value>, matching: &[&str]) -> bool {
    let known = &config::schema_of(kind)["properties"];
    let meant = |field: &str| closest(field, matching.iter().copied()).is_some();
    left.keys().any(|field| known.get(field).is_none() && (kept.is_empty() || meant(field)))
}

/// The number a value was meant as.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => text.trim().parse::<f64>().ok(),
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        other => other.as_f64(),
    }
}

/// Mends fields that say nothing of which requests a route is for, since they may be what is wrong.
fn repair_empty_matches(kept: &mut Map<String, Value>) {
    if !kept.get("name").is_some_and(Value::is_string) {
        kept.remove("name");
    }
    if !kept.get("create_time").is_some_and(Value::is_i64) {
        kept.remove("create_time");
    }
    if let Some(priority) = kept.remove("priority").as_ref().and_then(number) {
        kept.insert("priority".into(), Value::from(priority as i64));
    }
    kept.remove("status");
}

/// Whether two texts say the same of a route, but for what its upstream says and what is only for people.
fn differ_only_in_upstream(before: &str, now: &str) -> bool {
    let essence = |json: &str| {
        let mut written: Map<String, Value> = serde_json::from_str(json).ok()?;
        for field in ["upstream", "create_time", "update_time", "name", "desc", "labels"] {
            written.remove(field);
        }
        Some(written)
    };
    before == now || essence(before).is_some_and(|before| Some(before) == essence(now))
}

impl Compiler {
    pub(super) fn stage_route(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let mut written: config::RouteSpec = decode(json).map_err(|error| vec![invalid(name, error)])?;
        let matching = matching(&written)
            .map_err(|(path, message)| vec![Problem::error(name.to_string(), path, message)])?;
        if written.script.is_some() || written.script_id.is_some() {
            return Err(vec![Problem::error(name.to_string(), "script", "Lua scripts are not supported")]);
        }
        let built = self.build_plugins(name, written.plugins.take(), PluginOwner::Traffic);
        if built.failed {
            return Err(built.problems);
        }
        let goes = self.stage_goes(name, written.upstream.take(), written.upstream_id.take())?;
        self.unroute(name);
        let mut held = self.held_route(name, &written, matching, built.entries.into(), goes);
        self.keep_lifetime(name, json, &mut held);
        for on in held_refs(&held) {
            self.dependents.add(on, name);
        }
        self.add_uses(name, held.own.iter());
        let mut problems = built.problems;
        problems.extend(held.route.matching.uris.iter().filter_map(|uri| literal_star(name, uri)));
        self.routes.insert(name.id.clone(), Box::new(held));
        Ok(problems)
    }

    fn held_route(
        &self,
        name: &ObjectName,
        written: &config::RouteSpec,
        matching: RouteMatching,
        own: Box<[PluginEntry]>,
        goes: StagedTarget,
    ) -> StagedRoute {
        let service = written.service_id.as_ref().map(|id| id.0.clone());
        let info = RouteInfo {
            id: Box::from(&*name.id),
            name: written.name.as_deref().unwrap_or("").into(),
            service_id: service.as_deref().unwrap_or("").into(),
            service_name: Box::default(),
        };
        let route = Route {
            info,
            target: RouteTarget::None,
            chain: self.empty_chain.clone(),
            enable_websocket: false,
            skips_global_rules: written.skip_global_rules,
            timeouts: written.timeout.as_ref().map(upstream::timeouts).map(Box::new),
            on_change: written.on_change.map(upstream::on_change),
            life: Arc::default(),
            matching,
        };
        StagedRoute {
            hosts: route.matching.hosts.clone(),
            route: Arc::new(route),
            own,
            service,
            plugin_config: written.plugin_config_id.as_ref().map(|id| id.0.clone()),
            goes,
            enable_websocket: written.enable_websocket,
            enabled: written.status != 0,
            routed: false,
            broken: false,
        }
    }

    /// Where an object sends requests; its own upstream is placed. The last step that can fail.
    pub(super) fn stage_goes(
        &mut self,
        name: &ObjectName,
        inline: Option<config::UpstreamSpec>,
        id: Option<config::ResourceId>,
    ) -> Result<StagedTarget, Vec<Problem>> {
        if let Some(id) = id {
            self.remove_upstream(name);
            return Ok(StagedTarget::Named(id.0));
        }
        match inline {
            Some(written) => self
                .place_upstream(name, &written, "upstream")
                .map(StagedTarget::Inline)
                .map_err(|problem| vec![problem]),
            None => {
                self.remove_upstream(name);
                Ok(StagedTarget::None)
            }
        }
    }

    /// Lets a new broken route match and refuse, if what it matches can be understood.
    pub(super) fn salvage_route(&mut self, name: &ObjectName, json: &str, defects: &[ResourceDefect]) {
        let Some(held) = self.refusing_route(name, json, defects) else {
            match self.lacks_guard(name.kind, json) {
                true => self.close_route(name),
                false => self.remove_route(name),
            }
            return;
        };
        self.remove_route(name);
        for on in held_refs(&held) {
            self.dependents.add(on, name);
        }
        self.routes.insert(name.id.clone(), Box::new(held));
    }

    /// A route that refuses the requests that a broken text matches; none where that cannot be told.
    fn refusing_route(
        &self,
        name: &ObjectName,
        json: &str,
        defects: &[ResourceDefect],
    ) -> Option<StagedRoute> {
        let mut kept = matched_by(name.kind, json, &MATCHING_FIELDS, defects)?;
        repair_empty_matches(&mut kept);
        kept.insert("plugins".into(), Value::Object(Map::new()));
        let written: config::RouteSpec = config::decode_value(Value::Object(kept)).ok()?;
        let matching = matching(&written).ok()?;
        let held = self.held_route(name, &written, matching, Box::default(), StagedTarget::None);
        Some(StagedRoute { broken: true, ..held })
    }

    /// Lets a route, if it is in force, refuse the requests that it has matched so far.
    fn close_route(&mut self, name: &ObjectName) {
        self.unroute(name);
        self.remove_upstream(name);
        let Some(held) = self.routes.get_mut(&name.id) else { return };
        held.route.life.end();
        held.broken = true;
        held.own = Box::default();
        held.goes = StagedTarget::None;
        let on: Vec<ObjectName> = held_refs(held).collect();
        for on in on {
            self.dependents.add(on, name);
        }
    }

    /// Takes a route out of the router and the index, leaving what is held of it.
    fn unroute(&mut self, name: &ObjectName) {
        let Some(held) = self.routes.get_mut(&name.id) else { return };
        if std::mem::take(&mut held.routed) {
            self.router.remove(&held.route);
        }
        let refs: Vec<ObjectName> = held_refs(held).chain(uses(held.own.iter())).collect();
        for on in refs {
            self.dependents.remove(on, name);
        }
    }

    /// A route that says the same as before is the same to its tunnels, wherever its upstream goes now. Asked of
    /// every route that is written anew: which of its upstreams, also those of plugins, ties tunnels to it is not
    /// known here.
    fn keep_lifetime(&self, name: &ObjectName, json: &str, held: &mut StagedRoute) {
        let Some(before) = self.routes.get(&name.id) else { return };
        let is_same = self.good_text(name).is_some_and(|text| differ_only_in_upstream(&text, json));
        match (is_same, Arc::get_mut(&mut held.route)) {
            (true, Some(route)) => route.life = before.route.life.clone(),
            _ => before.route.life.end(),
        }
    }

    pub(super) fn remove_route(&mut self, name: &ObjectName) {
        self.unroute(name);
        if let Some(held) = self.routes.remove(&name.id) {
            held.route.life.end();
        }
        self.remove_upstream(name);
    }

    /// Gives a route what its service, plugin config and upstream say now, and routes it.
    pub(super) fn link_route(&mut self, name: &ObjectName) -> Vec<Problem> {
        let Some(mut held) = self.routes.remove(&name.id) else { return Vec::new() };
        let mut problems = Vec::new();
        let service = held.service.as_ref().and_then(|id| self.services.get(id));
        let config = held.plugin_config.as_ref().and_then(|id| self.plugin_configs.get(id));
        let target = self.target(name, &held, service, &mut problems);
        let chain = match target {
            RouteTarget::Refuse { .. } => self.empty_chain.clone(),
            _ => plugins::chain(&held.own, config, service.map(|one| &one.plugins), &self.empty_chain),
        };
        let enable_websocket =
            held.enable_websocket.or(service.and_then(|one| one.enable_websocket)).unwrap_or(false);
        let hosts = match service {
            Some(service) if held.hosts.is_empty() => service.hosts.clone(),
            _ => held.hosts.clone(),
        };
        let old = &held.route;
        let service_name = service.map(|one| one.name.clone()).unwrap_or_default();
        let route = Route {
            info: RouteInfo { service_name, ..old.info.clone() },
            matching: RouteMatching { hosts, ..old.matching.clone() },
            target,
            chain,
            enable_websocket,
            skips_global_rules: old.skips_global_rules,
            timeouts: old.timeouts.clone(),
            on_change: old.on_change,
            life: old.life.clone(),
        };
        if std::mem::take(&mut held.routed) {
            self.router.remove(&held.route);
        }
        held.route = Arc::new(route);
        if held.enabled {
            self.router.insert(&held.route);
            held.routed = true;
        }
        self.routes.insert(name.id.clone(), held);
        problems
    }

    fn target(
        &self,
        name: &ObjectName,
        held: &StagedRoute,
        service: Option<&StagedService>,
        problems: &mut Vec<Problem>,
    ) -> RouteTarget {
        let refuse = |status, message: &str| RouteTarget::Refuse { status, message: message.into() };
        let mut missing = |path: &str, what: &str, id: &str| {
            let problem =
                Problem::error(name.to_string(), path, format!("{what} {id} does not exist or is broken"));
            problems.push(problem.hint(format!("create or fix the {what}; the route then becomes active")));
        };
        if held.broken {
            return refuse(503, "the route is misconfigured");
        }
        if let Some(id) = held.service.as_ref().filter(|_| service.is_none()) {
            missing("service_id", "service", id);
            return refuse(404, "404 Route Not Found");
        }
        if let Some(id) = held.plugin_config.as_ref().filter(|id| !self.plugin_configs.contains_key(*id)) {
            missing("plugin_config_id", "plugin config", id);
            return refuse(503, "the route's plugin config is missing");
        }
        let goes = match (&held.goes, service) {
            (StagedTarget::None, Some(service)) => &service.goes,
            (own, _) => own,
        };
        match goes {
            StagedTarget::None => RouteTarget::None,
            StagedTarget::Inline(slot) => RouteTarget::Upstream(*slot),
            StagedTarget::Named(id) => match self.slots.get(&ObjectName::new(Kind::Upstreams, id.clone())) {
                Some(slot) => RouteTarget::Upstream(UpstreamSlotId(*slot)),
                None => {
                    missing("upstream_id", "upstream", id);
                    refuse(503, "the route's upstream is missing")
                }
            },
        }
    }

    pub(super) fn stage_service(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let mut written: config::ServiceSpec = decode(json).map_err(|error| vec![invalid(name, error)])?;
        if written.script.is_some() {
            return Err(vec![Problem::error(name.to_string(), "script", "Lua scripts are not supported")]);
        }
        let built = self.build_plugins(name, written.plugins.take(), PluginOwner::Traffic);
        if built.failed {
            return Err(built.problems);
        }
        let untold = upstream::untold(name, "upstream.proxy_protocol", written.upstream.as_ref());
        let goes = self.stage_goes(name, written.upstream.take(), written.upstream_id.take())?;
        self.unlink_service(name);
        if let StagedTarget::Named(id) = &goes {
            self.dependents.add(ObjectName::new(Kind::Upstreams, id.clone()), name);
        }
        self.add_uses(name, built.entries.iter());
        let held = StagedService {
            name: written.name.unwrap_or_default().into(),
            hosts: lower(written.hosts.iter().flatten()),
            plugins: PluginSet::new(built.entries.into(), &self.empty_chain),
            goes,
            enable_websocket: written.enable_websocket,
        };
        self.services.insert(name.id.clone(), held);
        Ok(built.problems.into_iter().chain(untold).collect())
    }

    fn unlink_service(&mut self, name: &ObjectName) {
        let Some(held) = self.services.remove(&name.id) else { return };
        if let StagedTarget::Named(id) = held.goes {
            self.dependents.remove(ObjectName::new(Kind::Upstreams, id), name);
        }
        self.remove_uses(name, held.plugins.entries.iter());
    }

    pub(super) fn remove_service(&mut self, name: &ObjectName) {
        self.unlink_service(name);
        self.remove_upstream(name);
    }

    /// Stages an object that is nothing but plugins: a plugin config, consumer group or global rule.
    pub(super) fn stage_set(&mut self, name: &ObjectName, written: config::Plugins) -> StageResult {
        let built = self.build_plugins(name, Some(written), PluginOwner::Traffic);
        if built.failed {
            return Err(built.problems);
        }
        self.remove_set(name);
        self.add_uses(name, built.entries.iter());
        let set = PluginSet::new(built.entries.into(), &self.empty_chain);
        if let Some(sets) = self.sets(name.kind) {
            sets.insert(name.id.clone(), set);
        }
        Ok(built.problems)
    }

    pub(super) fn remove_set(&mut self, name: &ObjectName) {
        let gone = self.sets(name.kind).and_then(|sets| sets.remove(&name.id));
        if let Some(gone) = gone {
            self.remove_uses(name, gone.entries.iter());
        }
    }

    pub(super) fn add_uses<'e>(&mut self, name: &ObjectName, entries: impl Iterator<Item = &'e PluginEntry>) {
        for plugin in uses(entries) {
            self.dependents.add(plugin, name);
        }
    }

    pub(super) fn remove_uses<'e>(
        &mut self,
        name: &ObjectName,
        entries: impl Iterator<Item = &'e PluginEntry>,
    ) {
        for plugin in uses(entries) {
            self.dependents.remove(plugin, name);
        }
    }
}

/// The objects a route names.
fn held_refs(held: &StagedRoute) -> impl Iterator<Item = ObjectName> {
    let upstream = match &held.goes {
        StagedTarget::Named(id) => Some(ObjectName::new(Kind::Upstreams, id.clone())),
        _ => None,
    };
    let service = held.service.clone().map(|id| ObjectName::new(Kind::Services, id));
    let config = held.plugin_config.clone().map(|id| ObjectName::new(Kind::PluginConfigs, id));
    [upstream, service, config].into_iter().flatten()
}

/// The metadata objects that plugins look at.
pub(super) fn uses<'e>(entries: impl Iterator<Item = &'e PluginEntry>) -> impl Iterator<Item = ObjectName> {
    entries.map(|entry| ObjectName::new(Kind::PluginMetadata, entry.name()))
}

/// Whether any of these puts its object into quarantine.
pub(super) fn any_error(problems: &[Problem]) -> bool {
    problems.iter().any(|problem| problem.level == ProblemLevel::Error)
}

#[cfg(test)]
mod tests;
