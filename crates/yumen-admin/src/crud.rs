//! Resources over HTTP: which verb on which path does what to the store.
//!
//! Judging one object alone is `validate`'s; who may ask is settled before.

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
use crate::hide::Sight;
use crate::query::Query;
use crate::refusal::Refusal;
use condition::Condition;
use target::Target;

/// The routes of all resources, below what others serve under more definite paths.
pub(crate) fn router() -> Router<AdminState> {
    Router::new().route("/apisix/admin/{*path}", any(dispatch))
}

/// What every verb is told beside its target and its body.
struct Asked {
    by: Authorship,
    query: Query,
    condition: Condition,
}

async fn dispatch(
    State(state): State<AdminState>,
    Extension(by): Extension<Authorship>,
    request: Request,
) -> Response {
    answer(state, by, request).await.unwrap_or_else(IntoResponse::into_response)
}

async fn answer(state: AdminState, by: Authorship, request: Request) -> Result<Response, Refusal> {
    let (head, body) = request.into_parts();
    let target = Target::of(head.uri.path())?;
    if target.kind.descriptor().traffic == TrafficClass::Stream && !state.stream_routes {
        return Err(Refusal::invalid("stream mode is disabled, can not add stream routes"));
    }
    let verb = Verb::of(&head.method, target.kind)?;
    if verb != Verb::Patch && !target.within.is_empty() {
        // Only a PATCH reaches into objects; the rest would do to the whole what was asked of a part.
        return Err(Refusal::new(StatusCode::NOT_FOUND, "not found"));
    }
    let query = Query::of(&head.uri);
    if verb == Verb::Get {
        let sight = Sight::of(&head.extensions);
        return list::get(state, target, query, condition::is_known(&head.headers), sight).await;
    }
    let asked = Asked { by, query, condition: Condition::of(&head.headers)? };
    if verb == Verb::Delete {
        return write::delete(state, target, asked).await;
    }
    let body = body::read(&head.headers, body).await?;
    match verb {
        Verb::Post => write::post(state, target, body, asked).await,
        Verb::Patch => write::patch(state, target, body, asked).await,
        _ => write::put(state, target, body, asked).await,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Get,
    Put,
    Post,
    Patch,
    Delete,
}

impl Verb {
    fn of(method: &Method, kind: Kind) -> Result<Verb, Refusal> {
        let verb = match method.as_str() {
            // The same without the body, which the connection leaves out.
            "GET" | "HEAD" => Verb::Get,
            "PUT" => Verb::Put,
            "POST" => Verb::Post,
            "PATCH" => Verb::Patch,
            "DELETE" => Verb::Delete,
            _ => return Err(Refusal::new(StatusCode::NOT_FOUND, "not found")),
        };
        if verb.is_for(kind) {
            return Ok(verb);
        }
        let message = format!("not supported `{method}` method for {}", kind.descriptor().label);
        let served = [
            (Verb::Get, "GET,HEAD"),
            (Verb::Put, "PUT"),
            (Verb::Post, "POST"),
            (Verb::Patch, "PATCH"),
            (Verb::Delete, "DELETE"),
        ];
        let served: Vec<&str> =
            served.into_iter().filter(|(verb, _)| verb.is_for(kind)).map(|(_, methods)| methods).collect();
        Err(Refusal::method(message, &served))
    }

    fn is_for(self, kind: Kind) -> bool {
        match self {
            Verb::Post => kind.descriptor().verbs.post,
            Verb::Patch => kind.descriptor().verbs.patch,
            Verb::Get | Verb::Put | Verb::Delete => true,
        }
    }
}
