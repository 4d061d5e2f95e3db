//! The router against hand-written cases and against a matcher that states the rules plainly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use yumen_base::IpSet;
use yumen_plugin::{ConditionExpr, Method};

use super::{MismatchReason, Router};
use crate::explain::outcome;
use crate::testing::{SeededRandom, TestWorker, route};
use crate::{ExplainContext, Question, Route, RouteFilters, RouteMatching, Snapshot, explain};

fn texts(list: &[&str]) -> Box<[Box<str>]> {
    list.iter().map(|text| Box::from(*text)).collect()
}

fn matching(uris: &[&str], hosts: &[&str]) -> RouteMatching {
    RouteMatching { uris: texts(uris).into(), hosts: texts(hosts).into(), ..RouteMatching::default() }
}

/// Routes as (id, path, hosts).
fn table(routes: &[(&str, &str, &[&str])]) -> Router {
    let mut router = Router::default();
    for (id, uri, hosts) in routes {
        router.insert(&route(id, matching(&[uri], hosts)));
    }
    router
}

fn found(router: &Router, request: &str) -> String {
    let bench = TestWorker::default();
    let mut ex = bench.exchange(request);
    router.find(&mut ex, &mut ()).map_or("-".into(), |route| route.info.id.to_string())
}

/// Checks (request target, host) against the expected id; `-` is none.
fn check(router: &Router, expected: &[(&str, &str, &str)]) {
    for (target, host, id) in expected {
        assert_eq!(found(router, &format!("GET {target}\nHost: {host}")), *id, "{target} at {host}");
    }
}

#[test]
fn an_exact_path_beats_a_parameter_and_that_a_shorter_prefix() {
    let router = table(&[
        ("root", "/*", &[]),
        ("users", "/user/*", &[]),
        ("one", "/user/:id", &[]),
        ("me", "/user/me", &[]),
        ("posts", "/user/:id/posts", &[]),
        ("list", "/user/list*", &[]),
    ]);
    check(
        &router,
        &[
            ("/user/me", "", "me"),
            ("/user/you", "", "one"),
            ("/user/mex", "", "one"),
            ("/user/5/posts", "", "posts"),
            ("/user/5/other", "", "users"),
            ("/user/", "", "users"),
            ("/user", "", "root"),
            ("/user/list7", "", "list"),
            ("/user/list", "", "list"),
            ("/", "", "root"),
        ],
    );
}

#[test]
fn a_star_before_the_end_matches_anything_between() {
    let router = table(&[
        ("task", "/task/*", &[]),
        ("complete", "/task/*/complete", &[]),
        ("exact", "/task/7/complete", &[]),
        ("deep", "/task/*/x/*/complete", &[]),
        ("part", "/file/a*b", &[]),
        ("owner", "/u/:id/*path/raw", &[]),
        ("tail", "/v/*/w/*", &[]),
    ]);
    check(
        &router,
        &[
            ("/task/1/complete", "", "complete"),
            ("/task/7/complete", "", "exact"),
            ("/task/1/2/complete", "", "complete"),
            ("/task/1/x/2/complete", "", "deep"),
            ("/task/complete", "", "task"),
            ("/task/1/complete/", "", "task"),
            ("/task/1/completed", "", "task"),
            ("/file/ab", "", "part"),
            ("/file/a/c/b", "", "part"),
            ("/file/abc", "", "-"),
            ("/u/1/a/b/raw", "", "owner"),
            ("/u/1/raw", "", "-"),
            ("/v/1/w/", "", "tail"),
            ("/v/1/w/2/3", "", "tail"),
            ("/v/1/w", "", "-"),
        ],
    );
    let bench = TestWorker::default();
    let mut ex = bench.exchange("GET /u/42/a/raw/raw");
    assert!(router.find(&mut ex, &mut ()).is_some());
    assert_eq!(ex.path_param("id").as_deref(), Some(&b"42"[..]));
    assert_eq!(ex.path_param("path").as_deref(), Some(&b"a/raw"[..]));
    let mut plain = Router::new(false);
    plain.insert(&route("star", matching(&["/a/:b/*name/c"], &[])));
    plain.insert(&route("name", matching(&["/n/*name"], &[])));
    check(&plain, &[("/a/:b/1/c", "", "star"), ("/a/x/1/c", "", "-"), ("/n/1/2", "", "name")]);
}

#[test]
fn priority_decides_between_patterns_of_one_prefix_and_then_the_length() {
    let mut router = table(&[("short", "/t/*/c", &[]), ("long", "/t/*/b/c", &[]), ("rest", "/t/*", &[])]);
    check(&router, &[("/t/1/b/c", "", "long"), ("/t/1/c", "", "short"), ("/t/1", "", "rest")]);
    router.insert(&route("urgent", RouteMatching { priority: 1, ..matching(&["/t/*"], &[]) }));
    check(&router, &[("/t/1/b/c", "", "urgent"), ("/t/1/c", "", "urgent")]);
    // Both patterns of one route have the key `/p/`.
    let both = route("both", matching(&["/p/*/a", "/p/*/b"], &[]));
    router.insert(&both);
    check(&router, &[("/p/1/a", "", "both"), ("/p/1/b", "", "both"), ("/p/1/c", "", "-")]);
    router.remove(&both);
    check(&router, &[("/p/1/a", "", "-"), ("/p/1/b", "", "-")]);
}

#[test]
fn the_longer_pattern_of_one_prefix_wins_whatever_the_age() {
    for (short, long, path) in [
        ("/n/*", "/n/*.php", "/n/x"),
        ("/n/*", "/n/*name", "/n/x"),
        ("/u/:id", "/u/:name", "/u/x"),
        ("/u/:id/c", "/u/:name/c", "/u/x/c"),
        ("/p/:a/*", "/p/:a/*rest", "/p/x/y"),
    ] {
        for (short_age, long_age) in [(1, 2), (2, 1)] {
            let mut router = Router::default();
            let aged = |uri: &str, created| RouteMatching { created, ..matching(&[uri], &[]) };
            router.insert(&route("short", aged(short, short_age)));
            router.insert(&route("long", aged(long, long_age)));
            check(&router, &[(path, "", "long")]);
            assert!(router.overlaps().iter().all(|one| one.is_shadowed), "{short} and {long}");
        }
    }
    // Of two paths of one route the longer one gives the parameters, in whatever order they are written.
    for uris in [["/n/*", "/n/*name"], ["/n/*name", "/n/*"]] {
        let mut router = Router::default();
        router.insert(&route("both", matching(&uris, &[])));
        let bench = TestWorker::default();
        let mut ex = bench.exchange("GET /n/x/y");
        assert!(router.find(&mut ex, &mut ()).is_some());
        assert_eq!(ex.path_param("name").as_deref(), Some(&b"x/y"[..]), "{uris:?}");
    }
}

#[test]
fn priority_decides_between_parameters_and_stars_of_one_prefix() {
    // (path of the route with the priority, path of the other one, request that both match)
    for (high, low, path) in [
        ("/t/*/c", "/t/:id/c", "/t/1/c"),
        ("/t/*", "/t/:id", "/t/1"),
        ("/t/*rest", "/t/:id", "/t/1"),
        ("/t/:id/*", "/t/:id/c", "/t/1/c"),
        ("/t/:id/:x", "/t/:id/c", "/t/1/c"),
        ("/t/:id/*/d", "/t/:id/c/d", "/t/1/c/d"),
        ("/t/:id", "/t/*", "/t/1"),
    ] {
        for (priority, expected) in [(100, "high"), (1, "high"), (-1, "low")] {
            let mut router = table(&[("low", low, &[])]);
            let high = route("high", RouteMatching { priority, ..matching(&[high], &[]) });
            router.insert(&high);
            check(&router, &[(path, "", expected)]);
            router.remove(&high);
            check(&router, &[(path, "", "low")]);
        }
    }
    // A longer constant begin and an exact path precede any priority.
    let mut router = table(&[("begin", "/t/a*", &[]), ("exact", "/t/x", &[]), ("one", "/t/:id", &[])]);
    router.insert(&route("urgent", RouteMatching { priority: 9, ..matching(&["/t/*"], &[]) }));
    check(&router, &[("/t/ab", "", "begin"), ("/t/x", "", "exact"), ("/t/y", "", "urgent")]);
    // The parameters are those of the route that is found, also after another one failed.
    let post = RouteMatching { priority: 10, methods: Method::Post.bit(), ..matching(&["/t/*all"], &[]) };
    router.insert(&route("post", post));
    router.remove(&route("urgent", RouteMatching { priority: 9, ..matching(&["/t/*"], &[]) }));
    let bench = TestWorker::default();
    let mut ex = bench.exchange("GET /t/y");
    assert_eq!(router.find(&mut ex, &mut ()).map(|route| &*route.info.id), Some("one"));
    assert_eq!((ex.path_param("id").as_deref(), ex.path_param("all")), (Some(&b"y"[..]), None));
}

#[test]
fn prefixes_are_bytes_and_the_longest_wins() {
    let router = table(&[("a", "/foo*", &[]), ("b", "/foo/*", &[]), ("c", "/foo", &[])]);
    let expected = [("/foo", "", "c"), ("/foobar", "", "a"), ("/foo/", "", "b"), ("/fo", "", "-")];
    check(&router, &expected);
}

#[test]
fn an_exact_host_beats_longer_wildcards_beat_shorter_beat_none() {
    let router = table(&[
        ("none", "/x", &[]),
        ("any", "/x", &["*"]),
        ("com", "/x", &["*.com"]),
        ("foo", "/x", &["*.foo.com"]),
        ("bytes", "/x", &["*foo.com"]),
        ("exact", "/x", &["a.FOO.com"]),
    ]);
    check(
        &router,
        &[
            ("/x", "a.foo.com", "exact"),
            ("/x", "A.Foo.com:8080", "exact"),
            ("/x", "b.foo.com", "foo"),
            ("/x", "c.b.foo.com", "foo"),
            ("/x", "foo.com", "bytes"),
            ("/x", "barfoo.com", "bytes"),
            ("/x", "bar.com", "com"),
            ("/x", "bar.org", "any"),
        ],
    );
}

#[test]
fn a_level_whose_routes_fail_falls_through_to_the_next() {
    let mut router = table(&[("any", "/*", &[]), ("wide", "/a*", &["*.com"])]);
    let post = RouteMatching { methods: Method::Post.bit(), ..matching(&["/ab"], &["x.com"]) };
    router.insert(&route("post", post));
    let block =
        RouteFilters { remote_addrs: IpSet::parse(["192.168.0.0/16"]).unwrap(), ..RouteFilters::default() };
    let inside = RouteMatching { filters: Some(Arc::new(block)), ..matching(&["/ab"], &["*.com"]) };
    router.insert(&route("inside", inside));
    check(&router, &[("/ab", "x.com", "wide"), ("/b", "x.com", "any")]);
    assert_eq!(found(&router, "POST /ab\nHost: x.com"), "post");
}

#[test]
fn a_body_is_wanted_only_where_it_decides() {
    let looks = |uri: &str, host: &[&str]| {
        let vars = ConditionExpr::parse(&serde_json::json!([["post_arg_a", "==", "1"]])).unwrap();
        let filters = RouteFilters { vars: Some(vars), ..RouteFilters::default() };
        let methods = Method::Post.bit();
        RouteMatching { filters: Some(Arc::new(filters)), methods, ..matching(&[uri], host) }
    };
    let mut router = table(&[("any", "/*", &[]), ("exact", "/u/exact", &["a.com"])]);
    router.insert(&route("body", looks("/u/:id", &["a.com"])));
    let look_up = |request: &str, body: Option<&str>| {
        let bench = TestWorker::default();
        let mut ex = bench.exchange(&format!("{request}\nContent-Type: application/json\nContent-Length: 9"));
        ex.body.buffered = body.map(|body| body.as_bytes().to_vec().into());
        let found = router.find_before_body(&mut ex).map(|route| route.map_or("-", |route| &route.info.id));
        let found = found.map_or("?", |id| id).to_owned();
        if found == "?" {
            assert!(ex.route.info.is_none() && ex.route.path_params.is_empty(), "nothing is left of it");
        }
        found
    };
    assert_eq!(look_up("POST /u/1\nHost: a.com", None), "?");
    assert_eq!(look_up("POST /u/1\nHost: a.com", Some(r#"{"a":"1"}"#)), "body");
    assert_eq!(look_up("POST /u/1\nHost: a.com", Some(r#"{"a":"2"}"#)), "any");
    assert_eq!(look_up("POST /u/exact\nHost: a.com", None), "exact");
    assert_eq!(look_up("PUT /u/1\nHost: a.com", None), "any");
    assert_eq!(look_up("POST /u/1\nHost: b.com", None), "any");
    assert_eq!(look_up("POST /v\nHost: a.com", None), "any");
}

#[test]
fn priority_then_age_then_id_decide_within_a_bucket() {
    let mut router = Router::default();
    for (id, priority, created) in [("d", 0, 0), ("c", 0, 0), ("b", 5, 9), ("a", 5, 10)] {
        router.insert(&route(id, RouteMatching { priority, created, ..matching(&["/"], &[]) }));
    }
    let mut order = Vec::new();
    loop {
        let id = found(&router, "GET /");
        if id == "-" {
            break;
        }
        let removed = [("a", 5, 10), ("b", 5, 9), ("c", 0, 0), ("d", 0, 0)].into_iter().find(|x| x.0 == id);
        let (_, priority, created) = removed.unwrap();
        router.remove(&route(&id, RouteMatching { priority, created, ..matching(&["/"], &[]) }));
        order.push(id);
    }
    assert_eq!(order, ["b", "a", "c", "d"]);
    assert!(router.is_empty());
}

#[test]
fn captures_and_matched_patterns_are_noted() {
    let router = table(&[("r", "/u/:id/f/*rest", &["*.foo.com"])]);
    let bench = TestWorker::default();
    let mut ex = bench.exchange("GET /u/42/f/a/b\nHost: x.foo.com");
    assert!(router.find(&mut ex, &mut ()).is_some());
    let path = ex.request.routed_path();
    let params: Vec<_> =
        ex.route.path_params.iter().map(|(name, range)| (*name, &path[range.clone()])).collect();
    assert_eq!(params, [("id", &b"42"[..]), ("rest", &b"a/b"[..])]);
    assert_eq!((ex.route.uri(), ex.route.host), ("/u/:id/f/*rest", "*.foo.com"));
    assert_eq!(ex.route.info.map(|route| &*route.id), Some("r"));
}

#[test]
fn an_encoded_slash_is_part_of_a_parameter() {
    let router = table(&[("one", "/c/:id/x", &[]), ("rest", "/c/*", &[]), ("exact", "/g/a%2Fb", &[])]);
    check(
        &router,
        &[
            ("/c/a%2Fb/x", "", "one"),
            ("/c/a%2fb/x", "", "one"),
            ("/c/a/b/x", "", "rest"),
            ("/c%2Fa/x", "", "-"),
            ("/g/a%2fb", "", "exact"),
            ("/g/a%252Fb", "", "exact"),
            ("/g/a/b", "", "-"),
        ],
    );
    let bench = TestWorker::default();
    let mut ex = bench.exchange("GET /c/a%2Fb%25%41/x");
    assert!(router.find(&mut ex, &mut ()).is_some());
    assert_eq!(ex.path_param("id").as_deref(), Some(&b"a/b%A"[..]));
    assert_eq!(ex.path_param("none"), None);
}

#[test]
fn a_route_is_found_by_the_path_that_is_forwarded() {
    let router = table(&[("admin", "/admin/*", &[]), ("pub", "/pub/*", &[])]);
    for (target, id, forwarded) in [
        ("/admin/../pub/y", "pub", "/pub/y"),
        ("/admin/%2e%2e/pub/y", "pub", "/pub/y"),
        ("/admin/x%2F..%2F..%2Fpub/y", "pub", "/pub/y"),
        ("/pub/..;/admin/x", "admin", "/admin/x"),
        ("/pub/..%5cadmin/x", "admin", "/admin/x"),
        ("http://h/pub/../admin/x?a=../b", "admin", "/admin/x?a=../b"),
    ] {
        let bench = TestWorker::default();
        let mut ex = bench.exchange(&format!("GET {target}"));
        let found = router.find(&mut ex, &mut ()).map(|route| &*route.info.id);
        let sent = ex.request.upstream_target().escape_ascii().to_string();
        assert_eq!((found, &*sent), (Some(id), forwarded), "{target}");
    }
}

#[test]
fn parameters_can_be_switched_off() {
    let mut router = Router::new(false);
    router.insert(&route("r", matching(&["/u/:id"], &[])));
    check(&router, &[("/u/5", "", "-"), ("/u/:id", "", "r")]);
}

#[test]
fn thousands_of_nested_prefixes_neither_overflow_nor_lose_a_level() {
    let mut router = Router::default();
    let mut uri = String::from("/");
    for depth in 0..3000 {
        let methods = if depth == 1 { 0 } else { Method::Post.bit() };
        let matching = RouteMatching { methods, ..matching(&[&format!("{uri}*")], &[]) };
        router.insert(&route(&depth.to_string(), matching));
        uri.push('a');
    }
    check(&router, &[(&uri, "", "1")]);
}

#[test]
fn explain_tells_why_each_other_route_lost() {
    let mut router = table(&[
        ("won", "/a", &["x.com"]),
        ("shadowed", "/a*", &[]),
        ("path", "/b", &[]),
        ("host", "/a", &["y.com"]),
    ]);
    let post = RouteMatching { methods: Method::Post.bit(), priority: 1, ..matching(&["/a"], &["x.com"]) };
    router.insert(&route("method", post));
    let bench = TestWorker::default();
    let mut ex = bench.exchange("GET /a\nHost: x.com");
    let (winner, trace) = router.explain(&mut ex);
    assert_eq!(winner.map(|route| &*route.info.id), Some("won"));
    let lost: BTreeMap<_, _> = trace.lost.iter().map(|one| (&*one.id, one.lost)).collect();
    let expected = [
        ("host", MismatchReason::Host),
        ("method", MismatchReason::Method),
        ("path", MismatchReason::Path),
        ("shadowed", MismatchReason::Shadowed),
    ];
    assert_eq!(lost, expected.into_iter().collect());
}

/// A piece of a path pattern; the greater one takes precedence if both match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    /// The star at the end of a pattern, or before its end.
    Anything,
    End,
    Segment,
    Byte(u8),
}

/// The constant begin of a pattern, and the part of the rest that the tree of paths holds.
fn keys_of(pieces: &[Piece]) -> (Vec<Piece>, Vec<Piece>) {
    let end = pieces.iter().position(|piece| *piece == Piece::Anything).unwrap_or(pieces.len() - 1);
    let is_open = |piece: &Piece| matches!(piece, Piece::Segment | Piece::Anything);
    let start = pieces.iter().position(is_open).unwrap_or(pieces.len());
    (pieces[..start].to_vec(), pieces[start..=end.max(start.saturating_sub(1))].to_vec())
}

fn pieces(uri: &str) -> Vec<Piece> {
    let bytes = uri.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let starts_segment = at > 0 && bytes[at - 1] == b'/';
        let end = uri[at..].find('/').map_or(uri.len(), |length| at + length);
        if starts_segment && bytes[at] == b':' && end > at + 1 {
            out.push(Piece::Segment);
            at = end;
        } else if bytes[at] == b'*' {
            out.push(Piece::Anything);
            at = if starts_segment { end } else { at + 1 };
            if at == bytes.len() {
                return out;
            }
        } else {
            out.push(Piece::Byte(bytes[at]));
            at += 1;
        }
    }
    out.push(Piece::End);
    out
}

fn pieces_match(pieces: &[Piece], path: &[u8]) -> bool {
    match (pieces.first(), path.first()) {
        (Some(Piece::Anything), _) if pieces.len() == 1 => true,
        (Some(Piece::Anything), _) => {
            (0..=path.len()).any(|length| pieces_match(&pieces[1..], &path[length..]))
        }
        (Some(Piece::End), first) => first.is_none(),
        (Some(Piece::Byte(expected)), Some(byte)) => {
            expected == byte && pieces_match(&pieces[1..], &path[1..])
        }
        (Some(Piece::Segment), Some(byte)) if *byte != b'/' => {
            let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
            pieces_match(&pieces[1..], &path[end..])
        }
        _ => false,
    }
}

/// How close a host pattern is, if it matches: exact, then longer suffixes, then no host.
fn host_rank(hosts: &[Box<str>], host: &str) -> Option<usize> {
    if hosts.is_empty() {
        return Some(0);
    }
    let rank = |pattern: &str| match pattern.strip_prefix('*') {
        Some(suffix) => host.ends_with(suffix).then_some(1 + suffix.len()),
        None => (pattern == host).then_some(usize::MAX),
    };
    hosts.iter().filter_map(|pattern| rank(pattern)).max()
}

fn naive(routes: &BTreeMap<String, Arc<Route>>, path: &str, host: &str, method: Method) -> String {
    type Rank = (usize, Vec<Piece>, i32, Vec<Piece>, usize);
    let mut best: Option<(Rank, &str)> = None;
    for (id, route) in routes {
        let matching = &route.matching;
        if matching.methods != 0 && matching.methods & method.bit() == 0 {
            continue;
        }
        let Some(host_rank) = host_rank(&matching.hosts, host) else { continue };
        for uri in matching.uris.iter() {
            let pieces = pieces(uri);
            if !pieces_match(&pieces, path.as_bytes()) {
                continue;
            }
            let (begin, rest) = keys_of(&pieces);
            let rank = (host_rank, begin, matching.priority, rest, uri.len());
            if best.as_ref().is_none_or(|(other, _)| rank > *other) {
                best = Some((rank, id));
            }
        }
    }
    best.map_or("-".into(), |(_, id)| id.to_string())
}

fn some_path(random: &SeededRandom) -> String {
    let mut path = String::new();
    for _ in 0..=random.below(4) {
        path.push('/');
        path.push_str(random.one(&["", "a", "ab", "b", "abc", "ba"]));
    }
    while path.contains("//") {
        path = path.replace("//", "/");
    }
    path
}

fn some_uri(random: &SeededRandom) -> String {
    let mut path = some_path(random);
    match random.below(8) {
        4 => path = path.replacen("/a", "/*", 1) + random.one(&["", "/*", "/b"]),
        5 => path = path.replacen('b', "*", 1) + random.one(&["", "*", "/:z/c"]),
        0 => path.push('*'),
        1 => path.push_str("/*"),
        2 => path = path.replacen("/a", "/:x", 1 + random.below(2)),
        3 => path = path.replacen("/ab", "/:y", 1) + random.one(&["*", "", "/*rest"]),
        _ => {}
    }
    path.replace("//", "/")
}

const HOSTS: [&str; 8] = ["x.com", "a.x.com", "b.x.com", "*.x.com", "*x.com", "*.com", "*", "c.a.x.com"];

fn some_route(random: &SeededRandom, id: &str) -> Arc<Route> {
    let uris: Vec<String> = (0..=random.below(3)).map(|_| some_uri(random)).collect();
    let hosts: Vec<&str> = (0..random.below(3)).map(|_| random.one(&HOSTS)).collect();
    let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
    let methods = random.one(&[0, 0, Method::Post.bit(), Method::Get.bit()]);
    route(id, RouteMatching { methods, priority: random.below(3) as i32, ..matching(&uris, &hosts) })
}

/// Checks some requests, and records the routes that they get.
fn agree(
    router: &Router,
    routes: &BTreeMap<String, Arc<Route>>,
    random: &SeededRandom,
    reached: &mut BTreeSet<String>,
) {
    for _ in 0..12 {
        let path = some_path(random);
        let host = random.one(&["x.com", "a.x.com", "c.a.x.com", "ax.com", "y.com", "y.org", ""]);
        let (name, method) = random.one(&[("GET", Method::Get), ("POST", Method::Post)]);
        let expected = naive(routes, &path, host, method);
        let got = found(router, &format!("{name} {path}\nHost: {host}"));
        assert_eq!(got, expected, "{name} {path} at {host} among {routes:#?}");
        reached.insert(got);
        if random.below(32) == 0 {
            explains_as_it_serves(router, routes, &format!("{name} {path}"), host, &expected);
        }
    }
}

/// The explanation names the route that serves, and a reason for each other one.
fn explains_as_it_serves(
    router: &Router,
    routes: &BTreeMap<String, Arc<Route>>,
    line: &str,
    host: &str,
    expected: &str,
) {
    let snapshot = Snapshot { router: router.clone(), ..Snapshot::default() };
    let (method, path) = line.split_once(' ').unwrap();
    let mut question = Question { method: method.into(), url: path.into(), ..Question::default() };
    question.headers.insert("Host".into(), host.into());
    for id in routes.keys() {
        question.why_not = Some(id.clone());
        let explanation = explain(&snapshot, &question, &ExplainContext::default()).unwrap();
        let why_not = explanation.why_not.unwrap();
        assert_eq!(
            explanation.route.map_or("-".into(), |route| route.id.to_string()),
            expected,
            "{line} at {host}"
        );
        assert_eq!(why_not.lost.is_none(), id == expected, "{line} at {host}: {id} {why_not:?}");
        assert!(!why_not.why.is_empty() && why_not.route[..] == id[..], "{line} at {host}: {why_not:?}");
    }
    let short = outcome(&snapshot, &question, Default::default()).unwrap();
    assert_eq!(short.route.as_deref().unwrap_or("-"), expected, "{line} at {host}");
}

#[test]
fn labels_and_forks_of_every_length_are_found_and_left_clean() {
    let letters: Vec<char> = ('0'..='9').chain('A'..='Z').chain('a'..='z').collect();
    for label in 0..24 {
        for width in [1, 2, 9, 19, 20, 21, letters.len()] {
            let stem = "x".repeat(label);
            let mut router = Router::default();
            let mut routes = Vec::new();
            for letter in &letters[..width] {
                for (kind, star) in [("exact", ""), ("prefix", "*")] {
                    let uri = format!("/{stem}{letter}{star}");
                    let route = route(&format!("{kind}-{letter}"), matching(&[&uri], &[]));
                    router.insert(&route);
                    routes.push(route);
                }
            }
            for (at, letter) in letters[..width].iter().enumerate() {
                let path = format!("/{stem}{letter}");
                check(&router, &[(&path, "", &format!("exact-{letter}"))]);
                check(&router, &[(&format!("{path}/more"), "", &format!("prefix-{letter}"))]);
                check(&router, &[(&format!("/{stem}-"), "", "-"), (&format!("/{stem}"), "", "-")]);
                router.remove(&routes[2 * at]);
                check(&router, &[(&path, "", &format!("prefix-{letter}"))]);
                router.remove(&routes[2 * at + 1]);
                check(&router, &[(&path, "", "-")]);
            }
            assert!(router.any_host.is_empty(), "{label} and {width} leave nodes behind");
        }
    }
}

#[test]
fn random_tables_answer_as_the_plain_rules_do_through_every_change() {
    for seed in 0..400 {
        let random = SeededRandom::new(seed);
        let mut router = Router::default();
        let mut routes: BTreeMap<String, Arc<Route>> = BTreeMap::new();
        let mut old = Vec::new();
        let (mut reached, mut unreachable) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..40 {
            let id = random.below(16).to_string();
            if let Some(removed) = routes.remove(&id) {
                router.remove(&removed);
            }
            if random.below(3) > 0 {
                let new = some_route(&random, &id);
                router.insert(&new);
                routes.insert(id, new);
            }
            assert_eq!(router.len(), routes.len());
            let shadowed = router.overlaps().into_iter().filter(|one| one.is_shadowed);
            unreachable.extend(shadowed.map(|one| one.route.to_string()));
            reached.clear();
            agree(&router, &routes, &random, &mut reached);
            let both: Vec<_> = reached.intersection(&unreachable).collect();
            assert!(both.is_empty(), "{both:?} are called unreachable among {routes:#?}");
            unreachable.clear();
            if random.below(10) == 0 {
                old.push((router.clone(), routes.clone()));
            }
        }
        for (router, routes) in &old {
            agree(router, routes, &random, &mut reached);
        }
        for removed in routes.values() {
            router.remove(removed);
        }
        assert!(router.any_host.is_empty() && router.hosts.is_empty(), "seed {seed} leaves nodes behind");
    }
}
