//! The router on converted routes, compared with a direct model of Kong's order.

use std::cell::Cell;
use std::net::SocketAddr;

use serde_json::{Value, json};
use yumen_http::{HeadLimits, RequestHead, parse};
use yumen_plugin::{ClientInfo, ConsumerIndex, Exchange, Now, StillHost};
use yumen_snapshot::Snapshot;

use super::{compiled, imported};

/// A request of the model.
#[derive(Clone, Copy, Debug)]
struct ModelRequest<'r> {
    method: &'r str,
    host: &'r str,
    path: &'r str,
    /// The field `x-v`.
    version: &'r str,
}

/// The name of the route that the gateway's router finds.
fn found(snapshot: &Snapshot, request: ModelRequest<'_>) -> String {
    let ModelRequest { method, host, path, version } = request;
    let text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nX-V: {version}\r\n\r\n");
    let mut head = RequestHead::default();
    parse::request(text.as_bytes(), 0, &HeadLimits::default(), &mut head).expect(&text);
    let address: SocketAddr = "10.0.0.1:5000".parse().unwrap();
    let client = ClientInfo {
        peer: address,
        local: address,
        tls: None,
        connection_id: 1,
        listener: yumen_plugin::ListenerNumber::STATIC,
        mapped_port: 0,
    };
    let consumers = ConsumerIndex::default();
    let host = StillHost::default();
    let mut ex = Exchange::new(head, &client, Now::default(), &host, &consumers);
    snapshot.find(&mut ex).map_or("-".into(), |route| route.info.name.to_string())
}

fn texts<'v>(route: &'v Value, field: &str) -> Vec<&'v str> {
    route[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether a Kong route matches, apart from its paths.
fn matches(route: &Value, request: ModelRequest<'_>) -> bool {
    let ModelRequest { method, host, version, .. } = request;
    let host_fits = |pattern: &&str| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(suffix), _) => host.ends_with(suffix),
        (_, Some(prefix)) => host.starts_with(prefix),
        _ => host == *pattern,
    };
    let (methods, hosts) = (texts(route, "methods"), texts(route, "hosts"));
    let versions = texts(&route["headers"], "x-v");
    (methods.is_empty() || methods.contains(&method))
        && (hosts.is_empty() || hosts.iter().any(host_fits))
        && (versions.is_empty() || versions.contains(&version))
}

/// Kong's rank of one path of a route, bit by bit; `None` for a route without paths.
fn rank(route: &Value, path: Option<&str>) -> u128 {
    let hosts = texts(route, "hosts");
    let has = |field: &str| route[field].as_array().is_some_and(|all| !all.is_empty());
    let headers = route["headers"].as_object().map_or(0, serde_json::Map::len) as u128;
    let kinds = [has("methods"), has("hosts"), headers > 0, path.is_some()];
    let kinds = kinds.into_iter().filter(|has| *has).count() as u128;
    let plain = !hosts.is_empty() && hosts.iter().all(|host| !host.contains('*'));
    let is_pattern = path.is_some_and(|path| path.starts_with('~'));
    let regex_priority = if is_pattern { route["regex_priority"].as_u64().unwrap_or(0) } else { 0 };
    let length = path.filter(|_| !is_pattern).map_or(0, str::len);
    kinds << 61
        | u128::from(plain) << 60
        | headers << 52
        | u128::from(is_pattern) << 51
        | u128::from(regex_priority) << 19
        | length as u128
}

/// The name of Kong's route: the greatest rank, then the first in the file.
fn expected(routes: &[Value], request: ModelRequest<'_>) -> String {
    let mut best: Option<(u128, &str)> = None;
    for route in routes.iter().filter(|route| matches(route, request)) {
        let paths = texts(route, "paths");
        let fits = |path: &&str| match path.strip_prefix('~') {
            Some(pattern) => regex::Regex::new(&format!("^(?:{pattern})")).unwrap().is_match(request.path),
            None => request.path.starts_with(*path),
        };
        let ranks: Vec<u128> = match paths.is_empty() {
            true => vec![rank(route, None)],
            false => paths.into_iter().filter(fits).map(|path| rank(route, Some(path))).collect(),
        };
        for rank in ranks {
            if best.is_none_or(|(greatest, _)| rank > greatest) {
                best = Some((rank, route["name"].as_str().unwrap()));
            }
        }
    }
    best.map_or("-".into(), |(_, name)| name.to_owned())
}

fn snapshot(routes: &[Value]) -> std::sync::Arc<Snapshot> {
    let file = json!({
        "_format_version": "3.0",
        "services": [{ "name": "s", "host": "127.0.0.1", "routes": routes }],
    });
    let resources = imported(&file.to_string()).unwrap().resources;
    let compiled = compiled(&resources);
    assert_eq!(compiled.problems, [], "{}", json!(routes));
    compiled.snapshot
}

const METHODS: [&str; 2] = ["GET", "POST"];
const HOSTS: [&str; 5] = ["a.x.com", "b.x.com", "x.com", "a.y.org", "other"];
const PATHS: [&str; 9] = ["/", "/a", "/ab", "/a/b", "/a/b/c", "/a/b/12", "/a/x", "/b", "/a/b/c/d"];
const VERSIONS: [&str; 3] = ["1", "2", "3"];

/// Every combination of the values above.
fn requests() -> impl Iterator<Item = ModelRequest<'static>> {
    let each = |at: usize| {
        let (method, at) = (METHODS[at % 2], at / 2);
        let (host, at) = (HOSTS[at % 5], at / 5);
        ModelRequest { method, host, path: PATHS[at % 9], version: VERSIONS[at / 9 % 3] }
    };
    (0..2 * 5 * 9 * 3).map(each)
}

fn check(routes: &[Value]) {
    let snapshot = snapshot(routes);
    for request in requests() {
        assert_eq!(found(&snapshot, request), expected(routes, request), "{request:?} in {}", json!(routes));
    }
}

#[test]
fn each_sort_criterion_of_kong_is_kept() {
    let tables = [
        // More kinds of attributes precede a longer path.
        json!([{ "name": "short", "paths": ["/a"], "methods": ["GET"] }, { "name": "long", "paths": ["/a/b"] }]),
        // A path and a method precede a host.
        json!([{ "name": "host", "hosts": ["a.x.com"] }, { "name": "both", "paths": ["/a"], "methods": ["GET"] }]),
        // An exact host precedes a wildcard, regardless of paths.
        json!([
            { "name": "wild", "hosts": ["*.x.com"], "paths": ["/a/b/c"] },
            { "name": "plain", "hosts": ["a.x.com"], "paths": ["/a"] },
            { "name": "mixed", "hosts": ["b.x.com", "*.y.org"], "paths": ["/a/b"] },
        ]),
        // A pattern precedes a prefix; among patterns the priority decides.
        json!([
            { "name": "prefix", "paths": ["/a/b/c"] },
            { "name": "weak", "paths": ["~/a/b"] },
            { "name": "strong", "paths": ["~/a/b/[a-z]+"], "regex_priority": 7 },
        ]),
        // A wildcard at the end of a host.
        json!([{ "name": "end", "hosts": ["a.*"], "paths": ["/a"] }, { "name": "path", "paths": ["/a/b"] }]),
        // The longer path precedes, of one route and of two.
        json!([{ "name": "two", "paths": ["/a", "/a/b/c"] }, { "name": "one", "paths": ["/a/b"] }]),
        // Header fields.
        json!([
            { "name": "v", "paths": ["/a"], "headers": { "x-v": ["1", "2"] } },
            { "name": "host", "paths": ["/a/b"], "hosts": ["a.x.com"] },
        ]),
    ];
    for table in tables {
        check(table.as_array().unwrap());
    }
}

/// A pseudo-random generator (xorshift64*).
struct Random(Cell<u64>);

impl Random {
    fn below(&self, bound: usize) -> usize {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        (x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }

    /// Up to `most` of the items, each once.
    fn some<'t>(&self, of: &[&'t str], most: usize) -> Vec<&'t str> {
        let mut some: Vec<&str> = (0..self.below(most + 1)).map(|_| of[self.below(of.len())]).collect();
        some.sort_unstable();
        some.dedup();
        some
    }

    fn route(&self, at: usize) -> Value {
        let hosts = ["a.x.com", "b.x.com", "*.x.com", "*.com", "a.*", "*x.com"];
        let paths = ["/", "/a", "/ab", "/a/b", "/a/b/c", "~/a/(b|x)", "~/a/b/\\d+", "~/[a-z]+$", "~/a/b"];
        let mut route = json!({
            "name": format!("r{at}"),
            "hosts": self.some(&hosts, 2),
            "paths": self.some(&paths, 3),
            "methods": self.some(&METHODS, 1),
            "regex_priority": self.below(3),
        });
        let versions = self.some(&VERSIONS[..2], 2);
        if self.below(2) == 0 && !versions.is_empty() {
            route["headers"] = json!({ "x-v": versions });
        }
        route
    }
}

#[test]
fn random_tables_route_as_kong_does() {
    for seed in 1..150_u64 {
        let random = Random(Cell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1));
        let routes: Vec<Value> = (0..2 + random.below(9)).map(|at| random.route(at)).collect();
        check(&routes);
    }
}
