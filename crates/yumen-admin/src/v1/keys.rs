//! Keys of the Admin API in the store: their holders, new keys, revocation.

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use yumen_config::node::AdminRole;
use yumen_store::{Authorship, StoreError};

use super::V1State;
use super::arguments::{ArgumentNames, NoArguments, PathParams, StrictQuery};
use crate::keys::{self, KeyHolder};
use crate::refusal::ApiRefusal;
use crate::reply;

/// Longest name of a holder, as in the node settings.
const NAME_CHARS_MAX: usize = 100;

/// The permissions of a new key.
#[derive(Debug, Deserialize)]
pub(super) struct KeyQuery {
    /// Without it a rotated key keeps its role, and a new one is an admin's.
    role: Option<AdminRole>,
}

impl ArgumentNames for KeyQuery {
    const NAMES: &'static [&'static str] = &["role"];
}

/// `GET /yumen/v1/keys`: names and roles of the holders. Keys cannot be shown: the store has digests.
pub(super) async fn list(
    State(state): State<V1State>,
    holder: Option<Extension<KeyHolder>>,
    _: StrictQuery<NoArguments>,
) -> Result<Response, ApiRefusal> {
    require_admin(holder.as_deref())?;
    let holders = keys::holders(&state.admin.store.state());
    let shown: Vec<_> = holders.iter().map(|one| json!({ "name": one.name, "role": one.role })).collect();
    Ok(reply::json(StatusCode::OK, &json!({ "keys": shown })))
}

/// `PUT /yumen/v1/keys/{name}?role=admin|viewer`: replaces the key of a holder, or creates one. The response is the
/// only place that shows it.
pub(super) async fn rotate(
    State(state): State<V1State>,
    by: Option<Extension<Authorship>>,
    PathParams(name): PathParams<String>,
    StrictQuery(asked): StrictQuery<KeyQuery>,
) -> Result<Response, ApiRefusal> {
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX {
        return Err(ApiRefusal::invalid(format!("the name must have 1 to {NAME_CHARS_MAX} characters")));
    }
    let (holder, key) =
        keys::rotate(&*state.admin.store, author(by), &name, asked.role).await.map_err(unwritable)?;
    Ok(reply::json(StatusCode::OK, &json!({ "name": holder.name, "role": holder.role, "key": key })))
}

/// `DELETE /yumen/v1/keys/{name}`: revokes the key of a holder at once.
pub(super) async fn revoke(
    State(state): State<V1State>,
    by: Option<Extension<Authorship>>,
    PathParams(name): PathParams<String>,
    _: StrictQuery<NoArguments>,
) -> Result<Response, ApiRefusal> {
    match keys::revoke(&*state.admin.store, author(by), &name).await.map_err(unwritable)? {
        true => Ok(reply::json(StatusCode::OK, &json!({ "revoked": name }))),
        false => {
            let message = format!("no key in the store has the name \"{name}\"");
            Err(ApiRefusal::new(StatusCode::NOT_FOUND, message))
        }
    }
}

fn author(by: Option<Extension<Authorship>>) -> Authorship {
    by.map_or_else(|| Authorship::by("anonymous"), |Extension(by)| by)
}

fn require_admin(holder: Option<&KeyHolder>) -> Result<(), ApiRefusal> {
    match holder.is_none_or(|holder| holder.role == AdminRole::Admin) {
        true => Ok(()),
        false => Err(ApiRefusal::new(StatusCode::FORBIDDEN, "the list of keys needs the key of an admin")),
    }
}

/// A resource file keeps no keys.
fn unwritable(error: StoreError) -> ApiRefusal {
    match &error {
        StoreError::ReadOnly(_) => {
            let body = json!({
                "error_msg": "this store takes no keys",
                "hint": "set admin.keys in yumen.yaml; commands on the machine of the gateway need no key",
            });
            ApiRefusal::of(StatusCode::CONFLICT, body)
        }
        _ => error.into(),
    }
}
