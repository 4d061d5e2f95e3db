//! `jwe-decrypt`: decrypts a token (JWE, RFC 7516) in a field and forwards its text.

use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, ConsumerAuth, ConsumerIndex, DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin,
    PluginBuildContext, PluginFactory, Step,
};

use crate::auth::PassedWithoutCredential;
use crate::jose::jwe::JweToken;
use crate::text::is_field_name;

#[cfg(test)]
mod tests;

/// Settings of `jwe-decrypt`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("required" = ["header", "forward_header"]))]
pub(crate) struct JweDecryptSettings {
    /// Field with the token, with or without `Bearer` before it.
    #[serde(default = "authorization")]
    header: String,
    /// Field that the upstream gets with the decrypted text.
    #[serde(default = "authorization")]
    forward_header: String,
    /// Whether requests without a token are refused.
    #[serde(default = "strict")]
    strict: bool,
}

fn authorization() -> String {
    "Authorization".to_owned()
}

fn strict() -> bool {
    true
}

/// The key of a consumer, as written.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("encrypt_fields" = ["key", "secret"]))]
struct JweCredentialSpec {
    /// Id of the key, which tokens have as `kid`.
    #[schemars(length(min = 1))]
    key: String,
    /// The key for A256GCM: 32 bytes.
    #[schemars(length(min = 1))]
    secret: String,
    /// Whether `secret` is base64url.
    #[serde(default)]
    is_base64_encoded: bool,
}

/// The key of a consumer for `jwe-decrypt`.
#[derive(Deserialize)]
#[serde(try_from = "JweCredentialSpec")]
pub(crate) struct JweCredential {
    key: String,
    cipher: LessSafeKey,
}

impl JsonSchema for JweCredential {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ConsumerConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        JweCredentialSpec::json_schema(generator)
    }
}

impl TryFrom<JweCredentialSpec> for JweCredential {
    type Error = String;

    fn try_from(written: JweCredentialSpec) -> Result<JweCredential, String> {
        let decoded = match written.is_base64_encoded {
            true => URL_SAFE_NO_PAD.decode(written.secret.trim_end_matches('=')).ok(),
            false => Some(written.secret.into_bytes()),
        };
        let bytes = decoded.ok_or("the secret is not base64url")?;
        let key = UnboundKey::new(&AES_256_GCM, &bytes)
            .map_err(|_| format!("the secret has {} bytes; a key for A256GCM has 32", bytes.len()))?;
        Ok(JweCredential { key: written.key, cipher: LessSafeKey::new(key) })
    }
}

/// The compiled settings.
#[derive(Debug)]
pub(crate) struct JweDecrypt {
    config: JweDecryptSettings,
}

impl PluginFactory for JweDecrypt {
    const NAME: &'static str = "jwe-decrypt";
    const PRIORITY: i32 = 2509;
    const ROLE: AccessRole = AccessRole::Authentication;
    type Config = JweDecryptSettings;

    fn build(config: JweDecryptSettings, _: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        for (member, name) in [("header", &config.header), ("forward_header", &config.forward_header)] {
            if !is_field_name(name) {
                return Err(InvalidSettings::at(member, format!("\"{name}\" is no field name")));
            }
        }
        Ok(JweDecrypt { config })
    }
}

impl ConsumerAuth for JweDecrypt {
    type Consumer = JweCredential;
    const KEY_FIELD: &'static str = "key";

    fn key(consumer: &JweCredential) -> &str {
        &consumer.key
    }
}

impl JweDecrypt {
    /// The text of the token; `None` if there is no token and none is required.
    fn text(&self, ex: &Exchange<'_>) -> Result<Option<Vec<u8>>, LocalResponse> {
        let refuse = |message| LocalResponse::message(400, message);
        let Some(value) = ex.request.fields.get(&self.config.header) else {
            return match self.config.strict {
                true => Err(LocalResponse::message(403, "missing JWE token in request")),
                false => Ok(None),
            };
        };
        let is_bearer = value.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "));
        let token = JweToken::read(if is_bearer { &value[7..] } else { value });
        let token = token.ok_or_else(|| refuse("JWE token invalid"))?;
        let kid = token.key_id().ok_or_else(|| refuse("missing kid in JWE token"))?;
        let identity = ex.consumers.find(Self::NAME, kid.as_bytes());
        let credential = identity.and_then(|identity| identity.auth.downcast_ref::<JweCredential>());
        let credential = credential.ok_or_else(|| refuse("invalid kid in JWE token"))?;
        let text = token.decrypt(&credential.cipher);
        // The text becomes a field: bytes that end it would add others.
        let is_field_value = |text: &Vec<u8>| !text.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'));
        text.filter(is_field_value).map(Some).ok_or_else(|| refuse("failed to decrypt JWE token"))
    }
}

impl Plugin for JweDecrypt {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        match self.text(ex) {
            Ok(None) => {
                // The upstream trusts the field, so that a client must not set it. A token in the same field is absent.
                ex.request.fields.remove_equivalent(&self.config.forward_header);
                ex.leave(PassedWithoutCredential);
                Step::Continue
            }
            Ok(Some(text)) => {
                ex.request.fields.remove_equivalent(&self.config.forward_header);
                ex.request.fields.set(&self.config.forward_header, &text);
                Step::Continue
            }
            Err(refusal) => Step::Respond(refusal),
        }
    }

    fn vouched_fields<'s>(&'s self, _: &'s ConsumerIndex) -> Vec<&'s str> {
        vec![&self.config.forward_header]
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}
