//! Google Secret Manager: a token for the service account (RFC 7523), then the latest version of the secret.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use yumen_outbound::{ASSERTION_LIFE_S, ServiceAccountKey};
use yumen_plugin::SecretFetch;
use yumen_snapshot::compile::FetchFailure;

use super::{ManagerHttp, SecretReply, SecretRound, absent, failed, member_of};

const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
const ENTRIES_URI: &str = "https://secretmanager.googleapis.com/v1";
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// Time before its end at which a token is replaced.
const EARLY_S: u64 = 60;

/// Requests to Google, with their tokens.
#[derive(Default)]
pub(super) struct GcpClient {
    /// Token and its end in seconds since 1970, by settings of the manager.
    tokens: Mutex<HashMap<Box<str>, (String, u64)>>,
}

/// A service account.
struct ServiceAccount {
    client_email: String,
    private_key: String,
    project_id: String,
    token_uri: String,
    entries_uri: String,
    scope: String,
}

impl GcpClient {
    pub(super) async fn secret(
        &self,
        round: &SecretRound<'_>,
        fetch: &SecretFetch,
        settings: &Value,
        http: ManagerHttp<'_>,
    ) -> Result<String, FetchFailure> {
        let key = &fetch.key;
        let (name, member) =
            key.split_once('/').map_or((key.as_str(), None), |(name, rest)| (name, Some(rest)));
        let secret = round.reply(fetch, name, self.read(fetch, settings, name, http)).await?;
        let text = secret.as_str().unwrap_or_default();
        member.map_or_else(|| Ok(text.to_owned()), |member| member_of(text, member, key))
    }

    async fn read(
        &self,
        fetch: &SecretFetch,
        settings: &Value,
        name: &str,
        http: ManagerHttp<'_>,
    ) -> SecretReply {
        let account = ServiceAccount::of(settings)?;
        let verify = settings["ssl_verify"].as_bool().unwrap_or(true);
        let token = self.token(fetch, &account, verify, http).await?;
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let (project, secret) = (encode(&account.project_id), encode(name));
        let entries = account.entries_uri.trim_end_matches('/');
        let uri = format!("{entries}/projects/{project}/secrets/{secret}/versions/latest:access");
        let request = Request::get(uri).header("authorization", format!("Bearer {token}"));
        let request = request.body(Full::<Bytes>::default()).map_err(|_| failed("invalid entries_uri"))?;
        let reply = http.send(request, verify).await?;
        match reply.status {
            200 => {
                let data = reply.body["payload"]["data"].as_str().and_then(|data| BASE64.decode(data).ok());
                let text = data.and_then(|data| String::from_utf8(data).ok());
                let text = text.ok_or_else(|| failed("the response has no text in payload.data"))?;
                Ok(Arc::new(text.into()))
            }
            404 => Err(absent("no such secret")),
            status => {
                // The token may have been revoked; the next fetch gets another one.
                self.tokens().remove(&fetch.settings);
                Err(failed(format!("answered {status}")))
            }
        }
    }

    async fn token(
        &self,
        fetch: &SecretFetch,
        account: &ServiceAccount,
        verify: bool,
        http: ManagerHttp<'_>,
    ) -> Result<String, FetchFailure> {
        let now_s = yumen_proxy::clock::exact().unix_ms / 1000;
        let known = self.tokens().get(&fetch.settings).cloned();
        if let Some((token, _)) = known.filter(|(_, ends_s)| now_s + EARLY_S < *ends_s) {
            return Ok(token);
        }
        let key = ServiceAccountKey {
            client_email: &account.client_email,
            private_key: &account.private_key,
            token_url: &account.token_uri,
            scope: &account.scope,
        };
        let assertion = key.assertion(now_s).map_err(failed)?;
        let grant = utf8_percent_encode("urn:ietf:params:oauth:grant-type:jwt-bearer", NON_ALPHANUMERIC);
        let body = format!("grant_type={grant}&assertion={assertion}");
        let request = Request::post(&account.token_uri)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Full::from(body));
        let reply = http.send(request.map_err(|_| failed("invalid token_uri"))?, verify).await?;
        let token = reply.body["access_token"].as_str().filter(|_| reply.status == 200);
        let token = token.ok_or_else(|| failed(format!("the token endpoint answered {}", reply.status)))?;
        let ends_s = now_s + reply.body["expires_in"].as_u64().unwrap_or(ASSERTION_LIFE_S);
        self.tokens().insert(fetch.settings.clone(), (token.to_owned(), ends_s));
        Ok(token.to_owned())
    }

    fn tokens(&self) -> std::sync::MutexGuard<'_, HashMap<Box<str>, (String, u64)>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServiceAccount {
    /// The account in the settings, or in the file that they name.
    fn of(settings: &Value) -> Result<ServiceAccount, FetchFailure> {
        let read;
        let account = match settings["auth_file"].as_str() {
            Some(path) => {
                // A small local file, which a rotation replaces.
                let text = std::fs::read_to_string(path)
                    .map_err(|error| failed(format!("auth_file cannot be read: {error}")))?;
                read = serde_json::from_str::<Value>(&text).map_err(|_| failed("auth_file is no JSON"))?;
                &read
            }
            None => &settings["auth_config"],
        };
        let text = |name: &str, default: &str| account[name].as_str().unwrap_or(default).to_owned();
        let scope = account.get("scope").or_else(|| account.get("scopes"));
        let scopes = scope.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let joined = scopes.collect::<Vec<&str>>().join(" ");
        let written = scope.and_then(Value::as_str).unwrap_or(&joined);
        let found = ServiceAccount {
            client_email: text("client_email", ""),
            private_key: text("private_key", ""),
            project_id: text("project_id", ""),
            token_uri: text("token_uri", TOKEN_URI),
            entries_uri: text("entries_uri", ENTRIES_URI),
            scope: if written.is_empty() { SCOPE.to_owned() } else { written.to_owned() },
        };
        let is_whole =
            ![&found.client_email, &found.private_key, &found.project_id].iter().any(|one| one.is_empty());
        is_whole
            .then_some(found)
            .ok_or_else(|| failed("the service account lacks client_email, private_key or project_id"))
    }
}
