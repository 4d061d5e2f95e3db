//! `csrf`: requires requests with unsafe methods to repeat the token of a cookie in a field.

use std::time::{Duration, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use yumen_config::schema::InvalidSettings;
use yumen_http::Method;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, PluginBuildContext, PluginFactory,
    ResponseHead, ResponseHeadPhase, Step,
};

use crate::auth::same_secret;

/// Settings of `csrf`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("encrypt_fields" = ["key"]))]
pub(crate) struct CsrfSettings {
    /// Key of the token's signature.
    key: String,
    /// Lifetime of a token in seconds; 0 means no expiry.
    #[serde(default = "expires")]
    expires: i64,
    /// Name of the cookie and of the field that carry the token.
    #[serde(default = "name")]
    name: String,
}

fn expires() -> i64 {
    7200
}

fn name() -> String {
    "apisix-csrf-token".to_owned()
}

/// The plugin holds its settings unchanged.
#[derive(Debug)]
pub(crate) struct Csrf(CsrfSettings);

impl PluginFactory for Csrf {
    const NAME: &'static str = "csrf";
    const PRIORITY: i32 = 2980;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = CsrfSettings;

    fn build(config: CsrfSettings, _: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        Ok(Csrf(config))
    }
}

impl Csrf {
    fn refusal(&self, ex: &Exchange<'_>) -> Option<&'static str> {
        // Safe methods change no state, so they need no token (RFC 9110 §9.2.1).
        if matches!(ex.request.method(), Method::Get | Method::Head | Method::Options) {
            return None;
        }
        let Some(shown) = ex.request.fields.get(&self.0.name).filter(|token| !token.is_empty()) else {
            return Some("no csrf token in headers");
        };
        let Some(cookie) = ex.request.cookie(self.0.name.as_bytes()) else { return Some("no csrf cookie") };
        // Both texts come from the client, so that the time of the comparison reveals nothing.
        if shown != cookie {
            return Some("csrf token mismatch");
        }
        let is_valid = self.verify(cookie, ex.now.unix_s() as i64);
        (!is_valid).then_some("Failed to verify the csrf token signature")
    }

    fn verify(&self, token: &[u8], now_s: i64) -> bool {
        let read = || -> Option<(Value, i64, String)> {
            let token: Value = serde_json::from_slice(&STANDARD.decode(token).ok()?).ok()?;
            let random = token.get("random").filter(|random| random.is_number())?;
            // `expires` contains the time of issue, as in APISIX.
            Some((random.clone(), token.get("expires")?.as_i64()?, token.get("sign")?.as_str()?.to_owned()))
        };
        let Some((random, made_s, sign)) = read() else { return false };
        let expired = self.0.expires > 0 && now_s.saturating_sub(made_s) > self.0.expires;
        !expired && same_secret(self.sign(&random, made_s).as_bytes(), sign.as_bytes())
    }

    /// The SHA-256 digest over the token and the key, in hexadecimal and over the same text as in APISIX.
    fn sign(&self, random: &Value, made_s: i64) -> String {
        let text = format!("{{expires:{made_s},random:{random},key:{}}}", self.0.key);
        digest(&SHA256, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn token(&self, ex: &Exchange<'_>) -> String {
        // At most 12 decimals, so that every JSON library parses and prints the same digits.
        let random = Value::from((ex.host.random() % 899_999_999_999 + 100_000_000_000) as f64 / 1e12);
        let made_s = ex.now.unix_s() as i64;
        let sign = self.sign(&random, made_s);
        STANDARD.encode(json!({"random": random, "expires": made_s, "sign": sign}).to_string())
    }
}

/// Formats a time as NGINX does in cookies: with a two-digit year until 2037, for old browsers.
fn cookie_time(unix_s: u64) -> String {
    // The end of the year 9999, the last second that an HTTP date can express.
    const LAST_S: u64 = 253_402_300_799;
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_s.min(LAST_S)));
    let words: Vec<&str> = date.split(' ').collect();
    let [day, date, month, year, time, zone] = words[..] else { return date };
    let year = if year < "2038" { &year[2..] } else { year };
    format!("{day} {date}-{month}-{year} {time} {zone}")
}

impl Plugin for Csrf {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS | PhaseSet::RESPONSE_HEAD
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        match self.refusal(ex) {
            Some(message) => Step::Respond(LocalResponse::error_msg(401, message)),
            None => Step::Continue,
        }
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        let until_s = ex.now.unix_s().saturating_add_signed(self.0.expires);
        let token = self.token(ex);
        // The attributes of APISIX.
        let cookie = format!("{}={token};path=/;SameSite=Lax;Expires={}", self.0.name, cookie_time(until_s));
        head.fields.add("Set-Cookie", cookie.as_bytes());
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
