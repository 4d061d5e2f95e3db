//! Kong's routes: their conditions, placement and path rewriting.

mod limits;
mod matching;

use serde_json::{Map, Value, json};
use yumen_config::{Kind, Resource};

use super::document::KongDocument;
use super::entity::KongEntity;
use super::expression;
use super::ids::IdAllocator;
use super::paths::{KongPath, PathHandling, PathMapping};
use super::plugins::{self, PluginTranslator};
use super::precedence::{self, KongPathCandidate, PathPlacement};
use super::protocols::is_stream_protocol;
use super::scopes::PluginUses;
use super::services::{HostPreservation, KongService, KongServices};
use super::streams;
use crate::report::{ImportReport, dropped};
use limits::{LimitName, SharedLimits};
use matching::KongRouteMatch;
pub(super) use matching::unset_condition;

/// A route under conversion; it may become several routes.
#[derive(Debug)]
struct KongRoute {
    /// Index of the Kong route.
    at: usize,
    purpose: RoutePurpose,
    name: String,
    service: Option<usize>,
    labels: Option<Value>,
    conditions: KongRouteMatch,
    strips_path: bool,
    preserves_host: bool,
    path_handling: PathHandling,
    /// The status of plain requests, if the route is for `https` only.
    https_status: Option<u16>,
}

/// Result of a request that a route matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoutePurpose {
    /// The request is forwarded, or a plugin responds.
    Serve,
    /// The request is refused: a condition cannot be converted, so it may be one that a plugin guards.
    Refuse,
}

/// The result for one Kong route.
#[derive(Default)]
struct ReadRoute {
    /// The route as far as it can be converted.
    served: Option<KongRoute>,
    /// Requests that may belong to the part that cannot be converted.
    uncertain: Option<KongRoute>,
    /// Whether some of that part's requests are not among those of `uncertain`.
    loses_requests: bool,
}

/// One resulting route: the paths of a Kong route with the same placement.
struct RouteGroup {
    placement: PathPlacement,
    paths: Vec<KongPath>,
    condition: Option<Value>,
}

pub(super) fn translate(
    document: &mut KongDocument,
    services: &KongServices,
    uses: &PluginUses,
    translator: &mut PluginTranslator<'_>,
    report: &mut ImportReport,
) -> Vec<Resource> {
    let routes = read_all(document, services, uses, report);
    let mut candidates: Vec<KongPathCandidate> = Vec::new();
    for (at, route) in routes.iter().enumerate() {
        // Precedence depends on all routes of the file, so the places are found together.
        candidates.extend(route.conditions.candidates(at));
    }
    let path_placements = precedence::placement(&candidates);
    let mut path_placements = candidates
        .iter()
        .zip(path_placements)
        .map(|(candidate, placement)| (candidate.route, placement))
        .peekable();
    let mut ids = IdAllocator::of(document.routes.iter().map(|route| &*route.name));
    let mut limits = SharedLimits::default();
    let mut resources = Vec::new();
    for (number, route) in routes.iter().enumerate() {
        let mut placements = Vec::new();
        while let Some((_, placement)) = path_placements.next_if(|(owner, _)| *owner == number) {
            placements.push(placement);
        }
        let groups = groups(&route.conditions, placements);
        // One id per group: the paths of a route may need different priorities.
        let names: Vec<_> = groups.iter().map(|_| ids.allocate(&route.name)).collect();
        if route.purpose == RoutePurpose::Refuse {
            resources.extend(refusals(route, &groups, &names));
            continue;
        }
        let at = route.at;
        let service = route.service.map(|at| &services.all[at]);
        let of_route = uses.of_route(at, route.service);
        let mut plugins = translator.all(&of_route, report);
        let shared = shared_plugins(at, route.service, uses, translator, report);
        let owner = LimitName::of(&of_route, services, names.first(), groups.len());
        let config = owner.and_then(|owner| limits.share(&mut plugins, &shared, &owner));
        for (group, id) in groups.iter().zip(&names) {
            let mut value = resource(route, service, group, &plugins, &shared);
            if let Some(config) = &config {
                value["plugin_config_id"] = json!(config);
            }
            resources.push(Resource::new(Kind::Routes, id, &value));
        }
    }
    resources.extend(limits.resources());
    resources
}

/// Reads all routes, with those that refuse requests in place of a part that cannot be converted.
fn read_all(
    document: &mut KongDocument,
    services: &KongServices,
    uses: &PluginUses,
    report: &mut ImportReport,
) -> Vec<KongRoute> {
    let marks_patterns = document.marks_patterns;
    let mut routes: Vec<KongRoute> = Vec::new();
    for (at, entity) in document.routes.iter_mut().enumerate().filter(|(_, one)| !streams::is_stream(one)) {
        let service = entity.peek("service").and_then(|service| services.index.find(service));
        let is_guarded = uses.guard(at, service);
        let ReadRoute { served, uncertain, loses_requests } =
            read(entity, at, services, marks_patterns, report);
        if is_guarded && uncertain.is_some() {
            let instead = "requests with the prefix that it may match are answered 503";
            report.refuse(dropped(&entity.label, "", instead).why("plugins guard the part that is left out"));
        }
        if is_guarded && loses_requests {
            let instead = "its requests reach other routes, which may be open";
            let line = dropped(&entity.label, "", instead).why("plugins guard the part that is left out");
            report.weaken(line.hint("write its conditions in another way, or guard the other routes"));
        }
        if served.is_none() {
            // The fields of a route that is left out are not reported.
            *entity = KongEntity::default();
        }
        routes.extend(uncertain.filter(|_| is_guarded));
        routes.extend(served);
    }
    routes
}

/// Resources that refuse the requests of a route.
fn refusals(route: &KongRoute, groups: &[RouteGroup], names: &[String]) -> Vec<Resource> {
    let mut plugins = Map::new();
    plugins::close_requests(&mut plugins);
    let refusal = |group| resource(route, None, group, &plugins, &Map::new());
    groups.iter().zip(names).map(|(group, id)| Resource::new(Kind::Routes, id, &refusal(group))).collect()
}

/// The plugins of the service that the route need not repeat. A plugin of the route itself is repeated even if equal,
/// since its counters are separate.
fn shared_plugins(
    route: usize,
    service: Option<usize>,
    uses: &PluginUses,
    translator: &mut PluginTranslator<'_>,
    report: &mut ImportReport,
) -> Map<String, Value> {
    let Some(service) = service else { return Map::new() };
    let of_service = uses.of_service(service);
    let mut shared = translator.all(&of_service, report);
    for one in uses.of_route(route, Some(service)) {
        // By identity: a route may have an equal plugin of its own, whose counters are separate.
        if !of_service.iter().any(|other| std::ptr::eq(*other, one)) {
            let own = translator.all(&[one], report);
            shared.retain(|name, _| !own.contains_key(name));
        }
    }
    shared
}

fn read(
    entity: &mut KongEntity,
    at: usize,
    services: &KongServices,
    marks_patterns: bool,
    report: &mut ImportReport,
) -> ReadRoute {
    let left_out = ReadRoute { loses_requests: true, ..ReadRoute::default() };
    if let Some(field) = matching::unset_condition(entity) {
        let line = dropped(&entity.label, field, "the route is left out");
        let line = line.why("a value is not set, and without it the route would match other requests");
        report.weaken(line.hint("set the variable and import again"));
        return left_out;
    }
    let lacks_value = entity.lacks_any(&["paths", "hosts", "methods", "snis", "sources", "destinations"]);
    if lacks_value {
        let line = dropped(&entity.label, "", "requests for a value that is not set reach other routes");
        report.weaken(line.hint("set the variable and import again"));
    }
    let Some(mut route) = read_route(entity, at, services, marks_patterns, report) else { return left_out };
    let unusable = &route.conditions.unusable;
    let loses_requests = unusable.iter().any(|path| path.literal() == "/");
    let refused = |conditions: KongRouteMatch| KongRoute {
        purpose: RoutePurpose::Refuse,
        service: None,
        labels: None,
        name: route.name.clone(),
        conditions,
        ..route
    };
    if route.purpose == RoutePurpose::Refuse {
        return ReadRoute { uncertain: Some(route), ..ReadRoute::default() };
    }
    let uncertain = route.conditions.of_unusable().map(refused);
    let has_paths = !route.conditions.paths.is_empty() || unusable.is_empty();
    route.conditions.unusable.clear();
    ReadRoute { served: has_paths.then_some(route), uncertain, loses_requests }
}

fn read_route(
    entity: &mut KongEntity,
    at: usize,
    services: &KongServices,
    marks_patterns: bool,
    report: &mut ImportReport,
) -> Option<KongRoute> {
    let label = entity.label.clone();
    let service = match services.index.take(entity, "service") {
        Ok(service) => service,
        Err(found) => {
            report.add(
                dropped(&label, "service", "the route is left out")
                    .why(format!("there is no service {found}")),
            );
            return None;
        }
    };
    // A service of streams has no HTTP upstream.
    if service.is_some_and(|at| services.all[at].is_of_streams) {
        let line = dropped(&label, "service", "the route is left out");
        report.add(line.why("its service is of streams, and the route of requests"));
        return None;
    }
    entity.take("name");
    let protocols = entity.texts("protocols", report);
    let (of_streams, protocols): (Vec<String>, Vec<String>) =
        protocols.into_iter().partition(|protocol| is_stream_protocol(protocol));
    for protocol in of_streams {
        let line = dropped(&label, "protocols", format!("{protocol} is left out"));
        report.add(line.why("a route is either of requests or of streams"));
    }
    let is_grpc = protocols.iter().any(|one| matches!(one.as_str(), "grpc" | "grpcs"));
    let is_encrypted = |one: &String| matches!(one.as_str(), "https" | "grpcs" | "wss");
    let only_https = !protocols.is_empty() && protocols.iter().all(is_encrypted);
    // The default of Kong.
    let redirect = entity.count("https_redirect_status_code", report).unwrap_or(426) as u16;
    let only_http = !protocols.is_empty() && !protocols.iter().any(is_encrypted);
    let (conditions, purpose) = match entity.text("expression", report) {
        Some(text) => expressed(&text, entity, only_http, report)?,
        None => (KongRouteMatch::read(entity, only_http, marks_patterns, report)?, RoutePurpose::Serve),
    };
    // Bodies are passed on as they arrive, as Kong does with false; its default of true delays them only.
    for field in ["request_buffering", "response_buffering"] {
        entity.flag(field, report);
    }
    Some(KongRoute {
        at,
        purpose,
        name: entity.name.clone(),
        service,
        labels: super::labels::labels(entity, report),
        conditions,
        // The path of a gRPC call names the method, so Kong does not strip it.
        strips_path: entity.flag("strip_path", report).unwrap_or(true) && !is_grpc,
        preserves_host: entity.flag("preserve_host", report).unwrap_or(false),
        path_handling: match entity.text("path_handling", report).as_deref() {
            Some("v1") => PathHandling::V1,
            _ => PathHandling::V0,
        },
        https_status: only_https.then_some(redirect),
    })
}

/// The conditions of a route with an expression. A route that serves no request refuses those that the understood
/// conditions match, if they include a path.
fn expressed(
    text: &str,
    entity: &mut KongEntity,
    only_http: bool,
    report: &mut ImportReport,
) -> Option<(KongRouteMatch, RoutePurpose)> {
    let priority = entity.count("priority", report).unwrap_or(0);
    match expression::translate(text) {
        Ok(found) => Some((KongRouteMatch::expressed(found, priority, only_http), RoutePurpose::Serve)),
        Err(why) => {
            let hint = "write it with paths, hosts, methods and headers";
            let line = dropped(&entity.label, "expression", "the route is left out");
            report.add(line.why(why).hint(hint));
            let wider = expression::translate_known(text)?;
            Some((KongRouteMatch::expressed(wider, priority, only_http), RoutePurpose::Refuse))
        }
    }
}

/// Groups the paths of a route by placement. Paths without a competing route share one resource.
fn groups(conditions: &KongRouteMatch, path_placements: Vec<PathPlacement>) -> Vec<RouteGroup> {
    let mut groups: Vec<RouteGroup> = Vec::new();
    let paths = conditions.paths.iter().cloned().map(Some).chain(conditions.paths.is_empty().then_some(None));
    for (path, placement) in paths.zip(path_placements) {
        let is_covered = match &path {
            // The placed prefix covers the path exactly, so no condition is needed.
            Some(KongPath::Prefix(prefix)) => *prefix == placement.prefix,
            Some(KongPath::Pattern(_)) => false,
            None => placement.prefix == "/",
        };
        let condition =
            path.as_ref().filter(|_| !is_covered).map(|path| json!(["uri", "~~", path.condition()]));
        let fits = |group: &&mut RouteGroup| {
            condition.is_none()
                && group.condition.is_none()
                // Paths with a priority compete with other routes, each at its own rank.
                && placement.priority.is_none()
                && group.placement.priority.is_none()
                && group.placement.any_host == placement.any_host
        };
        match groups.iter_mut().find(fits) {
            Some(group) => group.paths.extend(path),
            None => groups.push(RouteGroup { placement, paths: path.into_iter().collect(), condition }),
        }
    }
    groups
}

fn resource(
    route: &KongRoute,
    service: Option<&KongService>,
    group: &RouteGroup,
    plugins: &Map<String, Value>,
    shared: &Map<String, Value>,
) -> Value {
    let mut value = json!({ "name": route.name });
    if let Some(labels) = &route.labels {
        value["labels"] = labels.clone();
    }
    let uris: Vec<String> = match group.condition.is_some() || group.paths.is_empty() {
        // A condition decides within the prefix at which the route is placed.
        true => vec![format!("{}*", group.placement.prefix)],
        false => group.paths.iter().map(|path| format!("{}*", path.literal())).collect(),
    };
    one_or_many(&mut value, "uri", uris);
    let conditions = route.conditions.conditions(group.placement.any_host);
    if !group.placement.any_host {
        one_or_many(&mut value, "host", route.conditions.hosts_with_paths());
    }
    route.conditions.write(&mut value);
    let conditions: Vec<Value> = conditions.into_iter().chain(group.condition.clone()).collect();
    if !conditions.is_empty() {
        value["vars"] = conditions.into();
    }
    if let Some(priority) = group.placement.priority {
        value["priority"] = json!(priority);
    }
    if let Some(service) = service {
        value["service_id"] = json!(service.id);
        if route.preserves_host
            && let HostPreservation::SomeRoutes(id) = &service.host_preservation
        {
            value["upstream_id"] = json!(id);
        }
        // A disabled service of Kong disables its routes.
        if !service.is_enabled {
            value["status"] = json!(0);
        }
    }
    let own = own_plugins(route, service, group, plugins, shared);
    // The schema requires an upstream or a plugin.
    if !own.is_empty() || service.is_none() {
        value["plugins"] = Value::Object(own);
    }
    value
}

/// Sets `uri` for one value, `uris` for several.
fn one_or_many(value: &mut Value, field: &str, mut all: Vec<String>) {
    match all.len() {
        0 => {}
        1 => value[field] = json!(all.remove(0)),
        _ => value[format!("{field}s")] = json!(all),
    }
}

/// The plugins of the route beyond those of its service.
fn own_plugins(
    route: &KongRoute,
    service: Option<&KongService>,
    group: &RouteGroup,
    plugins: &Map<String, Value>,
    shared: &Map<String, Value>,
) -> Map<String, Value> {
    let mut all = plugins.clone();
    if let Some(status) = route.https_status {
        // A refusal of a missing guard is stricter and stays.
        all.entry("fault-injection").or_insert_with(|| https_only(status));
    }
    let responders = ["mocking", "redirect", "fault-injection"];
    // Kong answers 503 where a route has neither a service nor a plugin that responds.
    if service.is_none() && !responders.iter().any(|name| all.contains_key(*name)) {
        all.insert("mocking".into(), plugins::message(503, "no Service found with those values"));
    }
    if service.is_some() {
        remove_identity(&mut all);
    }
    let rewrites = rewrites(route, service, group);
    if !rewrites.is_empty() {
        let settings = all.entry("proxy-rewrite").or_insert_with(|| json!({}));
        // A rewrite of a plugin replaces the whole path, so that of the route is pointless.
        if settings.get("uri").is_none() {
            settings["regex_uri"] = rewrites.into();
        }
    }
    // Equal plugins are inherited from the service and keep counting together.
    all.retain(|name, settings| shared.get(name) != Some(settings));
    all
}

/// Plugins of the gateway that identify the client.
const AUTHENTICATION: [&str; 5] = ["basic-auth", "hmac-auth", "jwt-auth", "key-auth", "ldap-auth-advanced"];

/// Fields that Kong sets and the gateway does not.
const IDENTITY_FIELDS: [&str; 3] = ["X-Consumer-ID", "X-Consumer-Groups", "X-Anonymous-Consumer"];

/// Removes identity fields of the client. Kong overwrites them, so upstreams trust them.
fn remove_identity(plugins: &mut Map<String, Value>) {
    if AUTHENTICATION.iter().any(|name| plugins.contains_key(*name)) {
        let settings = plugins.entry("proxy-rewrite").or_insert_with(|| json!({}));
        settings["headers"]["remove"] = json!(IDENTITY_FIELDS);
    }
}

/// The rewrites for all paths of a group, in Kong's order.
fn rewrites(route: &KongRoute, service: Option<&KongService>, group: &RouteGroup) -> Vec<String> {
    let Some(service) = service else { return Vec::new() };
    let mapping =
        PathMapping { base: &service.path, strips: route.strips_path, handling: route.path_handling };
    let mut paths: Vec<&KongPath> = group.paths.iter().chain(&route.conditions.expressed_path).collect();
    // Patterns before prefixes and longer prefixes first: the first expression that matches rewrites.
    paths.sort_by_key(|path| match path {
        KongPath::Pattern(_) => 0,
        KongPath::Prefix(prefix) => usize::MAX - prefix.len(),
    });
    let whole = KongPath::Prefix("/".into());
    if !route.strips_path || paths.is_empty() {
        // A route without a path matches nothing that could be stripped.
        return PathMapping { strips: false, ..mapping }.rewrites(&whole);
    }
    paths.into_iter().flat_map(|path| mapping.rewrites(path)).collect()
}

/// Refuses plain requests, or redirects them to HTTPS.
fn https_only(status: u16) -> Value {
    let is_plain = json!(["scheme", "==", "http"]);
    // With another status, Kong redirects to the HTTPS URL.
    if status != 426 {
        let headers = json!({ "Location": "https://$host$request_uri" });
        return json!({ "abort": { "http_status": status, "headers": headers, "vars": [[is_plain]] } });
    }
    // The body of Kong.
    let body = "{\"message\":\"Please use HTTPS protocol\"}";
    let mut refusal = plugins::refusal(426, body, Some(is_plain));
    refusal["abort"]["headers"]["Upgrade"] = json!("TLS/1.2, HTTP/1.1");
    refusal["abort"]["headers"]["Connection"] = json!("Upgrade");
    refusal
}
