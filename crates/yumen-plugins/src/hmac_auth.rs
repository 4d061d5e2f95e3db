//! `hmac-auth`: authenticates consumers by an HMAC signature of the request (draft-cavage-http-signatures).

use std::borrow::Cow;
use std::time::{Duration, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yumen_config::schema::InvalidSettings;
use yumen_http::Framing;
use yumen_plugin::offload::INLINE_BYTES_MAX;
use yumen_plugin::{
    AccessRole, Computation, ConsumerAuth, ConsumerIdentity, DryRunResult, Exchange, LocalResponse,
    OffloadRefused, PhaseSet, Plugin, PluginBuildContext, PluginFactory, RequestHead, Step, compute,
};

use crate::auth::{identify_anonymous, refuse, same_secret};

mod nonces;
#[cfg(test)]
mod tests;

use nonces::{NonceTable, NonceUse};

/// Settings of `hmac-auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(title = "work with route or service object")]
pub(crate) struct HmacAuthSettings {
    /// Algorithms that signatures may use.
    #[serde(default = "allowed_algorithms")]
    #[schemars(length(min = 1))]
    allowed_algorithms: Vec<HmacAlgorithm>,
    /// Largest difference between the `Date` field and the clock of the node, in seconds.
    #[serde(default = "clock_skew")]
    #[schemars(range(min = 1))]
    clock_skew: u64,
    /// Fields that must be signed.
    #[serde(default = "signed_headers")]
    #[schemars(inner(length(min = 1, max = 50)))]
    signed_headers: Vec<String>,
    /// Whether the body must match the SHA-256 digest in the `Digest` field. This field must be signed:
    /// `digest` is among `headers` of the signature.
    #[serde(default)]
    validate_request_body: bool,
    /// Name of the nonce field. A signed nonce admits one request until `Date` is outside `clock_skew`. If
    /// the field is listed in `signed_headers`, a nonce is mandatory. Beyond APISIX.
    #[serde(default = "nonce_header")]
    #[schemars(length(min = 1, max = 50))]
    nonce_header: String,
    /// Largest request body in bytes that is validated; a larger one is refused with 413.
    #[serde(default = "max_req_body_size")]
    #[schemars(range(min = 1))]
    max_req_body_size: usize,
    /// Whether the `Authorization` field is removed before the request goes to the upstream.
    #[serde(default)]
    hide_credentials: bool,
    /// Consumer of requests without a valid signature. Without this setting such requests are refused.
    #[schemars(length(min = 1))]
    anonymous_consumer: Option<String>,
    /// Realm of the challenge.
    #[serde(default = "realm")]
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[ -!#-[\]-~]+$"))]
    realm: String,
}

/// Signature algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
enum HmacAlgorithm {
    #[serde(rename = "hmac-sha1")]
    Sha1,
    #[serde(rename = "hmac-sha256")]
    Sha256,
    #[serde(rename = "hmac-sha512")]
    Sha512,
}

impl HmacAlgorithm {
    fn of(name: &str) -> Option<HmacAlgorithm> {
        match name {
            "hmac-sha1" => Some(HmacAlgorithm::Sha1),
            "hmac-sha256" => Some(HmacAlgorithm::Sha256),
            "hmac-sha512" => Some(HmacAlgorithm::Sha512),
            _ => None,
        }
    }

    fn hash(self) -> hmac::Algorithm {
        match self {
            HmacAlgorithm::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            HmacAlgorithm::Sha256 => hmac::HMAC_SHA256,
            HmacAlgorithm::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

fn allowed_algorithms() -> Vec<HmacAlgorithm> {
    vec![HmacAlgorithm::Sha1, HmacAlgorithm::Sha256, HmacAlgorithm::Sha512]
}

fn clock_skew() -> u64 {
    300
}

fn signed_headers() -> Vec<String> {
    vec!["date".to_owned()]
}

fn nonce_header() -> String {
    "x-nonce".to_owned()
}

fn max_req_body_size() -> usize {
    64 << 20
}

fn realm() -> String {
    "hmac".to_owned()
}

/// Credentials of a consumer for `hmac-auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(title = "work with consumer object", extend("encrypt_fields" = ["secret_key"]))]
pub(crate) struct HmacCredential {
    /// Id of the key.
    #[schemars(length(min = 1, max = 256))]
    key_id: String,
    /// The secret key, shared with the client.
    #[schemars(length(min = 1, max = 256))]
    secret_key: String,
}

/// The compiled settings with the used nonces.
pub(crate) struct HmacAuth {
    config: HmacAuthSettings,
    challenge: Box<str>,
    /// Whether requests without a signed nonce are refused.
    needs_nonce: bool,
    nonces: NonceTable,
}

impl PluginFactory for HmacAuth {
    const NAME: &'static str = "hmac-auth";
    const PRIORITY: i32 = 2530;
    const ROLE: AccessRole = AccessRole::Authentication;
    type Config = HmacAuthSettings;

    fn build(config: HmacAuthSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let challenge = format!("hmac realm=\"{}\"", config.realm).into();
        let is_nonce = |name: &String| name.eq_ignore_ascii_case(&config.nonce_header);
        let needs_nonce = config.signed_headers.iter().any(is_nonce);
        Ok(HmacAuth { challenge, needs_nonce, nonces: NonceTable::new(setup, Self::NAME), config })
    }
}

impl ConsumerAuth for HmacAuth {
    type Consumer = HmacCredential;
    const KEY_FIELD: &'static str = "key_id";

    fn key(consumer: &HmacCredential) -> &str {
        &consumer.key_id
    }
}

/// The reason why no consumer was identified.
enum HmacFailure {
    Refused(&'static str),
    /// The body must be buffered first.
    NeedsBody,
    /// The body is so long that its digest is computed on another thread.
    NeedsDigest,
}

impl From<&'static str> for HmacFailure {
    fn from(message: &'static str) -> HmacFailure {
        HmacFailure::Refused(message)
    }
}

const INVALID: &str = "client request can't be validated";

/// The parameters of `Authorization: Signature`.
struct HmacSignature<'a> {
    key_id: &'a str,
    algorithm: &'a str,
    headers: Vec<&'a str>,
    signature: &'a str,
}

impl<'a> HmacSignature<'a> {
    fn read(request: &'a RequestHead) -> Result<HmacSignature<'a>, &'static str> {
        const MISSING: &str = "client request can't be validated: missing Authorization header";
        const OTHER: &str =
            "client request can't be validated: Authorization header does not start with 'Signature'";
        let value = request.fields.get("Authorization").ok_or(MISSING)?;
        let rest = std::str::from_utf8(value).ok().and_then(|value| value.strip_prefix("Signature"));
        let parts = rest.ok_or(OTHER)?.split(',').filter_map(|part| part.trim().split_once('='));
        let mut read = HmacSignature { key_id: "", algorithm: "", headers: Vec::new(), signature: "" };
        for (name, value) in parts {
            let value = value.trim_matches('"');
            match name {
                "keyId" => read.key_id = value,
                "algorithm" => read.algorithm = value,
                "headers" => read.headers = value.split_whitespace().collect(),
                "signature" => read.signature = value,
                _ => {}
            }
        }
        Ok(read)
    }

    /// The signing string for the target: the key id, then the listed fields that the request has.
    fn text(&self, request: &RequestHead, target: &[u8]) -> Vec<u8> {
        let mut text = format!("{}\n", self.key_id).into_bytes();
        for name in &self.headers {
            if let Some(value) = request.fields.get(name) {
                text.extend_from_slice(format!("{name}: ").as_bytes());
                text.extend_from_slice(value);
            } else if *name == "@request-target" {
                text.extend_from_slice(request.method_name());
                text.push(b' ');
                text.extend_from_slice(target);
            } else {
                continue;
            }
            text.push(b'\n');
        }
        text
    }

    /// Whether the signature covers the field. An absent field is not covered.
    fn covers(&self, request: &RequestHead, field: &str) -> bool {
        self.headers.iter().any(|name| name.eq_ignore_ascii_case(field))
            && request.fields.get(field).is_some()
    }

    fn verify(&self, request: &RequestHead, algorithm: HmacAlgorithm, secret: &str) -> Option<()> {
        let shown = STANDARD.decode(self.signature).ok()?;
        let key = hmac::Key::new(algorithm.hash(), secret.as_bytes());
        // `hmac::verify` compares in constant time.
        let is_of = |target: &[u8]| hmac::verify(&key, &self.text(request, target), &shown).is_ok();
        (is_of(request.real_request_uri()) || plain_request_uri(request).is_some_and(|target| is_of(&target)))
            .then_some(())
    }
}

/// The target with its path decoded, as APISIX has it signed. `None` if it equals the target as received, or
/// if the decoded path is ambiguous.
fn plain_request_uri(request: &RequestHead) -> Option<Cow<'_, [u8]>> {
    // With these bytes, the decoded target could also be that of another request.
    let is_plain = |byte: &u8| !matches!(byte, 0..=0x1f | b'#' | b'%' | b'?' | 0x7f);
    let target = request.request_uri();
    (target != request.real_request_uri() && request.path().iter().all(is_plain)).then_some(target)
}

impl HmacAuth {
    fn identify<'s>(
        &self,
        ex: &Exchange<'s>,
        nonce_use: NonceUse,
    ) -> Result<&'s ConsumerIdentity, HmacFailure> {
        let signature = HmacSignature::read(&ex.request)?;
        let consumers = ex.consumers;
        let identity = consumers.find(Self::NAME, signature.key_id.as_bytes()).ok_or(INVALID)?;
        let credential = identity.auth.downcast_ref::<HmacCredential>().ok_or(INVALID)?;
        let algorithm = HmacAlgorithm::of(signature.algorithm).ok_or(INVALID)?;
        let signs = |name: &String| signature.headers.contains(&name.as_str());
        let is_allowed = self.config.allowed_algorithms.contains(&algorithm);
        if !is_allowed || !self.config.signed_headers.iter().all(signs) {
            return Err(INVALID.into());
        }
        let good_for = self.good_for(ex).ok_or(INVALID)?;
        signature.verify(&ex.request, algorithm, &credential.secret_key).ok_or(INVALID)?;
        if self.config.validate_request_body {
            // An unsigned digest could be replaced together with the body.
            if !signature.covers(&ex.request, "Digest") {
                return Err(INVALID.into());
            }
            self.check_digest(ex)?;
        }
        // Last, so that a request that is refused, or waits for its body, does not use up its nonce.
        if !self.check_nonce(ex, &signature, good_for, nonce_use) {
            return Err(INVALID.into());
        }
        Ok(identity)
    }

    /// Time until the `Date` field is too old; `None` if it is outside the skew.
    fn good_for(&self, ex: &Exchange<'_>) -> Option<Duration> {
        let date = ex.request.fields.get("Date").and_then(|value| std::str::from_utf8(value).ok());
        let date = httpdate::parse_http_date(date?).ok()?;
        let now = UNIX_EPOCH + Duration::from_secs(ex.now.unix_s());
        let skew = Duration::from_secs(self.config.clock_skew);
        let off = now.duration_since(date).unwrap_or_else(|ahead| ahead.duration());
        let end = date.checked_add(skew)?.duration_since(now).unwrap_or_default();
        // `Date` has a resolution of one second, so the last second counts in full.
        (off <= skew).then(|| end.saturating_add(Duration::from_secs(1)))
    }

    /// Whether the nonce is unused or, if optional, absent or unsigned.
    fn check_nonce(
        &self,
        ex: &Exchange<'_>,
        signature: &HmacSignature<'_>,
        good_for: Duration,
        nonce_use: NonceUse,
    ) -> bool {
        let field = &self.config.nonce_header;
        match ex.request.fields.get(field) {
            Some(nonce) if signature.covers(&ex.request, field) => {
                self.nonces.admits(signature.key_id, nonce, good_for, ex.now, nonce_use)
            }
            _ => !self.needs_nonce,
        }
    }

    /// Identifies the consumer, or the anonymous consumer instead of a refusal.
    fn admit(&self, ex: &mut Exchange<'_>, nonce_use: NonceUse) -> Result<(), HmacFailure> {
        let identity = self.identify(ex, nonce_use);
        // Another instance of the plugin may see another body.
        ex.take_extension::<BodyDigest>();
        match (identity, &self.config.anonymous_consumer) {
            (Ok(identity), _) => ex.identify_as(identity),
            (Err(HmacFailure::Refused(_)), Some(username)) => identify_anonymous(ex, username)?,
            (Err(failure), _) => return Err(failure),
        }
        if self.config.hide_credentials {
            ex.request.fields.remove("Authorization");
        }
        Ok(())
    }

    /// Whether the body matches the `Digest` field.
    fn check_digest(&self, ex: &Exchange<'_>) -> Result<(), HmacFailure> {
        let shown = ex.request.fields.get("Digest").ok_or(INVALID)?;
        if ex.lacks_body(self.config.max_req_body_size) {
            return Err(HmacFailure::NeedsBody);
        }
        let body = ex.body.buffered.as_deref().unwrap_or_default();
        let made = match ex.note::<BodyDigest>() {
            Some(BodyDigest(made)) => made.clone(),
            None if body.len() > INLINE_BYTES_MAX => return Err(HmacFailure::NeedsDigest),
            None => shown_digest(body),
        };
        if same_secret(made.as_bytes(), shown) { Ok(()) } else { Err(INVALID.into()) }
    }
}

/// The digest of a large body, computed on another thread.
struct BodyDigest(String);

/// A digest in the form of the `Digest` field (RFC 3230).
fn shown_digest(body: &[u8]) -> String {
    format!("SHA-256={}", STANDARD.encode(digest(&SHA256, body)))
}

/// Restores the body and stores its digest, or returns a refusal if the computation was refused.
fn keep_digest<'a>(
    ex: &mut Exchange<'_>,
    digested: Result<(String, Vec<u8>), OffloadRefused>,
) -> Option<Step<'a>> {
    match digested {
        Ok((digest, body)) => {
            ex.body.buffered = Some(body.into());
            ex.leave(BodyDigest(digest));
            None
        }
        Err(refused) => Some(Step::Respond(LocalResponse::error_msg(503, &refused.to_string()))),
    }
}

impl HmacAuth {
    /// Computes and stores the digest of the body, then runs the plugin again.
    fn digest_body<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        // The body is buffered already, so this step only runs the plugin again.
        let again = Step::NeedBody { bytes_max: self.config.max_req_body_size };
        // The computation owns the body until it returns it with the digest.
        let body = ex.body.buffered.take().unwrap_or_default().into_bytes();
        let bytes = body.len();
        match compute(ex.host, bytes, move || (shown_digest(&body), body)) {
            Computation::Ready(digested) => keep_digest(ex, digested).unwrap_or(again),
            Computation::Pending(digesting) => Step::Wait(Box::pin(async move {
                let digested = digesting.await;
                keep_digest(ex, digested).unwrap_or(again)
            })),
        }
    }
}

impl Plugin for HmacAuth {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        match self.admit(ex, NonceUse::Claim) {
            Ok(()) => Step::Continue,
            Err(HmacFailure::NeedsBody) => Step::NeedBody { bytes_max: self.config.max_req_body_size },
            Err(HmacFailure::NeedsDigest) => self.digest_body(ex),
            Err(HmacFailure::Refused(message)) => Step::Respond(refuse(message, &self.challenge)),
        }
    }

    fn credential_field(&self) -> Option<&str> {
        Some("Authorization")
    }

    fn dry_run(&self, _phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        let mut admitted = self.admit(ex, NonceUse::Peek);
        // A request without a body needs no buffering: its body is empty.
        if matches!(admitted, Err(HmacFailure::NeedsBody)) && ex.request.framing == Framing::None {
            ex.body.buffered = Some(Vec::new().into());
            admitted = self.admit(ex, NonceUse::Peek);
        }
        match admitted {
            Ok(()) => DryRunResult::Continue,
            Err(HmacFailure::Refused(message)) => DryRunResult::Respond(refuse(message, &self.challenge)),
            Err(HmacFailure::NeedsBody | HmacFailure::NeedsDigest) => DryRunResult::Unknown,
        }
    }
}
