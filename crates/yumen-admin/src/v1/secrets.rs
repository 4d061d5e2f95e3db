//! References to secret managers with the states of their values. No response contains a value.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use yumen_store::StoreState;

use super::V1State;
use super::arguments::{ArgumentNames, NoArguments, StrictQuery};
use crate::refusal::ApiRefusal;
use crate::reply;

const SCHEME: &str = "$secret://";

/// `GET /yumen/v1/secrets`: the references in the stored objects.
pub(super) async fn list(
    State(state): State<V1State>,
    _: StrictQuery<NoArguments>,
) -> Result<Response, ApiRefusal> {
    // Reading many objects would block a thread of the runtime.
    let body =
        tokio::task::spawn_blocking(move || document(&state.admin.store.state(), &state.live.secrets()));
    let body =
        body.await.map_err(|error| ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(reply::json(StatusCode::OK, &body))
}

/// `POST /yumen/v1/secrets/refresh`: fetches all values now.
pub(super) async fn refresh(
    State(state): State<V1State>,
    _: StrictQuery<NoArguments>,
) -> Result<Response, ApiRefusal> {
    Ok(reply::json(StatusCode::OK, &json!({ "refreshed": state.live.refresh_secrets() })))
}

/// The reference whose value is dropped.
#[derive(Debug, Deserialize)]
pub(super) struct ForgetQuery {
    /// The reference: `$secret://vault/1/jack/key`.
    reference: String,
}

impl ArgumentNames for ForgetQuery {
    const NAMES: &'static [&'static str] = &["reference"];
}

/// `POST /yumen/v1/secrets/forget?reference=REFERENCE`: drops the value on this node and fetches it again.
pub(super) async fn forget(
    State(state): State<V1State>,
    StrictQuery(asked): StrictQuery<ForgetQuery>,
) -> Result<Response, ApiRefusal> {
    let reference = asked.reference;
    if !is_reference(&reference) {
        return Err(ApiRefusal::invalid(format!("reference: \"{reference}\" does not begin with {SCHEME}")));
    }
    match state.live.forget_secret(&reference[SCHEME.len()..]) {
        true => Ok(reply::json(StatusCode::OK, &json!({ "forgotten": reference }))),
        false => {
            Err(ApiRefusal::new(StatusCode::NOT_FOUND, format!("no object in force refers to {reference}")))
        }
    }
}

/// The references with their states and users. `states` has those of the values in use, without the scheme.
fn document(stored: &StoreState, states: &BTreeMap<String, Value>) -> Value {
    let mut users: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (key, entry) in stored.entries() {
        // Most objects have no reference and are not parsed.
        if !entry.json.contains("$secret://") && !entry.json.contains("$SECRET://") {
            continue;
        }
        let object = format!("{}/{}", key.kind.name(), key.id);
        let value: Value = serde_json::from_str(&entry.json).unwrap_or_default();
        visit(&value, "", &mut |path, reference| {
            let user = json!({ "object": object, "path": path });
            users.entry(reference.to_owned()).or_default().push(user);
        });
    }
    let secrets = users.into_iter().map(|(reference, users)| {
        let name = &reference[SCHEME.len()..];
        // Without a state: the manager is missing, or no object that is served has the reference.
        let unresolved = || Map::from_iter([("state".to_owned(), json!("unresolved"))]);
        let mut one = states.get(name).and_then(Value::as_object).cloned().unwrap_or_else(unresolved);
        one.insert("reference".into(), json!(reference));
        one.insert("users".into(), json!(users));
        Value::Object(one)
    });
    json!({ "secrets": secrets.collect::<Vec<Value>>() })
}

/// Calls `found` with the path and text of each reference to a secret.
fn visit(value: &Value, path: &str, found: &mut impl FnMut(&str, &str)) {
    match value {
        Value::String(text) if is_reference(text) => found(path, text),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                visit(item, &format!("{path}[{at}]"), found);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                visit(member, &path, found);
            }
        }
        _ => {}
    }
}

fn is_reference(text: &str) -> bool {
    text.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
}

#[cfg(test)]
mod tests;
