//! The contract of the Admin API as data: requests and responses.

mod access;
mod contract;
mod index;
mod refusals;
mod sequences;
mod translated_ids;
mod transport;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request};
use serde_json::Value;
use tower::ServiceExt;
use yumen_config::node::{AdminConfig, AdminKey, AdminRole, SecretText};
use yumen_plugin::PluginRegistry;
use yumen_plugins::BUILTIN;
use yumen_store::{MemoryMedium, Store};

use crate::access::{AdminAccess, AdminPeer};
use crate::admin::router;
use crate::api::AdminState;

const ADMIN: &str = "a-key-that-may-do-everything";
const VIEWER: &str = "a-key-that-may-only-read";
const INACTIVE: &[&str] = &["traffic-split", "grpc-transcode", "saml-auth", "rocketmq-logger"];

/// An Admin API on an empty store.
struct Api {
    state: AdminState,
    router: Router,
}

/// A response, taken apart.
struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

fn admin() -> AdminConfig {
    let key = |name: &str, key: &str, role| AdminKey { name: name.into(), key: SecretText(key.into()), role };
    let keys = vec![key("ada", ADMIN, AdminRole::Admin), key("vic", VIEWER, AdminRole::Viewer)];
    AdminConfig { keys, ..AdminConfig::default() }
}

impl Api {
    fn new() -> Api {
        Api::with(&admin(), |_| ())
    }

    fn with(admin: &AdminConfig, change: impl FnOnce(&mut AdminState)) -> Api {
        let store: Arc<dyn Store> = Arc::new(MemoryMedium::store(1000).unwrap());
        let registry = Arc::new(PluginRegistry::new(BUILTIN));
        let mut state = AdminState::new(
            store,
            registry,
            yumen_plugins::inactive::missing::<&str>(&[]),
            crate::testing::load_certificate(),
        );
        state.access = Arc::new(AdminAccess::new(admin).unwrap());
        state.stream_routes = true;
        change(&mut state);
        Api { router: router(state.clone(), Router::new()), state }
    }

    /// Sends `METHOD /path` with these headers.
    async fn send(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.extension(AdminPeer(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        self.answer(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    async fn answer(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Answer { status: head.status.as_u16(), headers: head.headers, text }
    }

    /// Sends a request with an admin key; `line` omits `/apisix/admin`.
    async fn ask(&self, line: &str, body: &str) -> Answer {
        let line = line.replacen(" ", " /apisix/admin", 1);
        self.send(&line, &[("x-api-key", ADMIN)], body).await
    }

    async fn run(&self, cases: &[Case]) {
        for (line, body, status, expected) in cases {
            let answer = self.ask(line, body).await;
            assert_eq!(answer.status, *status, "{line} {body}\n{}", answer.text);
            assert!(answer.text.is_empty() || answer.text.ends_with('\n'), "{line}: {}", answer.text);
            check(line, &answer, expected);
        }
    }
}

/// A request, its body, and the status and body of the response.
type Case = (&'static str, &'static str, u16, &'static str);

/// Checks that the response contains the expected object, and after `=` nothing else.
fn check(line: &str, answer: &Answer, expected: &str) {
    if expected.is_empty() {
        return;
    }
    if let Some(exact) = expected.strip_prefix('=') {
        assert_eq!(answer.text.trim_end(), exact, "{line}");
        return;
    }
    let expected: Value =
        serde_json::from_str(expected).unwrap_or_else(|error| panic!("{error}: {expected}"));
    let found = answer.json();
    assert!(is_part(&expected, &found), "{line}\nexpected {expected}\nfound {found}");
}

fn is_part(expected: &Value, found: &Value) -> bool {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            expected.iter().all(|(name, value)| found.get(name).is_some_and(|found| is_part(value, found)))
        }
        (Value::Array(expected), Value::Array(found)) => {
            expected.len() == found.len()
                && expected.iter().zip(found).all(|(one, other)| is_part(one, other))
        }
        _ => expected == found,
    }
}

fn error(message: &str) -> String {
    format!("={}", serde_json::json!({ "error_msg": message }))
}
