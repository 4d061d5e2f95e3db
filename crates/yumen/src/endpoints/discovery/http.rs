//! HTTP client of the discovery sources.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Method, Request};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

use crate::fetch;

/// Characters that are not percent-encoded in paths and queries.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Maximum response body, 16 MiB: fits long endpoint lists.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Percent-encodes a text for a path or a query.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// Time limits of one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct HttpTimeouts {
    pub(super) connect: Duration,
    pub(super) answer: Duration,
}

/// Response with its whole body.
pub(super) struct HttpReply {
    pub(super) status: u16,
    fields: HeaderMap,
    body: Bytes,
}

impl HttpReply {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name)?.to_str().ok()
    }

    pub(super) fn json(&self) -> Result<Value, String> {
        serde_json::from_slice(&self.body).map_err(|error| format!("the response is not JSON: {error}"))
    }

    /// First 200 characters of the body, for error messages.
    pub(super) fn excerpt(&self) -> String {
        String::from_utf8_lossy(&self.body).trim().chars().take(200).collect()
    }
}

/// HTTP client without connection reuse: one connection per request.
#[derive(Clone)]
pub(super) struct DiscoveryHttpClient {
    tls: Arc<ClientConfig>,
}

impl DiscoveryHttpClient {
    /// Creates a client that trusts the system's trust anchors.
    pub(super) fn new() -> Result<DiscoveryHttpClient, String> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(DiscoveryHttpClient { tls: Arc::new(config) })
    }

    pub(super) async fn get(
        &self,
        url: &str,
        fields: &[(&str, &str)],
        bounds: HttpTimeouts,
    ) -> Result<HttpReply, String> {
        let mut request = Request::builder().method(Method::GET).uri(url);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        self.send(request.body(Full::default()).map_err(|error| error.to_string())?, bounds).await
    }

    pub(super) async fn post_form(
        &self,
        url: &str,
        form: String,
        bounds: HttpTimeouts,
    ) -> Result<HttpReply, String> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(url)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::new(Bytes::from(form)));
        self.send(request.map_err(|error| error.to_string())?, bounds).await
    }

    async fn send(&self, request: Request<Full<Bytes>>, bounds: HttpTimeouts) -> Result<HttpReply, String> {
        let bounds = fetch::FetchBounds {
            connect: bounds.connect,
            whole: bounds.connect + bounds.answer,
            body_bytes_max: BODY_BYTES_MAX,
        };
        let answer = fetch::send(request, Some(&self.tls), bounds).await;
        let (head, body) = answer.map_err(|error| format!("{error:#}"))?.into_parts();
        let body = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(never) => match never {},
        };
        Ok(HttpReply { status: head.status.as_u16(), fields: head.headers, body })
    }
}
