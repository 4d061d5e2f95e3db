//! `basic-auth`: authenticates consumers by user name and password (RFC 7617).

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, ConsumerAuth, ConsumerIdentity, ConsumerIndex, DryRunResult, Exchange, PhaseSet, Plugin,
    PluginBuildContext, PluginFactory, Step,
};

use crate::auth::{identify_anonymous, refuse, same_secret};

#[cfg(test)]
mod tests;

/// Settings of `basic-auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(title = "work with route or service object")]
pub(crate) struct BasicAuthSettings {
    /// Whether the `Authorization` field is removed before the request goes to the upstream.
    #[serde(default)]
    pub hide_credentials: bool,
    /// Realm of the challenge.
    #[serde(default = "realm")]
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[ -!#-[\]-~]+$"))]
    pub realm: String,
    /// Consumer of requests without valid credentials. Without this setting such requests are refused.
    #[schemars(length(min = 1))]
    pub anonymous_consumer: Option<String>,
}

fn realm() -> String {
    "basic".to_owned()
}

/// Credentials of a consumer for `basic-auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(title = "work with consumer object", extend("encrypt_fields" = ["password"]))]
pub(crate) struct BasicAuthCredential {
    /// User name.
    #[schemars(length(min = 1))]
    pub username: String,
    /// Password.
    // Beyond APISIX: every client knows the empty password.
    #[schemars(length(min = 1))]
    pub password: String,
}

/// The compiled settings with the challenge of the refusal.
#[derive(Debug)]
pub(crate) struct BasicAuth {
    config: BasicAuthSettings,
    challenge: Box<str>,
}

impl PluginFactory for BasicAuth {
    const NAME: &'static str = "basic-auth";
    const PRIORITY: i32 = 2520;
    const ROLE: AccessRole = AccessRole::Authentication;
    type Config = BasicAuthSettings;

    fn build(config: BasicAuthSettings, _setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let challenge = format!("Basic realm=\"{}\"", config.realm).into();
        Ok(BasicAuth { config, challenge })
    }
}

impl ConsumerAuth for BasicAuth {
    type Consumer = BasicAuthCredential;
    const KEY_FIELD: &'static str = "username";

    fn key(consumer: &BasicAuthCredential) -> &str {
        &consumer.username
    }
}

impl Plugin for BasicAuth {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let identified = identify(ex).or_else(|message| match &self.config.anonymous_consumer {
            Some(username) => identify_anonymous(ex, username),
            None => Err(message),
        });
        if let Err(message) = identified {
            return Step::Respond(refuse(message, &self.challenge));
        }
        // Invalid credentials are removed too, because they may be mistyped valid ones.
        if self.config.hide_credentials {
            ex.request.fields.remove("Authorization");
        }
        Step::Continue
    }

    fn credential_field(&self) -> Option<&str> {
        Some("Authorization")
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

fn identify(ex: &mut Exchange<'_>) -> Result<(), &'static str> {
    const MALFORMED: &str = "Invalid authorization in request";
    const WRONG: &str = "Invalid user authorization";
    let header = ex.request.fields.get("Authorization").ok_or("Missing authorization in request")?;
    let encoded = basic_credentials(header).ok_or(MALFORMED)?;
    // Usual credentials fit on the stack.
    let mut buffer = [0; 256];
    let mut long = Vec::new();
    let decoded = decode(encoded, &mut buffer, &mut long).ok_or(MALFORMED)?;
    let consumers = ex.consumers;
    let find = |(username, password): (&[u8], &[u8])| authenticate(consumers, username, password);
    let identity = match split(decoded).and_then(find) {
        Some(identity) => identity,
        // White space may belong to a password (RFC 7617 §2), so that the exact credentials are tried first.
        // APISIX ignores white space: clients often send a line end.
        None => find(split(pack(decoded)).ok_or(MALFORMED)?).ok_or(WRONG)?,
    };
    ex.identify_as(identity);
    Ok(())
}

/// Returns the owner of a username and password.
fn authenticate<'c>(
    consumers: &'c ConsumerIndex,
    username: &[u8],
    password: &[u8],
) -> Option<&'c ConsumerIdentity> {
    let identity = consumers.find(BasicAuth::NAME, username)?;
    let credential = identity.auth.downcast_ref::<BasicAuthCredential>()?;
    same_secret(credential.password.as_bytes(), password).then_some(identity)
}

/// The credentials after the scheme and one space. The scheme is case-insensitive (RFC 9110 §11.1).
fn basic_credentials(header: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = header.split_at_checked(5)?;
    let is_basic = scheme.eq_ignore_ascii_case(b"basic") && matches!(rest.first()?, b' ' | b'\t');
    (is_basic && rest.len() > 1).then(|| &rest[1..])
}

/// Decodes into `buffer`, or into `long` if the credentials do not fit. Padding is optional.
fn decode<'a>(encoded: &[u8], buffer: &'a mut [u8], long: &'a mut Vec<u8>) -> Option<&'a mut [u8]> {
    // The Base64 decoder of NGINX, which APISIX uses, checks neither padding nor trailing bits.
    const TOLERANT: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let buffer = if base64::decoded_len_estimate(encoded.len()) <= buffer.len() {
        buffer
    } else {
        long.resize(base64::decoded_len_estimate(encoded.len()), 0);
        long.as_mut_slice()
    };
    let length = TOLERANT.decode_slice(encoded, buffer).ok()?;
    Some(&mut buffer[..length])
}

/// Splits the user name from the password at the first colon (RFC 7617 §2). An empty password is malformed.
fn split(decoded: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    (colon + 1 < decoded.len()).then(|| (&decoded[..colon], &decoded[colon + 1..]))
}

/// Removes white space in place.
fn pack(decoded: &mut [u8]) -> &[u8] {
    let mut length = 0;
    for at in 0..decoded.len() {
        // In Lua, `%s` matches the vertical tab too.
        if !decoded[at].is_ascii_whitespace() && decoded[at] != 0x0b {
            decoded[length] = decoded[at];
            length += 1;
        }
    }
    &decoded[..length]
}
