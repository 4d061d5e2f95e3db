//! The listener of an admission webhook: HTTPS, one question per request, bodies of bounded size.
//!
//! The gateway answers through a closure; this module keeps no state and knows nothing of the questions.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::reply;
use crate::serve::{BOUNDS, ListenerAccess, ServerBounds, serve_with};
use crate::tls::AdminTls;
use crate::whole_body::WholeBody;

/// Bytes of a review: the object and its former version, each of which the API server bounds at 3 MiB in a request and
/// etcd at 1.5 MiB.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Connections at once, and so bodies in memory. An API server holds a few.
const CONNECTIONS_MAX: usize = 32;

/// The answer of a webhook.
#[derive(Debug, Clone, PartialEq)]
pub enum WebhookAnswer {
    /// The review.
    Review(Value),
    /// The body is no question.
    Malformed(String),
    /// The question cannot be answered now: the API server follows its `failurePolicy`.
    Unavailable(String),
}

/// Answers the body of a request.
pub type WebhookHandler =
    Arc<dyn Fn(Bytes) -> Pin<Box<dyn Future<Output = WebhookAnswer> + Send>> + Send + Sync>;

/// Serves a webhook until `shutdown` completes. Every path is served: the question names its subject.
pub async fn serve_webhook(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    handler: WebhookHandler,
    shutdown: impl Future<Output = ()>,
) {
    let access = ListenerAccess { tls: Some(AdminTls(tls)), allow: None };
    let bounds = ServerBounds { connections: CONNECTIONS_MAX, ..BOUNDS };
    serve_with(listener, access, router(handler), bounds, shutdown).await;
}

pub(crate) fn router(handler: WebhookHandler) -> Router {
    Router::new()
        .route("/{*path}", post(answer))
        .route("/", post(answer))
        .with_state(handler)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .method_not_allowed_fallback(refused)
}

async fn answer(State(handler): State<WebhookHandler>, body: WholeBody) -> Response {
    match handler(body.0).await {
        WebhookAnswer::Review(review) => reply::json(StatusCode::OK, &review),
        WebhookAnswer::Malformed(reason) => failure(StatusCode::BAD_REQUEST, &reason),
        WebhookAnswer::Unavailable(reason) => failure(StatusCode::SERVICE_UNAVAILABLE, &reason),
    }
}

async fn refused() -> Response {
    failure(StatusCode::METHOD_NOT_ALLOWED, "POST an AdmissionReview").into_response()
}

fn failure(status: StatusCode, message: &str) -> Response {
    reply::json(status, &json!({ "error_msg": message }))
}

#[cfg(test)]
mod tests;
