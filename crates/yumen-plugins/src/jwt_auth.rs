//! `jwt-auth`: authenticates consumers by a signed JSON Web Token (RFC 7519).

mod keys;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, ConsumerAuth, ConsumerIdentity, DryRunResult, Exchange, PhaseSet, Plugin, PluginBuildContext,
    PluginFactory, Step,
};

use crate::auth::{identify_anonymous, refuse};
use crate::jose::JoseToken;
use crate::query::{QueryArgument, argument, remove_argument};
use keys::JwtCredential;

/// Settings of `jwt-auth`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct JwtAuthSettings {
    /// Field that carries the token, with or without `Bearer`. Empty: fields are not searched.
    #[serde(default = "authorization")]
    header: String,
    /// Query argument that carries the token; used if the field is absent. Empty: the query is not searched.
    #[serde(default = "jwt")]
    query: String,
    /// Cookie that carries the token; used if field and query argument are absent. Empty: cookies are not
    /// searched.
    #[serde(default = "jwt")]
    cookie: String,
    /// Whether the token is removed before the request goes to the upstream.
    #[serde(default)]
    hide_credentials: bool,
    /// Claim with the key of the consumer; without this claim, the member of the JOSE header with its name.
    #[serde(default = "key")]
    #[schemars(length(min = 1))]
    key_claim_name: String,
    /// Accepted without effect: no plugin of Yumen uses the payload.
    #[serde(default)]
    #[expect(dead_code, reason = "part of the contract")]
    store_in_ctx: bool,
    /// Claims that are required. Without this setting, `exp` and `nbf` are optional but verified if present.
    #[schemars(extend("uniqueItems" = true))]
    claims_to_verify: Option<Vec<TimeClaim>>,
    /// Longest remaining lifetime of a token in seconds; a token without `exp` is refused. 0 means no limit.
    /// Beyond APISIX.
    #[serde(default)]
    maximum_expiration: u32,
    /// Consumer of requests without a valid token. Without this setting such requests are refused.
    #[schemars(length(min = 1))]
    anonymous_consumer: Option<String>,
    /// Realm of the challenge.
    #[serde(default = "jwt")]
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[ -!#-[\]-~]+$"))]
    realm: String,
}

/// A claim about time (RFC 7519 §4.1.4 and §4.1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum TimeClaim {
    Exp,
    Nbf,
}

fn authorization() -> String {
    "authorization".to_owned()
}

fn jwt() -> String {
    "jwt".to_owned()
}

fn key() -> String {
    "key".to_owned()
}

/// The compiled settings with the challenge of the refusal.
#[derive(Debug)]
pub(crate) struct JwtAuth {
    config: JwtAuthSettings,
    challenge: Box<str>,
}

impl PluginFactory for JwtAuth {
    const NAME: &'static str = "jwt-auth";
    const PRIORITY: i32 = 2510;
    const ROLE: AccessRole = AccessRole::Authentication;
    type Config = JwtAuthSettings;

    fn build(config: JwtAuthSettings, _: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let challenge = format!("Bearer realm=\"{}\"", config.realm).into();
        Ok(JwtAuth { config, challenge })
    }
}

impl ConsumerAuth for JwtAuth {
    type Consumer = JwtCredential;
    const KEY_FIELD: &'static str = "key";

    fn key(consumer: &JwtCredential) -> &str {
        consumer.key()
    }
}

impl JwtAuth {
    fn identify<'s>(&self, ex: &mut Exchange<'s>) -> Result<&'s ConsumerIdentity, &'static str> {
        const UNVERIFIED: &str = "failed to verify jwt";
        const UNKNOWN: &str = "Invalid user key in JWT token";
        let text = self.take_token(ex).ok_or("Missing JWT token in request")?;
        let token = JoseToken::read(&text).ok_or("JWT token invalid")?;
        // The claim only selects the key; nothing in the token is trusted before its signature is verified.
        // The signature covers the header too (RFC 7515 §5.1).
        let name = &self.config.key_claim_name;
        let key = token.claims.get(name).or_else(|| token.header.get(name)).and_then(Value::as_str);
        let key = key.ok_or("missing user key in JWT token")?;
        let consumers = ex.consumers;
        let identity = consumers.find(Self::NAME, key.as_bytes()).ok_or(UNKNOWN)?;
        let credential = identity.auth.downcast_ref::<JwtCredential>().ok_or(UNKNOWN)?;
        if !credential.has_signed(&token) || !self.is_in_time(&token, credential, ex.now.unix_s() as f64) {
            return Err(UNVERIFIED);
        }
        Ok(identity)
    }

    fn is_in_time(&self, token: &JoseToken<'_>, credential: &JwtCredential, now_s: f64) -> bool {
        let grace_s = credential.grace_s() as f64;
        let number = |name: &str| token.claims.get(name).map(Value::as_f64);
        let is_met = |claim: &TimeClaim| match claim {
            TimeClaim::Exp => {
                number("exp").map(|until_s| until_s.is_some_and(|until_s| until_s > now_s - grace_s))
            }
            TimeClaim::Nbf => {
                number("nbf").map(|from_s| from_s.is_some_and(|from_s| from_s <= now_s + grace_s))
            }
        };
        let lives_too_long = |longest_s: u32| {
            let until_s = number("exp").flatten();
            until_s.is_none_or(|until_s| until_s - now_s > f64::from(longest_s))
        };
        if self.config.maximum_expiration > 0 && lives_too_long(self.config.maximum_expiration) {
            return false;
        }
        // Without a list, a claim is checked only if the token has it.
        match &self.config.claims_to_verify {
            Some(claims) => claims.iter().all(|claim| is_met(claim) == Some(true)),
            None => [TimeClaim::Exp, TimeClaim::Nbf].iter().all(|claim| is_met(claim) != Some(false)),
        }
    }

    /// The token of the request. With `hide_credentials` it is removed from the request.
    fn take_token(&self, ex: &mut Exchange<'_>) -> Option<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let JwtAuthSettings { header, query, cookie, hide_credentials, .. } = &self.config;
        // An empty name turns its place off: it must not find a pair without a name, such as `?=token`.
        let is_searched = |name: &String| !name.is_empty();
        if let Some(value) =
            Some(header).filter(|name| is_searched(name)).and_then(|name| ex.request.fields.get(name))
        {
            // As in APISIX, only these two spellings of the scheme are removed.
            let bare = value.strip_prefix(b"Bearer ").or_else(|| value.strip_prefix(b"bearer "));
            let token = text(bare.unwrap_or(value));
            if *hide_credentials {
                ex.request.fields.remove(header);
            }
            return Some(token);
        }
        if is_searched(query)
            && let QueryArgument::One(value) =
                argument(ex.request.query().unwrap_or_default(), query.as_bytes())
        {
            let token = text(&value);
            if *hide_credentials {
                remove_argument(&mut ex.request, query.as_bytes());
            }
            return Some(token);
        }
        let cookie = Some(cookie).filter(|name| is_searched(name))?;
        let token = ex.request.cookie(cookie.as_bytes()).map(text)?;
        if *hide_credentials {
            hide_cookie(ex, cookie);
        }
        Some(token)
    }
}

/// Removes a cookie from the request.
fn hide_cookie(ex: &mut Exchange<'_>, name: &str) {
    let is_other = |pair: &&[u8]| {
        let key = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        key.trim_ascii() != name.as_bytes()
    };
    // Several cookie lines are one list of pairs (RFC 9113 §8.2.3).
    let lines: Vec<&[u8]> = ex.request.fields.all("Cookie").collect();
    let pairs = lines.iter().flat_map(|line| line.split(|byte| *byte == b';'));
    let remaining: Vec<&[u8]> = pairs.filter(is_other).map(<[u8]>::trim_ascii).collect();
    let remaining = remaining.join(&b"; "[..]);
    if remaining.is_empty() {
        ex.request.fields.remove("Cookie");
    } else {
        ex.request.fields.set("Cookie", &remaining);
    }
}

impl Plugin for JwtAuth {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let identified = match (self.identify(ex), &self.config.anonymous_consumer) {
            (Ok(identity), _) => {
                ex.identify_as(identity);
                Ok(())
            }
            (Err(_), Some(username)) => identify_anonymous(ex, username),
            (Err(message), None) => Err(message),
        };
        match identified {
            Ok(()) => Step::Continue,
            Err(message) => Step::Respond(refuse(message, &self.challenge)),
        }
    }

    fn credential_field(&self) -> Option<&str> {
        Some(&self.config.header)
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
