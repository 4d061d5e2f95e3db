//! Arguments and parts of the path, refused in the shape and the words of the API.
//!
//! Must not know which there are.

use axum::extract::{self, FromRequestParts, Path};
use axum::http::header::{IF_MATCH, IF_NONE_MATCH};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::query::QueryArguments;
use crate::refusal::ApiRefusal;

/// Which arguments there are.
pub(crate) trait ArgumentNames {
    /// The names of the arguments, but for those that every request takes.
    const NAMES: &'static [&'static str];
}

/// What every request takes: whom an answer that carries a revision waits for, and the key.
const OF_ALL: [&str; 4] = ["wait", "nodes", "timeout", "api_key"];

/// The query's arguments. What is not known is refused: an answer to less than was asked looks like one to all of it.
pub(super) struct StrictQuery<T>(pub(super) T);

impl<T: DeserializeOwned + ArgumentNames, S: Send + Sync> FromRequestParts<S> for StrictQuery<T> {
    type Rejection = ApiRefusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiRefusal> {
        let known = || T::NAMES.iter().chain(&OF_ALL).copied();
        let query = QueryArguments::of(&parts.uri);
        if let Some((name, _)) = query.iter().find(|(name, _)| !known().any(|known| known == *name)) {
            let named: Vec<&str> = known().collect();
            let message = format!("unknown argument \"{name}\"; there are {}", named.join(", "));
            return Err(ApiRefusal::invalid(message));
        }
        let read = extract::Query::<T>::from_request_parts(parts, state).await;
        read.map(|extract::Query(value)| StrictQuery(value))
            .map_err(|error| ApiRefusal::invalid(error.body_text()))
    }
}

/// Of a request that takes no arguments of its own.
#[derive(Debug, Deserialize)]
pub(crate) struct NoArguments {}

impl ArgumentNames for NoArguments {
    const NAMES: &'static [&'static str] = &[];
}

/// How an answer is written.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OutputFormat {
    #[default]
    Json,
    /// For people.
    Text,
}

/// The arguments of a write of several objects, which is not done where a condition on it was not understood.
pub(crate) struct StrictWriteQuery<T>(pub(super) T);

impl<T: DeserializeOwned + ArgumentNames, S: Send + Sync> FromRequestParts<S> for StrictWriteQuery<T> {
    type Rejection = ApiRefusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiRefusal> {
        for name in [IF_MATCH, IF_NONE_MATCH] {
            if parts.headers.contains_key(&name) {
                let message =
                    format!("{name} is about one object; several are held to expected_revision of apply");
                return Err(ApiRefusal::invalid(message));
            }
        }
        StrictQuery::from_request_parts(parts, state).await.map(|StrictQuery(value)| StrictWriteQuery(value))
    }
}

/// What stands in the path for its parameters.
pub(super) struct PathParams<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParams<T> {
    type Rejection = ApiRefusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiRefusal> {
        let read = Path::<T>::from_request_parts(parts, state).await;
        read.map(|Path(value)| PathParams(value)).map_err(|error| ApiRefusal::invalid(error.body_text()))
    }
}
