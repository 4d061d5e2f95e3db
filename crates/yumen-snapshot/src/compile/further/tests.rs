use serde_json::json;
use yumen_config::Kind;

use super::super::tests::{compiler, found, put, route};

#[test]
fn all_that_is_wrong_with_an_object_is_told_at_once() {
    let plugins = json!({ "first": { "text": 5 }, "second": { "text": "x" }, "thrid": {} });
    let broken = json!({ "priority": "x", "status": 3, "methods": ["NOPE"], "plugins": plugins });
    let compiled = compiler().apply(vec![route("a", broken)], 1);
    let mut told = found(&compiled.problems);
    told.sort();
    let paths = ["methods[0]", "plugins.first.text", "plugins.thrid", "priority", "status"];
    assert_eq!(told, paths.map(|path| format!("error routes/a at {path}")));
    // What remains says no more where what is left out is needed.
    let compiled =
        compiler().apply(vec![put(Kind::Consumers, "b", json!({ "username": 5, "plugins": {} }))], 1);
    assert_eq!(found(&compiled.problems), ["error consumers/b at username"]);
}
