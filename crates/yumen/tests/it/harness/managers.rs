//! Stubs of secret managers: Vault with key-value stores of version 1 and 2, AWS Secrets Manager, Google Secret Manager.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use aws_lc_rs::{digest, hmac};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD as BASE64, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::Upstream;
use super::upstream::{Request, respond};

/// The token that the Vault stub accepts.
pub(crate) const TOKEN: &str = "hvs.token-of-the-stub";
/// Credentials that the AWS stub accepts.
pub(crate) const AWS_ID: &str = "AKIDEXAMPLE";
pub(crate) const AWS_KEY: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

/// Secrets of a stub by path or name.
#[derive(Default)]
pub(crate) struct ManagerState {
    pub(crate) secrets: BTreeMap<String, Value>,
    /// Status of every response, instead of the secrets.
    pub(crate) fails: Option<u16>,
    /// Whether the token may read only paths with `data/`.
    pub(crate) is_narrow: bool,
    /// Request lines, in the order of their arrival.
    pub(crate) seen: Vec<String>,
    /// Fields of the last request.
    pub(crate) head: String,
}

/// A manager of this test.
pub(crate) struct ManagerStub {
    server: Upstream,
    state: Arc<Mutex<ManagerState>>,
}

impl ManagerStub {
    fn start(
        answer: impl Fn(&mut ManagerState, &Request) -> (u16, Value) + Send + Sync + 'static,
    ) -> ManagerStub {
        let state = Arc::<Mutex<ManagerState>>::default();
        let shared = state.clone();
        let server = Upstream::start(move |request, stream| {
            let (status, body) = {
                let mut state = shared.lock().unwrap();
                state.seen.push(format!("{} {}", request.method, request.target));
                state.head.clone_from(&request.head);
                match state.fails {
                    Some(status) => (status, json!({ "errors": ["out of order"] })),
                    None => answer(&mut state, request),
                }
            };
            respond(stream, status, "Content-Type: application/json\r\n", body.to_string().as_bytes())
        });
        ManagerStub { server, state }
    }

    /// Vault whose store has this version; paths begin with the mount `kv`.
    pub(crate) fn vault(version: u8) -> ManagerStub {
        ManagerStub::start(move |state, request| {
            if request.field("X-Vault-Token") != Some(TOKEN) {
                return (403, json!({ "errors": ["permission denied"] }));
            }
            let path = request.target.strip_prefix("/v1/").unwrap_or_default();
            let name = match version {
                1 => path.to_owned(),
                _ => match path.strip_prefix("kv/data/") {
                    Some(rest) => format!("kv/{rest}"),
                    // The policy of the token names only paths with `data/`.
                    None if state.is_narrow => return (403, json!({ "errors": ["permission denied"] })),
                    None => {
                        let warning = "Invalid path for a versioned K/V secrets engine. See the API docs for the \
                                       appropriate API endpoints to use.";
                        return (404, json!({ "errors": [], "warnings": [warning] }));
                    }
                },
            };
            match state.secrets.get(&name) {
                None => (404, json!({ "errors": [] })),
                Some(secret) if version == 1 => (200, json!({ "data": secret, "lease_duration": 2764800 })),
                Some(secret) => (200, json!({ "data": { "data": secret, "metadata": { "version": 1 } } })),
            }
        })
    }

    /// AWS Secrets Manager, which verifies the signature of each request.
    pub(crate) fn aws() -> ManagerStub {
        ManagerStub::start(|state, request| {
            if let Err(reason) = verify_signature(request) {
                let fault = json!({ "__type": "InvalidSignatureException", "message": reason });
                return (400, fault);
            }
            let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            match asked["SecretId"].as_str().and_then(|name| state.secrets.get(name)) {
                Some(secret) => {
                    let text = secret.as_str().map_or_else(|| secret.to_string(), str::to_owned);
                    (200, json!({ "SecretString": text, "VersionStages": ["AWSCURRENT"] }))
                }
                None => {
                    let message = "Secrets Manager can't find the specified secret.";
                    let kind = "com.amazonaws.secretsmanager#ResourceNotFoundException";
                    (400, json!({ "__type": kind, "Message": message }))
                }
            }
        })
    }

    /// Google Secret Manager with its token endpoint, for the service account with this public key (RSA, PKCS #1).
    pub(crate) fn gcp(public_key: Vec<u8>) -> ManagerStub {
        ManagerStub::start(move |state, request| {
            if request.target == "/token" {
                return match verify_assertion(&request.body, &public_key) {
                    Ok(()) => (200, json!({ "access_token": "ya29.of-the-stub", "expires_in": 3600 })),
                    Err(reason) => (400, json!({ "error": "invalid_grant", "error_description": reason })),
                };
            }
            if request.field("Authorization") != Some("Bearer ya29.of-the-stub") {
                return (401, json!({ "error": { "code": 401 } }));
            }
            let name = request.target.strip_prefix("/projects/project%2D1/secrets/");
            let name = name.and_then(|rest| rest.strip_suffix("/versions/latest:access"));
            match name.and_then(|name| state.secrets.get(name)) {
                Some(secret) => {
                    let text = secret.as_str().map_or_else(|| secret.to_string(), str::to_owned);
                    (200, json!({ "payload": { "data": BASE64.encode(text) } }))
                }
                None => (404, json!({ "error": { "code": 404 } })),
            }
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ManagerState> {
        self.state.lock().unwrap()
    }

    pub(crate) fn set(&self, path: &str, secret: Value) {
        self.state().secrets.insert(path.to_owned(), secret);
    }
}

/// Verifies a signature by the steps of the AWS documentation, from the request as received.
fn verify_signature(request: &Request) -> Result<(), String> {
    let authorization = request.field("Authorization").ok_or("no authorization")?;
    let part = |name: &str| -> Option<String> {
        let (_, rest) = authorization.split_once(&format!("{name}="))?;
        Some(rest.split([',', ' ']).next()?.to_owned())
    };
    let (credential, names) =
        (part("Credential").ok_or("no credential")?, part("SignedHeaders").ok_or("no names")?);
    let signature = part("Signature").ok_or("no signature")?;
    let scope = credential.strip_prefix(&format!("{AWS_ID}/")).ok_or("another access key")?;
    for required in ["host", "x-amz-date", "x-amz-target"] {
        if !names.split(';').any(|name| name == required) {
            return Err(format!("{required} is not signed"));
        }
    }
    let mut fields = String::new();
    for name in names.split(';') {
        fields.push_str(&format!("{name}:{}\n", request.field(name).ok_or("a signed field is absent")?));
    }
    let hash = hex(digest::digest(&digest::SHA256, &request.body).as_ref());
    let canonical = format!("{}\n{}\n\n{fields}\n{names}\n{hash}", request.method, request.target);
    let time = request.field("x-amz-date").ok_or("no date")?;
    let hashed = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashed}");
    let mut key = format!("AWS4{AWS_KEY}").into_bytes();
    for part in scope.split('/') {
        key = hmac(&key, part);
    }
    if !scope.starts_with(&time[..8]) || !scope.ends_with("/eu-west-1/secretsmanager/aws4_request") {
        return Err(format!("another scope: {scope}"));
    }
    if hex(&hmac(&key, &text)) == signature { Ok(()) } else { Err("another signature".to_owned()) }
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Verifies the request for a token (RFC 7523).
fn verify_assertion(body: &[u8], public_key: &[u8]) -> Result<(), String> {
    let body = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    if !body.starts_with("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant%2Dtype%3Ajwt%2Dbearer&") {
        return Err(format!("another grant: {body}"));
    }
    let (_, assertion) = body.split_once("assertion=").ok_or("no assertion")?;
    let (signed, signature) = assertion.rsplit_once('.').ok_or("no signature")?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|error| error.to_string())?;
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public_key);
    key.verify(signed.as_bytes(), &signature).map_err(|_| "another signature")?;
    let (_, claims) = signed.split_once('.').ok_or("no claims")?;
    let claims = URL_SAFE_NO_PAD.decode(claims).map_err(|error| error.to_string())?;
    let claims: Value = serde_json::from_slice(&claims).map_err(|error| error.to_string())?;
    match claims["iss"] == "robot@project-1.test" && claims["exp"].as_u64() > claims["iat"].as_u64() {
        true => Ok(()),
        false => Err(format!("other claims: {claims}")),
    }
}
