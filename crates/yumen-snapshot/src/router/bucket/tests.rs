//! Precedence by the rules of the Gateway API, against a matcher that states them plainly; and the index of buckets.

use std::cmp::Reverse;

use serde_json::{Value, json};
use yumen_config::{Kind, Resource};

use crate::compile::ConfigChange;
use crate::snapshot::Snapshot;
use crate::testing::{SeededRandom, TestWorker, compiler};

/// A snapshot of routes as (id, members).
fn snapshot(routes: &[(String, Value)]) -> std::sync::Arc<Snapshot> {
    let changes = routes.iter().map(|(id, route)| {
        let mut route = route.clone();
        route["plugins"] = json!({});
        ConfigChange::Put(Resource::new(Kind::Routes, id, &route))
    });
    let compiled = compiler().apply(changes.collect(), 1);
    assert!(compiled.problems.is_empty(), "{:?}", compiled.problems);
    compiled.snapshot
}

fn found(snapshot: &Snapshot, request: &str) -> String {
    let worker = TestWorker::default();
    let mut ex = worker.exchange(request);
    snapshot.find(&mut ex).map_or("-".into(), |route| route.info.id.to_string())
}

/// Checks requests, each as its lines, against the expected ids.
fn check(routes: Value, expected: &[(&str, &str)]) {
    let named = |(id, route): (&String, &Value)| {
        let mut route = route.clone();
        if route.get("uri").is_none() {
            route["uri"] = "/*".into();
        }
        (id.clone(), route)
    };
    let routes: Vec<(String, Value)> = routes.as_object().unwrap().iter().map(named).collect();
    let snapshot = snapshot(&routes);
    for (request, id) in expected {
        assert_eq!(found(&snapshot, request), *id, "{request}");
    }
}

#[test]
fn literal_paths_match_by_whole_by_element_and_by_byte() {
    check(
        json!({
            "exact": { "match": { "paths": { "exact": ["/one", "/with/:x/*", "/a%20b"] } } },
            "prefix": { "match": { "paths": { "prefix": ["/two/", "/one"] } } },
            "begin": { "match": { "paths": { "starts_with": ["/thr"] } } },
            "pattern": { "uri": "/with/:x/*" },
        }),
        &[
            ("GET /one", "exact"),
            ("GET /one/", "prefix"),
            ("GET /one/two", "prefix"),
            ("GET /oneness", "-"),
            ("GET /One", "-"),
            ("GET /two", "prefix"),
            ("GET /two/", "prefix"),
            ("GET /twofold", "-"),
            ("GET /three", "begin"),
            ("GET /with/:x/*", "exact"),
            ("GET /with/y/z", "pattern"),
            ("GET /a%20b", "exact"),
            ("GET /%6fne", "exact"),
            ("GET /", "-"),
        ],
    );
}

#[test]
fn patterns_come_after_the_exact_path_and_before_prefixes() {
    check(
        json!({
            "exact": { "match": { "paths": { "exact": ["/api/v1"] } } },
            "long": { "match": { "path_regex": { "pattern": "/api/v[0-9]+/.*" } } },
            "short": { "match": { "path_regex": { "pattern": "/api/.*" } } },
            "end": { "match": { "path_regex": { "pattern": "/end", "anchored_end": true } } },
            "case": { "match": { "path_regex": { "pattern": "/CASE", "ignore_case": true } } },
            "prefix": { "match": { "paths": { "prefix": ["/api/v1/deep", "/end"] } } },
        }),
        &[
            ("GET /api/v1", "exact"),
            ("GET /api/v1/deep/x", "long"),
            ("GET /api/v2/x", "long"),
            ("GET /api/other", "short"),
            ("GET /end", "end"),
            ("GET /end/x", "prefix"),
            ("GET /case/x", "case"),
            ("GET /x/api/v1", "-"),
        ],
    );
}

#[test]
fn fields_and_query_arguments_must_match() {
    check(
        json!({
            "header": { "match": { "headers": [{ "name": "X-A", "value": "1" }] }, "priority": 2 },
            "regex": { "match": { "headers": [{ "name": "x-a", "regex": "[0-9]+" }] }, "priority": 1 },
            "query": { "match": { "queries": [{ "name": "q", "value": "a b" }] } },
            "absent": { "match": { "headers": [{ "name": "X-B", "is_absent": true }, { "name": "X-C", "value": "" }] } },
            "grpc": { "match": { "is_grpc": true } },
        }),
        &[
            ("GET /\nX-A: 1", "header"),
            ("GET /\nx-a: 1\nX-A: 2", "header"),
            ("GET /\nX-A: 2\nX-A: 1", "regex"),
            ("GET /\nX-A: 12x", "-"),
            ("GET /?q=a+b", "query"),
            ("GET /?q=a%20b", "query"),
            ("GET /?q=x&q=a+b", "-"),
            ("GET /?Q=a+b", "-"),
            ("GET /\nX-C: ", "absent"),
            ("GET /\nX-C: \nX-B: 1", "-"),
            ("POST /\nContent-Type: application/grpc+proto", "grpc"),
            ("POST /\nContent-Type: application/grpc-web", "-"),
        ],
    );
}

/// A rule of a route of the Gateway API with one match.
#[derive(Debug)]
struct GatewayRule {
    hosts: Vec<&'static str>,
    path: (&'static str, &'static str),
    method: Option<&'static str>,
    headers: Vec<(&'static str, &'static str)>,
    queries: Vec<(&'static str, &'static str)>,
    created: u64,
}

impl GatewayRule {
    fn random(random: &SeededRandom) -> GatewayRule {
        let some = |count: usize, all: &[(&'static str, &'static str)]| {
            let mut chosen: Vec<_> = (0..random.below(count)).map(|_| random.one(all)).collect();
            chosen.sort();
            chosen.dedup_by_key(|one| one.0);
            chosen
        };
        GatewayRule {
            hosts: (0..random.below(3))
                .map(|_| random.one(&["a.com", "b.a.com", "*.a.com", "*.com"]))
                .collect(),
            path: random.one(&[
                ("exact", "/"),
                ("exact", "/a"),
                ("exact", "/a/b"),
                ("prefix", "/"),
                ("prefix", "/a"),
                ("prefix", "/a/b"),
                ("prefix", "/ab"),
                ("regex", "/a/?.*"),
                ("regex", "/[ab]+"),
            ]),
            method: random.one(&[None, None, Some("GET"), Some("POST")]),
            headers: some(3, &[("x", "1"), ("x", "2"), ("y", "1")]),
            queries: some(3, &[("p", "1"), ("p", "2"), ("q", "1")]),
            created: random.below(3) as u64 + 1,
        }
    }

    /// The route that a controller makes of the rule.
    fn route(&self) -> Value {
        let fields = |list: &[(&str, &str)]| -> Vec<Value> {
            list.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
        };
        let (kind, path) = self.path;
        let mut matching = match kind {
            "regex" => json!({ "path_regex": { "pattern": path, "anchored_end": true } }),
            kind => json!({ "paths": { kind: [path] } }),
        };
        for (member, list) in [("headers", &self.headers), ("queries", &self.queries)] {
            if !list.is_empty() {
                matching[member] = fields(list).into();
            }
        }
        let priority =
            usize::from(self.method.is_some()) * 10_000 + self.headers.len() * 100 + self.queries.len();
        let mut route =
            json!({ "uri": "/*", "match": matching, "priority": priority, "create_time": self.created });
        if !self.hosts.is_empty() {
            let mut hosts = self.hosts.clone();
            hosts.sort_unstable();
            hosts.dedup();
            route["hosts"] = hosts.into();
        }
        if let Some(method) = self.method {
            route["methods"] = json!([method]);
        }
        route
    }

    /// The rank of the rule for a request, higher first; `None` if it does not match.
    fn rank(&self, ask: &GatewayRequest) -> Option<impl Ord + use<>> {
        let host_rank = |pattern: &str| match pattern.strip_prefix('*') {
            Some(suffix) => ask.host.ends_with(suffix).then_some((false, pattern.len())),
            None => (pattern == ask.host).then_some((true, pattern.len())),
        };
        let host = match self.hosts.is_empty() {
            true => (false, 0),
            false => self.hosts.iter().filter_map(|host| host_rank(host)).max()?,
        };
        let (kind, path) = self.path;
        let path_rank = match kind {
            "exact" => (ask.path == path).then_some(2),
            "prefix" => {
                let trimmed = path.trim_end_matches('/');
                let rest = ask.path.strip_prefix(trimmed)?;
                (rest.is_empty() || rest.starts_with('/')).then_some(0)
            }
            _ => regex::Regex::new(&format!("^(?:{path})$")).unwrap().is_match(ask.path).then_some(1),
        }?;
        let has = |list: &[(&str, &str)], asked: &[(&str, &str)]| list.iter().all(|one| asked.contains(one));
        let is_match = self.method.is_none_or(|method| method == ask.method)
            && has(&self.headers, &ask.headers)
            && has(&self.queries, &ask.queries);
        let details = (self.method.is_some(), self.headers.len(), self.queries.len());
        is_match.then_some((
            host,
            path_rank,
            path.trim_end_matches('/').len(),
            details,
            Reverse(self.created),
        ))
    }
}

struct GatewayRequest {
    method: &'static str,
    host: &'static str,
    path: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    queries: Vec<(&'static str, &'static str)>,
}

impl GatewayRequest {
    fn random(random: &SeededRandom) -> GatewayRequest {
        GatewayRequest {
            method: random.one(&["GET", "POST", "PUT"]),
            host: random.one(&["a.com", "b.a.com", "c.b.a.com", "x.com", "x.org"]),
            path: random.one(&["/", "/a", "/a/", "/a/b", "/a/b/c", "/ab", "/ab/c", "/b"]),
            headers: random
                .one(&[&[][..], &[("x", "1")], &[("x", "2"), ("y", "1")], &[("x", "1"), ("y", "1")]])
                .into(),
            queries: random.one(&[&[][..], &[("p", "1")], &[("p", "2"), ("q", "1")], &[("q", "1")]]).into(),
        }
    }

    fn text(&self) -> String {
        let query: Vec<String> = self.queries.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        let headers: String = self.headers.iter().map(|(name, value)| format!("\n{name}: {value}")).collect();
        format!("{} {}{query}\nHost: {}{headers}", self.method, self.path, self.host)
    }
}

#[test]
fn random_rules_have_the_precedence_of_the_gateway_api() {
    let mut reached = 0;
    for seed in 1..160 {
        let random = SeededRandom::new(seed);
        let rules: Vec<GatewayRule> = (0..12).map(|_| GatewayRule::random(&random)).collect();
        let routes: Vec<_> =
            rules.iter().enumerate().map(|(at, rule)| (format!("r{at:02}"), rule.route())).collect();
        let snapshot = snapshot(&routes);
        for _ in 0..24 {
            let ask = GatewayRequest::random(&random);
            let ranked =
                rules.iter().enumerate().filter_map(|(at, rule)| Some((rule.rank(&ask)?, Reverse(at))));
            let expected = ranked.max().map_or("-".into(), |(_, Reverse(at))| format!("r{at:02}"));
            let request = ask.text();
            assert_eq!(found(&snapshot, &request), expected, "seed {seed}, {request}\n{rules:#?}");
            reached += usize::from(expected != "-");
        }
    }
    // Most requests must reach a route, or the test shows little.
    assert!(reached > 1500, "{reached}");
}

#[test]
fn an_index_finds_the_route_of_a_value_among_many() {
    let mut routes: Vec<(String, Value)> = (0..1000)
        .map(|at| {
            let headers =
                json!([{ "name": "X-Route", "value": format!("v{at}") }, { "name": "Y", "value": "1" }]);
            (format!("r{at}"), json!({ "uri": "/*", "match": { "headers": headers }, "priority": 2 }))
        })
        .collect();
    let first =
        json!({ "uri": "/*", "match": { "headers": [{ "name": "Z", "value": "1" }] }, "priority": 3 });
    routes.push(("first".into(), first));
    routes.push(("rest".into(), json!({ "uri": "/*" })));
    let snapshot = snapshot(&routes);
    for (request, id) in [
        ("GET /\nX-Route: v0\nY: 1", "r0"),
        ("GET /\nX-Route: v999\nY: 1", "r999"),
        ("GET /\nX-Route: v999\nY: 1\nZ: 1", "first"),
        ("GET /\nX-Route: v999", "rest"),
        ("GET /\nX-Route: v1000\nY: 1", "rest"),
        ("GET /", "rest"),
    ] {
        assert_eq!(found(&snapshot, request), id, "{request}");
        // The explanation does not use the index.
        let worker = TestWorker::default();
        let mut ex = worker.exchange(request);
        let (winner, _) = snapshot.router.explain(&mut ex);
        assert_eq!(winner.map(|route| &*route.info.id), Some(id), "{request}");
    }
}

#[test]
fn a_removed_route_leaves_no_path_behind() {
    let mut compiler = compiler();
    let put = |id: &str, matching: Value| {
        let route = json!({ "uri": "/*", "match": matching, "plugins": {} });
        ConfigChange::Put(Resource::new(Kind::Routes, id, &route))
    };
    let paths = json!({ "paths": { "exact": ["/x"], "prefix": ["/p"], "starts_with": ["/s"] } });
    let changes = vec![put("a", paths), put("b", json!({ "path_regex": { "pattern": "/r" } }))];
    let before = compiler.apply(changes, 1).snapshot;
    let removed = ["a", "b"].map(|id| ConfigChange::Delete(Kind::Routes, id.into()));
    let after = compiler.apply(removed.into(), 2).snapshot;
    for (request, id) in
        [("GET /x", "a"), ("GET /p", "a"), ("GET /p/q", "a"), ("GET /s1", "a"), ("GET /r", "b")]
    {
        assert_eq!((found(&before, request), found(&after, request)), (id.into(), "-".into()), "{request}");
    }
}
