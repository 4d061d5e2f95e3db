//! Plans of changes, and the confirmation that a large change needs.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use yumen_config::{Kind, Resource};
use yumen_snapshot::plan::PlanLimits;
use yumen_store::{ResourceKey, StoreState};

use super::V1State;
use super::arguments::{ArgumentNames, OutputFormat, StrictQuery};
use super::transaction::{ImportMode, TIMES, key_of, read_document};
use crate::refusal::ApiRefusal;
use crate::reply;
use crate::secrets::SecretVisibility;
use crate::whole_body::WholeBody;

/// Up to this number of objects are written without a plan, unless an object is deleted.
const FEW: usize = 10;

/// The mode of a plan, and the limits beyond which the change needs a confirmation.
#[derive(Debug, Deserialize)]
pub(super) struct PlanQuery {
    #[serde(default)]
    mode: ImportMode,
    /// Share of recent requests that may change, in percent.
    changed_max: Option<f64>,
    /// Routes that may be deleted.
    removed_max: Option<usize>,
    #[serde(default)]
    format: OutputFormat,
    /// Objects that the change deletes, such as `routes/1,routes/2`.
    delete: Option<String>,
}

impl ArgumentNames for PlanQuery {
    const NAMES: &'static [&'static str] = &["mode", "changed_max", "removed_max", "format", "delete"];
}

impl PlanQuery {
    fn limits(&self) -> PlanLimits {
        let default = PlanLimits::default();
        PlanLimits {
            changed_share_max: self.changed_max.map_or(default.changed_share_max, |percent| percent / 100.0),
            deleted_routes_max: self.removed_max.unwrap_or(default.deleted_routes_max),
        }
    }
}

/// `POST /yumen/v1/plan?mode=merge|replace`: the body is a standalone document; nothing is written.
pub(super) async fn plan(
    State(state): State<V1State>,
    visibility: SecretVisibility,
    StrictQuery(asked): StrictQuery<PlanQuery>,
    WholeBody(body): WholeBody,
) -> Result<Response, ApiRefusal> {
    if let Some(percent) = asked.changed_max.filter(|percent| percent.is_nan() || *percent < 0.0) {
        return Err(ApiRefusal::invalid(format!("changed_max: {percent} is not a percentage")));
    }
    let text =
        std::str::from_utf8(&body).map_err(|error| ApiRefusal::invalid(format!("no text: {error}")))?;
    let puts = read_document(text)?;
    let deleted = asked.delete.iter().flat_map(|names| names.split(','));
    let deleted = deleted.map(|name| key_of("delete", name)).collect::<Result<BTreeSet<_>, _>>()?;
    // Compiles two configurations, which would block a thread of the runtime.
    let planned = tokio::task::spawn_blocking(move || {
        let now = state.admin.store.state();
        let mut after = after(&now, &puts, asked.mode == ImportMode::Replace);
        after.retain(|one| !deleted.contains(&ResourceKey::new(one.kind, one.id.clone())));
        let plan = state.live.plan(&now.resources(), &after, asked.limits(), visibility);
        match asked.format {
            OutputFormat::Text => {
                let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
                (plain, plan.to_string()).into_response()
            }
            OutputFormat::Json => {
                reply::json(StatusCode::OK, &serde_json::to_value(&plan).expect("a plan is plain data"))
            }
        }
    });
    planned.await.map_err(|error| ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

/// The objects of a state after a change: with these, and without the others if they replace the state.
fn after(now: &StoreState, puts: &[Resource], replaces: bool) -> Vec<Resource> {
    let named: BTreeSet<(Kind, &str)> = puts.iter().map(|one| (one.kind, &*one.id)).collect();
    let mut after = if replaces { Vec::new() } else { now.resources() };
    after.retain(|one| !named.contains(&(one.kind, &*one.id)));
    after.extend(puts.iter().cloned());
    after
}

/// Refuses a large change until it is confirmed (`?confirm=true`).
///
/// Compiles both states, so it runs before the change is proposed: the store's writer must not wait for it.
pub(super) fn guard(
    state: &V1State,
    now: &StoreState,
    puts: &[Resource],
    doomed: &[ResourceKey],
) -> Result<(), ApiRefusal> {
    if doomed.is_empty() && (puts.len() <= FEW || puts.iter().all(|one| changes_only_endpoints(now, one))) {
        return Ok(());
    }
    let doomed: BTreeSet<&ResourceKey> = doomed.iter().collect();
    let mut to = after(now, puts, false);
    to.retain(|one| !doomed.contains(&ResourceKey::new(one.kind, one.id.clone())));
    let plan = state.live.plan(&now.resources(), &to, PlanLimits::default(), SecretVisibility::Whole);
    let Some(why) = &plan.needs_confirmation else { return Ok(()) };
    let body = json!({
        "error_msg": format!("nothing was written: {why}; repeat with ?confirm=true to confirm"),
        "needs_confirmation": why,
        "impact": serde_json::to_value(&plan.impact).unwrap_or(Value::Null),
    });
    Err(ApiRefusal::of(StatusCode::CONFLICT, body))
}

/// Whether an upstream differs only in its endpoints; no request then takes another route.
pub(super) fn changes_only_endpoints(now: &StoreState, put: &Resource) -> bool {
    if put.kind != Kind::Upstreams {
        return false;
    }
    let Some(before) = now.get(put.kind, &put.id) else { return false };
    let (mut before, mut after) = (object(&before.json), object(&put.json));
    let nodes = after.shift_remove("nodes").unwrap_or_default();
    before.shift_remove("nodes");
    let not_compared = TIMES.into_iter().chain(["id"]);
    not_compared.for_each(|field| drop((before.shift_remove(field), after.shift_remove(field))));
    // Without any endpoint, requests fail, which may need a confirmation.
    before == after && has_endpoint(&nodes)
}

fn object(json: &str) -> Map<String, Value> {
    serde_json::from_str(json).unwrap_or_default()
}

/// Whether nodes, in either form, include one with a weight above 0.
fn has_endpoint(nodes: &Value) -> bool {
    let counts = |weight: &Value| weight.as_u64().is_some_and(|weight| weight > 0);
    match nodes {
        Value::Object(weights) => weights.values().any(counts),
        Value::Array(nodes) => nodes.iter().any(|node| node.get("weight").is_some_and(counts)),
        _ => false,
    }
}

/// The strictness of the linter.
#[derive(Debug, Deserialize)]
pub(super) struct LintQuery {
    #[serde(default)]
    strict: bool,
}

impl ArgumentNames for LintQuery {
    const NAMES: &'static [&'static str] = &["strict"];
}

/// `GET /yumen/v1/lint`: problems of the stored configuration, and settings that are probably not intended.
pub(super) async fn lint(
    State(state): State<V1State>,
    StrictQuery(strictness): StrictQuery<LintQuery>,
) -> Result<Response, ApiRefusal> {
    // Linting examines the whole configuration, which would block a thread of the runtime.
    let found = tokio::task::spawn_blocking(move || {
        let resources = state.admin.store.state().resources();
        state.live.lint(&resources, strictness.strict)
    });
    let found =
        found.await.map_err(|error| ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(reply::json(StatusCode::OK, &serde_json::to_value(found).expect("problems are plain data")))
}
