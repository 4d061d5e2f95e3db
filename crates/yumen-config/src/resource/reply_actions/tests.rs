//! Refusals of actions on responses, of conditional redirects and of canaries.

use serde_json::{Value, json};

use crate::resource::{RouteSpec, decode_value};

/// Checks that a route with these members is refused at a path; an empty text accepts it.
fn check(members: Value, at: &str) {
    let mut route = json!({ "uri": "/*" });
    route.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let refused = decode_value::<RouteSpec>(route).err();
    assert_eq!(refused.as_ref().map_or("", |error| &error.path), at, "{members}: {refused:?}");
}

#[test]
fn actions_on_responses_that_cannot_take_effect_are_refused() {
    for (actions, at) in [
        (json!({ "response_rewrite": {} }), "actions.response_rewrite"),
        (json!({ "response_rewrite": { "locations": [{ "from": "a", "to": "b" }] } }), ""),
        (
            json!({ "response_rewrite": { "cookie_paths": [{ "from": "a", "to": "b", "ignore_case": true }] } }),
            "actions.response_rewrite.cookie_paths[0].ignore_case",
        ),
        (json!({ "hsts": { "max_age_s": 0 } }), ""),
        (json!({ "errors": { "format": "html" } }), ""),
        (json!({ "errors": {} }), "actions.errors"),
        (json!({ "request_fields": {} }), "actions.request_fields"),
        (json!({ "request_fields": { "variables": true } }), "actions.request_fields"),
        (json!({ "errors": { "pages": { "upstream_id": "u" } } }), "actions.errors.pages.statuses"),
        (
            json!({ "errors": { "pages": { "upstream_id": "u", "statuses": [200] } } }),
            "actions.errors.pages.statuses[0]",
        ),
        (json!({ "limits": { "response_rate_after": 1 } }), "actions.limits.response_rate_after"),
        (json!({ "limits": { "body_bytes_max": 0 } }), ""),
        (json!({ "forwarded_fields": "nginx" }), ""),
        (json!({ "forwarded_fields": "apache" }), "actions.forwarded_fields"),
        (json!({ "access_log": false }), ""),
    ] {
        check(json!({ "actions": actions }), at);
    }
}

#[test]
fn a_redirect_on_a_condition_leaves_room_for_other_actions() {
    let https = json!({ "scheme": "https", "status": 308, "when": { "scheme": "http" } });
    check(json!({ "actions": { "redirect": https, "rewrite": { "host": "a" } } }), "");
    for (redirect, at) in [
        (json!({ "when": {} }), "actions.redirect.when"),
        (json!({ "when": { "exempt_paths": ["a"] } }), "actions.redirect.when.exempt_paths[0]"),
        (json!({ "url": "https://a$request_uri" }), ""),
        (json!({ "url": "/a b" }), "actions.redirect.url"),
        (json!({ "url": "/", "host": "a" }), "actions.redirect.host"),
        (json!({ "relative": true, "host": "a" }), "actions.redirect.host"),
        (json!({ "relative": true, "path": "trim_slash" }), ""),
    ] {
        check(json!({ "actions": { "redirect": redirect } }), at);
    }
}

#[test]
fn canary_rules_belong_to_one_backend() {
    let check = |canary: Value, at: &str| {
        check(json!({ "backends": [{ "upstream_id": "a" }, { "upstream_id": "b", "canary": canary }] }), at);
    };
    check(json!({}), "");
    check(json!({ "header": { "name": "X", "value": "v" }, "cookie": "c" }), "");
    check(json!({ "header": { "name": "X y" } }), "backends[1].canary.header.name");
    check(
        json!({ "header": { "name": "X", "value": "v", "pattern": "p" } }),
        "backends[1].canary.header.pattern",
    );
    check(json!({ "ignores_session": true }), "backends[1].canary.ignores_session");
    self::check(json!({ "backends": [{ "upstream_id": "a", "canary": {} }] }), "backends[0].canary");
    let twice = json!([{ "upstream_id": "a", "canary": {} }, { "upstream_id": "b", "canary": {} }]);
    self::check(json!({ "backends": twice }), "backends[1].canary");
}
