//! Authentication of the gateway at endpoints of the provider (OpenID Connect Core §9).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{PluginHost, SubrequestSpec};

use super::form::FormBody;
use super::settings::OpenidConnectSettings;
use crate::jose::{ClientSigner, JwsAlgorithm};

const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// A method of authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientAuthMethod {
    SecretBasic,
    SecretPost,
    PrivateKeyJwt,
    SecretJwt,
}

impl ClientAuthMethod {
    pub(super) fn parse(path: &str, name: &str) -> Result<ClientAuthMethod, InvalidSettings> {
        Ok(match name {
            "client_secret_basic" => ClientAuthMethod::SecretBasic,
            "client_secret_post" => ClientAuthMethod::SecretPost,
            "private_key_jwt" => ClientAuthMethod::PrivateKeyJwt,
            "client_secret_jwt" => ClientAuthMethod::SecretJwt,
            other => {
                let message = format!(
                    "unknown method \"{other}\"; allowed: client_secret_basic, client_secret_post, \
                     private_key_jwt, client_secret_jwt"
                );
                return Err(InvalidSettings::at(path, message));
            }
        })
    }
}

/// The client as registered at the provider.
pub(super) struct OidcClient {
    pub(super) id: String,
    pub(super) secret: Option<String>,
    private_signer: Option<ClientSigner>,
    secret_signer: Option<ClientSigner>,
    assertion_lifetime_s: u64,
    assertion_audience: Option<String>,
}

impl OidcClient {
    /// The client of the settings. `methods` are those in use.
    pub(super) fn build(
        settings: &mut OpenidConnectSettings,
        methods: &[ClientAuthMethod],
    ) -> Result<OidcClient, InvalidSettings> {
        let (provider, client) = (&mut settings.provider, &mut settings.client);
        let written = client.client_jwt_assertion_alg.as_deref();
        let unfit = |method: &str| {
            let message = format!("does not fit the authentication method {method}");
            InvalidSettings::at("client_jwt_assertion_alg", message)
        };
        let uses = |method| methods.contains(&method);
        let mut private_signer = None;
        if uses(ClientAuthMethod::PrivateKeyJwt) {
            let algorithm = JwsAlgorithm::of(written.unwrap_or("RS256")).filter(|one| one.hmac().is_none());
            let algorithm = algorithm.ok_or_else(|| unfit("private_key_jwt"))?;
            let pem = client.client_rsa_private_key.as_deref().ok_or_else(|| {
                let message = "property \"client_rsa_private_key\" is required for private_key_jwt";
                InvalidSettings::at("client_rsa_private_key", message)
            })?;
            let signer = ClientSigner::of_pem(algorithm, pem, client.client_rsa_private_key_id.take());
            let signer = signer.map_err(|error| InvalidSettings::at("client_rsa_private_key", error))?;
            private_signer = Some(signer);
        }
        let mut secret_signer = None;
        if uses(ClientAuthMethod::SecretJwt) {
            let algorithm = JwsAlgorithm::of(written.unwrap_or("HS256"));
            let secret = provider.client_secret.as_deref().ok_or_else(|| {
                InvalidSettings::at("client_secret", "property \"client_secret\" is required")
            })?;
            secret_signer = algorithm.and_then(|one| ClientSigner::of_secret(one, secret.as_bytes()));
            if secret_signer.is_none() {
                return Err(unfit("client_secret_jwt"));
            }
        }
        Ok(OidcClient {
            id: std::mem::take(&mut provider.client_id),
            secret: provider.client_secret.take(),
            private_signer,
            secret_signer,
            assertion_lifetime_s: client.client_jwt_assertion_expires_in,
            assertion_audience: client.client_jwt_assertion_audience.take(),
        })
    }

    /// Adds the authentication to a call, by exactly one method (RFC 6749 §2.3).
    pub(super) fn authenticate(
        &self,
        method: ClientAuthMethod,
        call: &mut EndpointCall<'_>,
        form: &mut FormBody,
    ) {
        let signer = match method {
            ClientAuthMethod::SecretBasic => {
                match &self.secret {
                    Some(secret) => {
                        // Both are form-urlencoded first (RFC 6749 §2.3.1).
                        let pair = format!("{}:{}", FormBody::encode(&self.id), FormBody::encode(secret));
                        let value = format!("Basic {}", STANDARD.encode(pair));
                        call.spec.fields.set("Authorization", value.as_bytes());
                    }
                    // A public client names itself (RFC 6749 §3.2.1).
                    None => form.set("client_id", &self.id),
                }
                return;
            }
            ClientAuthMethod::SecretPost => {
                form.set("client_id", &self.id);
                if let Some(secret) = &self.secret {
                    form.set("client_secret", secret);
                }
                return;
            }
            ClientAuthMethod::PrivateKeyJwt => &self.private_signer,
            ClientAuthMethod::SecretJwt => &self.secret_signer,
        };
        let mut id = [0; 16];
        call.host.fill_random(&mut id);
        let claims = json!({
            "iss": self.id,
            "sub": self.id,
            "aud": self.assertion_audience.as_deref().unwrap_or(call.endpoint),
            "jti": URL_SAFE_NO_PAD.encode(id),
            "iat": call.now_s,
            "exp": call.now_s.saturating_add(self.assertion_lifetime_s),
        });
        form.set("client_id", &self.id);
        if let Some(assertion) = signer.as_ref().and_then(|signer| signer.sign(&claims)) {
            form.set("client_assertion_type", ASSERTION_TYPE);
            form.set("client_assertion", &assertion);
        }
    }
}

/// A call to an endpoint.
pub(super) struct EndpointCall<'c> {
    pub(super) host: &'c dyn PluginHost,
    /// URL of the endpoint.
    pub(super) endpoint: &'c str,
    pub(super) now_s: u64,
    pub(super) spec: &'c mut SubrequestSpec,
}
