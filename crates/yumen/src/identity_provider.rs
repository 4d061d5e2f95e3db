//! The identity provider of the dashboard: its documents, fetched when a login needs them, and the calls of a login.
//!
//! The checks are those of the plugin `openid-connect`. Runs on the control runtime.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde_json::{Map, Value};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use yumen_admin::keys::KeyHolder;
use yumen_admin::{IdentityFuture, IdentityProvider, IdentityRefusal};
use yumen_base::invisible::is_invisible;
use yumen_config::node::{AdminRole, OpenidLoginConfig};
use yumen_outbound::TlsClients;
use yumen_plugin::SinkTls;
use yumen_plugins::operator_login::{
    IdentityFault, OperatorKeySet, OperatorLoginClient, OperatorProvider, OperatorTokens, ProviderRequest,
    claim_at, claim_has,
};
use yumen_proxy::clock;

use crate::fetch::{self, FetchBounds};

/// Bounds of one call.
const BOUNDS: FetchBounds = FetchBounds {
    connect: Duration::from_secs(3),
    whole: Duration::from_secs(6),
    body_bytes_max: 256 * 1024,
};
/// Age after which a document is fetched again.
const FRESH_FOR: Duration = Duration::from_secs(3600);
/// Pause after a failed fetch, so that logins do not hammer a provider that is down.
const FAILURE_PAUSE: Duration = Duration::from_secs(3);
/// Logins whose tokens are requested at once. Each callback costs a request, and any client can send callbacks.
const TOKEN_REQUESTS_MAX: usize = 8;
/// Pause between two fetches of keys that logins ask for.
const KEYS_PAUSE: Duration = Duration::from_secs(10);
/// Characters of a name in the history.
const NAME_CHARS_MAX: usize = 100;

/// The provider of the settings.
pub(crate) struct OpenidProvider {
    config: OpenidLoginConfig,
    client: OperatorLoginClient,
    ca_pem: Option<String>,
    tls: TlsClients,
    documents: Mutex<ProviderDocuments>,
    exchanges: TokenExchanges,
}

/// The bound of token requests, and the last failure of the provider during one.
struct TokenExchanges {
    permits: Semaphore,
    failure: std::sync::Mutex<Option<(Instant, String)>>,
}

impl Default for TokenExchanges {
    fn default() -> TokenExchanges {
        TokenExchanges { permits: Semaphore::new(TOKEN_REQUESTS_MAX), failure: std::sync::Mutex::default() }
    }
}

impl TokenExchanges {
    fn last_failure(&self) -> MutexGuard<'_, Option<(Instant, String)>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit for one exchange; a provider that has just failed rests first.
    fn begin(&self) -> Result<SemaphorePermit<'_>, IdentityRefusal> {
        if let Some((_, failure)) =
            self.last_failure().as_ref().filter(|(at, _)| at.elapsed() < FAILURE_PAUSE)
        {
            return Err(IdentityRefusal::Unavailable(failure.clone()));
        }
        let permit = self.permits.try_acquire();
        permit.map_err(|_| IdentityRefusal::Unavailable("too many logins at once".to_owned()))
    }

    /// Begins the pause if the provider has failed.
    fn note<T>(&self, result: &Result<T, IdentityRefusal>) {
        if let Err(IdentityRefusal::Unavailable(failure)) = result {
            *self.last_failure() = Some((Instant::now(), failure.clone()));
        }
    }
}

/// The newest documents and the times of their fetches.
#[derive(Default)]
struct ProviderDocuments {
    discovery: Option<(Instant, Arc<OperatorProvider>)>,
    keys: Option<(Instant, Arc<OperatorKeySet>)>,
    failure: Option<(Instant, String)>,
}

impl OpenidProvider {
    /// The provider of the settings; `None` if they have none.
    pub(crate) fn open(config: &OpenidLoginConfig) -> anyhow::Result<Option<Arc<OpenidProvider>>> {
        if !config.is_on() {
            return Ok(None);
        }
        let path = &config.trusted_ca;
        let read = || std::fs::read_to_string(path);
        let ca_pem = (!path.is_empty())
            .then(read)
            .transpose()
            .with_context(|| format!("admin.dashboard.openid.trusted_ca: cannot read {path}"))?;
        let secret = &config.client_secret.0;
        let client = OperatorLoginClient {
            issuer: config.issuer.clone(),
            client_id: config.client_id.clone(),
            client_secret: (!secret.is_empty()).then(|| secret.clone()),
            redirect_uri: config.redirect_uri.clone(),
            scope: config.scopes.join(" "),
        };
        let provider = OpenidProvider {
            config: config.clone(),
            client,
            ca_pem,
            tls: TlsClients::default(),
            documents: Mutex::default(),
            exchanges: TokenExchanges::default(),
        };
        // Invalid authorities are found at the start, not at the first login.
        provider
            .tls_client()
            .map_err(|error| anyhow::anyhow!("admin.dashboard.openid.trusted_ca: {error}"))?;
        Ok(Some(Arc::new(provider)))
    }

    fn tls_client(&self) -> Result<Arc<rustls::ClientConfig>, String> {
        self.tls.get(&SinkTls { verify: true, server_name: None, ca_pem: self.ca_pem.clone(), client: None })
    }

    /// Sends a request; the status and the body of its response.
    async fn send(&self, request: ProviderRequest) -> Result<(u16, Bytes), String> {
        let ProviderRequest { url, authorization, form } = request;
        let mut sent = match &form {
            Some(_) => Request::post(&url).header(CONTENT_TYPE, "application/x-www-form-urlencoded"),
            None => Request::get(&url),
        };
        sent = sent.header(ACCEPT, "application/json");
        if let Some(authorization) = authorization {
            let mut value = HeaderValue::try_from(authorization).map_err(|error| error.to_string())?;
            value.set_sensitive(true);
            sent = sent.header(AUTHORIZATION, value);
        }
        let body = Full::new(Bytes::from(form.unwrap_or_default()));
        let sent = sent.body(body).map_err(|error| format!("{url}: {error}"))?;
        let client =
            if url.to_ascii_lowercase().starts_with("https:") { Some(self.tls_client()?) } else { None };
        let received = fetch::send(sent, client.as_ref(), BOUNDS).await;
        let (head, body) = received.map_err(|error| format!("{error:#}"))?.into_parts();
        let body = body.collect().await.map_err(|error| error.to_string())?;
        Ok((head.status.as_u16(), body.to_bytes()))
    }

    async fn document(&self, url: &str) -> Result<Bytes, String> {
        let request = ProviderRequest { url: url.to_owned(), authorization: None, form: None };
        match self.send(request).await? {
            (200, body) => Ok(body),
            (status, _) => Err(format!("{url} answered {status}")),
        }
    }

    /// The provider by its discovery document. An old one serves while no new one arrives.
    async fn discover(&self) -> Result<Arc<OperatorProvider>, IdentityRefusal> {
        // One fetch for all logins that wait.
        let mut documents = self.documents.lock().await;
        let known = documents.discovery.clone();
        if let Some((_, provider)) = known.as_ref().filter(|(at, _)| at.elapsed() < FRESH_FOR) {
            return Ok(provider.clone());
        }
        let failure = documents.failure.as_ref().filter(|(at, _)| at.elapsed() < FAILURE_PAUSE);
        let fetched = match failure {
            Some((_, failure)) => Err(failure.clone()),
            None => {
                let url = OperatorProvider::discovery_url(&self.config.issuer);
                let body = self.document(&url).await;
                body.and_then(|body| OperatorProvider::parse(&body, &self.config.issuer))
            }
        };
        match fetched {
            Ok(provider) => {
                let provider = Arc::new(provider);
                documents.discovery = Some((Instant::now(), provider.clone()));
                documents.failure = None;
                Ok(provider)
            }
            Err(failure) => {
                if documents.failure.as_ref().is_none_or(|(at, _)| at.elapsed() >= FAILURE_PAUSE) {
                    documents.failure = Some((Instant::now(), failure.clone()));
                }
                known.map(|(_, provider)| provider).ok_or(IdentityRefusal::Unavailable(failure))
            }
        }
    }

    /// The key set; `newest` asks for one that may have keys which the known one lacks.
    async fn keys(
        &self,
        provider: &OperatorProvider,
        newest: bool,
    ) -> Result<Option<Arc<OperatorKeySet>>, IdentityRefusal> {
        let Some(url) = provider.keys_url() else { return Ok(None) };
        let mut documents = self.documents.lock().await;
        let fresh_for = if newest { KEYS_PAUSE } else { FRESH_FOR };
        if let Some((_, keys)) = documents.keys.as_ref().filter(|(at, _)| at.elapsed() < fresh_for) {
            return Ok(Some(keys.clone()));
        }
        let body = self.document(url).await;
        let keys =
            body.and_then(|body| OperatorKeySet::parse(&body)).map_err(IdentityRefusal::Unavailable)?;
        let keys = Arc::new(keys);
        documents.keys = Some((Instant::now(), keys.clone()));
        Ok(Some(keys))
    }

    async fn claims(
        &self,
        provider: &OperatorProvider,
        seed: &str,
        tokens: &OperatorTokens,
    ) -> Result<Map<String, Value>, IdentityRefusal> {
        let now_s = clock::exact().unix_s();
        let keys = self.keys(provider, false).await?;
        let verified = self.client.claims(provider, keys.as_deref(), seed, tokens, now_s);
        match verified {
            Err(IdentityFault::UnknownKey) => {
                let keys = self.keys(provider, true).await?;
                self.client.claims(provider, keys.as_deref(), seed, tokens, now_s).map_err(refusal)
            }
            verified => verified.map_err(refusal),
        }
    }

    async fn holder(&self, seed: &str, query: &str) -> Result<KeyHolder, IdentityRefusal> {
        let provider = self.discover().await?;
        let request = self.client.token_request(&provider, seed, query).map_err(refusal)?;
        let permit = self.exchanges.begin()?;
        let claims = self.exchange(&provider, seed, request).await;
        self.exchanges.note(&claims);
        drop(permit);
        let claims = claims?;
        let name = self.name_of(&claims);
        match role_of(&self.config, &claims) {
            Some(role) => Ok(KeyHolder { name, role }),
            None => Err(IdentityRefusal::NoRole(name)),
        }
    }

    /// The claims of a user, by the request for the tokens.
    async fn exchange(
        &self,
        provider: &OperatorProvider,
        seed: &str,
        request: ProviderRequest,
    ) -> Result<Map<String, Value>, IdentityRefusal> {
        let (status, body) = self.send(request).await.map_err(IdentityRefusal::Unavailable)?;
        let tokens = self.client.tokens(status, &body).map_err(refusal)?;
        let mut claims = self.claims(provider, seed, &tokens).await?;
        // Some providers give groups and names at this endpoint only.
        if self.lacks_claims(&claims)
            && let Some(request) = self.client.userinfo_request(provider, &tokens)
            && let Ok((status, body)) = self.send(request).await
        {
            self.client.add_userinfo(&mut claims, status, &body);
        }
        Ok(claims)
    }

    fn lacks_claims(&self, claims: &Map<String, Value>) -> bool {
        let lacks = |name: &str| claim_at(claims, name).is_none();
        lacks(&self.config.name_claim) || self.config.roles.iter().any(|rule| lacks(&rule.claim))
    }

    /// The author in the history. The prefix separates users of the provider from holders of keys.
    fn name_of(&self, claims: &Map<String, Value>) -> String {
        let text =
            |name: &str| claim_at(claims, name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let name = text(&self.config.name_claim).or_else(|| text("sub")).unwrap_or_default();
        format!("openid/{}", visible_name(name))
    }
}

/// A name without invisible characters: two users whose names look alike must not differ only in these, and no name may
/// reorder the text around it.
fn visible_name(name: &str) -> String {
    name.chars().filter(|c| !is_invisible(*c)).take(NAME_CHARS_MAX).collect()
}

/// The highest role that the rules give to a user.
fn role_of(config: &OpenidLoginConfig, claims: &Map<String, Value>) -> Option<AdminRole> {
    let matching = || config.roles.iter().filter(|rule| claim_has(claims, &rule.claim, &rule.values));
    let is_admin = matching().any(|rule| rule.role == AdminRole::Admin);
    if is_admin { Some(AdminRole::Admin) } else { matching().next().map(|rule| rule.role) }
}

fn refusal(fault: IdentityFault) -> IdentityRefusal {
    match fault {
        IdentityFault::Foreign => IdentityRefusal::Foreign,
        IdentityFault::Unavailable(reason) => IdentityRefusal::Unavailable(reason),
        IdentityFault::UnknownKey => {
            IdentityRefusal::Refused("no key of the provider fits the ID token".to_owned())
        }
        IdentityFault::Refused(reason) => IdentityRefusal::Refused(reason),
    }
}

impl IdentityProvider for OpenidProvider {
    fn host(&self) -> &str {
        self.config.provider_host()
    }

    fn is_over_tls(&self) -> bool {
        self.config.is_over_tls()
    }

    fn login_url<'a>(&'a self, seed: &'a str) -> IdentityFuture<'a, String> {
        Box::pin(async move {
            let provider = self.discover().await?;
            self.client.login_url(&provider, seed).map_err(refusal)
        })
    }

    fn identify<'a>(&'a self, seed: &'a str, query: &'a str) -> IdentityFuture<'a, KeyHolder> {
        Box::pin(self.holder(seed, query))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_user_has_only_visible_characters() {
        for (name, expected) in [
            ("ann", "ann"),
            ("a\u{202e}nn\u{2066}\n", "ann"),
            ("a\u{200b}\u{2028}nn\u{feff}\u{ad}", "ann"),
            ("Zoë 名", "Zoë 名"),
        ] {
            assert_eq!(visible_name(name), expected);
        }
        assert_eq!(visible_name(&"a\u{200d}".repeat(200)), "a".repeat(100));
    }

    #[test]
    fn token_requests_are_bounded_and_pause_after_a_failure() {
        let exchanges = TokenExchanges::default();
        let mut permits: Vec<_> = (0..TOKEN_REQUESTS_MAX).map(|_| exchanges.begin().unwrap()).collect();
        let busy = exchanges.begin().err();
        assert_eq!(busy, Some(IdentityRefusal::Unavailable("too many logins at once".into())));
        permits.pop();
        exchanges.note::<()>(&Err(IdentityRefusal::Refused("invalid_grant".into())));
        assert!(exchanges.begin().is_ok());
        let down = IdentityRefusal::Unavailable("down".into());
        exchanges.note::<()>(&Err(down.clone()));
        assert_eq!(exchanges.begin().err(), Some(down));
    }
}
