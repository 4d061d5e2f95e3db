//! The document is valid and describes the served endpoints.

mod served;

use std::collections::HashSet;

use serde_json::Value;

use super::{endpoints, openapi};
use crate::contract_router;
use crate::testing::{call, state};

#[test]
fn every_reference_leads_somewhere_and_every_operation_is_complete() {
    let document = openapi(&state(), &endpoints());
    let mut stack = vec![&document];
    let mut references = 0;
    while let Some(value) = stack.pop() {
        if let Some(target) = value.get("$ref").and_then(Value::as_str) {
            let pointer = target.strip_prefix('#').expect("a reference into the document");
            assert!(document.pointer(pointer).is_some(), "{target}");
            references += 1;
        }
        match value {
            Value::Object(members) => stack.extend(members.values()),
            Value::Array(items) => stack.extend(items),
            _ => {}
        }
    }
    assert!(references > 50);
    let mut ids = HashSet::new();
    for (path, verbs) in document["paths"].as_object().unwrap() {
        for (verb, operation) in verbs.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            assert!(ids.insert(id), "{verb} {path}: an operation id is used twice");
            let parameters = operation["parameters"].as_array().unwrap();
            let named = |name: &str| parameters.iter().any(|one| one["name"] == name && one["in"] == "path");
            let in_path = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
            for name in in_path {
                assert!(named(name), "{verb} {path}: {name} is not described");
            }
            assert!(!operation["responses"].as_object().unwrap().is_empty(), "{verb} {path}");
            assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{verb} {path}");
        }
    }
}

#[test]
fn every_verb_of_the_contract_is_in_the_table() {
    let rows = "routes services upstreams ssls:get list put post patch part delete\n\
                consumer_groups global_rules plugin_configs tests:get list put patch part delete\n\
                protos stream_routes:get list put post delete";
    let table = endpoints();
    let has = |method: &str, path: &str| table.iter().any(|one| one.method == method && one.path == path);
    for row in rows.lines() {
        let (kinds, verbs) = row.split_once(':').unwrap();
        for kind in kinds.split_whitespace() {
            let all = format!("/apisix/admin/{kind}");
            let one = format!("{all}/{{id}}");
            let part = format!("{one}/{{path}}");
            for (verb, method, path) in [
                ("list", "get", &all),
                ("post", "post", &all),
                ("get", "get", &one),
                ("put", "put", &one),
                ("patch", "patch", &one),
                ("part", "patch", &part),
                ("delete", "delete", &one),
            ] {
                let expected = verbs.split_whitespace().any(|one| one == verb);
                assert_eq!(has(method, path), expected, "{method} {path}");
            }
        }
    }
    assert!(has("put", "/apisix/admin/consumers") && !has("post", "/apisix/admin/consumers"));
    assert!(has("put", "/apisix/admin/consumers/{username}/credentials/{id}"));
    assert!(has("patch", "/apisix/admin/secrets/{manager}/{id}"));
}

#[tokio::test]
async fn documented_endpoints_are_served() {
    let router = contract_router().with_state(state());
    let extensions = ["schema", "plugins", "configs"];
    for endpoint in endpoints().into_iter().filter(|one| extensions.contains(&one.tag)) {
        let path = endpoint
            .path
            .replace("{main}", "route")
            .replace("{name}", "cors")
            .replace("{resource}", "routes");
        let answer = call(&router, &endpoint.method.to_uppercase(), &path, &[("x-digest", "d")], "{}").await;
        // The router's own refusals have no body.
        let is_served = !answer.text.is_empty() || answer.status.is_success();
        assert!(is_served && answer.status.as_u16() != 405, "{} {path}: {}", endpoint.method, answer.status);
    }
    let served = call(&router, "GET", "/yumen/v1/openapi.json", &[], "").await.json();
    assert_eq!(served, openapi(&state(), &endpoints()));
}
