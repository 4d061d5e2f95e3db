//! `authz-keycloak`: lets Keycloak authorize requests by User-Managed Access (UMA 2.0).
//!
//! The client's token goes to the token endpoint with the permissions that the request needs. The permissions are
//! constant, or the resources that Keycloak has for the path.

mod endpoints;
mod service_token;
mod settings;

use std::sync::Arc;

use serde_json::Value;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, LocalResponse, Method, PhaseSet, Plugin, PluginBuildContext,
    PluginFactory, Step, SubrequestResponse, Var,
};

use crate::query;
use crate::service::{FORM_TYPE, ServiceTarget, encode_pairs, json_document};
use endpoints::KeycloakEndpoints;
use service_token::{ClientGrant, ServiceTokenCache};
use settings::{EnforcementMode, KeycloakSettings};

#[cfg(test)]
mod tests;

/// The compiled settings.
pub(crate) struct AuthzKeycloak {
    config: KeycloakSettings,
    endpoints: KeycloakEndpoints,
    token: Arc<ServiceTokenCache>,
}

/// A refusal of a request.
type Refusal = LocalResponse;

impl PluginFactory for AuthzKeycloak {
    const NAME: &'static str = "authz-keycloak";
    const PRIORITY: i32 = 2000;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = KeycloakSettings;

    fn build(config: KeycloakSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        if let Some(uri) = &config.access_denied_redirect_uri
            && !uri.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(InvalidSettings::at("access_denied_redirect_uri", "not a URL"));
        }
        let endpoints = KeycloakEndpoints::build(&config, setup)?;
        let key = format!("{} {} {}", Self::NAME, endpoints.token_name(), config.client_id);
        Ok(AuthzKeycloak { token: setup.carry.keep(&key, ServiceTokenCache::default), config, endpoints })
    }
}

impl AuthzKeycloak {
    /// Whether the request is a form with user name and password that the plugin exchanges for a token.
    fn is_password_grant(&self, ex: &Exchange<'_>) -> bool {
        let Some(uri) = &self.config.password_grant_token_generation_incoming_uri else { return false };
        let media_type = ex.request.fields.get("content-type").unwrap_or_default();
        let media_type = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        ex.request.client_method() == Method::Post
            && *ex.request.request_uri() == *uri.as_bytes()
            && media_type.eq_ignore_ascii_case(FORM_TYPE.as_bytes())
    }

    /// Responds with a token for user name and password.
    async fn grant_by_password(&self, ex: &Exchange<'_>) -> Result<LocalResponse, Refusal> {
        let body = ex.body.buffered.as_deref().unwrap_or_default();
        let member = |name: &str| {
            let value = query::pairs(body).find(|(key, _)| key.as_ref() == name.as_bytes())?.1;
            Some(String::from_utf8_lossy(&value).into_owned())
        };
        let missing = |name: &str| LocalResponse::message(422, &format!("{name} is missing."));
        let username = member("username").ok_or_else(|| missing("username"))?;
        let password = member("password").ok_or_else(|| missing("password"))?;
        let endpoint = self.token_endpoint()?;
        let mut form = vec![("grant_type", "password"), ("client_id", &self.config.client_id)];
        form.extend(self.config.client_secret.as_deref().map(|secret| ("client_secret", secret)));
        form.extend([("username", username.as_str()), ("password", password.as_str())]);
        let mut call = endpoint.form(&form);
        // Keycloak counts failed log-ins, so that a repeat may lock the user out.
        call.may_repeat = false;
        let failed = |reason: &str| {
            let url = endpoint.describe();
            LocalResponse::message(401, &format!("Accessing token endpoint URL ({url}) failed: {reason}"))
        };
        let answer = endpoint.send(ex.host, call).await.map_err(|fault| failed(&fault.to_string()))?;
        let is_json = |body: &Vec<u8>| serde_json::from_slice::<Value>(body).is_ok();
        match answer.body.clone().filter(is_json) {
            Some(_) => Ok(passed_on(answer)),
            None => Err(failed("the response is not JSON")),
        }
    }

    fn token_endpoint(&self) -> Result<&ServiceTarget, Refusal> {
        let missing = || unavailable("Unable to determine token endpoint.");
        self.endpoints.token.as_ref().ok_or_else(missing)
    }

    /// The `Authorization` of the decision: that of the client, with the scheme that may be missing.
    fn authorization(ex: &Exchange<'_>) -> Result<Vec<u8>, Refusal> {
        let mut values = ex.request.fields.all("authorization");
        let (Some(token), None) = (values.next(), values.next()) else {
            return Err(LocalResponse::message(401, "Missing JWT token in request"));
        };
        let has_scheme = token.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "));
        Ok(if has_scheme { token.to_vec() } else { [b"Bearer ", token].concat() })
    }

    async fn evaluate(&self, ex: &Exchange<'_>) -> Result<(), Refusal> {
        let authorization = Self::authorization(ex)?;
        let permissions = match self.config.lazy_load_paths {
            true => self.resources(ex).await?,
            false => self.config.permissions.clone(),
        };
        if permissions.is_empty() && self.config.policy_enforcement_mode == EnforcementMode::Enforcing {
            return Err(self.denied(LocalResponse::json(403, &not_authorized())));
        }
        let scope = self.config.http_method_as_scope;
        let method = String::from_utf8_lossy(ex.request.method_name());
        let permissions: Vec<String> = permissions
            .into_iter()
            .map(|permission| match (scope, permission.contains('#')) {
                (false, _) => permission,
                (true, true) => format!("{permission}, {method}"),
                (true, false) => format!("{permission}#{method}"),
            })
            .collect();
        self.decide(ex, &authorization, &permissions).await
    }

    /// The resources that Keycloak has for the path.
    async fn resources(&self, ex: &Exchange<'_>) -> Result<Vec<String>, Refusal> {
        let registration = self.endpoints.resource_registration.as_ref();
        let registration =
            registration.ok_or_else(|| unavailable("Unable to determine registration endpoint."))?;
        let grant = ClientGrant { endpoint: self.token_endpoint()?, config: &self.config };
        let token = self.token.token(&grant, ex.host).await.map_err(|reason| unavailable(&reason))?;
        let path = Var::parse("uri").get(ex).unwrap_or_default();
        let path = String::from_utf8_lossy(&path);
        let mut call = registration.query(Method::Get, &[("uri", &path), ("matchingUri", "true")]);
        call.fields.add("Authorization", format!("Bearer {token}").as_bytes());
        let failed = || {
            let url = registration.describe();
            unavailable(&format!("Accessing resource registration endpoint URL ({url}) failed."))
        };
        let answer = registration.send(ex.host, call).await.map_err(|_| failed())?;
        if answer.status == 401 {
            // The token may have been revoked before its end.
            self.token.forget();
        }
        let document = json_document(&answer).ok_or_else(failed)?;
        serde_json::from_value(document).map_err(|_| failed())
    }

    async fn decide(
        &self,
        ex: &Exchange<'_>,
        authorization: &[u8],
        permissions: &[String],
    ) -> Result<(), Refusal> {
        let endpoint = self.token_endpoint()?;
        let mut form = vec![
            ("grant_type", settings::UMA_TICKET),
            ("audience", &self.config.client_id),
            ("response_mode", "decision"),
        ];
        form.extend(permissions.iter().map(|permission| ("permission", permission.as_str())));
        let mut call = endpoint.request(Method::Post);
        call.fields.add("Content-Type", FORM_TYPE.as_bytes());
        call.fields.add("Authorization", authorization);
        call.body = encode_pairs(&form).into_bytes();
        let answer = endpoint.send(ex.host, call).await.map_err(|_| LocalResponse::status(503))?;
        match answer.status {
            200..=299 if is_granted(&answer) => Ok(()),
            403 => Err(self.denied(passed_on(answer))),
            400..=599 => Err(passed_on(answer)),
            // Neither a redirect nor an unreadable document is a decision.
            _ => Err(LocalResponse::status(503)),
        }
    }

    /// The response to a request that is denied for good.
    fn denied(&self, response: LocalResponse) -> Refusal {
        match &self.config.access_denied_redirect_uri {
            Some(uri) => LocalResponse::status(307).field("Location", uri),
            None => response,
        }
    }

    async fn answer<'a>(&self, ex: &mut Exchange<'_>) -> Step<'a> {
        let ex: &Exchange<'_> = ex;
        let answer = match self.is_password_grant(ex) {
            true => self.grant_by_password(ex).await.map(Some),
            false => self.evaluate(ex).await.map(|()| None),
        };
        match answer {
            Ok(None) => Step::Continue,
            Ok(Some(response)) | Err(response) => Step::Respond(response),
        }
    }
}

/// Whether a decision grants: `{"result": true}`, or an access token of an older Keycloak.
fn is_granted(answer: &SubrequestResponse) -> bool {
    json_document(answer).is_some_and(|document| {
        let result = document.get("result").and_then(Value::as_bool);
        result.unwrap_or_else(|| document.get("access_token").is_some_and(Value::is_string))
    })
}

fn not_authorized() -> Value {
    serde_json::json!({ "error": "access_denied", "error_description": "not_authorized" })
}

fn unavailable(reason: &str) -> Refusal {
    LocalResponse::status(503).body(reason.to_owned())
}

/// The response of Keycloak to the client.
fn passed_on(answer: SubrequestResponse) -> LocalResponse {
    let mut response = LocalResponse::status(answer.status);
    for name in ["Content-Type", "WWW-Authenticate", "Cache-Control"] {
        for value in answer.fields.all(name) {
            response.fields_mut().add(name, value);
        }
    }
    response.body(answer.body.unwrap_or_default())
}

impl Plugin for AuthzKeycloak {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let bytes_max = self.config.max_req_body_size;
        if self.is_password_grant(ex) && ex.lacks_body(bytes_max) {
            return Step::NeedBody { bytes_max };
        }
        Step::Wait(Box::pin(self.answer(ex)))
    }

    fn dry_run(&self, _: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        let endpoint = match self.token_endpoint() {
            Ok(endpoint) => endpoint.describe(),
            Err(refusal) => return DryRunResult::Refuse(refusal, self.endpoints.missing_note().into()),
        };
        if self.is_password_grant(ex) {
            return DryRunResult::Note(format!("sends user name and password to {endpoint}").into());
        }
        match Self::authorization(ex) {
            Err(refusal) => DryRunResult::Respond(refusal),
            Ok(_) => DryRunResult::Note(format!("depends on the decision of {endpoint}").into()),
        }
    }
}
