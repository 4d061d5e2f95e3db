//! Secret managers: requests for secrets, shared by the references to one path.
//!
//! Messages contain no values, tokens or parts of responses.

mod aws;
mod gcp;
mod sigv4;
mod vault;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use serde_json::Value;
use yumen_outbound::TlsClients;
use yumen_plugin::{ClientPair, SecretFetch, SinkTls};
use yumen_snapshot::compile::FetchFailure;

use super::FetchedBody;
use super::http_document::client_config;
use crate::fetch::{self, FetchBounds};

/// Time limit of one request to a manager, as in APISIX.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);
/// Maximum size of a response.
const REPLY_BYTES_MAX: usize = 1024 * 1024;
/// Time for which references to one path share a response.
pub(super) const ROUND: Duration = Duration::from_secs(2);

/// Clients of the managers.
#[derive(Default)]
pub(super) struct SecretManagers {
    replies: SecretReplies,
    vault: vault::VaultClient,
    gcp: gcp::GcpClient,
}

impl SecretManagers {
    /// Fetches a secret. `since`: the time from which a response for another member may be shared.
    pub(super) async fn fetch(
        &self,
        fetch: &SecretFetch,
        tls: &TlsClients,
        since: Instant,
    ) -> Result<FetchedBody, FetchFailure> {
        let settings: Value =
            serde_json::from_str(&fetch.settings).map_err(|_| failed("invalid settings"))?;
        let http = ManagerHttp { tls, settings: &settings };
        let round = &SecretRound { replies: &self.replies, since };
        let text = match fetch.manager.split('/').next() {
            Some("vault") => self.vault.secret(round, fetch, &settings, http).await?,
            Some("aws") => aws::secret(round, fetch, &settings, http).await?,
            Some("gcp") => self.gcp.secret(round, fetch, &settings, http).await?,
            _ => return Err(failed("unknown secret manager")),
        };
        Ok(FetchedBody { bytes: text.into_bytes(), max_age_s: None })
    }
}

/// A failure that may end by itself.
fn failed(message: impl Into<String>) -> FetchFailure {
    FetchFailure { message: message.into().into(), is_absent: false }
}

/// The manager has no such secret.
fn absent(message: impl Into<String>) -> FetchFailure {
    FetchFailure { message: message.into().into(), is_absent: true }
}

/// The secret of a path, or the reason why there is none.
type SecretReply = Result<Arc<Value>, FetchFailure>;

/// One path: its last response with the begin of its request, and the lock of the request in progress.
type LastReply = Arc<tokio::sync::Mutex<Option<(Instant, SecretReply)>>>;

/// Responses of the last seconds by settings and path: one request serves all members of a secret, and a hanging
/// manager is waited for once.
#[derive(Default)]
struct SecretReplies {
    last: Mutex<HashMap<(Box<str>, String), LastReply>>,
}

/// One fetch, which shares responses of requests that began at `since` or later.
struct SecretRound<'r> {
    replies: &'r SecretReplies,
    since: Instant,
}

impl SecretRound<'_> {
    async fn reply(
        &self,
        fetch: &SecretFetch,
        path: &str,
        request: impl Future<Output = SecretReply>,
    ) -> SecretReply {
        let last = {
            let mut all = self.replies.last.lock().unwrap_or_else(PoisonError::into_inner);
            // Values are not kept beyond their round, apart from those of paths that are asked for again.
            all.retain(|_, last| {
                let is_over = |reply: &Option<(Instant, SecretReply)>| {
                    reply.as_ref().is_none_or(|(at, _)| at.elapsed() >= ROUND)
                };
                Arc::strong_count(last) > 1 || !last.try_lock().is_ok_and(|reply| is_over(&reply))
            });
            all.entry((fetch.settings.clone(), path.to_owned())).or_default().clone()
        };
        let mut last = last.lock().await;
        if let Some((at, reply)) = &*last
            && *at >= self.since
        {
            return reply.clone();
        }
        let began = Instant::now();
        let new = request.await;
        *last = Some((began, new.clone()));
        new
    }
}

/// HTTP for managers.
#[derive(Clone, Copy)]
struct ManagerHttp<'t> {
    tls: &'t TlsClients,
    /// Settings of the manager, with its certificates.
    settings: &'t Value,
}

/// A response of a manager.
struct ManagerReply {
    status: u16,
    /// The body, if it is JSON; `Null` otherwise.
    body: Value,
}

impl ManagerHttp<'_> {
    async fn send(self, request: Request<Full<Bytes>>, verify: bool) -> Result<ManagerReply, FetchFailure> {
        let settings = || manager_tls(self.settings, verify);
        let tls = client_config(self.tls, &request.uri().to_string(), settings).map_err(failed)?;
        let bounds =
            FetchBounds { connect: REQUEST_WITHIN, whole: REQUEST_WITHIN, body_bytes_max: REPLY_BYTES_MAX };
        let sent = fetch::send_through(request, tls.as_ref(), None, bounds).await;
        let (head, body) = sent.map_err(|error| failed(format!("{error:#}")))?.into_parts();
        let body = body.collect().await.map_err(|error| failed(error.to_string()))?.to_bytes();
        Ok(ManagerReply {
            status: head.status.as_u16(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
        })
    }
}

/// TLS by the settings of a manager.
fn manager_tls(settings: &Value, verify: bool) -> SinkTls {
    let text = |name: &str| settings[name].as_str().map(str::to_owned);
    let client = text("client_cert").zip(text("client_key"));
    SinkTls {
        verify,
        server_name: None,
        ca_pem: text("ca_cert"),
        client: client.map(|(chain_pem, key_pem)| ClientPair { chain_pem, key_pem }),
    }
}

/// A setting as text; empty if absent.
fn setting<'s>(settings: &'s Value, name: &str) -> &'s str {
    settings[name].as_str().unwrap_or_default()
}

/// The text of a member of a secret.
fn member_text(value: &Value, key: &str) -> Result<String, FetchFailure> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        _ => Err(absent(format!("can't find sub key, key: {key}"))),
    }
}

/// The member `name` of a secret that is JSON.
fn member_of(secret: &str, name: &str, key: &str) -> Result<String, FetchFailure> {
    let parsed: Value =
        serde_json::from_str(secret).map_err(|_| absent(format!("the secret holds no JSON, key: {key}")))?;
    member_text(&parsed[name], key)
}

#[cfg(test)]
mod tests;
