//! Sinks at Google: requests with an access token of a service account (RFC 7523 §2.1).

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::time::Instant;
use yumen_plugin::{GoogleAccount, SinkReply, SinkRequest};

use crate::connector::{OutboundConnector, SendFault};
use crate::http_sink::HttpSink;
use crate::service_account::ServiceAccountKey;

/// Time before the end of a token at which the next one is fetched.
const RENEW_BEFORE: Duration = Duration::from_secs(60);
/// Idle timeout of connections in milliseconds.
const IDLE_MS: u64 = 60_000;

/// A server of Google and the one for its access tokens.
pub(crate) struct GoogleSink {
    account: GoogleAccount,
    entries: HttpSink,
    tokens: HttpSink,
    token: Option<AccessToken>,
}

/// The value of `Authorization`, until it ends.
struct AccessToken {
    authorization: String,
    renew_at: Instant,
}

impl GoogleSink {
    pub(crate) fn new(account: GoogleAccount, connector: &OutboundConnector) -> GoogleSink {
        let server = |origin: &String| {
            let origins = std::slice::from_ref(origin);
            HttpSink::new(origins, account.tls.clone(), account.timeout_ms, IDLE_MS, connector.clone())
        };
        let (entries, tokens) = (server(&account.endpoint), server(&account.token_endpoint));
        GoogleSink { account, entries, tokens, token: None }
    }

    /// Sends the request with an access token.
    pub(crate) async fn send(&mut self, request: &SinkRequest) -> Result<SinkReply, SendFault> {
        let authorization = self.authorization().await?;
        let mut request = request.clone();
        request.fields.push(("Authorization".to_owned(), authorization));
        let reply = self.entries.send(&request).await?;
        if reply.status == 401 {
            // Withdrawn before its end: the repetition gets another one.
            self.token = None;
        }
        Ok(reply)
    }

    async fn authorization(&mut self) -> Result<String, SendFault> {
        if let Some(token) = self.token.as_ref().filter(|token| Instant::now() < token.renew_at) {
            return Ok(token.authorization.clone());
        }
        let failed = |why: String| SendFault::Failed(format!("failed to get google oauth token: {why}"));
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let GoogleAccount { client_email, private_key, token_url, scope, .. } = &self.account;
        let account = ServiceAccountKey { client_email, private_key, token_url, scope };
        let assertion = account.assertion(unix.as_secs()).map_err(failed)?;
        // All characters of a token in compact form are unreserved.
        let body =
            format!("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={assertion}");
        let request = SinkRequest {
            method: "POST",
            target: self.account.token_target.clone(),
            fields: vec![("Content-Type".to_owned(), "application/x-www-form-urlencoded".to_owned())],
            body: vec![Bytes::from(body)],
            entries: 0,
        };
        let reply = self.tokens.send(&request).await?;
        if reply.status != 200 {
            // The body may repeat the assertion.
            return Err(failed(format!("the server returned status {}", reply.status)));
        }
        let token =
            read_token(&reply.body).ok_or_else(|| failed("the server returned no token".to_owned()))?;
        Ok(self.token.insert(token).authorization.clone())
    }
}

fn read_token(body: &[u8]) -> Option<AccessToken> {
    let reply: serde_json::Value = serde_json::from_slice(body).ok()?;
    let text = |name: &str| reply.get(name).and_then(serde_json::Value::as_str);
    let authorization = format!("{} {}", text("token_type").unwrap_or("Bearer"), text("access_token")?);
    let is_field_value = authorization.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    // Bounded, because a clock cannot represent all numbers.
    let life_s = reply.get("expires_in").and_then(serde_json::Value::as_u64).unwrap_or(0).min(86_400);
    let renew_at = Instant::now() + Duration::from_secs(life_s).saturating_sub(RENEW_BEFORE);
    is_field_value.then_some(AccessToken { authorization, renew_at })
}

#[cfg(test)]
mod tests;
