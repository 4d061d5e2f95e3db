//! `key-auth`: authenticates consumers by a key in a field or query argument.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, ConsumerAuth, DryRunResult, Exchange, PhaseSet, Plugin, PluginBuildContext, PluginFactory,
    Step,
};

use crate::auth::{identify_anonymous, refuse};
use crate::query::{QueryArgument, argument, remove_argument};

#[cfg(test)]
mod tests;

/// Settings of `key-auth`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct KeyAuthSettings {
    /// Field that carries the key. Empty: fields are not searched.
    #[serde(default = "apikey")]
    pub header: String,
    /// Query argument that carries the key; used if the field is absent. Empty: the query is not searched.
    #[serde(default = "apikey")]
    pub query: String,
    /// Realm of the challenge.
    #[serde(default = "realm")]
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[ -!#-[\]-~]+$"))]
    pub realm: String,
    /// Whether the key is removed before the request goes to the upstream.
    #[serde(default)]
    pub hide_credentials: bool,
    /// Consumer of requests without a valid key. Without this setting such requests are refused.
    #[schemars(length(min = 1))]
    pub anonymous_consumer: Option<String>,
}

fn apikey() -> String {
    "apikey".to_owned()
}

fn realm() -> String {
    "key".to_owned()
}

/// Credentials of a consumer for `key-auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("encrypt_fields" = ["key"]))]
pub(crate) struct KeyAuthCredential {
    /// The API key.
    // Beyond APISIX: every client knows the empty key.
    #[schemars(length(min = 1))]
    pub key: String,
}

/// The compiled settings with the challenge of the refusal.
#[derive(Debug)]
pub(crate) struct KeyAuth {
    config: KeyAuthSettings,
    challenge: Box<str>,
}

impl PluginFactory for KeyAuth {
    const NAME: &'static str = "key-auth";
    const PRIORITY: i32 = 2500;
    const ROLE: AccessRole = AccessRole::Authentication;
    type Config = KeyAuthSettings;

    fn build(config: KeyAuthSettings, _setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let challenge = format!("apikey realm=\"{}\"", config.realm).into();
        Ok(KeyAuth { config, challenge })
    }
}

impl ConsumerAuth for KeyAuth {
    type Consumer = KeyAuthCredential;
    const KEY_FIELD: &'static str = "key";

    fn key(consumer: &KeyAuthCredential) -> &str {
        &consumer.key
    }
}

impl Plugin for KeyAuth {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let Err(message) = self.identify(ex) else { return Step::Continue };
        let Some(anonymous) = &self.config.anonymous_consumer else {
            return Step::Respond(refuse(message, &self.challenge));
        };
        if self.config.hide_credentials {
            // An invalid key is removed too, because it may be a mistyped valid key.
            ex.request.fields.remove(&self.config.header);
            remove_argument(&mut ex.request, self.config.query.as_bytes());
        }
        match identify_anonymous(ex, anonymous) {
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

impl KeyAuth {
    fn identify(&self, ex: &mut Exchange<'_>) -> Result<(), &'static str> {
        const INVALID: &str = "Invalid API key in request";
        let consumers = ex.consumers;
        let find = |key: &[u8]| consumers.find(Self::NAME, key).ok_or(INVALID);
        // As in APISIX, the query is only read without the field.
        let KeyAuthSettings { header, query: argument_name, .. } = &self.config;
        if let Some(key) = ex.request.fields.get(header).filter(|_| !header.is_empty()) {
            let identity = find(key)?;
            if self.config.hide_credentials {
                ex.request.fields.remove(&self.config.header);
            }
            ex.identify_as(identity);
            return Ok(());
        }
        let query = ex.request.query().unwrap_or_default();
        let identity = match argument(query, argument_name.as_bytes()) {
            // An empty name turns the place off: it must not find a pair without a name, such as `?=key`.
            _ if argument_name.is_empty() => return Err("Missing API key in request"),
            QueryArgument::Absent => return Err("Missing API key in request"),
            QueryArgument::One(key) => find(&key)?,
            QueryArgument::Other => return Err(INVALID),
        };
        if self.config.hide_credentials {
            remove_argument(&mut ex.request, self.config.query.as_bytes());
        }
        ex.identify_as(identity);
        Ok(())
    }
}
