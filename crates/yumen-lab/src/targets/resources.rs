//! The plan as APISIX resources, for the targets yumen and APISIX.

use serde_json::{Value, json};

use super::plan::{GatewayPlan, mock_body};

/// Request limit that is never reached in a round and fits the integers of every gateway.
pub(super) const LIMIT: u64 = 1_000_000_000;

/// The whole configuration as one document of the standalone format.
pub(super) fn document(plan: &GatewayPlan) -> Value {
    let mut document = json!({ "upstreams": [upstream(plan)], "routes": routes(plan) });
    let consumers: Vec<Value> = plan.keys().iter().enumerate().map(|(i, key)| consumer(i, key)).collect();
    if !consumers.is_empty() {
        document["consumers"] = consumers.into();
    }
    if let Some(certificate) = &plan.certificate {
        document["ssls"] = json!([{ "id": "tls", "snis": ["localhost"],
            "cert": certificate.chain_text, "key": certificate.key_text }]);
    }
    document
}

/// The document as text with one object per line, readable and suitable for `diff`.
pub(super) fn standalone_yaml(plan: &GatewayPlan) -> String {
    let mut text = String::new();
    let document = document(plan);
    for (kind, objects) in document.as_object().into_iter().flatten() {
        text += &format!("{kind}:\n");
        for object in objects.as_array().into_iter().flatten() {
            text += &format!("  - {object}\n");
        }
    }
    text + "#END\n"
}

/// The only upstream.
pub(super) fn upstream(plan: &GatewayPlan) -> Value {
    let nodes: serde_json::Map<String, Value> =
        plan.endpoints.iter().map(|endpoint| (endpoint.to_string(), json!(1))).collect();
    json!({ "id": "up", "type": "roundrobin", "nodes": nodes,
        "keepalive_pool": { "size": plan.gateway.keepalive, "idle_timeout": 300, "requests": LIMIT } })
}

fn routes(plan: &GatewayPlan) -> Vec<Value> {
    let plugins = plugins(plan);
    let all = json!({ "id": "all", "uri": "/*", "upstream_id": "up", "plugins": plugins });
    let numbered = (0..plan.gateway.routes).map(|i| {
        json!({ "id": format!("r{i}"), "uri": format!("/r/{i}"), "upstream_id": "up", "plugins": plugins })
    });
    std::iter::once(all).chain(numbered).collect()
}

fn plugins(plan: &GatewayPlan) -> Value {
    let mut plugins = serde_json::Map::new();
    if plan.gateway.responds_itself() {
        let mocking = json!({ "response_status": 200, "content_type": "text/plain",
            "response_example": mock_body(), "with_mock_header": false });
        plugins.insert("mocking".to_owned(), mocking);
    }
    if plan.gateway.requires_key() {
        plugins.insert("key-auth".to_owned(), json!({}));
    }
    if plan.gateway.limit_count {
        let limit = json!({ "count": LIMIT, "time_window": 3600, "key_type": "var", "key": "remote_addr",
            "policy": "local", "rejected_code": 503 });
        plugins.insert("limit-count".to_owned(), limit);
    }
    plugins.into()
}

fn consumer(number: usize, key: &str) -> Value {
    json!({ "username": format!("consumer{number}"), "plugins": { "key-auth": { "key": key } } })
}
