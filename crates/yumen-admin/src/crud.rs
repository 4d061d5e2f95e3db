//! Resources over HTTP: the verbs on collections and objects.
//!
//! `validate` checks a single object; `access` authenticates the request before.

mod answer;
mod body;
mod condition;
mod list;
mod merge;
pub(crate) mod object;
pub(crate) mod references;
mod target;
#[cfg(test)]
pub(crate) mod tests;
mod write;

use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use yumen_config::Kind;
use yumen_config::resource::TrafficClass;
use yumen_store::Authorship;

use crate::api::AdminState;
use crate::query::QueryArguments;
use crate::refusal::ApiRefusal;
use crate::secrets::SecretVisibility;
use condition::WritePrecondition;
use target::CrudTarget;

/// The routes of all resources. More specific paths of other modules take precedence.
pub(crate) fn router() -> Router<AdminState> {
    Router::new().route("/apisix/admin/{*path}", any(dispatch))
}

/// Inputs of a write other than its target and body.
struct CrudContext {
    by: Authorship,
    query: QueryArguments,
    condition: WritePrecondition,
}

async fn dispatch(
    State(state): State<AdminState>,
    Extension(by): Extension<Authorship>,
    request: Request,
) -> Response {
    answer(state, by, request).await.unwrap_or_else(IntoResponse::into_response)
}

async fn answer(state: AdminState, by: Authorship, request: Request) -> Result<Response, ApiRefusal> {
    let (head, body) = request.into_parts();
    let target = CrudTarget::of(head.uri.path())?;
    // The message of APISIX when no stream listener is configured.
    let is_stream = target.kind.descriptor().traffic == TrafficClass::Stream;
    if is_stream && !state.stream_routes && state.store.state().of_kind(Kind::Listeners).next().is_none() {
        return Err(ApiRefusal::invalid("stream mode is disabled, can not add stream routes"));
    }
    let verb = CrudVerb::of(&head.method, target.kind)?;
    if verb != CrudVerb::Patch && !target.within.is_empty() {
        // Only PATCH supports a path into an object; the other verbs would affect the whole object.
        return Err(ApiRefusal::new(StatusCode::NOT_FOUND, "not found"));
    }
    let query = QueryArguments::of(&head.uri);
    if verb == CrudVerb::Get {
        let visibility = SecretVisibility::of(&head.extensions);
        return list::get(state, target, query, condition::is_known(&head.headers), visibility).await;
    }
    let context = CrudContext { by, query, condition: WritePrecondition::of(&head.headers)? };
    if verb == CrudVerb::Delete {
        return write::delete(state, target, context).await;
    }
    // Reads and deletions ignore their body.
    let body = body::read(&head.headers, body).await?;
    match verb {
        CrudVerb::Post => write::post(state, target, body, context).await,
        CrudVerb::Patch => write::patch(state, target, body, context).await,
        _ => write::put(state, target, body, context).await,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CrudVerb {
    Get,
    Put,
    Post,
    Patch,
    Delete,
}

impl CrudVerb {
    fn of(method: &Method, kind: Kind) -> Result<CrudVerb, ApiRefusal> {
        let verb = match method.as_str() {
            // The connection omits the body of a response to HEAD.
            "GET" | "HEAD" => CrudVerb::Get,
            "PUT" => CrudVerb::Put,
            "POST" => CrudVerb::Post,
            "PATCH" => CrudVerb::Patch,
            "DELETE" => CrudVerb::Delete,
            _ => return Err(ApiRefusal::new(StatusCode::NOT_FOUND, "not found")),
        };
        if verb.is_for(kind) {
            return Ok(verb);
        }
        let message = format!("not supported `{method}` method for {}", kind.descriptor().names.label);
        let served = [
            (CrudVerb::Get, "GET,HEAD"),
            (CrudVerb::Put, "PUT"),
            (CrudVerb::Post, "POST"),
            (CrudVerb::Patch, "PATCH"),
            (CrudVerb::Delete, "DELETE"),
        ];
        let served: Vec<&str> =
            served.into_iter().filter(|(verb, _)| verb.is_for(kind)).map(|(_, methods)| methods).collect();
        Err(ApiRefusal::method(message, &served))
    }

    fn is_for(self, kind: Kind) -> bool {
        match self {
            CrudVerb::Post => kind.descriptor().admin_api.verbs.post,
            CrudVerb::Patch => kind.descriptor().admin_api.verbs.patch,
            CrudVerb::Get | CrudVerb::Put | CrudVerb::Delete => true,
        }
    }
}
