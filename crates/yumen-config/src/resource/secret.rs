//! Secret managers: where references in other objects lead. Kept and judged, not asked yet.
//!
//! Knows what each manager needs, not how it is spoken to.

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Kind, resource_type};
use crate::schema::{self, InvalidSettings};

/// A secret manager; the id is `vault/1`, `aws/1` or `gcp/1`, the rest is that manager's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecretSpec {
    /// `manager/id`.
    pub id: Option<String>,
    /// When it was made, in seconds since 1970.
    pub create_time: Option<i64>,
    /// When it was last changed, in seconds since 1970.
    pub update_time: Option<i64>,
    /// Everything else.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

/// A key-value store of HashiCorp Vault.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "stands for its schema")]
struct VaultSecretManager {
    /// Where it is.
    #[schemars(regex(pattern = r"^[^\/]+:\/\/([\da-zA-Z.-]+|\[[\da-fA-F:]+\])(:\d+)?"))]
    uri: String,
    /// The path secrets are below.
    prefix: String,
    /// What opens it.
    token: String,
    /// The namespace, where the server has several.
    namespace: Option<String>,
}

/// AWS Secrets Manager.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "stands for its schema")]
struct AwsSecretManager {
    /// Who asks.
    access_key_id: String,
    /// What proves it.
    secret_access_key: String,
    /// Of temporary credentials.
    session_token: Option<String>,
    /// Where the secrets are; `us-east-1` where absent.
    region: Option<String>,
    /// Asked instead of the region's own.
    #[schemars(regex(pattern = r"^[^\/]+:\/\/([\da-zA-Z.-]+|\[[\da-fA-F:]+\])(:\d+)?"))]
    endpoint_url: Option<String>,
}

/// The service account of Google Secret Manager.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "stands for its schema")]
struct GcpServiceAccount {
    /// Who asks.
    client_email: String,
    /// What proves it.
    private_key: String,
    /// Whose secrets.
    project_id: String,
}

/// The settings of a secret manager, `None` where there is no such manager.
pub fn secret_schema(manager: &str) -> Option<&'static Value> {
    static VAULT: LazyLock<Value> = LazyLock::new(schema::of::<VaultSecretManager>);
    static AWS: LazyLock<Value> = LazyLock::new(schema::of::<AwsSecretManager>);
    static GCP: LazyLock<Value> = LazyLock::new(|| {
        serde_json::json!({
            "type": "object",
            "properties": {
                "auth_config": schema::of::<GcpServiceAccount>(),
                "auth_file": { "type": "string" },
                "ssl_verify": { "type": "boolean", "default": true }
            },
            "oneOf": [{ "required": ["auth_config"] }, { "required": ["auth_file"] }]
        })
    });
    match manager {
        "vault" => Some(&VAULT),
        "aws" => Some(&AWS),
        "gcp" => Some(&GCP),
        _ => None,
    }
}

/// An id without a manager says nothing of what the settings must be.
fn settle(secret: &mut SecretSpec) -> Result<(), InvalidSettings> {
    let Some((manager, _)) = secret.id.as_deref().and_then(|id| id.split_once('/')) else { return Ok(()) };
    let Some(schema) = secret_schema(manager) else {
        return Err(InvalidSettings::at("id", format!("invalid secret manager: {manager}")));
    };
    let mut settings = Value::Object(std::mem::take(&mut secret.settings));
    schema::validate(schema, &mut settings)?;
    if let Value::Object(settings) = settings {
        secret.settings = settings;
    }
    Ok(())
}

resource_type!(SecretSpec, Kind::Secrets, settle = settle);
