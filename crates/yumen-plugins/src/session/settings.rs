//! Settings of sessions, with the names and defaults of APISIX 3.18 and of its session library.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::PluginBuildContext;

use super::LoginSealKeys;
use super::cookie::LoginCookieAttributes;
use super::redis::{SessionRedis, SessionRedisSettings};
use super::store::{SessionStore, SessionTimeouts};

/// Settings of sessions.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend(
    "if" = {"properties": {"storage": {"enum": ["redis"]}}, "required": ["storage"]},
    "then" = {"required": ["redis"]},
))]
pub(crate) struct SessionSettings {
    /// Secret from which the keys of the cookies derive. Gateways that share users share it.
    #[schemars(length(min = 16))]
    secret: String,
    /// Former secrets, which still open sessions. Beyond APISIX.
    #[serde(default)]
    #[schemars(inner(length(min = 16)))]
    secret_fallbacks: Vec<String>,
    /// Place of the session: in the cookie, or in Redis with its number in the cookie.
    #[serde(default)]
    #[schemars(extend("default" = "cookie"))]
    storage: SessionStorage,
    /// Name of the cookie. Further cookies have it as their prefix.
    #[serde(default = "cookie_name")]
    cookie_name: String,
    /// Path of the cookie.
    #[serde(default = "cookie_path")]
    cookie_path: String,
    /// Domain of the cookie; without it, the host of the request only.
    cookie_domain: Option<String>,
    /// Whether the cookie is sent over https only. Without this setting: if the client uses https.
    cookie_secure: Option<bool>,
    /// Whether scripts cannot read the cookie.
    #[serde(default = "yes")]
    cookie_http_only: bool,
    /// Whether the cookie is sent with requests that other sites cause. `Default` leaves it to the browser.
    #[serde(default)]
    #[schemars(extend("default" = "Lax"))]
    cookie_same_site: SessionSameSite,
    /// Seconds without a request after which a session ends. 0 means no limit.
    #[serde(default = "idling_timeout")]
    #[schemars(range(min = 0))]
    idling_timeout: u64,
    /// Seconds without renewal of the cookie after which a session ends. 0 means no limit.
    #[serde(default = "rolling_timeout")]
    #[schemars(range(min = 0))]
    rolling_timeout: u64,
    /// Longest lifetime of a session in seconds. 0 means no limit.
    #[schemars(range(min = 0))]
    absolute_timeout: Option<u64>,
    /// Deprecated form of `absolute_timeout`.
    cookie: Option<SessionCookieLifetime>,
    /// The server of the storage `redis`.
    redis: Option<SessionRedisSettings>,
}

/// Deprecated settings.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct SessionCookieLifetime {
    /// Deprecated: `absolute_timeout` replaces it.
    #[schemars(range(min = 0))]
    lifetime: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum SessionStorage {
    #[default]
    Cookie,
    Redis,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(inline)]
enum SessionSameSite {
    Strict,
    #[default]
    Lax,
    None,
    Default,
}

fn cookie_name() -> String {
    "session".to_owned()
}

fn cookie_path() -> String {
    "/".to_owned()
}

fn yes() -> bool {
    true
}

fn idling_timeout() -> u64 {
    900
}

fn rolling_timeout() -> u64 {
    3600
}

const ABSOLUTE_TIMEOUT_S: u64 = 86_400;

impl SessionSettings {
    /// Builds the store of the sessions. Paths of errors begin with `session`.
    pub(crate) fn build(self, setup: &PluginBuildContext<'_>) -> Result<SessionStore, InvalidSettings> {
        let is_token = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        if !is_token(&self.cookie_name) {
            let message =
                format!("\"{}\" is no cookie name; allowed: letters, digits, - _ .", self.cookie_name);
            return Err(InvalidSettings::at("session.cookie_name", message));
        }
        // A semicolon would add attributes.
        let is_attribute = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';');
        for (path, text) in [
            ("session.cookie_path", Some(&self.cookie_path)),
            ("session.cookie_domain", self.cookie_domain.as_ref()),
        ] {
            if text.is_some_and(|text| !is_attribute(text)) {
                return Err(InvalidSettings::at(path, "a cookie attribute has no spaces or semicolons"));
            }
        }
        let redis = match (self.storage, &self.redis) {
            (SessionStorage::Cookie, _) => None,
            (SessionStorage::Redis, Some(redis)) => Some(SessionRedis::new(redis, setup)?),
            (SessionStorage::Redis, None) => {
                return Err(InvalidSettings::at("session", "property \"redis\" is required"));
            }
        };
        let lifetime_s = self.cookie.as_ref().and_then(|cookie| cookie.lifetime);
        let timeouts = SessionTimeouts {
            idle_s: self.idling_timeout,
            rolling_s: self.rolling_timeout,
            absolute_s: self.absolute_timeout.or(lifetime_s).unwrap_or(ABSOLUTE_TIMEOUT_S),
        };
        let attributes = LoginCookieAttributes {
            path: self.cookie_path,
            domain: self.cookie_domain,
            secure: self.cookie_secure,
            is_http_only: self.cookie_http_only,
            same_site: match self.cookie_same_site {
                SessionSameSite::Strict => "Strict",
                SessionSameSite::Lax => "Lax",
                SessionSameSite::None => "None",
                SessionSameSite::Default => "",
            },
        };
        let secrets = std::iter::once(&self.secret).chain(&self.secret_fallbacks);
        let keys = LoginSealKeys::new(secrets.map(String::as_str));
        Ok(SessionStore::new(keys, self.cookie_name, attributes, timeouts, redis, setup.node.workers))
    }
}
