//! Successful responses of every resource.

use super::{Api, Case, INACTIVE};
use crate::crud::CrudVerb;
use serde_json::Value;
use yumen_config::resource::IdRule;

const ROUTE: &str = r#"{"uri":"/a","upstream":{"type":"roundrobin","nodes":{"127.0.0.1:80":1}}}"#;
const VAULT: &str = r#"{"uri":"http://127.0.0.1:8200","prefix":"kv/apisix","token":"t"}"#;
const CERTIFICATE: &str = r#"{"sni":"a.com","cert":"$env://CERT","key":"$env://KEY"}"#;
const MISSING: &str = r#"={"message":"Key not found"}"#;

/// Every object can be written, read, replaced and deleted, and is then absent.
#[tokio::test]
async fn every_resource_is_created_read_replaced_and_deleted() {
    for (path, body) in [
        ("routes/r-1", ROUTE),
        ("services/s.1", r#"{"name":"s"}"#),
        ("upstreams/u_1", r#"{"type":"roundrobin","nodes":{"127.0.0.1:80":1}}"#),
        ("consumer_groups/g", r#"{"plugins":{}}"#),
        ("ssls/1", CERTIFICATE),
        ("global_rules/1", r#"{"plugins":{}}"#),
        ("plugin_configs/1", r#"{"plugins":{}}"#),
        ("protos/1", r#"{"content":"syntax = \"proto3\"; message A { string b = 1; }"}"#),
        (
            "stream_routes/1",
            r#"{"server_port":9100,"upstream":{"type":"roundrobin","nodes":{"127.0.0.1:80":1}}}"#,
        ),
        ("secrets/vault/1", VAULT),
        ("plugin_metadata/http-logger", r#"{"log_format":{"a":"b"}}"#),
        ("consumers/jack", r#"{"username":"jack"}"#),
    ] {
        lifecycle(&Api::new(), path, body).await;
    }
    let api = Api::new();
    api.ask("PUT /consumers", r#"{"username":"jack"}"#).await;
    lifecycle(&api, "consumers/jack/credentials/c1", r#"{"plugins":{"key-auth":{"key":"k"}}}"#).await;
}

async fn lifecycle(api: &Api, path: &str, body: &str) {
    let key = Value::from(format!("/apisix/{path}"));
    let before = api.state.store.state().revision.0;
    let (name, _) = path.rsplit_once('/').unwrap();

    let made = api.ask(&format!("PUT /{path}"), body).await;
    assert_eq!((made.status, &made.json()["key"]), (201, &key), "{path}: {}", made.text);
    assert_eq!(made.header("x-yumen-revision"), (before + 1).to_string());
    assert!(made.json().get("createdIndex").is_none(), "{path}");

    let again = api.ask(&format!("PUT /{path}"), body).await;
    assert_eq!(again.status, 200, "{path}: {}", again.text);
    assert_eq!(again.json()["value"]["create_time"], made.json()["value"]["create_time"], "{path}");

    let one = api.ask(&format!("GET /{path}"), "").await;
    assert_eq!(one.status, 200);
    let shown = one.json();
    assert_eq!((&shown["key"], &shown["value"]), (&key, &again.json()["value"]), "{path}");
    assert_eq!(
        (&shown["createdIndex"], &shown["modifiedIndex"]),
        (&(before + 1).into(), &(before + 2).into())
    );
    assert_eq!(one.header("etag"), format!("\"{}\"", before + 2));

    let list = api.ask(&format!("GET /{name}"), "").await;
    assert_eq!(list.json(), serde_json::json!({ "total": 1, "list": [shown] }), "{path}");

    let deleted = api.ask(&format!("DELETE /{path}"), "").await;
    assert_eq!(
        (deleted.status, deleted.json()),
        (200, serde_json::json!({ "deleted": "1", "key": key })),
        "{path}"
    );
    api.run(&[]).await;
    for verb in ["GET", "DELETE"] {
        let answer = api.ask(&format!("{verb} /{path}"), "").await;
        assert_eq!((answer.status, answer.text.trim_end()), (404, &MISSING[1..]), "{verb} {path}");
    }
}

#[tokio::test]
async fn objects_are_returned_as_written() {
    let api = Api::new();
    let put = api.ask("PUT /routes/1", r#"{"uri":"/a","plugins":{},"priority":7}"#).await.json();
    let value = put["value"].as_object().unwrap();
    let names: Vec<&str> = value.keys().map(String::as_str).collect();
    assert_eq!(names, ["uri", "plugins", "priority", "id", "create_time", "update_time"]);
    assert_eq!(value["id"], "1");
    assert!(value["create_time"].as_u64().is_some_and(|time| time > 1_700_000_000));
}

#[tokio::test]
async fn empty_lists_are_lists() {
    let api = Api::new();
    for name in [
        "routes",
        "services",
        "upstreams",
        "consumers",
        "consumer_groups",
        "ssls",
        "global_rules",
        "plugin_configs",
        "plugin_metadata",
        "protos",
        "stream_routes",
        "secrets",
        "routes/",
    ] {
        let answer = api.ask(&format!("GET /{name}"), "").await;
        assert_eq!((answer.status, answer.text.as_str()), (200, "{\"total\":0,\"list\":[]}\n"), "{name}");
    }
    api.run(&[("GET /consumers/jack/credentials", "", 404, MISSING)]).await;
}

#[tokio::test]
async fn ids_may_stand_in_the_path_the_body_or_both() {
    const CASES: &[Case] = &[
        ("PUT /routes/1", r#"{"uri":"/a","plugins":{}}"#, 201, r#"{"value":{"id":"1"}}"#),
        ("PUT /routes/1", r#"{"id":1,"uri":"/a","plugins":{}}"#, 200, r#"{"value":{"id":"1"}}"#),
        (
            "PUT /routes",
            r#"{"id":2,"uri":"/a","plugins":{}}"#,
            201,
            r#"{"key":"/apisix/routes/2","value":{"id":2}}"#,
        ),
        ("PUT /routes", r#"{"id":"b","uri":"/a","plugins":{}}"#, 201, r#"{"key":"/apisix/routes/b"}"#),
        (
            "PATCH /routes/2",
            r#"{"uri":"/b"}"#,
            200,
            r#"{"key":"/apisix/routes/2","value":{"id":2,"uri":"/b"}}"#,
        ),
        ("PUT /consumers", r#"{"username":"jack"}"#, 201, r#"{"key":"/apisix/consumers/jack"}"#),
        ("PUT /consumers/jack", r#"{"username":"jack"}"#, 200, r#"{"value":{"username":"jack"}}"#),
        (
            "PUT /consumers/jack/credentials",
            r#"{"id":"c","plugins":{"key-auth":{"key":"k"}}}"#,
            201,
            r#"{"key":"/apisix/consumers/jack/credentials/c","value":{"id":"c"}}"#,
        ),
        ("PUT /secrets/vault/1", VAULT, 201, r#"{"key":"/apisix/secrets/vault/1","value":{"id":"vault/1"}}"#),
        ("GET /secrets/vault/1", "", 200, r#"{"value":{"token":"t"}}"#),
        ("GET /secrets/vault", "", 200, r#"{"total":1}"#),
        ("GET /secrets/aws", "", 200, r#"{"total":0}"#),
        ("GET /secrets", "", 200, r#"{"total":1}"#),
    ];
    Api::new().run(CASES).await;
}

#[tokio::test]
async fn a_posted_object_is_called_after_its_revision() {
    let api = Api::new();
    for (i, name) in ["routes", "services", "upstreams", "ssls", "protos", "stream_routes"].iter().enumerate()
    {
        let body = match *name {
            "ssls" => CERTIFICATE,
            "protos" => r#"{"content":"syntax = \"proto3\"; message A { string b = 1; }"}"#,
            "stream_routes" => {
                r#"{"server_port":9100,"upstream":{"type":"roundrobin","nodes":{"127.0.0.1:80":1}}}"#
            }
            "upstreams" => r#"{"type":"roundrobin","nodes":{"127.0.0.1:80":1}}"#,
            "services" => "{}",
            _ => ROUTE,
        };
        let answer = api.ask(&format!("POST /{name}"), body).await;
        let id = format!("{:020}", i + 1);
        assert_eq!(answer.status, 201, "{name}: {}", answer.text);
        assert_eq!(answer.json()["key"], format!("/apisix/{name}/{id}"));
        assert_eq!(answer.json()["value"]["id"], id);
    }
    // an id that a client chose is not assigned again
    api.ask("PUT /routes/00000000000000000008", ROUTE).await;
    let answer = api.ask("POST /routes", ROUTE).await;
    assert_eq!(answer.json()["value"]["id"], "00000000000000000009");
}

#[tokio::test]
async fn private_keys_never_leave_and_survive_a_patch() {
    let api = Api::new();
    let body =
        r#"{"snis":["a.com"],"cert":"$env://C","key":"$env://K","certs":["$env://C2"],"keys":["$env://K2"]}"#;
    for (line, body) in [
        ("PUT /ssls/1", body),
        ("PATCH /ssls/1", r#"{"snis":["b.com"]}"#),
        ("GET /ssls/1", ""),
        ("GET /ssls", ""),
        ("GET /ssls?page=1&page_size=10", ""),
    ] {
        let answer = api.ask(line, body).await;
        assert!(answer.status < 300, "{line}: {}", answer.text);
        assert!(
            answer.text.contains("$env://C2") && !answer.text.contains("$env://K"),
            "{line}: {}",
            answer.text
        );
    }
    let state = api.state.store.state();
    let stored: Value =
        serde_json::from_str(&state.get(yumen_config::Kind::Ssls, "1").unwrap().json).unwrap();
    assert_eq!((&stored["key"], &stored["keys"][0]), (&"$env://K".into(), &"$env://K2".into()));
}

#[tokio::test]
async fn patches_merge_replace_and_delete() {
    const CASES: &[Case] = &[
        (
            "PUT /routes/1",
            r#"{"uri":"/a","methods":["GET","PUT"],"labels":{"a":"1","b":"2"},"plugins":{"request-id":{}}}"#,
            201,
            "",
        ),
        (
            "PATCH /routes/1",
            r#"{"methods":["POST"],"labels":{"b":null,"c":"3"},"desc":"d"}"#,
            200,
            r#"{"key":"/apisix/routes/1","value":{"methods":["POST"],"labels":{"a":"1","c":"3"},"desc":"d","uri":"/a"}}"#,
        ),
        ("PATCH /routes/1/labels/a", r#""x""#, 200, r#"{"value":{"labels":{"a":"x","c":"3"}}}"#),
        ("PATCH /routes/1/labels", r#"{"z":"1"}"#, 200, r#"{"value":{"labels":{"z":"1"}}}"#),
        ("PATCH /routes/1/methods", r#"["GET","PUT"]"#, 200, r#"{"value":{"methods":["GET","PUT"]}}"#),
        ("PATCH /routes/1/upstream/type", r#""roundrobin""#, 400, ""),
        (
            "PATCH /routes/1/upstream",
            r#"{"type":"roundrobin","nodes":{"127.0.0.1:80":1}}"#,
            200,
            r#"{"value":{"upstream":{"nodes":{"127.0.0.1:80":1}}}}"#,
        ),
        (
            "PATCH /routes/1/upstream/nodes",
            r#"{"127.0.0.1:81":2}"#,
            200,
            r#"{"value":{"upstream":{"nodes":{"127.0.0.1:81":2}}}}"#,
        ),
        ("PATCH /routes/1/status", "0", 200, r#"{"value":{"status":0}}"#),
        ("PATCH /routes/1/desc", "null", 200, ""),
        (
            "PATCH /routes/1",
            r#"{"create_time":5,"update_time":6}"#,
            200,
            r#"{"value":{"create_time":5,"update_time":6}}"#,
        ),
        ("PATCH /routes/1", r#"{"name":"n"}"#, 200, r#"{"value":{"create_time":5}}"#),
        ("PUT /secrets/vault/1", VAULT, 201, ""),
        ("PATCH /secrets/vault/1/token", r#""u""#, 200, r#"{"value":{"token":"u"}}"#),
        (
            "PATCH /secrets/vault/1",
            r#"{"token":"v"}"#,
            200,
            r#"{"value":{"token":"v","prefix":"kv/apisix"}}"#,
        ),
        ("PATCH /routes/2", r#"{"uri":"/b"}"#, 404, MISSING),
        ("PATCH /routes/1", "5", 400, r#"={"error_msg":"invalid configuration"}"#),
        ("PATCH /routes/1", "", 400, r#"={"error_msg":"missing new configuration"}"#),
        ("PATCH /routes/1/methods/0/x", "1", 400, r#"={"error_msg":"invalid sub-path: /methods"}"#),
        ("PATCH /routes/1/uri/x", "1", 400, r#"={"error_msg":"invalid sub-path: /uri"}"#),
        ("PATCH /routes/1", r#"{"id":"2"}"#, 400, r#"={"error_msg":"wrong route id"}"#),
        ("PATCH /routes", r#"{"uri":"/b"}"#, 400, r#"={"error_msg":"missing route id"}"#),
        ("PATCH /secrets/vault", "{}", 400, r#"={"error_msg":"no secret id"}"#),
    ];
    let api = Api::new();
    api.run(CASES).await;
    let route = api.ask("GET /routes/1", "").await.json();
    assert!(route["value"].get("desc").is_none());
    assert!(route["value"]["update_time"].as_u64().is_some_and(|time| time > 6));
}

#[tokio::test]
async fn an_object_that_another_tool_wrote_without_its_id_gets_it_by_a_patch() {
    let api = Api::new();
    let by = yumen_store::Authorship::by("etcd");
    let write = |draft: &mut yumen_store::Draft| -> Result<(), ()> {
        draft.put(
            yumen_store::ResourceKey::new(yumen_config::Kind::Routes, "7"),
            r#"{"uri":"/a","plugins":{}}"#.into(),
            None,
        );
        Ok(())
    };
    yumen_store::commit(&*api.state.store, by, write).await.unwrap().unwrap();
    for (body, expected) in [
        (r#"{"desc":"d"}"#, r#"{"value":{"id":"7","uri":"/a","plugins":{},"desc":"d"}}"#),
        (r#"{"id":null}"#, r#"{"value":{"id":"7"}}"#),
    ] {
        api.run(&[("PATCH /routes/7", body, 200, expected)]).await;
    }
}

#[tokio::test]
async fn lists_have_filters_and_pages() {
    let api = Api::new();
    api.ask("PUT /services/s1", "{}").await;
    for i in (0..25).rev() {
        let service = if i % 5 == 0 { r#","service_id":"s1""# } else { "" };
        let label = if i % 2 == 0 { r#","labels":{"even":"yes"}"# } else { "" };
        let body = format!(r#"{{"uri":"/path/{i}","name":"name-{i}","plugins":{{}}{service}{label}}}"#);
        assert_eq!(api.ask(&format!("PUT /routes/r{i}"), &body).await.status, 201);
    }
    for (query, total, first, shown) in [
        ("page=1&page_size=10", 25, "r24", 10),
        ("page=3&page_size=10", 25, "r4", 5),
        ("page=4&page_size=10", 25, "", 0),
        ("page=0&page_size=10", 25, "r24", 10),
        ("page=1", 25, "r0", 25),
        ("page=x&page_size=10", 25, "r0", 25),
        ("name=^name-1$", 1, "r1", 1),
        ("name=name-2", 6, "r2", 6),
        ("label=even", 13, "r0", 13),
        ("label=yes", 0, "", 0),
        ("uri=path/1.", 10, "r10", 10),
        ("filter=service_id%3Ds1", 5, "r0", 5),
        ("filter=service_id%3Ds1%26upstream_id%3D1", 0, "", 0),
        ("filter=unknown%3D1", 25, "r0", 25),
        ("label=even&filter=service_id%3Ds1&page=1&page_size=10", 3, "r20", 3),
    ] {
        let list = api.ask(&format!("GET /routes?{query}"), "").await.json();
        let rows = list["list"].as_array().unwrap();
        let found = rows.first().map_or("", |row| row["value"]["id"].as_str().unwrap());
        assert_eq!((list["total"].as_u64(), found, rows.len()), (Some(total), first, shown), "{query}");
    }
    for query in ["page=1&page_size=9", "page=1&page_size=501"] {
        let answer = api.ask(&format!("GET /routes?{query}"), "").await;
        assert_eq!((answer.status, answer.text.as_str()), (400, "page_size must be between 10 and 500\n"));
    }
    let answer = api.ask("GET /routes?name=(", "").await;
    assert_eq!(answer.status, 400);
    assert!(answer.json()["error_msg"].as_str().unwrap().starts_with("invalid argument name: "));
}

#[tokio::test]
async fn plugins_that_are_not_built_may_have_metadata() {
    for plugin in INACTIVE {
        let answer = Api::new().ask(&format!("PUT /plugin_metadata/{plugin}"), "{}").await;
        assert_eq!(answer.status, 201, "{plugin}: {}", answer.text);
        assert_eq!(answer.json()["value"], serde_json::json!({ "id": plugin }));
    }
}

#[tokio::test]
async fn the_older_shape_wraps_everything() {
    let api =
        Api::with(&super::admin(), |state| state.api_version = yumen_config::node::AdminApiVersion::Default);
    let cases: &[Case] = &[
        (
            "PUT /routes/1",
            ROUTE,
            201,
            r#"{"action":"set","node":{"key":"/apisix/routes/1","value":{"uri":"/a"}}}"#,
        ),
        ("POST /routes", ROUTE, 201, r#"{"action":"create","node":{"value":{"id":"00000000000000000002"}}}"#),
        (
            "PATCH /routes/1",
            r#"{"uri":"/b"}"#,
            200,
            r#"{"action":"compareAndSwap","node":{"value":{"uri":"/b"}}}"#,
        ),
        ("GET /routes/1", "", 200, r#"{"action":"get","node":{"value":{"uri":"/b"},"createdIndex":1}}"#),
        (
            "GET /routes",
            "",
            200,
            r#"{"action":"get","count":2,"node":{"key":"/apisix/routes","dir":true,"nodes":[{},{}]}}"#,
        ),
        ("DELETE /routes/1", "", 200, r#"{"action":"delete","deleted":"1","key":"/apisix/routes/1"}"#),
    ];
    api.run(cases).await;
    assert_eq!(api.ask("GET /routes", "").await.header("x-api-version"), "v2");
}

#[test]
fn the_documented_table_of_verbs_is_the_one_that_holds() {
    const DOCUMENT: &str = include_str!("../../../../../docs/admin-api.md");
    for kind in yumen_config::Kind::ALL {
        let descriptor = kind.descriptor();
        let path = match descriptor.id {
            IdRule::WithinManager => descriptor.admin_api.object_path.trim_end_matches("/{id}"),
            _ => descriptor.admin_api.list_path,
        };
        let mut row = format!("| `{path}` |");
        for verb in [CrudVerb::Post, CrudVerb::Put, CrudVerb::Patch, CrudVerb::Delete] {
            row.push_str(if verb.is_for(kind) { " yes |" } else { " - |" });
        }
        assert!(DOCUMENT.lines().any(|line| line == row), "docs/admin-api.md lacks: {row}");
    }
}
