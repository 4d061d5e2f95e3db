//! Viewers of the Admin API take no secrets from answers, and change nothing.

use serde_json::{Value, json};

use crate::harness::managers::{ManagerStub, TOKEN};
use crate::harness::{Client, Gateway, Reply, Upstream, eventually};

const SECRET: &str = "s3cr3t-of-the-vault";

fn ask(gateway: &Gateway, key: &str, line: &str, body: &str) -> Reply {
    let fields = format!("Host: admin\r\nX-API-KEY: {key}\r\nContent-Length: {}", body.len());
    Client::connect(gateway.admin).send(format!("{line} HTTP/1.1\r\n{fields}\r\n\r\n{body}")).reply()
}

/// A gateway with a secret in use, and the keys of an admin and of a viewer.
fn gateway(stub: &ManagerStub, upstream: &Upstream) -> (Gateway, String, String) {
    stub.set("kv/gateway/jack", json!({ "key": SECRET }));
    let (gateway, admin) = Gateway::embedded();
    let put = |path: &str, object: Value| {
        let line = format!("PUT /apisix/admin/{path}?wait=applied");
        let reply = ask(&gateway, &admin, &line, &object.to_string());
        assert!(matches!(reply.status, 200 | 201), "{}", reply.text());
    };
    put("secrets/vault/1", json!({ "uri": stub.url(), "prefix": "kv/gateway", "token": TOKEN }));
    let plugins = json!({ "key-auth": { "key": "$secret://vault/1/jack/key" } });
    put("consumers/jack", json!({ "username": "jack", "plugins": plugins }));
    let route = json!({ "uri": "/*", "plugins": { "key-auth": {} }, "upstream": upstream.alone() });
    put("routes/1", route);
    eventually("the key opens", 10, || opens(&gateway));
    let created = ask(&gateway, &admin, "PUT /yumen/v1/keys/vic?role=viewer", "").json();
    let viewer = created["key"].as_str().unwrap().to_owned();
    (gateway, admin, viewer)
}

fn opens(gateway: &Gateway) -> bool {
    gateway.get_with("/", &format!("apikey: {SECRET}\r\n")).status == 200
}

#[test]
fn plan_of_a_viewer_reads_neither_references_nor_files() {
    let (stub, upstream) = (ManagerStub::vault(1), Upstream::text("a"));
    let (gateway, admin, viewer) = gateway(&stub, &upstream);
    let file = gateway.scratch.write("private.txt", "line of a private file");
    let path = std::env::var("PATH").unwrap();
    let sent = json!({ "X-Path": "$env://PATH", "X-Secret": "$secret://vault/1/jack/key" });
    let spy = json!({ "proxy-rewrite": { "headers": { "set": sent } } });
    let casbin = json!({ "model_path": file, "policy_path": file, "username": "user" });
    let test = |field: &str| json!({ "id": field, "request": { "url": "/spy" }, "expect": { "headers": { field: "x" } } });
    let document = json!({
        "routes": [
            { "id": "spy", "uri": "/spy", "plugins": spy, "upstream": upstream.alone() },
            { "id": "file", "uri": "/file", "plugins": { "authz-casbin": casbin }, "upstream": upstream.alone() },
        ],
        "tests": [test("X-Path"), test("X-Secret")],
    });
    for line in ["POST /yumen/v1/plan", "POST /yumen/v1/plan?format=text"] {
        let shown = ask(&gateway, &viewer, line, &document.to_string());
        assert!(shown.status == 200 && shown.text().contains("file"), "{}", shown.text());
        assert!(
            !shown.text().contains("found X-") && !shown.text().contains("line of a"),
            "{}",
            shown.text()
        );
        // The message of a test needs no values either.
        let full = ask(&gateway, &admin, line, &document.to_string());
        assert!(full.status == 200 && full.text().contains("found X-Path: ******"), "{}", full.text());
        for shown in [shown, full] {
            assert!(!shown.text().contains(&path) && !shown.text().contains(SECRET), "{}", shown.text());
        }
    }
    // The same objects in the store.
    let imported =
        ask(&gateway, &admin, "POST /yumen/v1/import?mode=merge&confirm=true", &document.to_string());
    assert!(imported.status >= 400, "{}", imported.text());
    assert!(!imported.text().contains(&path) && !imported.text().contains(SECRET), "{}", imported.text());
}

#[test]
fn viewer_cannot_forget_secrets() {
    let (stub, upstream) = (ManagerStub::vault(1), Upstream::text("a"));
    let (gateway, admin, viewer) = gateway(&stub, &upstream);
    stub.state().fails = Some(503);
    let forget = "POST /yumen/v1/secrets/forget?reference=$secret://vault/1/jack/key";
    for line in [forget, "POST /yumen/v1/secrets/refresh", "POST /yumen/v1/revisions/1/rollback"] {
        let refused = ask(&gateway, &viewer, line, "");
        assert_eq!(refused.status, 403, "{line}: {}", refused.text());
    }
    assert!(opens(&gateway));
    assert_eq!(ask(&gateway, &admin, forget, "").status, 200);
    eventually("the value is forgotten", 10, || !opens(&gateway));
    // The reference is no key.
    let literal = gateway.get_with("/", "apikey: $secret://vault/1/jack/key\r\n");
    assert_eq!(literal.status, 401);
}

#[test]
fn explanations_quote_no_compared_secret() {
    let (gateway, admin) = Gateway::embedded();
    let put = |id: &str, members: Value| {
        let mut route = json!({ "uri": "/s", "plugins": { "mocking": { "response_example": "ok" } } });
        route.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let line = format!("PUT /apisix/admin/routes/{id}?wait=applied");
        assert_eq!(ask(&gateway, &admin, &line, &route.to_string()).status, 201);
    };
    put("a", json!({ "vars": [["http_authorization", "==", SECRET]] }));
    put("b", json!({ "vars": ["OR", ["arg_token", "~~", SECRET], ["cookie_sid_token", "in", [SECRET]]] }));
    put("c", json!({ "match": { "headers": [{ "name": "X-Api-Key", "value": SECRET }] } }));
    let created = ask(&gateway, &admin, "PUT /yumen/v1/keys/vic?role=viewer", "").json();
    let viewer = created["key"].as_str().unwrap();
    for route in ["a", "b", "c"] {
        let question = json!({ "url": "http://a/s", "headers": { "X-Api-Key": "mine" }, "why_not": route });
        for line in ["POST /yumen/v1/explain", "POST /yumen/v1/explain?format=text"] {
            let reply = ask(&gateway, viewer, line, &question.to_string());
            assert_eq!(reply.status, 200, "{}", reply.text());
            assert!(!reply.text().contains(SECRET), "{route}: {}", reply.text());
        }
    }
}
