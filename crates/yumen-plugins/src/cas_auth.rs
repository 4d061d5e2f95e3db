//! `cas-auth`: logs users in by a server of the Central Authentication Service (CAS 2.0 and 3.0).
//!
//! A ticket of the server becomes a session of the node. The server ends the session by a logout request, which names
//! the ticket.

mod login_state;
pub(crate) mod messages;
mod sessions;

use std::sync::Arc;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, ExternalUser, LocalResponse, Method, PhaseSet, Plugin,
    PluginBuildContext, PluginFactory, Step, SubrequestFault, SubrequestResponse, Var,
};

use crate::auth::{remove_consumer_fields, same_secret};
use crate::query::{QueryArgument, argument};
use crate::service::{ServiceConnection, ServiceTarget, ServiceUrl, encode_pairs};
use login_state::{CasLogin, LoginStateCookie};
use sessions::{CasSessionId, CasSessions};

#[cfg(test)]
mod tests;

/// Cookie with the session.
const SESSION_COOKIE: &str = "CAS_SESSION";
/// Time limit of the validation of a ticket in milliseconds.
const TIMEOUT_MS: u64 = 6000;

/// Settings of `cas-auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("encrypt_fields" = ["cookie.secret"]))]
pub(crate) struct CasAuthSettings {
    /// URL of the CAS server, without `/login`.
    idp_uri: String,
    /// Path to which the server sends users back, or the absolute URL of this path as users see it. The path requires a
    /// route with hosts. The CAS server must know the URL as a service, with `?state=` and any value behind it.
    cas_callback_uri: String,
    /// Path that ends the session of the user.
    logout_uri: String,
    /// Cookies of the session and of a login in progress.
    cookie: CasCookieSettings,
    /// Largest logout request of the server in bytes, at most 64 KiB.
    #[serde(default = "body_bytes_max")]
    #[schemars(range(min = 1))]
    max_req_body_size: usize,
}

/// Settings of the cookies.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct CasCookieSettings {
    /// Secret that signs the cookies.
    #[schemars(length(min = 32))]
    secret: String,
    /// Whether browsers send the cookies over https only.
    #[serde(default = "yes")]
    secure: bool,
    /// Whether the cookies are sent with requests that other sites cause: `Lax` for links only. `None` requires `secure`.
    #[serde(default)]
    samesite: CasSameSite,
}

/// Values of the cookie attribute `SameSite`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(inline)]
enum CasSameSite {
    #[default]
    Lax,
    None,
}

fn yes() -> bool {
    true
}

fn body_bytes_max() -> usize {
    messages::BYTES_MAX
}

/// The compiled settings.
pub(crate) struct CasAuth {
    idp_uri: String,
    validation: ServiceTarget,
    /// The path of the callback.
    callback_path: String,
    /// The callback as an absolute URL, if it is set as one.
    callback_url: Option<String>,
    logout_path: String,
    /// Attributes of the cookies.
    attributes: &'static str,
    secret: String,
    body_bytes_max: usize,
    sessions: Arc<CasSessions>,
}

impl PluginFactory for CasAuth {
    const NAME: &'static str = "cas-auth";
    const PRIORITY: i32 = 2597;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = CasAuthSettings;

    fn build(config: CasAuthSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let idp_uri = config.idp_uri.trim_end_matches('/').to_owned();
        if idp_uri.contains('?') {
            return Err(InvalidSettings::at("idp_uri", "a URL without a query is required"));
        }
        let how = ServiceConnection::new(Self::NAME, TIMEOUT_MS, true);
        ServiceUrl::parse("idp_uri", &idp_uri)?;
        let validation =
            ServiceTarget::of_setting("idp_uri", &format!("{idp_uri}/serviceValidate"), &how, setup.objects)?;
        let (callback_path, callback_url) = callback(&config.cas_callback_uri)?;
        if callback_url.is_none() {
            let message = "the service has the host of the request, so a route of any host refuses logins: the operator of \
                           another service of this CAS server could use the tickets of its users here";
            setup.warn(
                "cas_callback_uri",
                message,
                "write the absolute URL, such as https://shop.example.com/callback",
            );
        }
        // A CAS server admits users by service, and the secret separates applications.
        let owner = format!(
            "{} {idp_uri} {} {}",
            Self::NAME,
            config.cas_callback_uri,
            digest_of(&config.cookie.secret)
        );
        if !is_path(&config.logout_uri) {
            return Err(InvalidSettings::at("logout_uri", "not a path such as /logout"));
        }
        let attributes = match (config.cookie.secure, config.cookie.samesite) {
            (true, CasSameSite::Lax) => "; Path=/; HttpOnly; Secure; SameSite=Lax",
            (false, CasSameSite::Lax) => "; Path=/; HttpOnly; SameSite=Lax",
            (true, CasSameSite::None) => "; Path=/; HttpOnly; Secure; SameSite=None",
            // Browsers refuse such a cookie, so that every login would begin again.
            (false, CasSameSite::None) => {
                return Err(InvalidSettings::at("cookie.samesite", "None requires \"secure\": true"));
            }
        };
        Ok(CasAuth {
            sessions: setup.carry.keep(&owner, CasSessions::default),
            idp_uri,
            validation,
            callback_path,
            callback_url,
            logout_path: config.logout_uri,
            attributes,
            secret: config.cookie.secret,
            body_bytes_max: config.max_req_body_size.min(messages::BYTES_MAX),
        })
    }
}

/// A digest that names a secret without revealing it.
fn digest_of(secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, secret.as_bytes()))
}

/// Path and absolute form of the callback.
fn callback(written: &str) -> Result<(String, Option<String>), InvalidSettings> {
    const PATH: &str = "cas_callback_uri";
    if is_path(written) {
        return Ok((written.to_owned(), None));
    }
    ServiceUrl::parse(PATH, written)?;
    let path = written.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]));
    match path.filter(|path| is_path(path)) {
        Some(path) => Ok((path.to_owned(), Some(written.to_owned()))),
        None => Err(InvalidSettings::at(PATH, "not a path such as /callback, nor a URL with one")),
    }
}

/// Whether a text is the path of a URL, without a query.
fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#')
}

/// The next step of a request.
enum CasStep {
    /// The user is logged in.
    Admit(Box<str>),
    Respond(LocalResponse),
    /// The body, which is a logout request.
    ReadLogout,
    /// The ticket must be validated.
    Validate {
        ticket: String,
        service: String,
        login: CasLogin,
    },
}

impl CasAuth {
    fn step(&self, ex: &Exchange<'_>) -> CasStep {
        let method = ex.request.client_method();
        let path = Var::parse("uri").get(ex).unwrap_or_default();
        let is_at = |wanted: &str| *path == *wanted.as_bytes();
        let session = self.session_of(ex);
        if method == Method::Get && is_at(&self.logout_path) {
            return CasStep::Respond(self.logout(session));
        }
        if method == Method::Post && is_at(&self.callback_path) {
            return CasStep::ReadLogout;
        }
        let now_ms = ex.now.mono_ms();
        if let Some(user) = session.and_then(|id| self.sessions.user(&id, now_ms)) {
            return CasStep::Admit(user);
        }
        let ticket = argument(ex.request.query().unwrap_or_default(), b"ticket");
        let QueryArgument::One(ticket) = ticket else { return CasStep::Respond(self.login(ex)) };
        if !is_at(&self.callback_path) {
            return CasStep::Respond(self.login(ex));
        }
        // A ticket without the state of this browser is of a link that another user has prepared, so that this user works
        // in the account of the other.
        let is_own = |login: &CasLogin| {
            let state = argument(ex.request.query().unwrap_or_default(), b"state");
            matches!(state, QueryArgument::One(state) if same_secret(&state, login.state.as_bytes()))
        };
        let Some(login) = LoginStateCookie::read(ex, &self.secret).filter(is_own) else {
            return CasStep::Respond(invalid_ticket());
        };
        match self.service_url(ex, &login.state) {
            None => CasStep::Respond(any_host()),
            Some(service) => {
                CasStep::Validate { ticket: String::from_utf8_lossy(&ticket).into_owned(), service, login }
            }
        }
    }

    fn session_of(&self, ex: &Exchange<'_>) -> Option<CasSessionId> {
        CasSessionId::from_cookie(ex.request.cookie(SESSION_COOKIE.as_bytes())?)
    }

    fn session_id(&self, ticket: &str) -> CasSessionId {
        CasSessionId::of_ticket(&self.secret, &self.idp_uri, ticket)
    }

    /// The URL to which the server sends users back; `None` if the client could choose its host.
    fn service_url(&self, ex: &Exchange<'_>, state: &str) -> Option<String> {
        if let Some(url) = &self.callback_url {
            return Some(format!("{url}?state={state}"));
        }
        // With a free host, the operator of another service of the CAS server could use the tickets of its users here.
        if matches!(ex.route.host, "" | "*") {
            return None;
        }
        let host = String::from_utf8_lossy(ex.request.host());
        let port = Var::parse("server_port").get(ex).unwrap_or_default();
        let port = String::from_utf8_lossy(&port);
        Some(format!("{}://{host}:{port}{}?state={state}", ex.client.scheme(), self.callback_path))
    }

    /// Sends the user to the server.
    fn login(&self, ex: &Exchange<'_>) -> LocalResponse {
        let login = LoginStateCookie::begin(ex, &self.secret);
        let Some(service) = self.service_url(ex, &login.state) else { return any_host() };
        let query = encode_pairs(&[("service", &service)]);
        let state = LoginStateCookie::write(&login, ex, &self.secret);
        let mut response =
            LocalResponse::status(302).field("Location", format!("{}/login?{query}", self.idp_uri));
        if ex.request.cookie(SESSION_COOKIE.as_bytes()).is_some() {
            response = response.field("Set-Cookie", self.removed(SESSION_COOKIE));
        }
        let cookie = format!("{}={state}{}", LoginStateCookie::NAME, self.attributes);
        response.field("Set-Cookie", cookie).field("Cache-Control", "no-store")
    }

    fn logout(&self, session: Option<CasSessionId>) -> LocalResponse {
        let Some(session) = session else { return LocalResponse::status(401) };
        self.sessions.remove(&session);
        LocalResponse::status(302)
            .field("Location", format!("{}/logout", self.idp_uri))
            .field("Set-Cookie", self.removed(SESSION_COOKIE))
            .field("Cache-Control", "no-store")
    }

    fn removed(&self, cookie: &str) -> String {
        format!("{cookie}=deleted; Max-Age=0{}", self.attributes)
    }

    /// Ends the session that a logout request of the server names (CAS 3.0 §2.3.3).
    fn single_logout(&self, ex: &Exchange<'_>) -> LocalResponse {
        let body = ex.body.buffered.as_deref().unwrap_or_default();
        match messages::logged_out_ticket(body) {
            None => LocalResponse::message(400, "invalid logout request from IdP, no ticket"),
            Some(ticket) => {
                self.sessions.remove(&self.session_id(&ticket));
                LocalResponse::status(200)
            }
        }
    }

    fn validate(
        &self,
        ex: &Exchange<'_>,
        ticket: &str,
        service: &str,
    ) -> LocalFuture<'static, Result<SubrequestResponse, SubrequestFault>> {
        let mut call = self.validation.query(Method::Get, &[("ticket", ticket), ("service", service)]);
        // A ticket is valid once (CAS 3.0 §3.1.1).
        call.may_repeat = false;
        self.validation.send(ex.host, call)
    }

    /// Begins a session, and sends the user to the first request.
    async fn begin_session(
        &self,
        ex: &Exchange<'_>,
        ticket: &str,
        service: &str,
        login: &CasLogin,
    ) -> LocalResponse {
        let user = match self.validate(ex, ticket, service).await {
            Ok(SubrequestResponse { status: 200, body: Some(body), fault: None, .. }) => {
                messages::validated_user(&body)
            }
            _ => None,
        };
        let Some(user) = user else { return invalid_ticket() };
        let session = self.session_id(ticket);
        self.sessions.insert(&session, &user, ex.host.clock().mono_ms());
        let cookie = format!("{SESSION_COOKIE}={}{}", session.cookie(), self.attributes);
        LocalResponse::status(302)
            .field("Location", &login.target)
            .field("Set-Cookie", cookie)
            .field("Set-Cookie", self.removed(LoginStateCookie::NAME))
            .field("Cache-Control", "no-store")
    }

    async fn wait<'a>(
        &self,
        ex: &Exchange<'_>,
        ticket: String,
        service: String,
        login: CasLogin,
    ) -> Step<'a> {
        Step::Respond(self.begin_session(ex, &ticket, &service, &login).await)
    }
}

fn any_host() -> LocalResponse {
    LocalResponse::message(503, "cas_callback_uri must be an absolute URL on a route of any host")
}

fn invalid_ticket() -> LocalResponse {
    LocalResponse::message(401, "invalid ticket")
}

fn admit(ex: &mut Exchange<'_>, user: Box<str>) {
    remove_consumer_fields(ex);
    let claims = Arc::new(json!({ "user": user }));
    ex.external_user = Some(Box::new(ExternalUser { id: user, claims }));
}

impl Plugin for CasAuth {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        match self.step(ex) {
            CasStep::Admit(user) => {
                admit(ex, user);
                Step::Continue
            }
            CasStep::Respond(response) => Step::Respond(response),
            CasStep::ReadLogout if ex.lacks_body(self.body_bytes_max) => {
                Step::NeedBody { bytes_max: self.body_bytes_max }
            }
            CasStep::ReadLogout => Step::Respond(self.single_logout(ex)),
            CasStep::Validate { ticket, service, login } => {
                Step::Wait(Box::pin(self.wait(ex, ticket, service, login)))
            }
        }
    }

    fn dry_run(&self, _: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        match self.step(ex) {
            CasStep::Admit(user) => {
                admit(ex, user);
                DryRunResult::Continue
            }
            CasStep::Respond(response) => DryRunResult::Respond(response),
            CasStep::ReadLogout => DryRunResult::Note("ends the session that the body names".into()),
            CasStep::Validate { .. } => {
                DryRunResult::Note(format!("depends on {}", self.validation.describe()).into())
            }
        }
    }
}
