//! The admin listener: composes the routers of the Admin API and adds the routes without a key.
//!
//! Independent of the handlers.

use std::future::Future;

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use tokio::net::{TcpListener, UnixListener};

use crate::api::AdminState;
use crate::contract::contract_router;
use crate::refusal::ApiRefusal;
use crate::reply;
use crate::serve::{BOUNDS, ListenerAccess, serve_unix, serve_with};
use crate::tls::AdminTls;
use crate::v1::{self, V1State};
use crate::{admission, crud, dashboard, provider_login};

/// Serves the Admin API with `/yumen/v1` until `shutdown` completes; requests in flight then have five
/// seconds to end.
pub async fn serve_api(
    listener: TcpListener,
    tls: Option<AdminTls>,
    state: AdminState,
    v1: V1State,
    shutdown: impl Future<Output = ()>,
) {
    // Also at the connection, so that other addresses take no slot of an allowed client.
    let access = ListenerAccess { tls, allow: Some(state.access.allow.clone()) };
    // Only here: a browser cannot reach the Unix socket, except by a tunnel that admits every page.
    let router = whole_router(state.clone(), v1).merge(dashboard_pages(state));
    serve_with(listener, access, router, BOUNDS, shutdown).await;
}

/// Serves the same API on a Unix socket, without keys, to the user `owner` and root.
pub async fn serve_local(
    listener: UnixListener,
    owner: u32,
    state: AdminState,
    v1: V1State,
    shutdown: impl Future<Output = ()>,
) {
    serve_unix(listener, owner, whole_router(state, v1), BOUNDS, shutdown).await;
}

fn dashboard_pages(state: AdminState) -> Router {
    let pages = dashboard::pages().merge(provider_login::pages());
    let pages = pages.layer(from_fn_with_state(state.clone(), admission::admit));
    pages.with_state(state)
}

fn whole_router(state: AdminState, v1: V1State) -> Router {
    let more = contract_router().merge(v1::router(v1.clone()));
    router(state, more).layer(from_fn_with_state(v1, v1::wait_for_applied))
}

pub(crate) fn router(state: AdminState, more: Router<AdminState>) -> Router {
    let require_key = crud::router()
        .merge(dashboard::session_router())
        .merge(more)
        .method_not_allowed_fallback(not_found)
        // `route_layer` leaves out unknown paths, which get 404 instead of 401.
        .route_layer(from_fn_with_state(state.clone(), admission::require_key));
    Router::new()
        .route("/apisix/admin", get(alive))
        // Both forms, since the router distinguishes the slash.
        .route("/apisix/admin/", get(alive))
        .route("/health", get(alive))
        .merge(require_key)
        .fallback(absent)
        .method_not_allowed_fallback(absent)
        // Outermost, so that fallbacks check the address and mark the response too.
        .layer(from_fn_with_state(state.clone(), admission::admit))
        .with_state(state)
}

/// Liveness without a key: tools request this before they have one.
async fn alive() -> Response {
    reply::json(StatusCode::OK, &json!({ "status": "ok" }))
}

async fn not_found() -> Response {
    ApiRefusal::new(StatusCode::NOT_FOUND, "not found").into_response()
}

/// The message of the contract, except below `/yumen/`.
async fn absent(uri: Uri) -> Response {
    let message = match uri.path() {
        path if path.starts_with("/yumen/") => format!("the Admin API has no {path}"),
        _ => "404 Route Not Found".to_owned(),
    };
    ApiRefusal::new(StatusCode::NOT_FOUND, message).into_response()
}
