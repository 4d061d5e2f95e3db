use serde_json::{Value, json};

use crate::testing::PluginBench;

const QUERY: &str = "query A($name: String) { user(name: $name) { id } }";

fn settings(more: Value) -> Value {
    let mut settings = json!({ "query": QUERY });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

/// Checks target and body of the upstream request, or the status of the refusal.
fn check(more: Value, request: &str, expected: Result<(&str, Value), u16>) {
    let bench = PluginBench::new();
    let plugin = bench.plugin("degraphql", settings(more));
    let mut ex = bench.exchange(request);
    let answer = bench.admit(&[plugin], &mut ex, request);
    let body =
        ex.body.buffered.as_deref().map_or(Value::Null, |body| serde_json::from_slice(body).expect("JSON"));
    let target = String::from_utf8_lossy(ex.request.upstream_target()).into_owned();
    let went = answer.map_or(Ok((target.as_str(), body)), |response| Err(response.status));
    assert_eq!(went, expected, "{request}");
}

#[test]
fn a_post_becomes_a_query_with_variables_of_its_body() {
    let named = json!({ "variables": ["name", "age"], "operation_name": "A" });
    check(
        named.clone(),
        "POST /user HTTP/1.1\n\n{\"name\":\"jack\",\"other\":1}",
        Ok(("/user", json!({ "query": QUERY, "variables": { "name": "jack" }, "operationName": "A" }))),
    );
    check(json!({}), "POST /user HTTP/1.1\n\nanything", Ok(("/user", json!({ "query": QUERY }))));
    check(named.clone(), "POST /user HTTP/1.1\n\n[1]", Err(400));
    check(named.clone(), "POST /user HTTP/1.1", Err(400));
    check(named, "PUT /user HTTP/1.1", Err(405));
}

#[test]
fn a_get_becomes_a_query_in_its_arguments() {
    let query =
        "query=query%20A%28%24name%3A%20String%29%20%7B%20user%28name%3A%20%24name%29%20%7B%20id%20%7D%20%7D";
    let plain = format!("/user?{query}");
    check(json!({}), "GET /user?x=1 HTTP/1.1", Ok((&plain, Value::Null)));
    let with = format!("{plain}&variables=%7B%22name%22%3A%22a%20b%22%7D&operationName=A");
    check(
        json!({ "variables": ["name"], "operation_name": "A" }),
        "GET /user?name=a+b&name=c&x=1 HTTP/1.1",
        Ok((&with, Value::Null)),
    );
}

#[test]
fn a_document_is_read_when_it_is_configured() {
    let check = |settings: Value, expected: &str| {
        let refused = PluginBench::new().build("degraphql", settings.clone()).err().expect("it is refused");
        assert!(refused.message.starts_with(expected), "{settings}: {refused:?}");
    };
    check(json!({ "query": "query { a" }), "failed to parse query: ");
    check(json!({ "query": "" }), "property \"query\" validation failed: string too short");
    let two = "query A { a } query B { b }";
    check(
        json!({ "query": two }),
        "operation_name is required if multiple operations are present in the query",
    );
    let bench = PluginBench::new();
    assert!(bench.build("degraphql", json!({ "query": two, "operation_name": "B" })).is_ok());
}
