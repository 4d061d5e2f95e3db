//! Secret managers, the targets of references in other objects.
//!
//! This module describes the settings of each manager, not its protocol.

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use yumen_base::pem;

use super::{Kind, resource_type};
use crate::schema::{self, InvalidSettings};

/// A secret manager. The id is `vault/1`, `aws/1` or `gcp/1`, and the other members are settings of that
/// manager.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecretSpec {
    /// Id in the form `manager/id`.
    pub id: Option<String>,
    /// Creation time, in seconds since 1970.
    pub create_time: Option<i64>,
    /// Time of the last change, in seconds since 1970.
    pub update_time: Option<i64>,
    /// Settings of the manager.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

/// A key-value store of HashiCorp Vault.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "used only for its schema")]
struct VaultSecretManager {
    /// Address of the server.
    #[schemars(regex(pattern = r"^[^\/]+:\/\/([\da-zA-Z.-]+|\[[\da-fA-F:]+\])(:\d+)?"))]
    uri: String,
    /// Path prefix of the secrets.
    prefix: String,
    /// Access token.
    token: String,
    /// Namespace, if the server has several.
    namespace: Option<String>,
    #[serde(flatten)]
    tls: ManagerTls,
}

/// AWS Secrets Manager.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "used only for its schema")]
struct AwsSecretManager {
    /// Id of the access key.
    access_key_id: String,
    /// Secret of the access key.
    secret_access_key: String,
    /// Session token of temporary credentials.
    session_token: Option<String>,
    /// Region of the secrets; `us-east-1` if absent.
    region: Option<String>,
    /// Endpoint in place of the region's own.
    #[schemars(regex(pattern = r"^[^\/]+:\/\/([\da-zA-Z.-]+|\[[\da-fA-F:]+\])(:\d+)?"))]
    endpoint_url: Option<String>,
    #[serde(flatten)]
    tls: ManagerTls,
}

/// TLS to a server under a private authority, or to one that requires a client certificate.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "used only for its schema")]
struct ManagerTls {
    /// Authorities of the server's certificate, PEM; those of the system if absent.
    ca_cert: Option<String>,
    /// Chain of the client certificate, PEM.
    client_cert: Option<String>,
    /// Private key of the client certificate, PEM.
    client_key: Option<String>,
}

/// Service account for Google Secret Manager.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "used only for its schema")]
struct GcpServiceAccount {
    /// Email address of the account.
    client_email: String,
    /// Private key of the account.
    private_key: String,
    /// Project that contains the secrets.
    project_id: String,
    /// Address that gives tokens; Google's own if absent.
    token_uri: Option<String>,
    /// Address of the secrets; Google's own if absent.
    entries_uri: Option<String>,
    /// Scopes of the tokens; `https://www.googleapis.com/auth/cloud-platform` if absent.
    scope: Option<Vec<String>>,
}

/// The schema of a secret manager's settings; `None` for an unknown manager.
pub fn secret_schema(manager: &str) -> Option<&'static Value> {
    static VAULT: LazyLock<Value> = LazyLock::new(schema::of::<VaultSecretManager>);
    static AWS: LazyLock<Value> = LazyLock::new(schema::of::<AwsSecretManager>);
    static GCP: LazyLock<Value> = LazyLock::new(|| {
        let mut schema = schema::of::<ManagerTls>();
        let properties = &mut schema["properties"];
        properties["auth_config"] = schema::of::<GcpServiceAccount>();
        properties["auth_file"] = json!({ "type": "string" });
        properties["ssl_verify"] = json!({ "type": "boolean", "default": true });
        schema["oneOf"] = json!([{ "required": ["auth_config"] }, { "required": ["auth_file"] }]);
        schema
    });
    match manager {
        "vault" => Some(&VAULT),
        "aws" => Some(&AWS),
        "gcp" => Some(&GCP),
        _ => None,
    }
}

/// Validates the settings of the manager in the id. Without a manager there is no schema to validate against.
fn settle(secret: &mut SecretSpec) -> Result<(), InvalidSettings> {
    let Some((manager, _)) = secret.id.as_deref().and_then(|id| id.split_once('/')) else { return Ok(()) };
    let Some(schema) = secret_schema(manager) else {
        return Err(InvalidSettings::at("id", format!("invalid secret manager: {manager}")));
    };
    let mut settings = Value::Object(std::mem::take(&mut secret.settings));
    schema::validate(schema, &mut settings)?;
    check_tls(&settings)?;
    if let Value::Object(settings) = settings {
        secret.settings = settings;
    }
    Ok(())
}

/// Checks the forms of certificates, as far as they are no references.
fn check_tls(settings: &Value) -> Result<(), InvalidSettings> {
    for name in ["ca_cert", "client_cert", "client_key"] {
        let Some(text) = settings[name].as_str().filter(|text| !text.starts_with('$')) else { continue };
        if !text.contains("-----BEGIN ") {
            return Err(InvalidSettings::at(name, pem::flaw(text.as_bytes())));
        }
    }
    match (settings["client_cert"].is_string(), settings["client_key"].is_string()) {
        (true, false) => Err(InvalidSettings::at("client_key", "a client certificate needs its private key")),
        (false, true) => {
            Err(InvalidSettings::at("client_cert", "a private key needs its client certificate"))
        }
        _ => Ok(()),
    }
}

resource_type!(SecretSpec, Kind::Secrets, settle = settle);
