//! Explains the handling of a hypothetical request or stream.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use yumen_base::Problem;
use yumen_config::masking::hide_in_urls;
use yumen_config::{Kind, json_text};
use yumen_snapshot::{ExplainContext, ListenerPorts, Question, Snapshot, explain_any};
use yumen_store::{Revision, StoreState};

use super::arguments::{ArgumentNames, NoArguments, OutputFormat, StrictQuery};
use super::history::check_reached;
use super::{ClusterView, V1State};
use crate::refusal::ApiRefusal;
use crate::reply;
use crate::secrets::{self, SecretVisibility};
use crate::whole_body::WholeBody;

/// The configuration to explain, and the format of the response.
#[derive(Debug, Deserialize)]
pub(super) struct InsightQuery {
    /// A stored revision; the active configuration if absent.
    at: Option<u64>,
    /// `text` for the readable form.
    #[serde(default)]
    format: OutputFormat,
}

impl ArgumentNames for InsightQuery {
    const NAMES: &'static [&'static str] = &["at", "format"];
}

/// `POST /yumen/v1/explain[?at=REVISION][&format=text]`: the body is the question.
pub(super) async fn explain_request(
    State(state): State<V1State>,
    visibility: SecretVisibility,
    StrictQuery(asked): StrictQuery<InsightQuery>,
    WholeBody(body): WholeBody,
) -> Result<Response, ApiRefusal> {
    let question: Question = json_text::from_slice(&body)
        .map_err(|error| ApiRefusal::invalid(format!("invalid question: {error}")))?;
    let is_text = asked.format == OutputFormat::Text;
    // A past revision is compiled first, which would block a thread of the runtime.
    let answered =
        tokio::task::spawn_blocking(move || answer(&state, visibility, asked.at, &question, is_text)).await;
    answered.map_err(|error| ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?
}

/// `GET /yumen/v1/top`: the sums that `yumen top` compares.
pub(super) async fn top(
    State(state): State<V1State>,
    _: StrictQuery<NoArguments>,
) -> Result<Response, ApiRefusal> {
    Ok(reply::json(StatusCode::OK, &state.live.top()))
}

/// `GET /yumen/v1/listeners`.
pub(super) async fn listeners(
    State(state): State<V1State>,
    _: StrictQuery<NoArguments>,
) -> Result<Response, ApiRefusal> {
    Ok(reply::json(StatusCode::OK, &state.live.listeners()))
}

/// `GET /yumen/v1/certificates`.
pub(super) async fn certificates(
    State(state): State<V1State>,
    _: StrictQuery<NoArguments>,
) -> Result<Response, ApiRefusal> {
    Ok(reply::json(StatusCode::OK, &state.live.certificates()))
}

/// `GET /yumen/v1/recent`.
pub(super) async fn recent(
    State(state): State<V1State>,
    _: StrictQuery<NoArguments>,
) -> Result<Response, ApiRefusal> {
    let message = "recent requests are not listed: observe.list_recent_requests is off in yumen.yaml";
    let recent = state.live.recent().ok_or_else(|| ApiRefusal::new(StatusCode::NOT_FOUND, message))?;
    Ok(reply::json(StatusCode::OK, &recent))
}

fn answer(
    state: &V1State,
    visibility: SecretVisibility,
    at: Option<u64>,
    question: &Question,
    is_text: bool,
) -> Result<Response, ApiRefusal> {
    let (snapshot, problems, texts) = configuration(state, at)?;
    let text = |kind: Kind, id: &str| texts.get(kind, id).map(|entry| entry.json.clone());
    let context = ExplainContext {
        now: state.live.now(),
        problems: &problems,
        text: Some(&text),
        listeners: first_ports(&state.live.cluster()),
    };
    let mut explanation = explain_any(&snapshot, question, &context).map_err(|invalid| {
        let at = if invalid.path.is_empty() { String::new() } else { format!("{}: ", invalid.path) };
        ApiRefusal::invalid(format!("{at}{}", invalid.message))
    })?;
    if visibility == SecretVisibility::NoSecrets {
        explanation.visit_fields(&mut |name, value| secrets::hide_field(name, value));
    }
    if is_text {
        let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
        let mut text = state.live.without_secrets(explanation.to_string());
        if visibility == SecretVisibility::NoSecrets {
            hide_in_urls(&mut text);
        }
        return Ok((plain, text).into_response());
    }
    let body = serde_json::to_string(&explanation).expect("an explanation is plain data");
    let mut body: Value = serde_json::from_str(&state.live.without_secrets(body))
        .map_err(|error| ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    if visibility == SecretVisibility::NoSecrets {
        secrets::hide_urls_of(&mut body);
    }
    Ok(reply::json(StatusCode::OK, &body))
}

/// The port of the first listener of each kind on this node.
fn first_ports(cluster: &ClusterView) -> ListenerPorts {
    let own = cluster.nodes.iter().find(|node| node.is_self);
    let port = |name: &str| {
        let address: SocketAddr = own?.addresses.get(name)?.first()?.parse().ok()?;
        Some(address.port())
    };
    ListenerPorts { http: port("http"), https: port("https") }
}

/// The snapshot, its problems, and the texts that it was compiled from.
fn configuration(
    state: &V1State,
    at: Option<u64>,
) -> Result<(Arc<Snapshot>, Vec<Problem>, StoreState), ApiRefusal> {
    let Some(revision) = at else {
        return Ok((state.live.snapshot(), state.live.problems(), state.admin.store.state()));
    };
    check_reached(&*state.admin.store, revision)?;
    let past = state.admin.store.state_at(Revision(revision))?;
    let (snapshot, problems) = state.live.trial(past.resources());
    Ok((snapshot, problems, past))
}
