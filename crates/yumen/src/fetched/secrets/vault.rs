//! HashiCorp Vault: key-value stores of version 1 and 2.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use serde_json::Value;
use yumen_plugin::SecretFetch;
use yumen_snapshot::compile::FetchFailure;

use super::{ManagerHttp, ManagerReply, SecretReply, SecretRound, absent, failed, member_text, setting};

/// The words of Vault's warning about a path of version 1 in a store of version 2.
const VERSIONED: &str = "versioned K/V secrets engine";

/// Requests to Vault servers.
#[derive(Default)]
pub(super) struct VaultClient {
    /// Number of segments of the prefix before `data/`, by settings, of stores of version 2.
    versioned: Mutex<HashMap<Box<str>, usize>>,
}

impl VaultClient {
    pub(super) async fn secret(
        &self,
        round: &SecretRound<'_>,
        fetch: &SecretFetch,
        settings: &Value,
        http: ManagerHttp<'_>,
    ) -> Result<String, FetchFailure> {
        let key = &fetch.key;
        let malformed = || absent(format!("error key format, key: {key}; write a path and a member"));
        let (path, member) = key.rsplit_once('/').ok_or_else(malformed)?;
        let reading = self.read(fetch, settings, path, http);
        let secret = round.reply(fetch, path, reading).await?;
        member_text(&secret[member], key)
    }

    async fn read(
        &self,
        fetch: &SecretFetch,
        settings: &Value,
        path: &str,
        http: ManagerHttp<'_>,
    ) -> SecretReply {
        let prefix: Vec<&str> =
            setting(settings, "prefix").split('/').filter(|part| !part.is_empty()).collect();
        let known = self.versioned().get(&fetch.settings).copied();
        let mut reply = request(settings, &full_path(&prefix, known, path), http).await?;
        if known.is_none() && leaves_version_open(&reply) {
            let mut other = None;
            // The mount may have several segments, so each of its possible ends is tried.
            for mount in 1..=prefix.len() {
                let tried = request(settings, &full_path(&prefix, Some(mount), path), http).await?;
                if tried.status == 200 {
                    self.versioned().insert(fetch.settings.clone(), mount);
                    other = Some(tried);
                    break;
                }
                if other.is_none() && !leaves_version_open(&tried) {
                    other = Some(tried);
                }
            }
            reply = other.unwrap_or(reply);
        }
        match reply.status {
            200 => match secret_in(&reply.body) {
                Some(secret) => Ok(Arc::new(secret.clone())),
                None => Err(failed("the response has no data")),
            },
            404 => Err(absent(format!("can't find main key, key: {}", fetch.key))),
            403 => Err(failed("answered 403: the token has ended or may not read the path")),
            status => Err(failed(format!("answered {status}"))),
        }
    }

    fn versioned(&self) -> std::sync::MutexGuard<'_, HashMap<Box<str>, usize>> {
        self.versioned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn full_path(prefix: &[&str], mount: Option<usize>, path: &str) -> String {
    let mut parts = prefix.to_vec();
    if let Some(mount) = mount {
        parts.insert(mount.min(parts.len()), "data");
    }
    parts.push(path);
    parts.join("/")
}

async fn request(settings: &Value, path: &str, http: ManagerHttp<'_>) -> Result<ManagerReply, FetchFailure> {
    let uri = format!("{}/v1/{path}", setting(settings, "uri").trim_end_matches('/'));
    let mut request = Request::get(uri).header("X-Vault-Token", setting(settings, "token"));
    if let Some(namespace) = settings["namespace"].as_str() {
        request = request.header("X-Vault-Namespace", namespace);
    }
    let request = request.body(Full::<Bytes>::default());
    http.send(request.map_err(|_| failed("the address, the token or the key is invalid"))?, true).await
}

/// Whether the response reports a path of version 1 in a store of version 2.
fn is_versioned(body: &Value) -> bool {
    let warnings = body["warnings"].as_array().into_iter().flatten();
    warnings.filter_map(Value::as_str).any(|warning| warning.contains(VERSIONED))
}

/// Whether the secret may be in a store of version 2 all the same. A token that may read only paths with `data/` gets 403
/// for the path of version 1.
fn leaves_version_open(reply: &ManagerReply) -> bool {
    reply.status == 403 || reply.status == 404 && is_versioned(&reply.body)
}

/// The secret in a response: `data`, or `data.data` of version 2.
fn secret_in(body: &Value) -> Option<&Value> {
    let data = body.get("data").filter(|data| data.is_object())?;
    // A secret of version 1 may itself have a member `data`, but hardly one called `metadata` beside it.
    let is_versioned = data["data"].is_object() && data["metadata"].is_object();
    Some(if is_versioned { &data["data"] } else { data })
}

#[cfg(test)]
mod tests;
