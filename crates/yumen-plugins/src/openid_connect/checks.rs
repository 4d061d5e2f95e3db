//! Checks of claims: scopes, audience, schema.

use serde_json::{Map, Value, json};
use yumen_config::schema::{self, InvalidSettings};
use yumen_plugin::LocalResponse;

use super::settings::{AudienceSettings, ClaimCheckSettings};

/// The checks that the settings require.
pub(super) struct ClaimChecks {
    required_scopes: Vec<String>,
    claim_schema: Option<Value>,
    audience: Option<AudienceSettings>,
    /// Allowed issuers of bearer tokens; empty for the one of the discovery document.
    pub(super) valid_issuers: Vec<String>,
}

/// The reason why claims are not accepted.
#[derive(Debug)]
pub(super) enum ClaimCheckRefusal {
    /// 403 with this JSON body.
    Forbidden(Value),
    /// 401: the claims do not match the schema.
    Schema(String),
}

impl ClaimCheckRefusal {
    /// 403 with a JSON body.
    pub(super) fn forbidden(body: &Value) -> LocalResponse {
        LocalResponse::status(403).field("Content-Type", "application/json").body(body.to_string())
    }
}

impl ClaimChecks {
    pub(super) fn build(settings: &mut ClaimCheckSettings) -> Result<ClaimChecks, InvalidSettings> {
        let claim_schema = settings.claim_schema.take();
        if let Some(schema) = &claim_schema {
            // A schema that no value can be checked by refuses its settings, not every request.
            let invalid = json_schema_fault(schema);
            invalid.map_or(Ok(()), |message| Err(InvalidSettings::at("claim_schema", message)))?;
        }
        let validator = settings.claim_validator.take().unwrap_or_default();
        Ok(ClaimChecks {
            required_scopes: settings.required_scopes.take().unwrap_or_default(),
            claim_schema,
            audience: validator.audience,
            valid_issuers: validator.issuer.and_then(|issuer| issuer.valid_issuers).unwrap_or_default(),
        })
    }

    /// Checks the claims of a bearer token, in the order of APISIX.
    pub(super) fn check_bearer(
        &self,
        claims: &Map<String, Value>,
        client_id: &str,
    ) -> Result<(), ClaimCheckRefusal> {
        if !self.has_scopes(claims.get("scope")) {
            let required = self.required_scopes.join(", ");
            let error = format!("required scopes {required} not present");
            return Err(ClaimCheckRefusal::Forbidden(json!({ "error": error })));
        }
        self.check_audience(claims, client_id)?;
        self.check_schema(&Value::Object(claims.clone()))
    }

    /// Checks a session. The scopes are those of the access token if it is a JWT, else those of the ID token.
    pub(super) fn check_session(
        &self,
        document: &Value,
        access_claims: Option<&Map<String, Value>>,
        id_claims: Option<&Map<String, Value>>,
    ) -> Result<(), ClaimCheckRefusal> {
        self.check_schema(document)?;
        let scope = [access_claims, id_claims].into_iter().flatten().find_map(|claims| claims.get("scope"));
        match self.has_scopes(scope) {
            true => Ok(()),
            false => Err(ClaimCheckRefusal::Forbidden(json!({ "error": "required scopes not present" }))),
        }
    }

    /// Whether all required scopes are granted. Scopes are a text separated by spaces, or a list.
    fn has_scopes(&self, granted: Option<&Value>) -> bool {
        let is_granted = |scope: &String| match granted {
            Some(Value::String(text)) => text.split(' ').any(|one| one == scope),
            Some(Value::Array(all)) => all.iter().any(|one| one.as_str() == Some(scope)),
            _ => false,
        };
        self.required_scopes.iter().all(is_granted)
    }

    fn check_audience(&self, claims: &Map<String, Value>, client_id: &str) -> Result<(), ClaimCheckRefusal> {
        let Some(audience) = &self.audience else { return Ok(()) };
        let Some(value) = claims.get(&audience.claim).filter(|value| !value.is_null()) else {
            return match audience.required || audience.match_with_client_id {
                true => Err(ClaimCheckRefusal::Forbidden(
                    json!({ "error": "required audience claim not present" }),
                )),
                false => Ok(()),
            };
        };
        match !audience.match_with_client_id || names_audience(value, client_id) {
            true => Ok(()),
            false => Err(ClaimCheckRefusal::Forbidden(json!({ "error": "mismatched audience" }))),
        }
    }

    fn check_schema(&self, document: &Value) -> Result<(), ClaimCheckRefusal> {
        let Some(schema) = &self.claim_schema else { return Ok(()) };
        // Validation fills in defaults, which are no claims.
        let mut document = document.clone();
        schema::validate_document(schema, &mut document)
            .map_err(|refusal| ClaimCheckRefusal::Schema(refusal.message.clone()))
    }
}

/// Whether the audience is the client, or a list with it.
pub(super) fn names_audience(value: &Value, client_id: &str) -> bool {
    match value {
        Value::Array(all) => all.iter().any(|one| one.as_str() == Some(client_id)),
        one => one.as_str() == Some(client_id),
    }
}

/// The reason why a text is no JSON schema.
fn json_schema_fault(schema: &Value) -> Option<&'static str> {
    let is_type = |value: &Value| {
        let known = ["object", "array", "string", "number", "integer", "boolean", "null"];
        value.as_str().is_some_and(|name| known.contains(&name))
    };
    match schema.get("type") {
        None => None,
        Some(Value::Array(types)) if types.iter().all(is_type) => None,
        Some(one) if is_type(one) => None,
        Some(_) => Some("\"type\" is not a type of JSON"),
    }
}
