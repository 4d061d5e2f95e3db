//! `authz-casdoor`: logs users in by the authorization code flow of Casdoor.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, PluginBuildContext, PluginFactory,
    PluginHost, Step, Var,
};

use crate::auth::same_secret;
use crate::code_login::{LOGIN_S, SealedCookie, new_state, return_target};
use crate::query::{QueryArgument, argument};
use crate::service::{ServiceConnection, ServiceTarget, ServiceUrl, encode_pairs, json_document};
use crate::session::CookiePurpose;

#[cfg(test)]
mod tests;

/// Time limit of the exchange of a code in milliseconds.
const TIMEOUT_MS: u64 = 6000;

/// Settings of `authz-casdoor`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("encrypt_fields" = ["client_secret"]))]
pub(crate) struct CasdoorSettings {
    /// URL of Casdoor, without a slash at its end.
    #[schemars(regex(pattern = r"^[^%?]+[^/]$"))]
    endpoint_addr: String,
    /// Client id of the application.
    client_id: String,
    /// Client secret of the application. The keys of the cookies derive from it.
    client_secret: String,
    /// Absolute URL of a path of the route, to which Casdoor sends users back.
    #[schemars(regex(pattern = r"^[^%?]+[^/]$"))]
    callback_url: String,
}

/// The compiled settings.
pub(crate) struct AuthzCasdoor {
    config: CasdoorSettings,
    callback_path: String,
    token: ServiceTarget,
    session: SealedCookie,
    login: SealedCookie,
}

/// A login in progress.
#[derive(Serialize, Deserialize)]
struct CasdoorLogin {
    state: String,
    /// Path and query of the request that began it.
    target: String,
}

/// A session; the cookie has its end.
#[derive(Serialize, Deserialize)]
struct CasdoorSession {
    client_id: String,
}

impl PluginFactory for AuthzCasdoor {
    const NAME: &'static str = "authz-casdoor";
    const PRIORITY: i32 = 2559;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = CasdoorSettings;

    fn build(config: CasdoorSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let how = ServiceConnection::new(Self::NAME, TIMEOUT_MS, true);
        ServiceUrl::parse("endpoint_addr", &config.endpoint_addr)?;
        ServiceUrl::parse("callback_url", &config.callback_url)?;
        let path = config.callback_url.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
        let Some((_, path)) = path else {
            return Err(InvalidSettings::at("callback_url", "a URL with a path is required"));
        };
        let callback_path = format!("/{path}");
        let url = format!("{}/api/login/oauth/access_token", config.endpoint_addr);
        // Sessions of another application do not open.
        let secret = format!("{} {} {}", config.endpoint_addr, config.client_id, config.client_secret);
        let cookie = |name, purpose| SealedCookie::new(name, purpose, [secret.as_str()]);
        Ok(AuthzCasdoor {
            token: ServiceTarget::of_setting("endpoint_addr", &url, &how, setup.objects)?,
            session: cookie("casdoor_session", CookiePurpose::Session),
            login: cookie("casdoor_login", CookiePurpose::LoginState),
            callback_path,
            config,
        })
    }
}

/// The next step of a request.
enum CasdoorStep {
    Admit,
    Respond(LocalResponse),
    /// The code must be exchanged.
    Exchange {
        code: String,
        target: String,
    },
}

impl AuthzCasdoor {
    fn step(&self, ex: &Exchange<'_>) -> CasdoorStep {
        let path = Var::parse("uri").get(ex).unwrap_or_default();
        if *path == *self.callback_path.as_bytes() {
            return self.callback(ex);
        }
        let session: Option<CasdoorSession> = self.session.read(ex);
        match session.filter(|session| session.client_id == self.config.client_id) {
            Some(_) => CasdoorStep::Admit,
            None => CasdoorStep::Respond(self.begin_login(ex)),
        }
    }

    fn callback(&self, ex: &Exchange<'_>) -> CasdoorStep {
        let Some(login) = self.login.read::<CasdoorLogin>(ex) else {
            // The status of APISIX for a callback without a session.
            return CasdoorStep::Respond(LocalResponse::status(503));
        };
        let query = ex.request.query().unwrap_or_default();
        let refused = |reason: &str| CasdoorStep::Respond(LocalResponse::status(400).body(reason.to_owned()));
        let (QueryArgument::One(code), QueryArgument::One(state)) =
            (argument(query, b"code"), argument(query, b"state"))
        else {
            return refused("failed when accessing token. Invalid code or state");
        };
        if !same_secret(&state, login.state.as_bytes()) {
            return refused("invalid state");
        }
        match String::from_utf8(code.into_owned()) {
            Ok(code) if !code.is_empty() => CasdoorStep::Exchange { code, target: login.target },
            _ => refused("invalid code"),
        }
    }

    /// Sends the user to Casdoor.
    fn begin_login(&self, ex: &Exchange<'_>) -> LocalResponse {
        let state = new_state(ex);
        let query = encode_pairs(&[
            ("response_type", "code"),
            ("scope", "read"),
            ("state", &state),
            ("client_id", &self.config.client_id),
            ("redirect_uri", &self.config.callback_url),
        ]);
        let login = CasdoorLogin { state, target: return_target(ex) };
        let Some(cookie) = self.login.write(ex, &login, LOGIN_S) else { return LocalResponse::status(503) };
        LocalResponse::status(302)
            .field("Location", format!("{}/login/oauth/authorize?{query}", self.config.endpoint_addr))
            .field("Set-Cookie", cookie)
            .field("Cache-Control", "no-store")
    }

    /// The lifetime of the access token for a code, in seconds.
    async fn exchange(&self, host: &dyn PluginHost, code: &str) -> Option<u64> {
        let mut call = self.token.form(&[
            ("code", code),
            ("grant_type", "authorization_code"),
            ("client_id", &self.config.client_id),
            ("client_secret", &self.config.client_secret),
        ]);
        // A code is valid once (RFC 6749 §4.1.2).
        call.may_repeat = false;
        let answer = self.token.send(host, call).await.ok()?;
        let document = json_document(&answer)?;
        document.get("access_token").and_then(Value::as_str).filter(|token| !token.is_empty())?;
        // Casdoor reports an invalid code by a lifetime of 0.
        document.get("expires_in").and_then(Value::as_u64).filter(|seconds| *seconds > 0)
    }

    async fn finish(&self, ex: &Exchange<'_>, code: &str, target: &str) -> LocalResponse {
        let unavailable = || LocalResponse::status(503);
        let Some(lifetime_s) = self.exchange(ex.host, code).await else { return unavailable() };
        let session = CasdoorSession { client_id: self.config.client_id.clone() };
        let Some(cookie) = self.session.write(ex, &session, lifetime_s) else { return unavailable() };
        LocalResponse::status(302)
            .field("Location", target)
            .field("Set-Cookie", cookie)
            .field("Set-Cookie", self.login.clear(ex))
            .field("Cache-Control", "no-store")
    }

    async fn wait<'a>(&self, ex: &mut Exchange<'_>, code: String, target: String) -> Step<'a> {
        Step::Respond(self.finish(ex, &code, &target).await)
    }
}

impl Plugin for AuthzCasdoor {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        match self.step(ex) {
            CasdoorStep::Admit => Step::Continue,
            CasdoorStep::Respond(response) => Step::Respond(response),
            CasdoorStep::Exchange { code, target } => Step::Wait(Box::pin(self.wait(ex, code, target))),
        }
    }

    fn dry_run(&self, _: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        match self.step(ex) {
            CasdoorStep::Admit => DryRunResult::Continue,
            CasdoorStep::Respond(response) => DryRunResult::Respond(response),
            CasdoorStep::Exchange { .. } => {
                DryRunResult::Note(format!("depends on {}", self.token.describe()).into())
            }
        }
    }
}
