//! Which places are named for variables nobody knows.

use serde_json::json;
use yumen_config::Kind;

use crate::compile::tests::{compiler, found, get, nodes, put, route};

#[test]
fn every_place_that_names_an_unknown_variable_is_told() {
    let filter = json!([["OR", ["nosuch_arg", "==", "1"], ["arg_v", "==", "nosuch_arg"]]]);
    let compiled = compiler().apply(
        vec![
            route("vars", json!({ "name": "hostnam", "vars": [["uri", "~~", "^/"], ["hostnam", "==", "hostnam"]], "upstream": nodes("10.0.0.1") })),
            route("filter", json!({ "plugins": { "first": { "text": "", "_meta": { "filter": filter } } } })),
            put(
                Kind::Upstreams,
                "u",
                json!({ "type": "chash", "hash_on": "vars_combinations", "key": "$host${ nosuch}$nosuch_2", "nodes": { "10.0.0.1:80": 1 } }),
            ),
            route(
                "known",
                json!({ "vars": [["http_a", "==", "1"], ["arg_b", "!", "==", "c"], ["post_arg.x.y", "==", "2"], ["hostname", "~~", "."]], "upstream": nodes("10.0.0.1") }),
            ),
        ],
        1,
    );
    assert_eq!(
        found(&compiled.problems),
        [
            "warning routes/filter at plugins.first._meta.filter[0][1][0]",
            "warning routes/vars at vars[1][0]",
            "warning upstreams/u at key",
            "warning upstreams/u at key",
        ]
    );
    let problem = compiled.problems.iter().find(|one| one.path.starts_with("vars")).unwrap();
    assert_eq!(problem.message, "unknown variable $hostnam: it never has a value");
    assert_eq!(problem.hint.as_deref(), Some("did you mean \"hostname\"?"));
    // It is a warning: the object serves.
    assert_eq!(get(&compiled, "/filter"), "filter none first@routes/filter");
}

#[test]
fn the_warning_goes_with_the_name() {
    let mut compiler = compiler();
    let mut problem_of = |variable: &str| {
        let vars = json!({ "vars": [[variable, "==", "1"]], "upstream": nodes("10.0.0.1") });
        compiler.apply(vec![route("1", vars)], 1)
    };
    assert_eq!(found(&problem_of("nosuch").problems), ["warning routes/1 at vars[0][0]"]);
    let problem_of = problem_of("arg_such");
    assert_eq!(found(&problem_of.problems), [""; 0]);
}
