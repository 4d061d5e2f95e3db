//! The access token of the gateway itself, by which it looks up resources.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use serde::Deserialize;
use yumen_plugin::PluginHost;

use super::settings::KeycloakSettings;
use crate::service::{ServiceTarget, json_document};

/// Interval at which requests look for the token that another one fetches.
const POLL_MS: u64 = 20;

/// The token, shared by workers and by plugins with the same client.
#[derive(Default)]
pub(super) struct ServiceTokenCache {
    token: ArcSwapOption<ServiceToken>,
    /// Whether a request fetches the token.
    is_fetching: AtomicBool,
}

struct ServiceToken {
    access: String,
    access_until_s: u64,
    /// The refresh token and its end.
    refresh: Option<(String, u64)>,
}

/// The client that the token is for.
pub(super) struct ClientGrant<'g> {
    pub(super) endpoint: &'g ServiceTarget,
    pub(super) config: &'g KeycloakSettings,
}

/// The response of the token endpoint (RFC 6749 §5.1).
#[derive(Deserialize)]
struct TokenDocument {
    access_token: String,
    expires_in: Option<u64>,
    refresh_token: Option<String>,
    refresh_expires_in: Option<u64>,
}

/// Ends the fetch, also if the client leaves.
struct TokenFetch<'c>(&'c AtomicBool);

impl Drop for TokenFetch<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl ServiceTokenCache {
    /// The access token. Without a valid one, one request fetches it and the others wait.
    pub(super) async fn token(
        &self,
        grant: &ClientGrant<'_>,
        host: &dyn PluginHost,
    ) -> Result<String, String> {
        let mut waited_ms = 0;
        loop {
            let now_s = host.clock().unix_s();
            if let Some(token) = self.token.load().as_ref().filter(|token| now_s < token.access_until_s) {
                return Ok(token.access.clone());
            }
            if !self.is_fetching.swap(true, Ordering::Acquire) {
                let _fetch = TokenFetch(&self.is_fetching);
                return self.fetch(grant, host).await;
            }
            if waited_ms >= grant.config.timeout {
                return Err("Accessing token endpoint failed: no answer in time".to_owned());
            }
            host.sleep(Duration::from_millis(POLL_MS)).await;
            waited_ms += POLL_MS;
        }
    }

    /// Has the next request fetch another token.
    pub(super) fn forget(&self) {
        self.token.store(None);
    }

    async fn fetch(&self, grant: &ClientGrant<'_>, host: &dyn PluginHost) -> Result<String, String> {
        let now_s = host.clock().unix_s();
        let current = self.token.load_full();
        let refresh = current.and_then(|token| token.refresh.clone()).filter(|(_, until_s)| now_s < *until_s);
        let mut fetched = Err(String::new());
        if let Some((token, _)) = &refresh {
            fetched = grant.request(&[("grant_type", "refresh_token"), ("refresh_token", token)], host).await;
        }
        // A refused refresh token is no outage: the session at Keycloak may have ended.
        if fetched.is_err() {
            fetched = grant.request(&[("grant_type", "client_credentials")], host).await;
        }
        let token = fetched?;
        let access = token.access.clone();
        self.token.store(Some(token.into()));
        Ok(access)
    }
}

impl ClientGrant<'_> {
    async fn request(&self, grant: &[(&str, &str)], host: &dyn PluginHost) -> Result<ServiceToken, String> {
        let (config, lifetimes) = (self.config, &self.config.lifetimes);
        let mut form = grant.to_vec();
        form.push(("client_id", &config.client_id));
        form.extend(config.client_secret.as_deref().map(|secret| ("client_secret", secret)));
        let mut call = self.endpoint.form(&form);
        // A rotating refresh token that is sent twice ends the session at Keycloak.
        call.may_repeat = false;
        let url = self.endpoint.describe();
        let failed = |reason: &str| format!("Accessing token endpoint URL ({url}) failed: {reason}");
        let answer = self.endpoint.send(host, call).await.map_err(|fault| failed(&fault.to_string()))?;
        let document = json_document(&answer).and_then(|document| serde_json::from_value(document).ok());
        let document: TokenDocument =
            document.ok_or_else(|| failed(&format!("status {} without an access token", answer.status)))?;
        let now_s = host.clock().unix_s();
        // One second for the way to Keycloak, as in APISIX.
        let end = |given: Option<u64>, default: u64, leeway: u64| {
            now_s + given.unwrap_or(default).saturating_sub(1 + leeway)
        };
        Ok(ServiceToken {
            access_until_s: end(
                document.expires_in,
                lifetimes.access_token_expires_in,
                lifetimes.access_token_expires_leeway,
            ),
            refresh: document.refresh_token.map(|token| {
                let until_s = end(
                    document.refresh_expires_in,
                    lifetimes.refresh_token_expires_in,
                    lifetimes.refresh_token_expires_leeway,
                );
                (token, until_s)
            }),
            access: document.access_token,
        })
    }
}
