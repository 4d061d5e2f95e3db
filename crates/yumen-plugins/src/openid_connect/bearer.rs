//! Bearer tokens (RFC 6750): verified by a key or the key set of the provider, or introspected (RFC 7662).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    Exchange, ExternalUser, LocalResponse, Method, PerWorker, PluginBuildContext, PluginHost, Step,
};

use super::checks::ClaimCheckRefusal;
use super::client_auth::{ClientAuthMethod, EndpointCall};
use super::form::FormBody;
use super::provider::{ProviderConnection, ProviderEndpoint};
use super::settings::OpenidConnectSettings;
use super::tokens::{GrantFault, current_keys, read_object, verify_by_keys};
use super::{OpenidConnect, USERINFO};
use crate::jose::{ClaimTimeFault, ClaimTimes, JoseToken, JwsVerifier, KeyFault};
use crate::recent_texts::RecentTexts;
use crate::session::PreparedIdentity;

/// Lifetime of a verified token without `exp` in the table, as in APISIX.
const UNLIMITED_TOKEN_S: u64 = 120;

/// The way in which bearer tokens are verified.
pub(super) enum BearerMethod {
    /// By a configured public key.
    PublicKey(Vec<JwsVerifier>),
    /// By the key set of the provider.
    KeySet,
    /// By the introspection endpoint; `None` without one.
    Introspection(Option<Box<IntrospectionCall>>),
}

/// Calls to the introspection endpoint.
pub(super) struct IntrospectionCall {
    endpoint: ProviderEndpoint,
    auth_method: ClientAuthMethod,
    repeated_fields: Vec<String>,
}

/// The verification of bearer tokens.
pub(super) struct BearerChecks {
    pub(super) method: BearerMethod,
    pub(super) is_required: bool,
    realm: String,
    interval_s: u64,
    expiry_claim: Option<String>,
    verified: Option<PerWorker<RecentTexts<Arc<VerifiedBearer>>>>,
}

/// A token that was accepted.
pub(super) struct VerifiedBearer {
    pub(super) identity: PreparedIdentity,
    /// The generation of the key set that verified it.
    generation: u64,
}

/// The reason why a token is not accepted.
#[derive(Debug)]
enum BearerRefusal {
    /// 401 with this description.
    Invalid(String),
    /// The claims are not sufficient.
    Claims(ClaimCheckRefusal),
}

impl BearerChecks {
    /// `None` if the settings name no way to verify bearer tokens. `discovered` is the introspection endpoint of the
    /// discovery document.
    pub(super) fn build(
        settings: &mut OpenidConnectSettings,
        connection: &ProviderConnection,
        discovered: Option<&String>,
        setup: &PluginBuildContext<'_>,
    ) -> Result<Option<BearerChecks>, InvalidSettings> {
        let written = &mut settings.introspection;
        let bearer = &mut settings.bearer;
        let is_used = bearer.bearer_only
            || written.introspection_endpoint.is_some()
            || bearer.public_key.is_some()
            || bearer.use_jwks;
        if !is_used {
            return Ok(None);
        }
        let auth_method = ClientAuthMethod::parse(
            "introspection_endpoint_auth_method",
            &written.introspection_endpoint_auth_method,
        )?;
        let method = if let Some(pem) = &bearer.public_key {
            let keys = JwsVerifier::all_of_pem(pem);
            BearerMethod::PublicKey(keys.map_err(|error| InvalidSettings::at("public_key", error))?)
        } else if bearer.use_jwks {
            BearerMethod::KeySet
        } else {
            let repeated_fields = written.introspection_addon_headers.take().unwrap_or_default();
            let (path, url) = match &written.introspection_endpoint {
                Some(url) => ("introspection_endpoint", Some(url)),
                None => ("discovery.introspection_endpoint", discovered),
            };
            let endpoint = url.map(|url| connection.endpoint(path, url, setup.objects)).transpose()?;
            BearerMethod::Introspection(
                endpoint
                    .map(|endpoint| Box::new(IntrospectionCall { endpoint, auth_method, repeated_fields })),
            )
        };
        // The provider decides on repeated fields as well as on the token, so its answer holds for one request.
        let repeats =
            matches!(&method, BearerMethod::Introspection(Some(call)) if !call.repeated_fields.is_empty());
        let is_cached = !written.jwt_verification_cache_ignore && !repeats;
        Ok(Some(BearerChecks {
            method,
            is_required: bearer.bearer_only,
            // Quotes would end the parameter.
            realm: quotable(&bearer.realm),
            interval_s: written.introspection_interval,
            expiry_claim: written.introspection_expiry_claim.take(),
            verified: is_cached.then(|| PerWorker::new(setup.node.workers, RecentTexts::default)),
        }))
    }

    /// The authentication at the introspection endpoint, if it is in use.
    pub(super) fn auth_method(&self) -> Option<ClientAuthMethod> {
        match &self.method {
            BearerMethod::Introspection(Some(call)) => Some(call.auth_method),
            _ => None,
        }
    }

    /// The challenge without an error.
    fn challenge(&self) -> LocalResponse {
        LocalResponse::status(401).field("WWW-Authenticate", format!("Bearer realm=\"{}\"", self.realm))
    }

    fn refuse(&self, refusal: BearerRefusal) -> LocalResponse {
        let description = match refusal {
            BearerRefusal::Claims(ClaimCheckRefusal::Forbidden(body)) => {
                return ClaimCheckRefusal::forbidden(&body);
            }
            BearerRefusal::Claims(ClaimCheckRefusal::Schema(reason)) | BearerRefusal::Invalid(reason) => {
                reason
            }
        };
        let challenge = format!(
            "Bearer realm=\"{}\", error=\"invalid_token\", error_description=\"{}\"",
            self.realm,
            quotable(&description)
        );
        LocalResponse::status(401).field("WWW-Authenticate", challenge)
    }

    /// The identity of a token that was accepted before.
    fn known(
        &self,
        host: &dyn PluginHost,
        token: &str,
        now_s: u64,
        generation: u64,
    ) -> Option<Arc<VerifiedBearer>> {
        let mut table = self.verified.as_ref()?.lock(host);
        let known = table.get(token.as_bytes(), now_s)?;
        if known.generation != generation {
            // A key may have been revoked.
            table.remove(token.as_bytes());
            return None;
        }
        Some(known)
    }
}

/// The event of a logout token.
pub(super) const LOGOUT_EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// The text without characters that end a quoted string or a field.
fn quotable(text: &str) -> String {
    text.chars()
        .map(|c| if c == '"' || c == '\\' || c.is_control() || !c.is_ascii() { '\'' } else { c })
        .collect()
}

/// The token of a request: that of `Authorization` if it has the scheme Bearer, else that of `X-Access-Token`.
fn find_token<'e>(
    ex: &'e Exchange<'_>,
    remembered: Option<&'e str>,
) -> Result<Option<&'e str>, LocalResponse> {
    let mut fields = ex.request.fields.all("Authorization");
    let Some(field) = fields.next() else { return Ok(remembered) };
    // The gateway and the upstream might each read another one.
    if fields.next().is_some() {
        return Err(LocalResponse::message(400, "several Authorization fields"));
    }
    let invalid = || LocalResponse::message(400, "Invalid Authorization header format.");
    let text = std::str::from_utf8(field).map_err(|_| invalid())?;
    let (scheme, token) = text.trim().split_once(' ').ok_or_else(invalid)?;
    Ok(scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()))
}

impl OpenidConnect {
    /// The bearer token of a request; `None` if the request has none and may have a session instead.
    pub(super) fn find_bearer<'a, 'e>(
        &'a self,
        ex: &'e Exchange<'_>,
        remembered: Option<&'e str>,
    ) -> Result<Option<FoundBearer<'a, 'e>>, LocalResponse> {
        let Some(checks) = &self.bearer else { return Ok(None) };
        match find_token(ex, remembered)? {
            Some(token) => Ok(Some(FoundBearer { checks, token })),
            None if checks.is_required => Err(checks.challenge()),
            None => Ok(None),
        }
    }

    /// The identity of a token that was accepted before.
    pub(super) fn known_bearer(
        &self,
        ex: &Exchange<'_>,
        found: &FoundBearer<'_, '_>,
    ) -> Option<Arc<VerifiedBearer>> {
        found.checks.known(ex.host, found.token, ex.now.unix_s(), self.key_generation())
    }

    /// The step for a request with a bearer token that is not known.
    pub(super) fn bearer_step<'a>(&'a self, ex: &'a mut Exchange<'_>, given: GivenBearer<'a>) -> Step<'a> {
        let generation = self.key_generation();
        if let BearerMethod::Introspection(call) = &given.checks.method {
            return match call {
                Some(call) => Step::Wait(Box::pin(self.introspect(ex, given, call))),
                None => {
                    let reason = "the introspection endpoint is not known".to_owned();
                    Step::Respond(given.checks.refuse(BearerRefusal::Invalid(reason)))
                }
            };
        }
        match self.verify_bearer(ex.now.unix_s(), &given) {
            // Another wait than this one is not needed: the key set arrives beside the traffic.
            Err(BearerFault::UnknownKey) => Step::Wait(Box::pin(self.verify_later(ex, given))),
            result => self.finish_jwt(ex, &given, result, generation),
        }
    }

    /// Whether the bearer token of a dry run would be accepted; `None` if only the provider knows.
    pub(super) fn foresee_bearer(
        &self,
        ex: &mut Exchange<'_>,
        given: &GivenBearer<'_>,
    ) -> Option<Step<'static>> {
        if matches!(given.checks.method, BearerMethod::Introspection(_)) {
            return None;
        }
        let result = self.verify_bearer(ex.now.unix_s(), given);
        let accepted = result.map_err(|fault| BearerRefusal::Invalid(fault.to_string()));
        Some(match accepted.and_then(|claims| self.accept_claims(given, claims)) {
            Ok(identity) => {
                identity.apply(ex);
                Step::Continue
            }
            Err(refusal) => Step::Respond(given.checks.refuse(refusal)),
        })
    }

    /// The claims of a JWT that is verified without a wait.
    fn verify_bearer(&self, now_s: u64, given: &GivenBearer<'_>) -> Result<Map<String, Value>, BearerFault> {
        let token = JoseToken::read(&given.token).ok_or(BearerFault::Malformed)?;
        // A logout token of the provider is signed alike, but stands for no user (OpenID Connect Back-Channel Logout §2.4).
        if token.claims.get("events").is_some_and(|events| events.get(LOGOUT_EVENT).is_some()) {
            return Err(BearerFault::Malformed);
        }
        self.check_issuer(&token.claims)?;
        match &given.checks.method {
            BearerMethod::PublicKey(verifiers) => {
                let allowed = &self.signatures.allowed;
                let is_allowed = |one: &&JwsVerifier| {
                    one.algorithm().name() == token.algorithm
                        && (allowed.is_empty() || allowed.contains(&one.algorithm()))
                };
                let verifier =
                    verifiers.iter().find(is_allowed).ok_or(BearerFault::Key(KeyFault::Algorithm))?;
                if !verifier.has_signed(&token) {
                    return Err(BearerFault::Key(KeyFault::Signature));
                }
            }
            _ => {
                let keys = self.provider.as_ref().and_then(|provider| provider.keys.as_ref());
                let keys = keys.and_then(|cell| current_keys(cell)).ok_or(BearerFault::UnknownKey)?;
                keys.verify(&token, &self.signatures.allowed).map_err(BearerFault::of)?;
            }
        }
        self.check_times(&token, now_s)?;
        Ok(token.claims)
    }

    fn check_times(&self, token: &JoseToken<'_>, now_s: u64) -> Result<(), BearerFault> {
        let times = ClaimTimes::read(&token.claims).map_err(BearerFault::Times)?;
        times.check(now_s, self.signatures.slack_s).map_err(BearerFault::Times)
    }

    fn check_issuer(&self, claims: &Map<String, Value>) -> Result<(), BearerFault> {
        let issuer = claims.get("iss").and_then(Value::as_str);
        let valid = &self.checks.valid_issuers;
        let is_valid = match (valid.is_empty(), &self.provider) {
            (false, _) => issuer.is_some_and(|issuer| valid.iter().any(|one| one == issuer)),
            (true, Some(provider)) => issuer == Some(provider.metadata.issuer.as_str()),
            (true, None) => return Err(BearerFault::NoIssuer),
        };
        if is_valid { Ok(()) } else { Err(BearerFault::Issuer) }
    }

    /// Verifies by a key set that is still to arrive.
    async fn verify_later<'a>(&'a self, ex: &'a mut Exchange<'_>, given: GivenBearer<'a>) -> Step<'a> {
        let keys = self.provider.as_ref().and_then(|provider| provider.keys.as_ref());
        let result = match (keys, JoseToken::read(&given.token)) {
            (Some(keys), Some(token)) => {
                match verify_by_keys(keys, ex.host, &token, &self.signatures, self.timeout_ms).await {
                    Ok(()) => self.check_times(&token, ex.now.unix_s()).map(|()| token.claims),
                    Err(fault) => Err(BearerFault::Key(fault)),
                }
            }
            _ => Err(BearerFault::UnknownKey),
        };
        self.finish_jwt(ex, &given, result, self.key_generation())
    }

    fn finish_jwt<'a>(
        &self,
        ex: &mut Exchange<'_>,
        given: &GivenBearer<'_>,
        result: Result<Map<String, Value>, BearerFault>,
        generation: u64,
    ) -> Step<'a> {
        let now_s = ex.now.unix_s();
        let end_s = |claims: &Map<String, Value>| {
            let expires_s = claims.get("exp").and_then(Value::as_f64);
            expires_s.map_or(now_s + UNLIMITED_TOKEN_S, |expires_s| expires_s as u64)
        };
        let result = result.map_err(|fault| BearerRefusal::Invalid(fault.to_string()));
        let accepted = result.and_then(|claims| {
            let end_s = end_s(&claims);
            Ok((self.accept_claims(given, claims)?, end_s))
        });
        match accepted {
            Ok((identity, end_s)) => {
                self.accept_bearer(ex, given, VerifiedBearer { identity, generation }, end_s)
            }
            Err(refusal) => Step::Respond(given.checks.refuse(refusal)),
        }
    }

    /// Checks verified claims.
    fn accept_claims(
        &self,
        given: &GivenBearer<'_>,
        claims: Map<String, Value>,
    ) -> Result<PreparedIdentity, BearerRefusal> {
        self.checks.check_bearer(&claims, &self.client.id).map_err(BearerRefusal::Claims)?;
        Ok(self.bearer_identity(&given.token, claims))
    }

    fn bearer_identity(&self, token: &str, claims: Map<String, Value>) -> PreparedIdentity {
        let mut fields = Vec::new();
        self.add_access_token(token, &mut fields);
        let subject = ["sub", "username", "client_id"].iter().find_map(|name| claims.get(*name)?.as_str());
        let id = subject.unwrap_or_default().into();
        let claims = Value::Object(claims);
        if self.fields.set_userinfo_header {
            fields.push((USERINFO, STANDARD.encode(claims.to_string()).into_bytes()));
        }
        PreparedIdentity::new(&fields, ExternalUser { id, claims: Arc::new(claims) })
    }

    fn accept_bearer<'a>(
        &self,
        ex: &mut Exchange<'_>,
        given: &GivenBearer<'_>,
        verified: VerifiedBearer,
        end_s: u64,
    ) -> Step<'a> {
        verified.identity.apply(ex);
        if let Some(table) = &given.checks.verified {
            let bytes = verified.identity.fields_bytes();
            // The claims as a tree take about as much as their two texts.
            table.lock(ex.host).insert(given.token.as_bytes(), Arc::new(verified), 3 * bytes + 512, end_s);
        }
        Step::Continue
    }

    async fn introspect<'a>(
        &'a self,
        ex: &'a mut Exchange<'_>,
        given: GivenBearer<'a>,
        call: &'a IntrospectionCall,
    ) -> Step<'a> {
        let mut form = FormBody::default();
        form.set("token", &given.token);
        form.set("client_id", &self.client.id);
        let mut spec = call.endpoint.target.request(Method::Post);
        for name in call.repeated_fields.iter().filter(|name| !crate::service::is_of_connection(name)) {
            for value in ex.request.fields.all(name) {
                spec.fields.add(name, value);
            }
        }
        let now_s = ex.now.unix_s();
        let mut endpoint =
            EndpointCall { host: ex.host, endpoint: &call.endpoint.url, now_s, spec: &mut spec };
        self.client.authenticate(call.auth_method, &mut endpoint, &mut form);
        form.write(&mut spec);
        let response = call.endpoint.target.send(ex.host, spec).await;
        let claims = match read_object(response) {
            Ok(claims) if claims.get("active") == Some(&Value::Bool(true)) => claims,
            Ok(_) => {
                return Step::Respond(
                    given.checks.refuse(BearerRefusal::Invalid("invalid token".to_owned())),
                );
            }
            Err(fault) => {
                if matches!(fault, GrantFault::Unavailable(_)) {
                    ex.host.report_undecided(super::NAME, &self.owner, "introspection failed");
                }
                return Step::Respond(given.checks.refuse(BearerRefusal::Invalid(fault.to_string())));
            }
        };
        let end_s = given.checks.introspection_end_s(&claims, now_s);
        match self.accept_claims(&given, claims) {
            Ok(identity) => {
                let generation = self.key_generation();
                self.accept_bearer(
                    ex,
                    &given,
                    VerifiedBearer { identity, generation },
                    end_s.unwrap_or(now_s),
                )
            }
            Err(refusal) => Step::Respond(given.checks.refuse(refusal)),
        }
    }

    /// The generation of the key set; 0 without one.
    fn key_generation(&self) -> u64 {
        let keys = self.provider.as_ref().and_then(|provider| provider.keys.as_ref());
        keys.map_or(0, |cell| cell.generation())
    }
}

/// The bearer token in a request, with its checks.
pub(super) struct FoundBearer<'a, 'e> {
    checks: &'a BearerChecks,
    token: &'e str,
}

impl<'a> FoundBearer<'a, '_> {
    /// A copy of the token, for steps that change the request.
    pub(super) fn copied(&self) -> GivenBearer<'a> {
        GivenBearer { checks: self.checks, token: self.token.to_owned() }
    }
}

/// A bearer token with its checks.
pub(super) struct GivenBearer<'a> {
    checks: &'a BearerChecks,
    token: String,
}

/// The reason why a JWT is not accepted.
#[derive(Debug)]
enum BearerFault {
    Malformed,
    NoIssuer,
    Issuer,
    UnknownKey,
    Key(KeyFault),
    Times(ClaimTimeFault),
}

impl BearerFault {
    fn of(fault: KeyFault) -> BearerFault {
        match fault {
            KeyFault::UnknownKey => BearerFault::UnknownKey,
            other => BearerFault::Key(other),
        }
    }
}

impl std::fmt::Display for BearerFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BearerFault::Malformed => f.write_str("invalid jwt"),
            BearerFault::NoIssuer => f.write_str("issuer validation unavailable"),
            BearerFault::Issuer => f.write_str("the issuer of the token is not allowed"),
            BearerFault::UnknownKey => KeyFault::UnknownKey.fmt(f),
            BearerFault::Key(fault) => fault.fmt(f),
            BearerFault::Times(fault) => fault.fmt(f),
        }
    }
}

impl BearerChecks {
    /// The end of an introspection result in the table; `None` if it is not kept.
    fn introspection_end_s(&self, claims: &Map<String, Value>, now_s: u64) -> Option<u64> {
        let claim = self.expiry_claim.as_deref().unwrap_or("exp");
        let number = claims.get(claim).and_then(Value::as_f64).map(|number| number as u64);
        // `exp` is a time (RFC 7662 §2.2); other claims have the seconds that are left.
        let end_s = number.map(|number| if claim == "exp" { number } else { now_s.saturating_add(number) });
        let interval_end_s = (self.interval_s > 0).then(|| now_s.saturating_add(self.interval_s));
        match (end_s, interval_end_s) {
            (Some(end_s), Some(interval_end_s)) => Some(end_s.min(interval_end_s)),
            (end_s, interval_end_s) => end_s.or(interval_end_s),
        }
    }
}
