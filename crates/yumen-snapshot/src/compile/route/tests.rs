//! What becomes of the requests of broken routes.

use serde_json::json;

use crate::compile::tests::{compiler, get, nodes, route};

#[test]
fn a_broken_route_says_what_becomes_of_its_requests() {
    let broken = vec![
        route("new", json!({ "plugins": { "nobody": {} } })),
        route(
            "lua",
            json!({ "filter_func": "function(vars) return true end", "upstream": nodes("10.0.0.2") }),
        ),
        // Refused, it would take the requests of all hosts.
        route("misspelled", json!({ "hots": ["a.example"], "upstream": nodes("10.0.0.2") })),
        route("unknown", json!({ "comment": "", "upstream": nodes("10.0.0.2") })),
    ];
    let compiled = compiler().apply(broken, 1);
    for (path, answer, part) in [
        ("new", "new 503", "answered 503"),
        ("lua", "-", "go to other routes"),
        ("misspelled", "-", "go to other routes"),
        ("unknown", "unknown 503", "answered 503"),
    ] {
        assert_eq!(get(&compiled, &format!("/{path}")), answer);
        let problem = compiled.problems.iter().find(|one| one.object == format!("routes/{path}")).unwrap();
        assert!(problem.hint.as_deref().is_some_and(|hint| hint.contains(part)), "{problem:?}");
    }
}

#[test]
fn what_matches_nothing_may_be_broken_without_giving_requests_to_other_routes() {
    let meant = [
        ("text", json!({ "priority": "5" })),
        ("part", json!({ "priority": 1.5 })),
        ("word", json!({ "priority": "high" })),
        ("date", json!({ "create_time": "2024-01-01" })),
        ("status", json!({ "status": "1" })),
        ("name", json!({ "name": ["a"] })),
    ];
    let mut broken: Vec<_> = meant.into_iter().map(|(id, value)| route(id, value)).collect();
    broken.push(route("disabled", json!({ "status": "0" })));
    let open = json!({ "uri": "/*", "upstream": nodes("10.0.0.2") });
    let compiled = compiler().apply([broken, vec![route("open", open)]].concat(), 1);
    for id in ["text", "part", "word", "date", "status", "name"] {
        assert_eq!(get(&compiled, &format!("/{id}")), format!("{id} 503"));
    }
    assert_eq!(get(&compiled, "/disabled"), "open 10.0.0.2:80");
}

#[test]
fn a_number_in_a_text_is_still_the_order_of_a_broken_route() {
    let at = |id: &str, more: serde_json::Value| {
        let mut value = json!({ "uri": "/same" });
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        route(id, value)
    };
    let open = at("open", json!({ "priority": 7, "upstream": nodes("10.0.0.2") }));
    let first = compiler().apply(vec![open.clone(), at("broken", json!({ "priority": "8" }))], 1);
    assert_eq!(get(&first, "/same"), "broken 503");
    let compiled = compiler().apply(vec![open, at("broken", json!({ "priority": "6" }))], 1);
    assert_eq!(get(&compiled, "/same"), "open 10.0.0.2:80");
}
