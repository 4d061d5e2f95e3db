//! The admin listener. Tools can tell who answers; the Admin API itself is yet to come.

use std::future::Future;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header::SERVER};
use axum::response::Response;
use axum::routing::get;
use serde_json::json;
use tokio::net::TcpListener;

use crate::reply;
use crate::serve::{BOUNDS, serve};

/// Clients choose what they may ask for by this version; it names the API spoken, not the product.
const SPOKEN: HeaderValue = HeaderValue::from_static("APISIX/3.14.0");

/// Serves the admin listener until `shutdown` is done and requests under way had five seconds to end.
pub async fn serve_admin(listener: TcpListener, shutdown: impl Future<Output = ()>) {
    serve(listener, router(), BOUNDS, shutdown).await;
}

pub(crate) fn router() -> Router {
    Router::new()
        .route("/apisix/admin", get(alive))
        .route("/apisix/admin/", get(alive))
        .route("/health", get(alive))
        .fallback(absent)
        .method_not_allowed_fallback(absent)
}

async fn alive() -> Response {
    marked(reply::json(StatusCode::OK, &json!({ "status": "ok" })))
}

async fn absent() -> Response {
    let body = json!({ "error_msg": "the Admin API is not built yet: use --file" });
    marked(reply::json(StatusCode::NOT_FOUND, &body))
}

fn marked(mut response: Response) -> Response {
    response.headers_mut().insert(SERVER, SPOKEN);
    response.headers_mut().insert("x-api-version", HeaderValue::from_static("v3"));
    response
}
