//! Responses of the token endpoint, and the checks of ID tokens (OpenID Connect Core §3.1.3.7).

use std::sync::Arc;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use yumen_plugin::{FetchedCell, PluginHost, SubrequestFault, SubrequestResponse};

use super::checks::names_audience;
use crate::auth::same_secret;
use crate::jose::{ClaimTimes, JoseToken, JwkSet, JwsAlgorithm, JwsVerifier, KeyFault};

/// Wait for a key set that another request has asked for.
const SHARED_REFRESH_MS: u64 = 300;

/// Tokens of a response of the token endpoint.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct GrantedTokens {
    pub(super) access_token: Option<String>,
    pub(super) id_token: Option<String>,
    pub(super) refresh_token: Option<String>,
    pub(super) expires_in_s: Option<u64>,
    /// Time of the request for them.
    pub(super) granted_s: u64,
}

/// The reason why the provider granted nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GrantFault {
    /// No response, or one of a broken provider.
    Unavailable(String),
    /// The provider has refused with this error code (RFC 6749 §5.2).
    Refused(String),
}

impl std::fmt::Display for GrantFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GrantFault::Unavailable(reason) => write!(f, "the identity provider is not available: {reason}"),
            GrantFault::Refused(error) => write!(f, "the identity provider refused: {error}"),
        }
    }
}

/// The JSON object of a response.
pub(super) fn read_object(
    response: Result<SubrequestResponse, SubrequestFault>,
) -> Result<Map<String, Value>, GrantFault> {
    let unavailable = |reason: String| GrantFault::Unavailable(reason);
    let response = response.map_err(|fault| unavailable(fault.to_string()))?;
    if let Some(fault) = response.fault {
        return Err(unavailable(fault.to_string()));
    }
    granted_object(response.status, &response.body.unwrap_or_default())
}

/// The JSON object of a whole response.
pub(super) fn granted_object(status: u16, body: &[u8]) -> Result<Map<String, Value>, GrantFault> {
    let unavailable = |reason: String| GrantFault::Unavailable(reason);
    let object = serde_json::from_slice::<Map<String, Value>>(body).ok();
    match status {
        200..=299 => object.ok_or_else(|| unavailable("the response is not a JSON object".to_owned())),
        // A refusal is final, so only the status of a refusal counts as one.
        400..=499 if status != 408 && status != 429 => {
            let error = object.as_ref().and_then(|object| object.get("error")).and_then(Value::as_str);
            let is_code = |text: &&str| text.len() <= 100 && text.bytes().all(|byte| byte.is_ascii_graphic());
            Err(GrantFault::Refused(
                error.filter(is_code).map_or_else(|| format!("status {status}"), str::to_owned),
            ))
        }
        status => Err(unavailable(format!("status {status}"))),
    }
}

impl GrantedTokens {
    /// Reads a response of the token endpoint.
    pub(super) fn read(
        response: Result<SubrequestResponse, SubrequestFault>,
        granted_s: u64,
    ) -> Result<GrantedTokens, GrantFault> {
        read_object(response).map(|object| GrantedTokens::of(&object, granted_s))
    }

    /// The tokens in the object of a response.
    pub(super) fn of(object: &Map<String, Value>, granted_s: u64) -> GrantedTokens {
        let text = |name: &str| {
            let text = object.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
            // Tokens become fields of requests.
            text.filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '))
                .map(str::to_owned)
        };
        GrantedTokens {
            access_token: text("access_token"),
            id_token: text("id_token"),
            refresh_token: text("refresh_token"),
            expires_in_s: object.get("expires_in").and_then(seconds),
            granted_s,
        }
    }
}

/// A number of seconds. Some providers write it as a text.
fn seconds(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.parse().ok(),
        number => number.as_u64().or_else(|| number.as_f64().filter(|one| *one >= 0.0).map(|one| one as u64)),
    }
}

/// Rules for signatures and times of tokens.
pub(super) struct SignatureRules {
    /// Tolerance for clock differences.
    pub(super) slack_s: u64,
    /// Allowed algorithms; empty for those of the key.
    pub(super) allowed: Vec<JwsAlgorithm>,
    pub(super) accept_none: bool,
    pub(super) accept_unsupported: bool,
}

/// Rules for one ID token.
pub(super) struct IdTokenRules<'r> {
    pub(super) issuer: &'r str,
    pub(super) client_id: &'r str,
    /// The nonce of the login, if it had one.
    pub(super) nonce: Option<&'r str>,
    /// The access token of the same response.
    pub(super) access_token: Option<&'r str>,
    pub(super) slack_s: u64,
    pub(super) now_s: u64,
}

impl IdTokenRules<'_> {
    /// Checks the claims of an ID token whose signature is verified.
    pub(super) fn check(&self, token: &JoseToken<'_>) -> Result<(), String> {
        let claims = &token.claims;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        if text("iss") != Some(self.issuer) {
            return Err("the issuer of the ID token is another one".to_owned());
        }
        if text("sub").is_none_or(str::is_empty) {
            return Err("the ID token has no subject".to_owned());
        }
        if !claims.get("aud").is_some_and(|audience| names_audience(audience, self.client_id)) {
            return Err("the ID token is for another client".to_owned());
        }
        // With several audiences, the authorized party must be this client. A value of another type names none.
        if claims.get("azp").is_some_and(|party| party.as_str() != Some(self.client_id)) {
            return Err("the ID token was issued to another client".to_owned());
        }
        let times = ClaimTimes::read(claims).map_err(|fault| fault.to_string())?;
        if times.expires_s.is_none() {
            return Err("the ID token has no end".to_owned());
        }
        times.check(self.now_s, self.slack_s).map_err(|fault| fault.to_string())?;
        if let Some(nonce) = self.nonce {
            let is_equal = text("nonce").is_some_and(|one| same_secret(one.as_bytes(), nonce.as_bytes()));
            if !is_equal {
                return Err("the nonce of the ID token is another one".to_owned());
            }
        }
        self.check_access_token(token)
    }

    /// Whether the access token was issued with the ID token (OpenID Connect Core §3.1.3.8). The hash is optional.
    fn check_access_token(&self, token: &JoseToken<'_>) -> Result<(), String> {
        let (Some(hash), Some(access_token)) = (token.claims.get("at_hash"), self.access_token) else {
            return Ok(());
        };
        let algorithm = match token.algorithm.get(2..) {
            Some("256") => &digest::SHA256,
            Some("384") => &digest::SHA384,
            // EdDSA with Ed25519 hashes by SHA-512.
            Some("512" | "DSA") => &digest::SHA512,
            _ => return Ok(()),
        };
        let whole = digest::digest(algorithm, access_token.as_bytes());
        let half = URL_SAFE_NO_PAD.encode(&whole.as_ref()[..whole.as_ref().len() / 2]);
        match hash.as_str() == Some(half.as_str()) {
            true => Ok(()),
            false => Err("the access token was not issued with the ID token".to_owned()),
        }
    }
}

/// The newest key set.
pub(super) fn current_keys(cell: &FetchedCell) -> Option<Arc<JwkSet>> {
    cell.load()?.downcast::<JwkSet>().ok()
}

/// Verifies by the newest key set, and waits once for a newer one if the key is unknown.
pub(super) async fn verify_by_keys(
    cell: &FetchedCell,
    host: &dyn PluginHost,
    token: &JoseToken<'_>,
    rules: &SignatureRules,
    timeout_ms: u64,
) -> Result<(), KeyFault> {
    let generation = cell.generation();
    let verify = || match current_keys(cell) {
        Some(keys) => keys.verify(token, &rules.allowed),
        None => Err(KeyFault::UnknownKey),
    };
    match verify() {
        Err(KeyFault::UnknownKey) => {}
        result => return result,
    }
    // Unknown ids of an attacker cause one fetch in ten seconds, and short waits besides.
    let wait_ms = match cell.request_refresh(host.clock()) {
        true => timeout_ms,
        false => timeout_ms.min(SHARED_REFRESH_MS),
    };
    match cell.wait_newer(host, generation, wait_ms).await {
        true => verify(),
        false => Err(KeyFault::UnknownKey),
    }
}

/// Verifies the signature of an ID token that came from the token endpoint.
pub(super) async fn verify_id_token(
    keys: Option<&FetchedCell>,
    host: &dyn PluginHost,
    token: &JoseToken<'_>,
    rules: &SignatureRules,
    secret: Option<&str>,
    timeout_ms: u64,
) -> Result<(), String> {
    if token.algorithm.eq_ignore_ascii_case("none") || token.lacks_signature() {
        return match rules.accept_none && token.is_unsigned() {
            true => Ok(()),
            false => Err("the ID token is not signed".to_owned()),
        };
    }
    let Some(algorithm) = JwsAlgorithm::of(&token.algorithm) else {
        // The connection to the token endpoint vouches for the token (OpenID Connect Core §3.1.3.7 item 6).
        return match rules.accept_unsupported && rules.allowed.is_empty() {
            true => Ok(()),
            false => Err(KeyFault::Algorithm.to_string()),
        };
    };
    if algorithm.hmac().is_some() {
        // The secret of the client is the key (OpenID Connect Core §10.1), never a public key.
        let is_allowed = rules.allowed.is_empty() || rules.allowed.contains(&algorithm);
        let secret = secret.filter(|_| is_allowed).ok_or_else(|| KeyFault::Algorithm.to_string())?;
        let verifier = JwsVerifier::of_secret(algorithm, secret.as_bytes());
        return match verifier.is_some_and(|verifier| verifier.has_signed(token)) {
            true => Ok(()),
            false => Err(KeyFault::Signature.to_string()),
        };
    }
    let keys = keys.ok_or("the identity provider publishes no key set")?;
    verify_by_keys(keys, host, token, rules, timeout_ms).await.map_err(|fault| fault.to_string())
}

/// The claims of a JWT without verification, for tokens that were verified before or are opaque to the gateway.
pub(super) fn unverified_claims(token: &str) -> Option<Map<String, Value>> {
    let payload = token.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

/// The end of an access token.
pub(super) fn access_end_s(granted: &GrantedTokens, default_s: Option<u64>, leeway_s: u64) -> u64 {
    let lifetime_s = granted.expires_in_s.or(default_s).unwrap_or(3600);
    // One second for the way to the upstream, as in APISIX.
    granted.granted_s.saturating_add(lifetime_s).saturating_sub(1 + leeway_s)
}
