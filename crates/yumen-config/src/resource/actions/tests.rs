//! Refusals of native members of routes and stream routes.

use serde_json::{Value, json};

use crate::resource::{RouteSpec, StreamRouteSpec, decode_value};

/// Checks that a route with these members is refused at a path; an empty text accepts it.
fn check(members: Value, at: &str) {
    let mut route = json!({ "uri": "/*" });
    for (name, value) in members.as_object().unwrap() {
        route[name] = value.clone();
    }
    let refused = decode_value::<RouteSpec>(route).err();
    assert_eq!(refused.as_ref().map_or("", |error| &error.path), at, "{members}: {refused:?}");
}

#[test]
fn a_route_needs_no_upstream_beside_actions_or_backends() {
    check(json!({ "actions": { "respond": { "status": 200 } } }), "");
    check(json!({ "backends": [] }), "");
    check(json!({ "backends": [{ "status": 500 }, { "upstream_id": "u", "weight": 0 }] }), "");
}

#[test]
fn actions_that_cannot_take_effect_are_refused() {
    let actions = |actions: Value| json!({ "actions": actions });
    for (members, at) in [
        (json!({}), "actions"),
        (json!({ "redirect": {}, "respond": { "status": 200 } }), "actions.respond"),
        (json!({ "redirect": {}, "rewrite": { "host": "a" } }), "actions.rewrite"),
        (json!({ "redirect": { "status": 304 } }), "actions.redirect.status"),
        (json!({ "redirect": { "scheme": "ftp" } }), "actions.redirect.scheme"),
        (json!({ "redirect": { "host": "a:80" } }), "actions.redirect.host"),
        (json!({ "redirect": { "path": { "full": "x" } } }), "actions.redirect.path.full"),
        (json!({ "rewrite": { "host": "a b" } }), "actions.rewrite.host"),
        (json!({ "rewrite": { "host": "[::1]:80" } }), ""),
        (
            json!({ "rewrite": { "path": { "prefix": { "from": "a", "to": "" } } } }),
            "actions.rewrite.path.prefix.from",
        ),
        (json!({ "request_fields": { "set": [["a b", "1"]] } }), "actions.request_fields.set[0]"),
        (json!({ "request_fields": { "add": [["A", "1\n2"]] } }), "actions.request_fields.add[0]"),
        (json!({ "request_fields": { "remove": ["Content-Length"] } }), "actions.request_fields.remove[0]"),
        (
            json!({ "response_fields": { "set": [["Transfer-Encoding", "x"]] } }),
            "actions.response_fields.set[0]",
        ),
        (json!({ "cors": { "allow_origins": ["a.com"] } }), "actions.cors.allow_origins[0]"),
        (json!({ "cors": { "allow_origins": ["https://a.*.com"] } }), "actions.cors.allow_origins[0]"),
        (json!({ "cors": { "allow_methods": ["A B"] } }), "actions.cors.allow_methods[0]"),
        (json!({ "mirrors": [{ "upstream_id": "u", "numerator": 2 }] }), "actions.mirrors[0].numerator"),
    ] {
        check(actions(members), at);
    }
}

#[test]
fn conditions_that_cannot_match_are_refused() {
    let matching = |matching: Value| json!({ "match": matching, "upstream_id": "u" });
    for (members, at) in [
        (json!({}), "match"),
        (json!({ "paths": {} }), "match.paths"),
        (json!({ "paths": { "exact": ["a"] } }), "match.paths.exact[0]"),
        (json!({ "paths": { "prefix": ["/a//b"] } }), "match.paths.prefix[0]"),
        (json!({ "paths": { "prefix": ["/a/../b"] } }), "match.paths.prefix[0]"),
        (json!({ "paths": { "starts_with": ["/a%2fb"] } }), "match.paths.starts_with[0]"),
        (json!({ "paths": { "exact": ["/a"] }, "path_regex": { "pattern": "/b" } }), "match.path_regex"),
        (json!({ "headers": [{ "name": "a b", "value": "" }] }), "match.headers[0].name"),
        (json!({ "headers": [{ "name": "a" }] }), "match.headers[0]"),
        (json!({ "queries": [{ "name": "a", "value": "", "is_absent": true }] }), "match.queries[0]"),
        (json!({ "queries": [{ "name": "a b", "regex": ".*" }], "is_grpc": true }), ""),
    ] {
        check(matching(members), at);
    }
    let elsewhere = json!({ "uri": "/a", "match": { "paths": { "exact": ["/a"] } }, "upstream_id": "u" });
    check(elsewhere, "uri");
}

#[test]
fn backends_and_sessions_that_cannot_take_effect_are_refused() {
    let backend = json!([{ "upstream_id": "u" }]);
    check(json!({ "backends": backend, "upstream_id": "u" }), "backends");
    check(json!({ "backends": [{ "upstream_id": "u", "weight": 1000001 }] }), "backends[0].weight");
    check(json!({ "backends": [{ "weight": 1 }] }), "backends[0]");
    check(json!({ "backends": [{ "upstream_id": "u", "status": 500 }] }), "backends[0]");
    let edits = json!({ "request_fields": { "remove": ["Connection"] } });
    let path = "backends[0].actions.request_fields.remove[0]";
    check(json!({ "backends": [{ "upstream_id": "u", "actions": edits }] }), path);
    let session = |session: Value| json!({ "backends": backend, "session": session });
    check(session(json!({ "name": "s", "is_permanent": true, "max_age_s": 60 })), "");
    check(session(json!({ "name": "s", "is_permanent": true })), "session.is_permanent");
    check(session(json!({ "name": "s s" })), "session.name");
    check(session(json!({ "kind": "header", "name": "S", "cookie": {} })), "session.cookie");
}

#[test]
fn a_stream_route_has_backends_without_actions() {
    let at = |backends: Value| {
        decode_value::<StreamRouteSpec>(json!({ "backends": backends })).err().map(|it| it.path)
    };
    assert_eq!(at(json!([{ "upstream_id": "u" }, { "status": 500 }])), None);
    let edits = json!({ "request_fields": { "remove": ["A"] } });
    let refused = at(json!([{ "upstream_id": "u", "actions": edits }]));
    assert_eq!(refused.as_deref(), Some("backends[0].actions"));
}
