//! Random routes, translated and compiled, find the rule for a request that a plain matcher finds by the rules of
//! precedence of the Gateway API.

mod compiler;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};
use yumen_base::time::Now;
use yumen_config::Resource;
use yumen_config::resource::Question;
use yumen_kubernetes::{
    CertificateInspector, CertificateNames, ClusterChange, ClusterKind, ClusterTranslator, ResourceChange,
    TranslatedKind, TranslationSettings, decode,
};
use yumen_snapshot::{Snapshot, explain};

const NOW: Now = Now { mono_us: 0, unix_ms: 1_800_000_000_000 };
const HOSTS: [&str; 5] =
    ["a.example.com", "b.a.example.com", "c.b.a.example.com", "example.com", "a.example.org"];
const HOST_PATTERNS: [&str; 5] =
    ["a.example.com", "b.a.example.com", "*.example.com", "*.a.example.com", "*.com"];
const PATHS: [&str; 8] = ["/", "/a", "/a/", "/ab", "/a/b", "/A", "/s.A/M", "/s.A/N"];
const HEADERS: [(&str, &str); 4] = [("x-a", "1"), ("x-a", "2"), ("x-b", "1"), ("x-c", "1")];
const QUERIES: [(&str, &str); 3] = [("p", "1"), ("p", "2"), ("q", "1")];
const SERVICES: [&str; 3] = ["s.A", "s.B", "t.A"];
const METHODS: [&str; 3] = ["M", "N", "MN"];

type Pairs = Vec<(&'static str, &'static str)>;

#[derive(Debug, Clone)]
struct RandomMatch {
    /// A path with its type, of an HTTPRoute.
    path: Option<(&'static str, &'static str)>,
    method: Option<&'static str>,
    headers: Pairs,
    queries: Pairs,
    /// Service and method, of a GRPCRoute.
    call: (Option<&'static str>, Option<&'static str>),
}

#[derive(Debug, Clone)]
struct RandomRoute {
    created: u8,
    hosts: Vec<&'static str>,
    rules: Vec<Vec<RandomMatch>>,
}

#[derive(Debug, Clone)]
struct RandomRequest {
    host: &'static str,
    path: String,
    method: &'static str,
    headers: Pairs,
    queries: Pairs,
}

/// One pair per name: of several the first would count, which is no matter of precedence.
fn pairs(pool: &'static [(&'static str, &'static str)]) -> impl Strategy<Value = Pairs> {
    subsequence(pool, 0..=pool.len()).prop_map(|list| {
        let by_name: BTreeMap<&str, &str> = list.into_iter().collect();
        by_name.into_iter().collect()
    })
}

fn http_match() -> impl Strategy<Value = RandomMatch> {
    let path = prop::option::weighted(0.8, (select(vec!["Exact", "PathPrefix"]), select(&PATHS[..])));
    let method = prop::option::weighted(0.3, select(vec!["GET", "POST"]));
    (path, method, pairs(&HEADERS), pairs(&QUERIES)).prop_map(|(path, method, headers, queries)| {
        RandomMatch { path, method, headers, queries, call: (None, None) }
    })
}

fn grpc_match() -> impl Strategy<Value = RandomMatch> {
    let call = (prop::option::of(select(&SERVICES[..])), prop::option::of(select(&METHODS[..])));
    (call, pairs(&HEADERS)).prop_map(|(call, headers)| RandomMatch {
        path: None,
        method: None,
        headers,
        queries: Vec::new(),
        call,
    })
}

fn route(one: impl Strategy<Value = RandomMatch>) -> impl Strategy<Value = RandomRoute> {
    let rules = prop::collection::vec(prop::collection::vec(one, 0..3), 1..3);
    (0..2_u8, subsequence(&HOST_PATTERNS[..], 0..=3), rules).prop_map(|(created, hosts, rules)| RandomRoute {
        created,
        hosts,
        rules,
    })
}

fn request(path: impl Strategy<Value = String>) -> impl Strategy<Value = RandomRequest> {
    (select(&HOSTS[..]), path, select(vec!["GET", "POST", "PUT"]), pairs(&HEADERS), pairs(&QUERIES)).prop_map(
        |(host, path, method, headers, queries)| RandomRequest { host, path, method, headers, queries },
    )
}

/// A route as an object of the API.
fn object(position: usize, route: &RandomRoute, is_grpc: bool) -> Value {
    let typed = |list: &Pairs| -> Vec<Value> {
        list.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
    };
    let one = |one: &RandomMatch| {
        let mut value = json!({ "headers": typed(&one.headers) });
        if !is_grpc {
            value["queryParams"] = typed(&one.queries).into();
        }
        if let Some((kind, path)) = one.path {
            value["path"] = json!({ "type": kind, "value": path });
        }
        if let Some(method) = one.method {
            value["method"] = method.into();
        }
        if one.call != (None, None) {
            let (service, method) = one.call;
            value["method"] = json!({ "service": service, "method": method });
        }
        value
    };
    let rule = |matches: &Vec<RandomMatch>| json!({ "matches": matches.iter().map(one).collect::<Vec<_>>() });
    json!({
        "metadata": {
            "name": format!("r{position}"), "namespace": "infra",
            "creationTimestamp": format!("2026-01-0{}T00:00:00Z", route.created + 1),
        },
        "spec": {
            "parentRefs": [{ "name": "web" }],
            "hostnames": route.hosts,
            "rules": route.rules.iter().map(rule).collect::<Vec<_>>(),
        },
    })
}

struct NoCertificates;

impl CertificateInspector for NoCertificates {
    fn pair(&self, _: &str, _: &str) -> Result<CertificateNames, String> {
        Err("no certificate".to_owned())
    }

    fn authorities(&self, _: &str) -> Result<(), String> {
        Err("no certificate".to_owned())
    }
}

/// The snapshot of the routes, without scopes: the case has one listener.
fn compiled(routes: &[RandomRoute], is_grpc: bool) -> Arc<Snapshot> {
    let put = |kind, value: &Value| {
        ClusterChange::Put(decode(kind, value.to_string().as_bytes()).expect("an object"))
    };
    let class = json!({ "metadata": { "name": "yumen" }, "spec": { "controllerName": "gateway.yumen.io/controller" } });
    let gateway = json!({
        "metadata": { "name": "web", "namespace": "infra" },
        "spec": { "gatewayClassName": "yumen", "listeners": [{ "name": "http", "port": 80, "protocol": "HTTP" }] },
    });
    let kind = if is_grpc { ClusterKind::GrpcRoute } else { ClusterKind::HttpRoute };
    let mut changes = vec![put(ClusterKind::GatewayClass, &class), put(ClusterKind::Gateway, &gateway)];
    changes.extend(routes.iter().enumerate().map(|(at, route)| put(kind, &object(at, route, is_grpc))));
    let mut translator = ClusterTranslator::new(TranslationSettings::default(), Arc::new(NoCertificates));
    let delta = translator.apply(changes, NOW);
    let resources = delta.resources.into_iter().filter_map(|change| match change {
        ResourceChange::Put(resource) if resource.name.kind == TranslatedKind::Routes => {
            let mut value: Value = serde_json::from_str(&resource.json).expect("JSON");
            value.as_object_mut().expect("an object").remove("scopes");
            Some(Resource::new(resource.name.kind.kind().expect("a kind"), &resource.name.id, &value))
        }
        _ => None,
    });
    compiler::compile(resources.collect()).snapshot
}

fn found(snapshot: &Snapshot, request: &RandomRequest, is_grpc: bool) -> Option<String> {
    let queries = request.queries.iter().map(|(name, value)| format!("{name}={value}"));
    let query = queries.collect::<Vec<_>>().join("&");
    let separator = if query.is_empty() { "" } else { "?" };
    let mut headers: BTreeMap<String, String> =
        request.headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    if is_grpc {
        headers.insert("content-type".to_owned(), "application/grpc".to_owned());
    }
    let question = json!({
        "method": request.method,
        "url": format!("http://{}{}{separator}{query}", request.host, request.path),
        "headers": headers,
    });
    let question: Question = serde_json::from_value(question).expect("a question");
    explain::outcome(snapshot, &question, NOW).expect("a valid question").route.map(String::from)
}

/// Rank of a host pattern: exact names first, then the longest wildcard. `None` if it does not match.
fn host_rank(pattern: Option<&str>, host: &str) -> Option<(bool, usize)> {
    match pattern {
        None => Some((false, 0)),
        Some(pattern) => match pattern.strip_prefix('*') {
            Some(end) => (host.ends_with(end) && host.len() > end.len()).then_some((false, pattern.len())),
            None => (pattern == host).then_some((true, pattern.len())),
        },
    }
}

/// Rank of a path: exact ones first, then the longest prefix.
fn path_rank(path: Option<(&str, &str)>, requested: &str) -> Option<(bool, usize)> {
    match path.unwrap_or(("PathPrefix", "/")) {
        ("Exact", path) => (path == requested).then_some((true, path.len())),
        (_, path) => {
            let path = path.trim_end_matches('/');
            let rest = requested.strip_prefix(path)?;
            (rest.is_empty() || rest.starts_with('/')).then_some((false, path.len()))
        }
    }
}

type Rank = (Reverse<(bool, usize)>, [Reverse<(bool, usize)>; 3], Reverse<usize>, u8, usize, usize, usize);

/// The rank of a match for a request; `None` if it does not match.
fn rank(
    at: (usize, usize, usize),
    route: &RandomRoute,
    one: &RandomMatch,
    request: &RandomRequest,
) -> Option<Rank> {
    let contains = |wanted: &Pairs, present: &Pairs| wanted.iter().all(|pair| present.contains(pair));
    if !contains(&one.headers, &request.headers)
        || !contains(&one.queries, &request.queries)
        || one.method.is_some_and(|method| method != request.method)
    {
        return None;
    }
    let hosts: Vec<Option<&str>> =
        if route.hosts.is_empty() { vec![None] } else { route.hosts.iter().copied().map(Some).collect() };
    let host = hosts.into_iter().filter_map(|pattern| host_rank(pattern, request.host)).max()?;
    let by_path = match one.call {
        (None, None) => path_rank(one.path, &request.path)?,
        _ => (false, 0),
    };
    let (service, method) = one.call;
    let (_, called) = request.path.split_once('/')?;
    let (called_service, called_method) = called.split_once('/').unwrap_or((called, ""));
    if service.is_some_and(|service| service != called_service)
        || method.is_some_and(|method| method != called_method)
    {
        return None;
    }
    let characters = |text: Option<&str>| Reverse((false, text.map_or(0, str::len)));
    let ranks = [Reverse(by_path), characters(service), characters(method)];
    let counts = usize::from(one.method.is_some()) * 10_000 + one.headers.len() * 100 + one.queries.len();
    Some((Reverse(host), ranks, Reverse(counts), route.created, at.0, at.1, at.2))
}

fn expected(routes: &[RandomRoute], request: &RandomRequest, part: &str) -> Option<String> {
    let any = RandomMatch {
        path: None,
        method: None,
        headers: Vec::new(),
        queries: Vec::new(),
        call: (None, None),
    };
    let mut ranks = Vec::new();
    for (position, route) in routes.iter().enumerate() {
        for (rule, matches) in route.rules.iter().enumerate() {
            let matches: Vec<&RandomMatch> =
                if matches.is_empty() { vec![&any] } else { matches.iter().collect() };
            for (index, one) in matches.into_iter().enumerate() {
                ranks.extend(rank((position, rule, index), route, one, request));
            }
        }
    }
    let best = ranks.into_iter().min()?;
    Some(format!("infra/r{}!{part}!{:02}!{:03}", best.4, best.5, best.6))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn http_routes_have_the_precedence_of_the_api(
        routes in prop::collection::vec(route(http_match()), 1..6),
        requests in prop::collection::vec(request(select(&PATHS[..]).prop_map(str::to_owned)), 24),
    ) {
        let snapshot = compiled(&routes, false);
        for request in &requests {
            prop_assert_eq!(found(&snapshot, request, false), expected(&routes, request, "http"), "{:?}", request);
        }
    }

    #[test]
    fn grpc_routes_have_the_precedence_of_the_api(
        routes in prop::collection::vec(route(grpc_match()), 1..6),
        requests in prop::collection::vec(
            request((select(&SERVICES[..]), select(&METHODS[..])).prop_map(|(one, two)| format!("/{one}/{two}"))),
            24,
        ),
    ) {
        let snapshot = compiled(&routes, true);
        for request in &requests {
            prop_assert_eq!(found(&snapshot, request, true), expected(&routes, request, "grpc"), "{:?}", request);
        }
    }
}
