//! Routes: staged from text, then linked to service, plugin config and upstream.

use std::sync::Arc;

use serde_json::{Map, Value};
use yumen_base::{IpSet, Problem};
use yumen_config::resource as config;
use yumen_config::resource::ResourceDefect;
use yumen_config::{InvalidSettings, Kind, closest, decode};
use yumen_plugin::{ConditionExpr, Method, RouteInfo};

use super::names::ObjectName;
use super::plugin_settings::PluginOwner;
use super::plugins::{self, PluginEntry, metadata_of};
use super::route_match::CompiledMatch;
use super::service::StagedService;
use super::target::StagedTarget;
use super::validate::ObjectError;
use super::{Compiler, StageResult, invalid, never_run, scope, suspicious_values, target, upstream};
use crate::route::{
    ForwardingRules, PathForm, Route, RouteFilters, RouteMatching, RouteTarget, ScopeIds, SessionRules,
    StatusRetry,
};

/// The parts of a route that linking combines with those of other objects.
#[derive(Debug)]
pub(super) struct StagedRoute {
    /// The hosts of the text. Those of the service replace an empty list.
    hosts: Arc<[Box<str>]>,
    own: Box<[PluginEntry]>,
    service: Option<Arc<str>>,
    plugin_config: Option<Arc<str>>,
    target: StagedTarget,
    enable_websocket: Option<bool>,
    scopes: Option<Arc<ScopeIds>>,
    /// `status` of the text.
    is_enabled: bool,
    /// Whether only the matching part of the text is valid. Such a route refuses its requests.
    pub(super) is_broken: bool,
}

impl StagedRoute {
    fn new(
        written: &config::RouteSpec,
        hosts: Arc<[Box<str>]>,
        own: Box<[PluginEntry]>,
        target: StagedTarget,
    ) -> StagedRoute {
        StagedRoute {
            hosts,
            own,
            service: written.service_id.as_ref().map(|id| id.0.clone()),
            plugin_config: written.plugin_config_id.as_ref().map(|id| id.0.clone()),
            target,
            enable_websocket: written.enable_websocket,
            scopes: ScopeIds::of(written.scopes.as_deref()),
            is_enabled: written.status != 0,
            is_broken: false,
        }
    }

    /// The objects that the route depends on.
    fn references(&self) -> impl Iterator<Item = ObjectName> {
        let service = self.service.clone().map(|id| ObjectName::new(Kind::Services, id));
        let config = self.plugin_config.clone().map(|id| ObjectName::new(Kind::PluginConfigs, id));
        let named = self.target.references().chain(service).chain(config);
        named.chain(metadata_of(&self.own)).chain(scope::references(&self.scopes))
    }
}

pub(super) fn lower_case(hosts: impl Iterator<Item = impl AsRef<str>>) -> Arc<[Box<str>]> {
    hosts.map(|host| host.as_ref().to_ascii_lowercase().into()).collect()
}

fn matching(written: &config::RouteSpec) -> Result<RouteMatching, InvalidSettings> {
    // Refused instead of ignored: without its condition the route would take requests of others.
    if written.filter_func.is_some() {
        return Err(InvalidSettings::at("filter_func", "Lua functions are not supported"));
    }
    let filters = conditions(written).map_err(|error| match error {
        ConditionError::Vars(message) => operator_hint(InvalidSettings::at("vars", message)),
        ConditionError::Address(at) => {
            let found = written.remote_addrs().iter().nth(at).unwrap_or_default();
            let path = match &written.remote_addr {
                Some(_) => "remote_addr".to_owned(),
                None => format!("remote_addrs[{at}]"),
            };
            InvalidSettings::at(path, format!("\"{found}\" is neither an address nor a network"))
                .hint("write an address or a network, as in \"10.1.2.3\" or \"10.0.0.0/8\"")
        }
    })?;
    let CompiledMatch { paths, pattern, conditions } = CompiledMatch::of(written)?;
    let filters = match pattern.is_some() || conditions.is_some() {
        true => {
            let base = filters.map(Arc::unwrap_or_clone).unwrap_or_default();
            Some(Arc::new(RouteFilters { path: pattern.map(Box::new), matches: conditions, ..base }))
        }
        false => filters,
    };
    let (uris, path_form) = match paths {
        Some((uris, form)) => (uris.into(), form),
        None => (written.uris().iter().map(Box::from).collect(), PathForm::Patterns),
    };
    let methods = written.methods.iter().flatten();
    Ok(RouteMatching {
        uris,
        path_form,
        hosts: lower_case(written.hosts().iter()),
        // The router sorts by 32 bits; a larger number in the text has the same effect as the bound.
        priority: written.priority.clamp(i32::MIN.into(), i32::MAX.into()) as i32,
        // Objects from files have no time; they compare equal and the id decides.
        created: written.create_time.map_or(0, |at| at.max(0) as u64),
        methods: methods.fold(0, |bits, method| bits | Method::of(method.as_str().as_bytes()).bit()),
        filters,
    })
}

/// The refusal with a hint, if it is about an operator.
fn operator_hint(refused: InvalidSettings) -> InvalidSettings {
    match refused.message.contains("invalid operator") {
        true => {
            let operators = ConditionExpr::OPERATORS.join(" ");
            refused.hint(format!("the operators are {operators}; a \"!\" before one negates it"))
        }
        false => refused,
    }
}

/// All faults in the conditions of a route. `members` are those members of the object that the schema accepts.
pub(super) fn faults_of_conditions(members: &Map<String, Value>) -> Vec<InvalidSettings> {
    let conditions = ["vars", "remote_addr", "remote_addrs", "match", "filter_func"];
    // The rest of the object may be invalid, so the conditions are checked in a minimal route.
    let mut route =
        Map::from_iter([("uri".into(), "/*".into()), ("plugins".into(), Value::Object(Map::new()))]);
    route.extend(conditions.iter().filter_map(|field| {
        let value = members.get(*field)?;
        Some(((*field).to_owned(), value.clone()))
    }));
    let mut faults = Vec::new();
    // Each round finds the first fault and removes its member, so the loop ends.
    while let Ok(written) = config::decode_value::<config::RouteSpec>(Value::Object(route.clone())) {
        let Err(fault) = matching(&written) else { break };
        let member = fault.path.split(['[', '.']).next().unwrap_or_default();
        if route.remove(member).is_none() {
            break;
        }
        faults.push(fault);
    }
    faults
}

/// The reason for which the conditions of a route are refused.
pub(super) enum ConditionError {
    /// `vars` is no condition.
    Vars(String),
    /// A client address is invalid; counts the addresses of the route from 0.
    Address(usize),
}

impl From<ConditionError> for ObjectError {
    fn from(error: ConditionError) -> ObjectError {
        match error {
            ConditionError::Vars(message) => ObjectError::Vars(message),
            ConditionError::Address(at) => ObjectError::Address(at),
        }
    }
}

/// The conditions of a route beside path, host and method.
pub(super) fn conditions(written: &config::RouteSpec) -> Result<Option<Arc<RouteFilters>>, ConditionError> {
    for (at, one) in written.remote_addrs().iter().enumerate() {
        IpSet::parse([one]).map_err(|_| ConditionError::Address(at))?;
    }
    let remote_addrs = IpSet::parse(written.remote_addrs().iter()).map_err(|_| ConditionError::Address(0))?;
    let vars = match written.vars.as_deref() {
        None | Some([]) => None,
        Some(vars) => Some(ConditionExpr::parse(&Value::Array(vars.to_vec())).map_err(ConditionError::Vars)?),
    };
    Ok((!remote_addrs.is_empty() || vars.is_some())
        .then(|| Arc::new(RouteFilters { remote_addrs, vars, ..RouteFilters::default() })))
}

/// The fields that a broken route is matched by.
const MATCHING_FIELDS: [&str; 16] = [
    "uri",
    "uris",
    "host",
    "hosts",
    "remote_addr",
    "remote_addrs",
    "methods",
    "priority",
    "vars",
    "match",
    "filter_func",
    "status",
    "name",
    "create_time",
    "scopes",
    // A route without hosts has those of its service.
    "service_id",
];

/// The fields among them that do not decide which requests a route matches.
const NOT_MATCHING: [&str; 4] = ["priority", "status", "name", "create_time"];

/// The matching part of a broken object; `None` if a defect may be in that part.
pub(super) fn matched_by(
    kind: Kind,
    json: &str,
    matching: &[&str],
    defects: &[ResourceDefect],
) -> Option<Map<String, Value>> {
    let mut written: Value = serde_json::from_str(json).ok()?;
    drop(config::take_defects(&mut written));
    let Value::Object(mut written) = written else { return None };
    // A defect of the whole object, such as a missing brace, may hide a matching field.
    if defects.iter().any(|defect| defect.path.is_empty()) {
        return None;
    }
    // The service does not matter to a route with hosts of its own.
    let is_set = |value: &Value| value.as_array().is_none_or(|items| !items.is_empty());
    let has_hosts = ["host", "hosts"].iter().any(|field| written.get(*field).is_some_and(is_set));
    let fields = matching.iter().copied().filter(|field| !has_hosts || *field != "service_id");
    let matching: &[&str] = &fields.collect::<Vec<_>>();
    let is_defective = |field: &str| defects.iter().any(|defect| defect.is_within(field));
    if matching.iter().any(|field| !NOT_MATCHING.contains(field) && is_defective(field)) {
        return None;
    }
    let matched: Map<String, Value> = matching
        .iter()
        .filter_map(|field| written.remove(*field).map(|value| ((*field).to_owned(), value)))
        .collect();
    (!may_narrow(kind, &matched, &written, matching)).then_some(matched)
}

/// Whether an unknown field may be a misspelt matching field, such as `hsots`. Without its restriction the broken route
/// would refuse requests of other routes.
fn may_narrow(
    kind: Kind,
    matched: &Map<String, Value>,
    rest: &Map<String, Value>,
    matching: &[&str],
) -> bool {
    let known = &config::schema_of(kind)["properties"];
    // The suggestion of misspelt fields applies the same distance, so both agree on a likely misspelling.
    let resembles = |field: &str| closest(field, matching.iter().copied()).is_some();
    // Without any matching field, every unknown field may be the one that was meant.
    rest.keys().any(|field| known.get(field).is_none() && (matched.is_empty() || resembles(field)))
}

/// The number that a value stands for, such as the text `"0"`.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        // `status: "0"` is of the wrong type, but its meaning is certain.
        Value::String(text) => text.trim().parse::<f64>().ok(),
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        other => other.as_f64(),
    }
}

/// Repairs or removes the fields of [`NOT_MATCHING`], which may be the defective ones.
fn repair_other_fields(matched: &mut Map<String, Value>) {
    if !matched.get("name").is_some_and(Value::is_string) {
        matched.remove("name");
    }
    if !matched.get("create_time").is_some_and(Value::is_i64) {
        matched.remove("create_time");
    }
    // A priority in a text form still orders the routes.
    if let Some(priority) = matched.remove("priority").as_ref().and_then(number) {
        matched.insert("priority".into(), Value::from(priority as i64));
    }
    // A disabled object never comes here, and another status does not change the matching.
    matched.remove("status");
}

/// Whether two texts of a route differ at most in the upstream and in descriptive fields.
fn differ_only_in_upstream(previous: &str, current: &str) -> bool {
    let essence = |json: &str| {
        let mut written: Map<String, Value> = serde_json::from_str(json).ok()?;
        // Descriptive fields and timestamps change with every write by the Admin API.
        for field in ["upstream", "backends", "create_time", "update_time", "name", "desc", "labels"] {
            written.remove(field);
        }
        Some(written)
    };
    // Equal texts need no parsing.
    previous == current || essence(previous).is_some_and(|previous| Some(previous) == essence(current))
}

/// The rules of forwarding of a route, if it has any.
fn forwarding(written: &config::RouteSpec) -> Option<ForwardingRules> {
    let retry = written.retry.as_ref().map(|retry| StatusRetry {
        statuses: retry.statuses.as_slice().into(),
        attempts: retry.attempts,
        backoff_ms: retry.backoff_ms,
        backoff_ms_max: match retry.backoff_ms_max {
            0 => retry.backoff_ms * 10,
            bound => bound,
        },
    });
    let session = written.session.as_ref().map(|session| Arc::new(SessionRules { written: session.clone() }));
    (retry.is_some() || session.is_some()).then_some(ForwardingRules { retry, session })
}

impl Compiler {
    pub(super) fn stage_route(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let mut written: config::RouteSpec = decode(json).map_err(|error| vec![invalid(name, error)])?;
        let matching = matching(&written).map_err(|error| vec![invalid(name, error)])?;
        if written.script.is_some() || written.script_id.is_some() {
            return Err(vec![Problem::error(name.to_string(), "script", "Lua scripts are not supported")]);
        }
        // Everything that can fail comes before `unroute`: a refused text must leave the version in force untouched.
        let mut built = self.plugin_builder().build(name, written.plugins.take(), PluginOwner::Traffic);
        self.plugin_builder().build_actions(name, written.actions.as_ref(), &mut built);
        if built.failed {
            return Err(built.problems);
        }
        let unserved = upstream::unserved_scheme(name, "upstream.scheme", written.upstream.as_ref());
        let backends = written.backends.as_deref().map(target::backends).transpose();
        let backends = backends.map_err(|error| vec![invalid(name, error)])?;
        // Last of the fallible steps, since it puts the upstream into its slot.
        let mut problems = built.problems;
        problems.extend(suspicious_values::of_target(
            name,
            written.upstream.as_ref(),
            written.upstream_id.is_some(),
        ));
        let target =
            self.stage_target(name, written.upstream.take(), written.upstream_id.take(), backends)?;
        // The references of the previous version are removed before those of the new one are added; they may be equal.
        self.unroute(name);
        let mut route = self.new_route(name, &written, matching);
        // Compares with the text in force, so it must run before the new text is stored.
        self.keep_lifetime(name, json, &mut route);
        problems.extend(unserved);
        problems.extend(suspicious_values::of_route(name, &written, self.context.env.path_parameters));
        let hosts = route.matching.hosts.clone();
        self.insert_route(name, route, StagedRoute::new(&written, hosts, built.entries.into(), target));
        Ok(problems)
    }

    /// The compiled form of a route before it is linked.
    fn new_route(&self, name: &ObjectName, written: &config::RouteSpec, matching: RouteMatching) -> Route {
        let info = RouteInfo {
            id: Box::from(&*name.id),
            name: written.name.as_deref().unwrap_or("").into(),
            service_id: written.service_id.as_ref().map(|id| Box::from(id.as_str())).unwrap_or_default(),
            ..RouteInfo::default()
        };
        Route {
            info,
            target: RouteTarget::None,
            // Linking fills in target, chain and hosts.
            chain: self.context.empty_chain.clone(),
            enable_websocket: false,
            skips_global_rules: written.skip_global_rules,
            timeouts: written.timeout.as_ref().map(upstream::timeouts).map(Box::new),
            forwarding: forwarding(written).map(Box::new),
            on_change: written.on_change.map(upstream::on_change),
            life: Arc::default(),
            scopes: ScopeIds::of(written.scopes.as_deref()),
            matching,
        }
    }

    fn insert_route(&mut self, name: &ObjectName, route: Route, staged: StagedRoute) {
        self.references.add_all(staged.references(), name);
        self.routes.insert(name.id.clone(), route, staged);
    }

    /// Has a broken route refuse the requests that it matches, if its matching part is valid.
    pub(super) fn salvage_route(&mut self, name: &ObjectName, json: &str, defects: &[ResourceDefect]) {
        let Some(RefusingRoute { written, matching }) = refusing_route(name, json, defects) else {
            // A route whose text names a guard that cannot be built closes (decision 50); other broken routes without a certain match are removed.
            match self.context.closes_broken(name.kind) || self.context.lacks_guard(name.kind, json, None) {
                true => self.close_route(name),
                false => self.remove_route(name),
            }
            return;
        };
        self.remove_route(name);
        let route = self.new_route(name, &written, matching);
        let hosts = route.matching.hosts.clone();
        let staged = StagedRoute::new(&written, hosts, Box::default(), StagedTarget::None);
        self.insert_route(name, route, StagedRoute { is_broken: true, ..staged });
    }

    /// Has a route in force refuse the requests that it has matched so far.
    fn close_route(&mut self, name: &ObjectName) {
        self.unroute(name);
        self.remove_upstream(name);
        if let Some(object) = self.routes.get(&name.id) {
            // Tunnels of the route must not outlive its access rules.
            object.route().life.end();
        }
        let Some(staged) = self.routes.unroute(&name.id) else { return };
        staged.is_broken = true;
        // The refusal needs neither plugins nor upstream.
        staged.own = Box::default();
        staged.target = StagedTarget::None;
        self.references.add_all(staged.references(), name);
    }

    /// Takes a route out of the router and removes its references. The staged form stays.
    fn unroute(&mut self, name: &ObjectName) {
        let Some(staged) = self.routes.unroute(&name.id) else { return };
        self.references.remove_all(staged.references(), name);
    }

    /// Passes the lifetime of the previous version on if only the upstream changed: tunnels of the route go on then.
    /// Otherwise it ends. Routes without an upstream are included, because plugins may choose one.
    fn keep_lifetime(&self, name: &ObjectName, json: &str, route: &mut Route) {
        let Some(previous) = self.routes.get(&name.id) else { return };
        let is_same = self.texts.in_force(name).is_some_and(|text| differ_only_in_upstream(text, json));
        match is_same {
            true => route.life = previous.route().life.clone(),
            false => previous.route().life.end(),
        }
    }

    pub(super) fn remove_route(&mut self, name: &ObjectName) {
        self.unroute(name);
        if let Some(removed) = self.routes.remove(&name.id) {
            removed.route().life.end();
        }
        self.remove_upstream(name);
    }

    /// Combines a route with its service, plugin config and upstream, and routes it.
    pub(super) fn link_route(&mut self, name: &ObjectName) -> Vec<Problem> {
        // An object may be queued and then removed within one change.
        let Some(object) = self.routes.get(&name.id) else { return Vec::new() };
        let (staged, previous) = (&object.staged, object.route());
        let mut problems = Vec::new();
        let service = staged.service.as_ref().and_then(|id| self.staged.services.get(id));
        let config = staged.plugin_config.as_ref().and_then(|id| self.staged.plugin_configs.get(id));
        let keeps_sessions = previous.forwarding.as_ref().is_some_and(|rules| rules.session.is_some());
        let target = self.target(name, staged, service, keeps_sessions, &mut problems);
        let empty_chain = &self.context.empty_chain;
        let chain = match target {
            // A refused request must not run plugins: a mocking plugin would answer it, a limit would count it.
            RouteTarget::Refuse { .. } => empty_chain.clone(),
            _ => plugins::chain(&staged.own, config, service.map(|one| &one.plugins), empty_chain),
        };
        // The plugins of one object are examined once, with that object.
        if service.is_some() || config.is_some() {
            problems.extend(never_run::across(name, &chain));
        }
        let enable_websocket =
            staged.enable_websocket.or(service.and_then(|one| one.enable_websocket)).unwrap_or(false);
        let hosts = match service {
            // As in APISIX, hosts of the route replace those of the service.
            Some(service) if staged.hosts.is_empty() => service.hosts.clone(),
            _ => staged.hosts.clone(),
        };
        let service_name = service.map(|one| one.name.clone()).unwrap_or_default();
        let service_written = staged
            .service
            .clone()
            .and_then(|id| self.texts.in_force(&ObjectName::new(Kind::Services, id)).cloned());
        let route = Route {
            info: RouteInfo {
                service_name,
                written: self.texts.in_force(name).cloned(),
                service_written,
                ..previous.info.clone()
            },
            matching: RouteMatching { hosts, ..previous.matching.clone() },
            target,
            chain,
            enable_websocket,
            skips_global_rules: previous.skips_global_rules,
            timeouts: previous.timeouts.clone(),
            forwarding: previous.forwarding.clone(),
            on_change: previous.on_change,
            life: previous.life.clone(),
            scopes: previous.scopes.clone(),
        };
        let is_enabled = staged.is_enabled;
        self.routes.link(&name.id, route, is_enabled);
        problems
    }

    fn target(
        &self,
        name: &ObjectName,
        staged: &StagedRoute,
        service: Option<&StagedService>,
        keeps_sessions: bool,
        problems: &mut Vec<Problem>,
    ) -> RouteTarget {
        let refuse = |status, message: &str| RouteTarget::Refuse { status, message: message.into() };
        let mut missing = |path: &str, what: &str, id: &str| {
            let problem =
                Problem::error(name.to_string(), path, format!("{what} {id} does not exist or is broken"));
            let meant = self.meant_id(what, id);
            problems.push(
                problem.hint(format!("{meant}create or fix the {what}; the route then becomes active")),
            );
        };
        // First: a broken route must not report its references as well.
        if staged.is_broken {
            return refuse(503, "the route is misconfigured");
        }
        if let Some(id) = staged.service.as_ref().filter(|_| service.is_none()) {
            missing("service_id", "service", id);
            // The status of APISIX for a route whose service cannot be found.
            return refuse(404, "404 Route Not Found");
        }
        let plugin_configs = &self.staged.plugin_configs;
        if let Some(id) = staged.plugin_config.as_ref().filter(|id| !plugin_configs.contains_key(*id)) {
            missing("plugin_config_id", "plugin config", id);
            // Plugins of the missing config may guard, so the route must not serve without them (decision 3).
            return refuse(503, "the route's plugin config is missing");
        }
        // The upstream of the route takes precedence over that of its service, as in APISIX.
        let target = match (&staged.target, service) {
            (StagedTarget::None, Some(service)) => &service.target,
            (own, _) => own,
        };
        match target {
            StagedTarget::None => RouteTarget::None,
            StagedTarget::Inline(slot) => RouteTarget::Upstream(*slot),
            StagedTarget::Weighted(backends) => self.weighted_target(backends, keeps_sessions, |at, id| {
                missing(&format!("backends[{at}].upstream_id"), "upstream", id);
            }),
            StagedTarget::Named(id) => {
                match self.upstreams.slot_of(&ObjectName::new(Kind::Upstreams, id.clone())) {
                    Some(slot) => RouteTarget::Upstream(slot),
                    None => {
                        missing("upstream_id", "upstream", id);
                        refuse(503, "the route's upstream is missing")
                    }
                }
            }
        }
    }
}

/// The matching part of a broken route.
struct RefusingRoute {
    written: config::RouteSpec,
    matching: RouteMatching,
}

/// The requests that a broken text matches; `None` if that is uncertain.
fn refusing_route(name: &ObjectName, json: &str, defects: &[ResourceDefect]) -> Option<RefusingRoute> {
    let mut matched = matched_by(name.kind, json, &MATCHING_FIELDS, defects)?;
    repair_other_fields(&mut matched);
    // The schema requires something to do.
    matched.insert("plugins".into(), Value::Object(Map::new()));
    let written: config::RouteSpec = config::decode_value(Value::Object(matched)).ok()?;
    // Conditions that do not compile leave the match uncertain: refusing would hit requests of other routes.
    let matching = matching(&written).ok()?;
    Some(RefusingRoute { written, matching })
}

#[cfg(test)]
mod tests;
