//! Helpers for the tests of this crate: a state with a store in memory, and one call of a router.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use yumen_plugin::PluginRegistry;
use yumen_snapshot::compile::{KeyPairError, LoadCertificate, Loaded};
use yumen_store::MemoryMedium;

use crate::api::AdminState;

/// Accepts every certificate and key without `bad` in it.
pub(crate) fn load_certificate() -> LoadCertificate {
    Arc::new(|cert: &str, key: &str| -> Result<Loaded, KeyPairError> {
        match (cert.contains("bad"), key.contains("bad")) {
            (true, _) => Err(KeyPairError::Certificate("not a certificate".into())),
            (_, true) => Err(KeyPairError::NotPemKey("not a key")),
            _ => Ok(Arc::new(())),
        }
    })
}

/// An empty store and the built-in plugins.
pub(crate) fn state() -> AdminState {
    let registry = Arc::new(PluginRegistry::new(yumen_plugins::BUILTIN));
    let store = Arc::new(MemoryMedium::store(100).unwrap());
    AdminState::new(store, registry, yumen_plugins::inactive::missing::<&str>(&[]), load_certificate())
}

/// The response of a router.
pub(crate) struct TestResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl TestResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }
}

/// Sends one request to a router.
pub(crate) async fn call(
    router: &Router,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> TestResponse {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = TowerToHyperService::new(router.clone()).call(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    TestResponse { status: parts.status, headers: parts.headers, text }
}
