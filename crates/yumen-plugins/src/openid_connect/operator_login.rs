//! Logins outside of routes, such as that of the dashboard: the requests to an identity provider, and the checks of its
//! responses. The caller sends the requests.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use super::callback::CallbackParameters;
use super::checks::names_audience;
use super::form::FormBody;
use super::login::challenge;
use super::provider::ProviderMetadata;
use super::tokens::{GrantFault, GrantedTokens, IdTokenRules, granted_object};
use crate::auth::same_secret;
use crate::jose::{JoseToken, JwkSet, JwsAlgorithm, JwsVerifier, KeyFault};

/// Tolerance for clock differences in seconds.
const SLACK_S: u64 = 60;

/// The gateway as a client of an identity provider.
#[derive(Clone)]
pub struct OperatorLoginClient {
    /// The issuer of the provider.
    pub issuer: String,
    /// Identifier of the client.
    pub client_id: String,
    /// Secret of the client; `None` for a public one.
    pub client_secret: Option<String>,
    /// The URL to which the provider sends users back.
    pub redirect_uri: String,
    /// Scopes, separated by spaces.
    pub scope: String,
}

/// Omits the secret.
impl std::fmt::Debug for OperatorLoginClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OperatorLoginClient({} at {})", self.client_id, self.issuer)
    }
}

/// The discovery document of a provider.
#[derive(Debug)]
pub struct OperatorProvider(ProviderMetadata);

/// The public keys of a provider.
pub struct OperatorKeySet(JwkSet);

/// State, nonce and verifier of one login, all derived from the seed in the browser's cookie: a login in progress needs no
/// memory of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LoginSecrets {
    state: String,
    nonce: String,
    verifier: String,
}

/// A request to a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderRequest {
    /// The absolute URL.
    pub url: String,
    /// The field `Authorization`.
    pub authorization: Option<String>,
    /// A form for POST; `None` for GET.
    pub form: Option<String>,
}

/// The reason why a login does not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityFault {
    /// The browser has not begun this login.
    Foreign,
    /// The key of the ID token is unknown: a newer key set may have it.
    UnknownKey,
    /// The provider does not respond as one that works.
    Unavailable(String),
    /// The provider has refused, or its response is not valid.
    Refused(String),
}

/// The tokens of a login.
pub struct OperatorTokens(GrantedTokens);

impl LoginSecrets {
    fn derive(seed: &str) -> LoginSecrets {
        // One-way and apart from each other: state and nonce pass through the provider and URLs.
        let derived = |name: &str| {
            URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, format!("{name}:{seed}").as_bytes()))
        };
        LoginSecrets { state: derived("state"), nonce: derived("nonce"), verifier: derived("verifier") }
    }
}

impl OperatorProvider {
    /// The URL of the discovery document (OpenID Connect Discovery §4).
    pub fn discovery_url(issuer: &str) -> String {
        format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'))
    }

    /// Parses the document, which must be that of the issuer (OpenID Connect Discovery §4.3).
    pub fn parse(bytes: &[u8], issuer: &str) -> Result<OperatorProvider, String> {
        let metadata = ProviderMetadata::parse(bytes)?;
        if metadata.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
            return Err(format!("the discovery document is that of another issuer: {}", metadata.issuer));
        }
        let endpoints = [
            &metadata.authorization_endpoint,
            &metadata.token_endpoint,
            &metadata.jwks_uri,
            &metadata.userinfo_endpoint,
        ];
        // Codes and tokens would leave in clear text.
        let is_https = |url: &str| url.to_ascii_lowercase().starts_with("https:");
        if is_https(issuer) && endpoints.into_iter().flatten().any(|url| !is_https(url)) {
            return Err("the discovery document names an endpoint without https".to_owned());
        }
        Ok(OperatorProvider(metadata))
    }

    /// URL of the key set.
    pub fn keys_url(&self) -> Option<&str> {
        self.0.jwks_uri.as_deref()
    }
}

impl OperatorKeySet {
    /// Parses a key set (RFC 7517).
    pub fn parse(bytes: &[u8]) -> Result<OperatorKeySet, String> {
        JwkSet::parse(bytes).map(OperatorKeySet)
    }
}

impl OperatorLoginClient {
    /// The URL at the provider where a login begins (OpenID Connect Core §3.1.2.1).
    pub fn login_url(&self, provider: &OperatorProvider, seed: &str) -> Result<String, IdentityFault> {
        let endpoint = provider.0.authorization_endpoint.as_ref();
        let endpoint =
            endpoint.ok_or_else(|| refused("the identity provider has no authorization endpoint"))?;
        let secrets = LoginSecrets::derive(seed);
        let mut form = FormBody::default();
        form.set("client_id", &self.client_id);
        form.set("response_type", "code");
        form.set("scope", &self.scope);
        form.set("redirect_uri", &self.redirect_uri);
        form.set("state", &secrets.state);
        form.set("nonce", &secrets.nonce);
        form.set("code_challenge_method", "S256");
        form.set("code_challenge", &challenge(&secrets.verifier));
        Ok(form.url(endpoint))
    }

    /// The request for the tokens of a login, by the query of the callback.
    pub fn token_request(
        &self,
        provider: &OperatorProvider,
        seed: &str,
        query: &str,
    ) -> Result<ProviderRequest, IdentityFault> {
        let parameters = CallbackParameters::read(query.as_bytes()).ok_or(IdentityFault::Foreign)?;
        let secrets = LoginSecrets::derive(seed);
        let state = parameters.state.as_deref().unwrap_or_default();
        if !same_secret(state.as_bytes(), secrets.state.as_bytes()) {
            return Err(IdentityFault::Foreign);
        }
        // RFC 9207 §2.4.
        let requires_issuer = provider.0.authorization_response_iss_parameter_supported;
        match &parameters.issuer {
            Some(issuer) if *issuer != provider.0.issuer => return Err(IdentityFault::Foreign),
            None if requires_issuer => return Err(IdentityFault::Foreign),
            _ => {}
        }
        if let Some(error) = &parameters.error {
            // The text passed through the browser: only a code is repeated.
            let is_code =
                error.len() <= 100 && error.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            return Err(refused(if is_code { error } else { "unknown error" }));
        }
        let code = parameters.code.as_deref().ok_or_else(|| refused("the response has no code"))?;
        let url = provider.0.token_endpoint.clone();
        let url = url.ok_or_else(|| refused("the identity provider has no token endpoint"))?;
        let mut form = FormBody::default();
        form.set("grant_type", "authorization_code");
        form.set("code", code);
        form.set("redirect_uri", &self.redirect_uri);
        form.set("code_verifier", &secrets.verifier);
        let mut authorization = None;
        match &self.client_secret {
            Some(secret) => {
                // Both are form-urlencoded first (RFC 6749 §2.3.1).
                let pair = format!("{}:{}", FormBody::encode(&self.client_id), FormBody::encode(secret));
                authorization = Some(format!("Basic {}", STANDARD.encode(pair)));
            }
            None => form.set("client_id", &self.client_id),
        }
        Ok(ProviderRequest { url, authorization, form: Some(form.text()) })
    }

    /// The tokens in a response of the token endpoint.
    pub fn tokens(&self, status: u16, body: &[u8]) -> Result<OperatorTokens, IdentityFault> {
        match granted_object(status, body) {
            // These tokens are read once, so their age has no effect.
            Ok(object) => Ok(OperatorTokens(GrantedTokens::of(&object, 0))),
            Err(GrantFault::Unavailable(reason)) => Err(IdentityFault::Unavailable(reason)),
            Err(GrantFault::Refused(code)) => Err(IdentityFault::Refused(code)),
        }
    }

    /// The verified claims of the ID token (OpenID Connect Core §3.1.3.7).
    pub fn claims(
        &self,
        provider: &OperatorProvider,
        keys: Option<&OperatorKeySet>,
        seed: &str,
        tokens: &OperatorTokens,
        now_s: u64,
    ) -> Result<Map<String, Value>, IdentityFault> {
        let text = tokens.0.id_token.as_deref().ok_or_else(|| refused("the response has no ID token"))?;
        let token = JoseToken::read(text).ok_or_else(|| refused("the ID token is malformed"))?;
        let secrets = LoginSecrets::derive(seed);
        let rules = IdTokenRules {
            issuer: &provider.0.issuer,
            client_id: &self.client_id,
            nonce: Some(&secrets.nonce),
            access_token: tokens.0.access_token.as_deref(),
            slack_s: SLACK_S,
            now_s,
        };
        rules.check(&token).map_err(|reason| refused(&reason))?;
        self.verify(keys, &token)?;
        Ok(token.claims)
    }

    fn verify(&self, keys: Option<&OperatorKeySet>, token: &JoseToken<'_>) -> Result<(), IdentityFault> {
        let failed = |fault: KeyFault| match fault {
            KeyFault::UnknownKey => IdentityFault::UnknownKey,
            fault => refused(&fault.to_string()),
        };
        let algorithm = JwsAlgorithm::of(&token.algorithm).ok_or_else(|| failed(KeyFault::Algorithm))?;
        if algorithm.hmac().is_none() {
            return keys.ok_or(IdentityFault::UnknownKey)?.0.verify(token, &[]).map_err(failed);
        }
        // The secret of the client is the key (OpenID Connect Core §10.1), never a public key.
        let secret = self.client_secret.as_ref().ok_or_else(|| failed(KeyFault::Algorithm))?;
        let verifier = JwsVerifier::of_secret(algorithm, secret.as_bytes());
        match verifier.is_some_and(|verifier| verifier.has_signed(token)) {
            true => Ok(()),
            false => Err(failed(KeyFault::Signature)),
        }
    }

    /// The request for further claims; `None` if the provider has none.
    pub fn userinfo_request(
        &self,
        provider: &OperatorProvider,
        tokens: &OperatorTokens,
    ) -> Option<ProviderRequest> {
        let (url, token) = (provider.0.userinfo_endpoint.clone()?, tokens.0.access_token.as_ref()?);
        Some(ProviderRequest { url, authorization: Some(format!("Bearer {token}")), form: None })
    }

    /// Adds claims of the userinfo endpoint that the ID token does not have.
    pub fn add_userinfo(&self, claims: &mut Map<String, Value>, status: u16, body: &[u8]) {
        let Ok(more) = granted_object(status, body) else { return };
        // Claims of another user must not be taken for those of this one (OpenID Connect Core §5.3.2).
        if more.get("sub").is_none() || more.get("sub") != claims.get("sub") {
            return;
        }
        for (name, value) in more {
            claims.entry(name).or_insert(value);
        }
    }
}

/// Whether claims have one of the values: a text, a list of texts, or a number or truth value as text. Dots in the name
/// lead into objects, unless a claim has the whole name.
pub fn claim_has(claims: &Map<String, Value>, name: &str, values: &[String]) -> bool {
    claim_at(claims, name).is_some_and(|claim| match claim {
        Value::Bool(_) | Value::Number(_) => values.contains(&claim.to_string()),
        claim => values.iter().any(|value| names_audience(claim, value)),
    })
}

/// The claim with this name.
pub fn claim_at<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c Value> {
    if let Some(claim) = claims.get(name) {
        return Some(claim);
    }
    let (first, rest) = name.split_once('.')?;
    claim_at(claims.get(first)?.as_object()?, rest)
}

fn refused(reason: &str) -> IdentityFault {
    IdentityFault::Refused(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DOCUMENT: &str = r#"{"issuer": "https://idp", "authorization_endpoint": "https://idp/a?x=1",
        "token_endpoint": "https://idp/t", "jwks_uri": "https://idp/k"}"#;

    fn client(secret: Option<&str>) -> OperatorLoginClient {
        OperatorLoginClient {
            issuer: "https://idp".into(),
            client_id: "me".into(),
            client_secret: secret.map(str::to_owned),
            redirect_uri: "https://gw/ui/callback".into(),
            scope: "openid".into(),
        }
    }

    #[test]
    fn discovery_document_is_that_of_the_issuer_and_its_endpoints_have_https() {
        let parse = |text: &str, issuer| OperatorProvider::parse(text.as_bytes(), issuer).map(drop);
        assert_eq!(parse(DOCUMENT, "https://idp/"), Ok(()));
        for (text, issuer) in [
            (DOCUMENT.to_owned(), "https://other"),
            (DOCUMENT.replace("https://idp/t", "http://idp/t"), "https://idp"),
            (DOCUMENT.replace("https://idp/a", "javascript:1"), "https://idp"),
            ("[]".to_owned(), "https://idp"),
        ] {
            assert!(parse(&text, issuer).is_err(), "{text}");
        }
    }

    #[test]
    fn callback_must_answer_the_login_of_the_seed() {
        let provider = OperatorProvider::parse(DOCUMENT.as_bytes(), "https://idp").unwrap();
        let client = client(Some("a b"));
        let url = client.login_url(&provider, "seed").unwrap();
        assert!(url.starts_with("https://idp/a?x=1&client_id=me&response_type=code"), "{url}");
        assert!(!url.contains("seed") && url.contains("code_challenge_method=S256"), "{url}");
        let state = url.split("&state=").nth(1).unwrap().split('&').next().unwrap();
        let ask = |seed: &str, query: &str| client.token_request(&provider, seed, query);
        let sent = ask("seed", &format!("code=c&state={state}")).unwrap();
        assert_eq!(sent.authorization.as_deref(), Some("Basic bWU6YSUyMGI="));
        let form = sent.form.unwrap();
        assert!(form.starts_with("grant_type=authorization_code&code=c&redirect_uri="), "{form}");
        for (seed, query) in [
            ("other", format!("code=c&state={state}")),
            ("seed", "code=c".to_owned()),
            ("seed", format!("code=c&state={state}&state={state}")),
            ("seed", format!("code=c&state={state}&iss=https%3A%2F%2Fother")),
        ] {
            assert_eq!(ask(seed, &query), Err(IdentityFault::Foreign), "{seed} {query}");
        }
        let denied = ask("seed", &format!("error=access_denied&state={state}"));
        assert_eq!(denied, Err(IdentityFault::Refused("access_denied".into())));
    }

    #[test]
    fn public_client_names_itself_in_the_form() {
        let provider = OperatorProvider::parse(DOCUMENT.as_bytes(), "https://idp").unwrap();
        let state = LoginSecrets::derive("seed").state;
        let sent = client(None).token_request(&provider, "seed", &format!("code=c&state={state}")).unwrap();
        assert!(sent.authorization.is_none() && sent.form.unwrap().ends_with("&client_id=me"));
    }

    #[test]
    fn claims_are_found_by_name_and_by_path() {
        let claims =
            json!({"groups": ["a", "b"], "admin": true, "realm": {"roles": ["ops"]}, "https://x.y/z": "v"});
        let claims = claims.as_object().unwrap();
        for (name, value, expected) in [
            ("groups", "b", true),
            ("groups", "c", false),
            ("admin", "true", true),
            ("realm.roles", "ops", true),
            ("realm.none", "ops", false),
            ("https://x.y/z", "v", true),
            ("none", "", false),
        ] {
            assert_eq!(claim_has(claims, name, &[value.to_owned()]), expected, "{name} {value}");
        }
    }

    #[test]
    fn userinfo_of_another_user_adds_nothing() {
        let mut claims = json!({"sub": "a", "name": "A"}).as_object().unwrap().clone();
        client(None).add_userinfo(&mut claims, 200, br#"{"sub": "b", "groups": ["x"]}"#);
        client(None).add_userinfo(&mut claims, 200, br#"{"groups": ["x"]}"#);
        assert_eq!(claims.len(), 2);
        client(None).add_userinfo(&mut claims, 200, br#"{"sub": "a", "name": "B", "groups": ["x"]}"#);
        assert_eq!(claims["groups"], json!(["x"]));
        assert_eq!(claims["name"], "A");
    }
}
