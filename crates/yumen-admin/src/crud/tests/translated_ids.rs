//! Ids of objects that are translated from those of Kubernetes: they contain a slash and exclamation marks.

use std::sync::Arc;

use serde_json::json;
use yumen_config::Kind;
use yumen_store::{
    HistoryRetention, MemoryMedium, ReadOnlyStore, ResourceKey, Revision, StoreEntry, StoreState,
};

use super::{Api, Case, admin};

const REASON: &str = "resources are translated from Kubernetes objects: change those";

/// An Admin API on a read-only store with one translated route.
fn translated() -> Api {
    let route = json!({
        "uri": "/*",
        "backends": [{ "weight": 1, "status": 500 }],
        "scopes": ["infra/web!scope!http"],
        "labels": { "origin": "HTTPRoute/shop/cart" },
    });
    let first = Revision(1);
    let entry =
        StoreEntry { json: route.to_string().into(), created: first, modified: first, expires_ms: None };
    let key = ResourceKey::new(Kind::Routes, "shop/cart!http!00!000");
    let state = StoreState::new(first, [(key, entry)], []);
    let store = Arc::new(MemoryMedium::store_of(state, HistoryRetention::of(10)).unwrap());
    Api::with(&admin(), |api| api.store = Arc::new(ReadOnlyStore::new(store, REASON.to_owned())))
}

const CASES: &[Case] = &[
    (
        "GET /routes/shop%2Fcart%21http%2100%21000",
        "",
        200,
        r#"{"key":"/apisix/routes/shop/cart!http!00!000","value":{"uri":"/*","labels":{"origin":"HTTPRoute/shop/cart"}}}"#,
    ),
    ("GET /routes/shop%2fcart!http!00!000", "", 200, r#"{"key":"/apisix/routes/shop/cart!http!00!000"}"#),
    ("GET /routes/shop%2Fcart%21http%2100%21001", "", 404, r#"{"message":"Key not found"}"#),
    (
        "GET /routes",
        "",
        200,
        r#"{"total":1,"list":[{"key":"/apisix/routes/shop/cart!http!00!000","value":{"labels":{"origin":"HTTPRoute/shop/cart"}}}]}"#,
    ),
    ("GET /routes?label=origin", "", 200, r#"{"total":1}"#),
];

#[tokio::test]
async fn translated_objects_are_read_by_encoded_ids() {
    translated().run(CASES).await;
}

#[tokio::test]
async fn writes_to_translated_resources_name_the_place_to_change() {
    let api = translated();
    for (line, body) in [
        ("PUT /routes/1", r#"{"uri":"/a","plugins":{}}"#),
        ("POST /routes", r#"{"uri":"/a","plugins":{}}"#),
        ("DELETE /routes/shop%2Fcart%21http%2100%21000", ""),
        ("PATCH /routes/shop%2Fcart%21http%2100%21000", r#"{"priority":1}"#),
    ] {
        let answer = api.ask(line, body).await;
        assert_eq!(answer.status, 503, "{line}: {}", answer.text);
        assert!(answer.text.contains(REASON), "{line}: {}", answer.text);
    }
}
