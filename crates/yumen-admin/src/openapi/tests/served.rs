//! Table and router agree: described endpoints respond as described, to the roles they are for, and nothing
//! else is served.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::{Extension, Router};
use serde_json::{Value, json};
use yumen_config::node::{AdminConfig, AdminKey, AdminRole, SecretText};
use yumen_store::{Revision, StoreState};

use crate::access::AdminPeer;
use crate::api::AdminState;
use crate::testing::{TestResponse, call};
use crate::{AdminAccess, ApiEndpoint, ApiPayload, ArgumentForm, contract_router, endpoints, v1};

const ADMIN: (&str, &str) = ("x-api-key", "a-key-that-may-do-everything");
const VIEWER: (&str, &str) = ("x-api-key", "a-key-that-may-only-read");

/// An object of every kind, in an order in which they can be written.
fn objects() -> Vec<(&'static str, Value)> {
    let upstream = json!({ "type": "roundrobin", "nodes": { "127.0.0.1:80": 1 } });
    let secret = "private".repeat(20);
    let certificate = json!({ "sni": "a.com", "cert": "c".repeat(128), "key": secret });
    let tls = json!({ "client_cert": "c".repeat(128), "client_key": secret });
    let secure =
        json!({ "type": "roundrobin", "scheme": "https", "nodes": { "127.0.0.1:443": 1 }, "tls": tls });
    let split = json!({ "rules": [{ "weighted_upstreams": [{ "upstream": secure }] }] });
    let basic = json!({ "basic-auth": { "username": "jack", "password": secret } });
    let csrf = json!({ "cors": {}, "csrf": { "key": secret }, "traffic-split": split });
    vec![
        ("upstreams/1", secure.clone()),
        ("services/1", json!({ "name": "s", "upstream": secure })),
        ("routes/1", json!({ "uri": "/a", "service_id": "1", "upstream": secure, "plugins": csrf })),
        ("consumers/jack", json!({ "username": "jack", "plugins": basic })),
        ("consumers/jack/credentials/1", json!({ "plugins": { "key-auth": { "key": secret } } })),
        ("consumer_groups/1", json!({ "plugins": {} })),
        ("global_rules/1", json!({ "plugins": {} })),
        ("plugin_configs/1", json!({ "plugins": {} })),
        ("plugin_metadata/http-logger", json!({ "log_format": { "a": "b" } })),
        ("ssls/1", certificate),
        ("protos/1", json!({ "content": "syntax = \"proto3\"; message A { string b = 1; }" })),
        ("stream_routes/1", json!({ "server_port": 9100, "upstream": upstream })),
        ("listeners/1", json!({ "name": "l", "address": "127.0.0.1:9100", "protocol": "http" })),
        ("scopes/1", json!({ "name": "s", "listeners": ["1"] })),
        ("secrets/vault/1", json!({ "uri": "http://127.0.0.1:8200", "prefix": "p", "token": secret })),
        ("tests/1", json!({ "name": "t", "request": { "url": "/a" }, "expect": { "route": "1" } })),
    ]
}

/// The whole listener with its state.
struct Served {
    state: AdminState,
    router: Router,
}

impl Served {
    /// With one object of every kind.
    async fn filled() -> Served {
        let key =
            |name: &str, key: &str, role| AdminKey { name: name.into(), key: SecretText(key.into()), role };
        let keys = vec![key("ada", ADMIN.1, AdminRole::Admin), key("vic", VIEWER.1, AdminRole::Viewer)];
        let mut state = crate::testing::state();
        state.access = Arc::new(AdminAccess::new(&AdminConfig { keys, ..AdminConfig::default() }).unwrap());
        state.stream_routes = true;
        let more = contract_router().merge(v1::router(v1::tests::state(state.clone())));
        let router = crate::admin::router(state.clone(), more);
        let router = router.layer(Extension(AdminPeer(IpAddr::V4(Ipv4Addr::LOCALHOST))));
        let served = Served { state, router };
        for (path, object) in objects() {
            let path = format!("/apisix/admin/{path}");
            let answer = call(&served.router, "PUT", &path, &[ADMIN], &object.to_string()).await;
            assert_eq!(answer.status.as_u16(), 201, "{path}: {}", answer.text);
        }
        let answer = call(&served.router, "PUT", "/yumen/v1/keys/cors", &[ADMIN], "").await;
        assert_eq!(answer.status.as_u16(), 200, "{}", answer.text);
        served
    }

    async fn ask(&self, endpoint: &ApiEndpoint, key: &[(&str, &str)]) -> TestResponse {
        let (path, body) = request(endpoint);
        let headers: Vec<(&str, &str)> = key.iter().copied().chain([("x-digest", "d")]).collect();
        call(&self.router, &endpoint.method.to_uppercase(), &path, &headers, &body).await
    }

    fn everything(&self) -> (Revision, String) {
        let state: StoreState = self.state.store.state();
        (state.revision, format!("{:?}", state.entries().collect::<Vec<_>>()))
    }
}

/// The path of an endpoint for existing objects.
fn path(endpoint: &ApiEndpoint) -> String {
    let id = if endpoint.tag == "plugin_metadata" { "http-logger" } else { "1" };
    let within = match endpoint.tag {
        "upstreams" => "nodes",
        "ssls" => "sni",
        "secrets" => "prefix",
        "tests" | "services" | "listeners" | "scopes" => "name",
        _ => "plugins",
    };
    let path = endpoint.path.replace("{path}", within);
    let path = path.replace("{id}", id).replace("{plugin}", id).replace("{username}", "jack");
    let path = path.replace("{manager}", "vault").replace("{kind}", "routes").replace("{revision}", "1");
    path.replace("{main}", "route").replace("{name}", "cors").replace("{resource}", "routes")
}

/// A path and a body that an endpoint accepts.
fn request(endpoint: &ApiEndpoint) -> (String, String) {
    let mut path = path(endpoint);
    let object_of = |kind: &str| {
        let mine = objects().into_iter().find(|(path, _)| match kind {
            "credentials" => path.contains("/credentials/"),
            kind => path.starts_with(kind),
        });
        mine.expect("an object of every kind").1
    };
    let of_table = ["routes", "services", "upstreams"];
    let body = match endpoint.takes {
        ApiPayload::Nothing => Value::Null,
        ApiPayload::Object(kind) => object_of(kind.name()),
        ApiPayload::Part(_) => json!({ "labels": { "a": "b" } }),
        ApiPayload::Document => json!({ "routes": [{ "id": "9", "uri": "/9", "plugins": {} }] }),
        ApiPayload::Shape("question") => json!({ "url": "/a" }),
        ApiPayload::Shape("transaction") => json!({ "delete": ["routes/1"] }),
        _ if endpoint.path.ends_with("/convert") => json!({ "uri": "/a" }),
        _ if endpoint.path.contains("/validate/") => object_of("routes"),
        _ => match path.rsplit('/').next() {
            Some("nodes") => json!({ "127.0.0.1:81": 1 }),
            Some("plugins") => json!({}),
            _ => json!("other"),
        },
    };
    for argument in endpoint.query.iter().filter(|argument| argument.is_required) {
        let value = match argument.form {
            ArgumentForm::OneOf(values) => values[0],
            _ if argument.name == "reference" => "$secret://vault/1/jack/key",
            _ => "0",
        };
        path = format!("{path}?{}={value}", argument.name);
    }
    if endpoint.method == "delete" && of_table.contains(&endpoint.tag) {
        path.push_str("?force=true");
    }
    (path, if body.is_null() { String::new() } else { body.to_string() })
}

#[tokio::test]
async fn every_endpoint_answers_a_good_request_as_it_is_described() {
    for endpoint in endpoints() {
        let answer = Served::filled().await.ask(&endpoint, &[ADMIN]).await;
        let status = answer.status.as_u16();
        let line = format!("{} {}: {status} {}", endpoint.method, endpoint.path, answer.text);
        let given = endpoint.gives.iter().find(|(given, _)| *given == status);
        let (_, payload) = given.unwrap_or_else(|| panic!("{line}"));
        if let ApiPayload::Shape(name) | ApiPayload::ShapeOrText(name) = payload {
            holds(&crate::openapi::shapes::shapes()[*name], &answer.json(), &line);
        }
        if *payload == ApiPayload::Nothing {
            assert_eq!(answer.text, "", "{line}");
        }
    }
}

/// Checks that a response matches a shape: all required members, and none that is not described.
fn holds(shape: &Value, answer: &Value, line: &str) {
    let mut read = answer.clone();
    if let Err(invalid) = yumen_config::schema::validate(shape, &mut read) {
        panic!("{line}: {}: {}", invalid.path, invalid.message);
    }
    let members = answer.as_object().into_iter().flatten();
    for (name, _) in members {
        assert!(shape["properties"].get(name).is_some(), "{line}: {name} is not described");
    }
}

#[tokio::test]
async fn nothing_is_served_that_is_not_described() {
    let table = endpoints();
    let router: Router = v1::router(v1::tests::state(crate::testing::state()));
    for (path, _) in v1::routes() {
        for method in ["get", "put", "post", "patch", "delete"] {
            let concrete = path.replace("{revision}", "1");
            let answer = call(&router, &method.to_uppercase(), &concrete, &[], "").await;
            let is_described = table.iter().any(|one| one.method == method && one.path == path);
            assert_eq!(answer.status.as_u16() != 405, is_described, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn unreadable_requests_are_refused_in_the_shape_of_the_api() {
    let served = Served::filled().await;
    for (line, word) in [
        ("GET /yumen/v1/revisions?limit=many", "limit"),
        ("GET /yumen/v1/revisions/x", "x"),
        ("GET /yumen/v1/revisions/99999999999999999999", "99999999999999999999"),
        ("POST /yumen/v1/revisions/-1/rollback", "-1"),
        ("GET /yumen/v1/diff", "from"),
        ("POST /yumen/v1/import?mode=both", "both"),
        ("POST /yumen/v1/explain?at=now", "at"),
    ] {
        let (method, path) = line.split_once(' ').unwrap();
        let answer = call(&served.router, method, path, &[ADMIN], "{}").await;
        let message = answer.json()["error_msg"].as_str().unwrap_or_default().to_owned();
        assert!(
            answer.status.as_u16() == 400 && message.contains(word),
            "{line}: {} {}",
            answer.status,
            answer.text
        );
    }
}

#[tokio::test]
async fn every_endpoint_requires_a_key() {
    let served = Served::filled().await;
    let before = served.everything();
    for endpoint in endpoints() {
        for key in [&[][..], &[("x-api-key", "wrong")], &[("x-api-key", "")]] {
            let answer = served.ask(&endpoint, key).await;
            let line = format!("{} {} {key:?}", endpoint.method, endpoint.path);
            // Later ones are refused before the key is checked.
            let status = answer.status.as_u16();
            assert!(matches!((status, key), (401, _) | (429, [_])), "{line}: {status}");
            let has_reason = ["description", "error_msg"].iter().any(|name| answer.json()[name].is_string());
            assert!(endpoint.method == "head" || has_reason, "{line}");
        }
    }
    assert_eq!(served.everything(), before);
}

#[tokio::test]
async fn viewers_read_all_but_secrets_and_write_nothing() {
    let served = Served::filled().await;
    let before = served.everything();
    for endpoint in endpoints() {
        let answer = served.ask(&endpoint, &[VIEWER]).await;
        let expected = match (endpoint.method, endpoint.path.as_str()) {
            ("get", "/yumen/v1/export" | "/yumen/v1/backup" | "/yumen/v1/keys") => 403,
            ("post", "/yumen/v1/convert" | "/yumen/v1/explain" | "/yumen/v1/plan" | "/yumen/v1/session") => {
                200
            }
            ("delete", "/yumen/v1/session") => 204,
            ("get" | "head", _) => 200,
            (_, path) if path.starts_with("/yumen/") => 403,
            _ => 401,
        };
        assert_eq!(answer.status.as_u16(), expected, "{} {}", endpoint.method, endpoint.path);
        assert!(
            !answer.text.contains("private".repeat(20).as_str()),
            "{} {}",
            endpoint.method,
            endpoint.path
        );
    }
    assert_eq!(served.everything(), before);
    // An admin key reads objects and configurations that can be written back.
    for path in ["/apisix/admin/configs", "/apisix/admin/upstreams", "/apisix/admin/consumers"] {
        let endpoint = endpoints().into_iter().find(|one| one.path == path && one.method == "get").unwrap();
        assert!(served.ask(&endpoint, &[ADMIN]).await.text.contains(&"private".repeat(20)), "{path}");
    }
}
