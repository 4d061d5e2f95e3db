//! The whole configuration over the router: requests of a standalone tool, and their responses.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use yumen_config::Kind;
use yumen_store::{Authorship, ResourceKey, commit};

use crate::AdminState;
use crate::contract_router;
use crate::testing::{TestResponse, call, state};

const PATH: &str = "/apisix/admin/configs";

async fn put(state: &AdminState, digest: &str, document: &Value) -> TestResponse {
    let router = contract_router().with_state(state.clone());
    call(&router, "PUT", PATH, &[("x-digest", digest)], &document.to_string()).await
}

async fn get(state: &AdminState) -> TestResponse {
    call(&contract_router().with_state(state.clone()), "GET", PATH, &[], "").await
}

/// The revision of the last write of each object, by name.
fn revisions(state: &AdminState) -> BTreeMap<String, u64> {
    state.store.state().entries().map(|(key, entry)| (key.to_string(), entry.modified.0)).collect()
}

fn document() -> Value {
    json!({
        "routes": [
            { "id": "r1", "uri": "/a", "service_id": "s1", "modifiedIndex": 7 },
            { "id": 2, "uri": "/b", "service_id": "s1" },
        ],
        "services": [{ "id": "s1", "upstream": { "nodes": { "127.0.0.1:80": 1 } } }],
        "consumers": [
            { "username": "jack", "modifiedIndex": 3 },
            { "id": "jack/credentials/c1", "plugins": { "key-auth": { "key": "k" } } },
        ],
        "plugin_metadata": [{ "id": "cors", "allow_origins": { "a": "https://a.example" } }],
        "secrets": [{ "id": "vault/1", "uri": "http://a:1", "prefix": "p", "token": "t" }],
    })
}

#[tokio::test]
async fn a_tool_reads_replaces_and_replaces_again_only_what_changed() {
    let state = state();
    let empty = get(&state).await;
    assert_eq!((empty.status.as_u16(), &empty.json()["routes_conf_version"]), (200, &json!(0)));
    assert_eq!((empty.header("x-digest"), empty.json().get("routes")), ("", None));

    let first = put(&state, "d1", &document()).await;
    assert_eq!((first.status.as_u16(), first.text.as_str(), first.header("x-digest")), (202, "", "d1"));
    assert!(first.header("x-last-modified").parse::<u64>().unwrap() > 1_600_000_000);
    let names: Vec<String> = revisions(&state).into_keys().collect();
    let expected = [
        "consumers/jack",
        "consumers/jack/credentials/c1",
        "plugin_metadata/cors",
        "routes/2",
        "routes/r1",
        "secrets/vault/1",
        "services/s1",
    ];
    assert_eq!(names, expected);
    assert_eq!(put(&state, "d1", &document()).await.status.as_u16(), 204);

    let read = get(&state).await;
    let body = read.json();
    assert_eq!((read.header("x-digest"), &body["consumers_conf_version"]), ("d1", &json!(1)));
    assert_eq!(body["consumers"][1]["id"], "jack/credentials/c1");
    assert_eq!(body["routes"][1]["modifiedIndex"], json!(7));
    assert_eq!(body["routes"][0]["modifiedIndex"], json!(revisions(&state)["routes/2"]));

    // A standalone tool reads the document, changes one route and writes it back.
    let before = revisions(&state);
    let mut next = body.clone();
    next["routes"][1]["uri"] = json!("/c");
    next["routes"][1]["modifiedIndex"] = json!(8);
    next["routes_conf_version"] = json!(2);
    assert_eq!(put(&state, "d2", &next).await.status.as_u16(), 202);
    let after = revisions(&state);
    let changed: Vec<&String> =
        after.iter().filter(|(name, at)| before.get(*name) != Some(at)).map(|(name, _)| name).collect();
    assert_eq!(changed, ["routes/r1"]);
    let versions = get(&state).await.json();
    assert_eq!(
        (&versions["routes_conf_version"], &versions["services_conf_version"]),
        (&json!(2), &json!(1))
    );
}

#[tokio::test]
async fn versions_decide_what_is_looked_at() {
    let state = state();
    put(&state, "d1", &document()).await;
    let body = get(&state).await.json();
    let refused = |answer: TestResponse, message: &str| {
        assert_eq!((answer.status.as_u16(), answer.json()), (400, json!({ "error_msg": message })));
    };
    let mut low = body.clone();
    low["routes_conf_version"] = json!(0);
    refused(put(&state, "d2", &low).await, "routes_conf_version must be greater than or equal to (1)");
    low["routes_conf_version"] = json!("1");
    refused(put(&state, "d2", &low).await, "routes_conf_version must be a number");
    for odd in [json!(true), json!([]), json!({ "a": 1 })] {
        low["routes_conf_version"] = odd;
        refused(put(&state, "d2", &low).await, "routes_conf_version must be a number");
    }
    for odd in [json!(u64::MAX), json!((1_u64 << 53) + 1)] {
        low["routes_conf_version"] = odd;
        let message = "routes_conf_version must be a number, 9007199254740992 at most";
        refused(put(&state, "d2", &low).await, message);
    }
    low["routes_conf_version"] = json!(1e300);
    let message = "invalid request body: \"routes_conf_version\": the number is beyond 64 bits and would be rounded; \
                   write a smaller one, or a text in quotes";
    refused(put(&state, "d2", &low).await, message);
    low["routes_conf_version"] = json!(-1.5);
    refused(put(&state, "d2", &low).await, "routes_conf_version must be greater than or equal to (1)");

    // With the same version a section stays as it is, whatever its items in the document.
    let mut expected = body.clone();
    expected["routes"] = json!([]);
    expected["services"] = json!([{ "id": "s1", "nonsense": true }]);
    assert_eq!(put(&state, "d3", &expected).await.status.as_u16(), 202);
    assert_eq!(get(&state).await.json()["routes"], body["routes"]);

    // An absent version is the next one, and an absent section is then empty.
    let rest: Value = json!({ "services": document()["services"] });
    assert_eq!(put(&state, "d4", &rest).await.status.as_u16(), 202);
    assert_eq!(revisions(&state).into_keys().collect::<Vec<_>>(), ["services/s1"]);
    assert_eq!(get(&state).await.json()["routes_conf_version"], json!(2));

    // Versions increase beyond the greatest that a client may set.
    let mut last = document();
    last["routes_conf_version"] = json!(1_u64 << 53);
    assert_eq!(put(&state, "d5", &last).await.status.as_u16(), 202);
    assert_eq!(put(&state, "d6", &rest).await.status.as_u16(), 202);
    assert_eq!(revisions(&state).into_keys().collect::<Vec<_>>(), ["services/s1"]);
}

#[tokio::test]
async fn versions_may_have_fractions() {
    let state = state();
    let with = |version: Value| json!({ "routes": document()["routes"], "routes_conf_version": version });
    for (digest, version, shown) in
        [("d1", json!(1.5), json!(1.5)), ("d2", json!(1.75), json!(1.75)), ("d3", json!(3.0), json!(3))]
    {
        assert_eq!(put(&state, digest, &with(version)).await.status.as_u16(), 202);
        assert_eq!(get(&state).await.json()["routes_conf_version"], shown);
    }
    let low = put(&state, "d4", &with(json!(2.5))).await;
    let message = "routes_conf_version must be greater than or equal to (3)";
    assert_eq!((low.status.as_u16(), low.json()), (400, json!({ "error_msg": message })));
}

#[tokio::test]
async fn an_item_with_the_index_of_the_last_document_stays_as_it_is() {
    let state = state();
    let document = |uri: &str, index: Value| json!({ "routes": [{ "id": "r", "uri": uri, "plugins": {}, "modifiedIndex": index }] });
    let shown = async || {
        let body = get(&state).await.json();
        (body["routes"][0]["uri"].clone(), body["routes"][0]["modifiedIndex"].clone())
    };
    for (digest, uri, index, expected) in [
        ("d1", "/a", json!(100), ("/a", 100)),
        ("d2", "/b", json!(100), ("/a", 100)),
        ("d3", "/b", json!(101), ("/b", 101)),
        ("d4", "/b", json!(102.0), ("/b", 102)),
        // APISIX compares for equality only.
        ("d5", "/c", json!(99), ("/c", 99)),
    ] {
        assert_eq!(put(&state, digest, &document(uri, index)).await.status.as_u16(), 202, "{digest}");
        assert_eq!(shown().await, (json!(expected.0), json!(expected.1)), "{digest}");
    }
    // After a change by another client, the item is compared by content.
    let write = |draft: &mut yumen_store::Draft| {
        let text = r#"{"id":"r","uri":"/other","plugins":{}}"#;
        draft.put(ResourceKey::new(Kind::Routes, "r"), text.into(), None);
        Ok::<(), ()>(())
    };
    commit(&*state.store, Authorship::by("test"), write).await.unwrap().unwrap();
    let revision = revisions(&state)["routes/r"];
    assert_eq!(shown().await, (json!("/other"), json!(revision)));
    // A document that was read and is written back carries revisions, which are no indexes of the tool.
    for (digest, uri) in [("d6", "/d"), ("d7", "/e")] {
        assert_eq!(put(&state, digest, &document(uri, json!(revision))).await.status.as_u16(), 202);
        assert_eq!(shown().await.0, json!(uri));
    }
    let odd = put(&state, "d8", &document("/f", json!("7"))).await;
    let message = concat!(
        "invalid configuration: property \"modifiedIndex\" validation failed: ",
        "wrong type: expected integer, got string"
    );
    assert_eq!((odd.status.as_u16(), &odd.json()["error_msg"]), (400, &json!(message)));
}

#[tokio::test]
async fn members_without_effect_are_named_in_a_field() {
    let state = state();
    let document = json!({ "route": [], "routes": [], "routes_conf_version": 1, "é x": 1, "plugins": [] });
    let replaced = put(&state, "d1", &document).await;
    assert_eq!((replaced.status.as_u16(), replaced.header("x-yumen-ignored")), (202, "route, x, plugins"));
    let router = contract_router().with_state(state.clone());
    let validated = call(&router, "POST", &format!("{PATH}/validate"), &[], &document.to_string()).await;
    assert_eq!((validated.status.as_u16(), validated.header("x-yumen-ignored")), (200, "route, x, plugins"));
    assert_eq!(put(&state, "d2", &json!({ "routes": [] })).await.headers.get("x-yumen-ignored"), None);
}

#[tokio::test]
async fn items_without_an_id_are_named_by_their_position() {
    let state = state();
    let document = json!({
        "routes": [{ "uri": "/a", "plugins": {} }, { "uri": "/b", "plugins": {} }],
        "services": [{ "name": "s" }],
    });
    assert_eq!(put(&state, "d1", &document).await.status.as_u16(), 202);
    let names: Vec<String> = revisions(&state).into_keys().collect();
    assert_eq!(names, ["routes/arr_1", "routes/arr_2", "services/arr_1"]);
    // Written back, the items are the same objects.
    let before = revisions(&state);
    assert_eq!(put(&state, "d2", &get(&state).await.json()).await.status.as_u16(), 202);
    assert_eq!(revisions(&state), before);
}

#[tokio::test]
async fn a_refused_document_changes_nothing_and_says_where() {
    let state = state();
    let id_required = "invalid configuration: property \"id\" is required";
    let table = [
        (
            json!({ "routes": [{ "id": "a", "uri": "/", "plugins": {} }, { "id": "b", "uri": 1, "plugins": {} }] }),
            "invalid configuration: property \"uri\" validation failed: wrong type: expected string, got number",
            ("b", 1),
        ),
        (json!({ "services": [{ "id": "a" }, { "id": "a" }] }), "found duplicate id a in services", ("a", 1)),
        (
            json!({ "consumers": [{ "username": "jack" }, { "username": "jack" }] }),
            "found duplicate username jack in consumers",
            ("jack", 1),
        ),
        (
            json!({ "consumers": [
                { "id": "j/credentials/c", "plugins": { "key-auth": { "key": "k" } } },
                { "id": "j/credentials/c", "plugins": { "key-auth": { "key": "l" } } },
            ] }),
            "found duplicate credential id j/credentials/c in consumers",
            ("j/credentials/c", 1),
        ),
        (
            json!({ "secrets": [{ "id": "vault/1/2", "uri": "http://a:1", "prefix": "p", "token": "t" }] }),
            "invalid secret id: vault/1/2",
            ("vault/1/2", 0),
        ),
        (
            json!({ "consumers": [{ "id": "j/credentials/c/d", "plugins": { "key-auth": { "key": "k" } } }] }),
            "invalid credential id: j/credentials/c/d",
            ("j/credentials/c/d", 0),
        ),
        (json!({ "plugin_metadata": [{ "id": "nope" }] }), "invalid plugin name", ("nope", 0)),
        (json!({ "plugin_metadata": [{}] }), "missing plugin name", ("", 0)),
        (json!({ "secrets": [{ "id": "1" }] }), "invalid secret id: 1", ("1", 0)),
        (
            json!({ "routes": [{ "id": "..", "uri": "/" }] }),
            "invalid id \"..\": no part of an id is . or ..",
            ("..", 0),
        ),
        (json!({ "global_rules": [{ "plugins": {} }] }), id_required, ("", 0)),
        (json!({ "plugin_configs": [{ "plugins": {} }] }), id_required, ("", 0)),
        (json!({ "consumer_groups": [{ "plugins": {} }] }), id_required, ("", 0)),
    ];
    for (document, message, (id, index)) in table {
        let answer = put(&state, "d", &document).await;
        let kind = document.as_object().unwrap().keys().next().unwrap();
        let body = json!({ "error_msg": message, "resource_type": kind, "resource_id": id, "index": index });
        assert_eq!((answer.status.as_u16(), answer.json()), (400, body), "{document}");
    }
    for (document, message) in [
        (json!({ "routes": { "a": 1 } }), "routes must be an array"),
        (json!([]), "invalid request body: expected an object of resource lists"),
    ] {
        let answer = put(&state, "d", &document).await;
        assert_eq!((answer.status.as_u16(), answer.json()), (400, json!({ "error_msg": message })));
    }
    assert!(state.store.state().is_empty());
    let router = contract_router().with_state(state.clone());
    let answer = call(&router, "PUT", PATH, &[], "{}").await;
    assert_eq!(
        (answer.status.as_u16(), answer.json()),
        (400, json!({ "error_msg": "missing digest header" }))
    );
    let answer = call(&router, "PUT", PATH, &[("x-digest", "d")], "").await;
    assert_eq!(answer.json(), json!({ "error_msg": "invalid request body: empty request body" }));
}

#[tokio::test]
async fn duplicate_items_of_a_document_are_refused_by_name() {
    let state = state();
    let router = contract_router().with_state(state.clone());
    let item = r#"{"id":"a","uri":"/","plugins":{"key-auth":{}},"plugins":{}}"#;
    for (body, named) in [
        (r#"{"routes":[],"services":[],"routes":[]}"#.to_owned(), "routes"),
        (r#"{"routes_conf_version":1,"routes_conf_version":2}"#.to_owned(), "routes_conf_version"),
        (format!(r#"{{"routes":[{item}]}}"#), "routes[0].plugins"),
    ] {
        for kind in ["application/json", "application/yaml"] {
            let expected = format!("invalid request body: \"{named}\" is written more than once");
            for (method, path) in [("PUT", PATH.to_owned()), ("POST", format!("{PATH}/validate"))] {
                let answer =
                    call(&router, method, &path, &[("x-digest", "d"), ("content-type", kind)], &body).await;
                let found = (answer.status.as_u16(), answer.json());
                assert_eq!(found, (400, json!({ "error_msg": expected })), "{method} {kind} {body}");
            }
        }
    }
    assert!(state.store.state().is_empty());
}

#[tokio::test]
async fn digest_is_stale_after_another_write() {
    let state = state();
    put(&state, "d1", &document()).await;
    let text: Arc<str> = r#"{"uri":"/other","plugins":{}}"#.into();
    let write = move |draft: &mut yumen_store::Draft| {
        draft.put(ResourceKey::new(Kind::Routes, "other"), text.clone(), None);
        Ok::<(), ()>(())
    };
    commit(&*state.store, Authorship::by("test"), write).await.unwrap().unwrap();
    assert_eq!(put(&state, "d1", &document()).await.status.as_u16(), 202);
    assert!(!revisions(&state).contains_key("routes/other"));
    assert_eq!(put(&state, "d1", &document()).await.status.as_u16(), 204);
}

#[tokio::test]
async fn replacement_refuses_unknown_fields() {
    let state = state();
    put(&state, "d1", &document()).await;
    let router = contract_router().with_state(state.clone());
    let empty = async |path: &str, field: (&str, &str)| {
        call(&router, "PUT", path, &[("x-digest", "d2"), field], "{}").await
    };
    for (query, field) in [
        ("", ("if-match", "\"1\"")),
        ("", ("if-none-match", "*")),
        ("?ttl=5", ("accept", "*/*")),
        ("?expected_revision=1", ("accept", "*/*")),
    ] {
        let refused = empty(&format!("{PATH}{query}"), field).await;
        assert_eq!(refused.status.as_u16(), 400, "{query} {field:?}");
        assert!(revisions(&state).contains_key("routes/r1"), "{query} {field:?}");
    }
    // A request as APISIX tools send it.
    let known = empty(&format!("{PATH}?api_key=x&wait=applied&timeout=1"), ("if-modified-since", "x")).await;
    assert_eq!(known.status.as_u16(), 202);
}

#[tokio::test]
async fn yaml_is_read_and_written_and_head_tells_the_digest() {
    let state = state();
    let router = contract_router().with_state(state.clone());
    let yaml = "routes:\n  - id: r1\n    uri: /a\n    plugins: {}\n";
    let headers = [("x-digest", "d1"), ("content-type", "application/yaml")];
    assert_eq!(call(&router, "PUT", PATH, &headers, yaml).await.status.as_u16(), 202);
    let read = call(&router, "GET", PATH, &[("accept", "application/yaml")], "").await;
    assert_eq!(read.header("content-type"), "application/yaml");
    let body: Value = serde_yaml_ng::from_str(&read.text).unwrap();
    assert_eq!((&body["routes"][0]["uri"], &body["routes_conf_version"]), (&json!("/a"), &json!(1)));
    let head = call(&router, "HEAD", PATH, &[], "").await;
    assert_eq!((head.status.as_u16(), head.header("x-digest"), head.text.as_str()), (200, "d1", ""));
    assert!(!head.header("x-last-modified").is_empty());
}

#[tokio::test]
async fn a_whole_configuration_is_judged_item_by_item() {
    let state = state();
    let router = contract_router().with_state(state.clone());
    let path = format!("{PATH}/validate");
    let good = call(&router, "POST", &path, &[], &document().to_string()).await;
    assert_eq!((good.status.as_u16(), good.json()), (200, json!({})));
    let bad = json!({
        "routes": [
            { "id": "r1", "uri": "/", "plugins": { "nonesuch": {} } },
            { "id": "r2", "uri": "/", "plugins": {} },
            { "id": "r2", "uri": "/", "plugins": {} },
        ],
        "upstreams": [{ "id": "u1" }],
        "global_rules": [{ "plugins": {} }],
        "routes_conf_version": "1",
    });
    let needs = "invalid configuration: value should match only one schema, but matches none";
    let mut errors = json!([
        { "resource_type": "routes", "error": "routes_conf_version must be a number, got string" },
        { "resource_type": "routes", "resource_id": "r1", "index": 0, "error": "unknown plugin [nonesuch]" },
        { "resource_type": "routes", "resource_id": "r2", "index": 2, "error": "found duplicate id r2 in routes" },
        { "resource_type": "upstreams", "resource_id": "u1", "index": 0, "error": needs },
    ]);
    let no_id = "invalid configuration: property \"id\" is required";
    let rule = json!({ "resource_type": "global_rules", "resource_id": "", "index": 0, "error": no_id });
    errors.as_array_mut().unwrap().push(rule);
    let expected = json!({ "error_msg": "Configuration validation failed", "errors": errors });
    for (kind, text) in
        [("application/json", bad.to_string()), ("application/yaml", serde_yaml_ng::to_string(&bad).unwrap())]
    {
        let answer = call(&router, "POST", &path, &[("content-type", kind)], &text).await;
        assert_eq!((answer.status.as_u16(), answer.json()), (400, expected.clone()), "{kind}");
    }
    assert!(state.store.state().is_empty());
}

#[tokio::test]
async fn declared_objects_stay_and_unreadable_ones_are_named() {
    let state = state();
    let document = json!({ "routes": [{ "id": "1", "uri": "/a", "plugins": {} }] });
    let write = async |json: &'static str, lifetime_ms: Option<u64>| {
        let written = commit(&*state.store, Authorship::by("ann"), move |draft| {
            let expires_ms = lifetime_ms.map(|lifetime_ms| draft.now_ms() + lifetime_ms);
            draft.put(ResourceKey::new(Kind::Routes, "1"), json.into(), expires_ms);
            Ok::<(), ()>(())
        });
        written.await.unwrap().unwrap();
    };
    write(r#"{"id":"1","uri":"/a","plugins":{}}"#, Some(3_600_000)).await;
    assert_eq!(put(&state, "d1", &document).await.status.as_u16(), 202);
    assert_eq!(state.store.state().get(Kind::Routes, "1").unwrap().expires_ms, None);
    let nested = format!("{}0{}", r#"{"a":"#.repeat(99), "}".repeat(99));
    let deep: Value = serde_json::from_str(&nested).unwrap();
    let document = json!({ "routes": [{ "id": "1", "uri": "/a", "plugins": { "cors": deep } }] });
    let too_deep = "it is nested deeper than 100 levels";
    let answer = put(&state, "d2", &document).await;
    assert_eq!((answer.status.as_u16(), answer.text.contains(too_deep)), (400, true), "{}", answer.text);
    let router = contract_router().with_state(state.clone());
    let validated = call(&router, "POST", "/apisix/admin/configs/validate", &[], &document.to_string()).await;
    assert_eq!(
        (validated.status.as_u16(), validated.text.contains(too_deep)),
        (400, true),
        "{}",
        validated.text
    );
    write("[]", None).await;
    let read = get(&state).await;
    let message = read.json()["error_msg"].as_str().unwrap_or_default().to_owned();
    assert_eq!(read.status.as_u16(), 500);
    assert!(message.starts_with("routes/1: the stored text cannot be read: "), "{message}");
}
