//! Query arguments and path parameters, refused in the form and the words of the API.
//!
//! Independent of the arguments of single endpoints.

use axum::extract::{self, FromRequestParts, Path};
use axum::http::header::{IF_MATCH, IF_NONE_MATCH};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::query::QueryArguments;
use crate::refusal::ApiRefusal;

/// The names of an endpoint's arguments.
pub(crate) trait ArgumentNames {
    /// The names, without those that every request accepts.
    const NAMES: &'static [&'static str];
}

/// Arguments of every request: those of the wait for a revision, and the key.
const OF_ALL: [&str; 4] = ["wait", "nodes", "timeout", "api_key"];

/// Query arguments. Unknown ones are refused, because a response that ignored one would look like a full one.
pub(super) struct StrictQuery<T>(pub(super) T);

impl<T: DeserializeOwned + ArgumentNames, S: Send + Sync> FromRequestParts<S> for StrictQuery<T> {
    type Rejection = ApiRefusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiRefusal> {
        let known = || T::NAMES.iter().chain(&OF_ALL).copied();
        let query = QueryArguments::of(&parts.uri);
        if let Some((name, _)) = query.iter().find(|(name, _)| !known().any(|known| known == *name)) {
            let named: Vec<&str> = known().collect();
            let message = format!("unknown argument \"{name}\"; allowed: {}", named.join(", "));
            return Err(ApiRefusal::invalid(message));
        }
        let read = extract::Query::<T>::from_request_parts(parts, state).await;
        read.map(|extract::Query(value)| StrictQuery(value))
            .map_err(|error| ApiRefusal::invalid(error.body_text()))
    }
}

/// For requests without arguments of their own.
#[derive(Debug, Deserialize)]
pub(crate) struct NoArguments {}

impl ArgumentNames for NoArguments {
    const NAMES: &'static [&'static str] = &[];
}

/// The format of a response.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OutputFormat {
    #[default]
    Json,
    /// Readable text.
    Text,
}

/// Arguments of a write of several objects. Conditions that it does not support are refused, not ignored.
pub(crate) struct StrictWriteQuery<T>(pub(super) T);

impl<T: DeserializeOwned + ArgumentNames, S: Send + Sync> FromRequestParts<S> for StrictWriteQuery<T> {
    type Rejection = ApiRefusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiRefusal> {
        for name in [IF_MATCH, IF_NONE_MATCH] {
            if parts.headers.contains_key(&name) {
                let message =
                    format!("{name} applies to one object; for several, use expected_revision of apply");
                return Err(ApiRefusal::invalid(message));
            }
        }
        StrictQuery::from_request_parts(parts, state).await.map(|StrictQuery(value)| StrictWriteQuery(value))
    }
}

/// Parameters in the path.
pub(super) struct PathParams<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParams<T> {
    type Rejection = ApiRefusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiRefusal> {
        let read = Path::<T>::from_request_parts(parts, state).await;
        read.map(|Path(value)| PathParams(value)).map_err(|error| ApiRefusal::invalid(error.body_text()))
    }
}
