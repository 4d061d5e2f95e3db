//! `openid-connect`: logs users in at an identity provider, and verifies bearer tokens.
//!
//! The control plane fetches the discovery document and the key set. Calls to the endpoints of the provider are
//! subrequests to inline upstreams.

mod backchannel;
mod bearer;
mod callback;
mod checks;
mod client_auth;
mod form;
mod login;
mod logout;
pub mod operator_login;
pub(crate) mod provider;
mod refresh;
mod settings;
mod shared_renewal;
mod tokens;
mod user;

use std::sync::Arc;

use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, ConsumerIndex, DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, PluginBuildContext,
    PluginFactory, ResponseHead, ResponseHeadPhase, Step,
};

use crate::auth::{PassedWithoutCredential, remove_consumer_fields};
use crate::jose::JwsAlgorithm;
use crate::session::{SessionFault, SessionLookup, SessionSettings, SessionStore};
use bearer::BearerChecks;
use checks::ClaimChecks;
use client_auth::{ClientAuthMethod, OidcClient};
use provider::{OidcProvider, ProviderConnection};
use refresh::RefreshFlights;
use settings::{
    ForwardedFieldSettings, LoginSettings, LogoutSettings, OpenidConnectSettings, RenewalSettings,
    UnauthAction,
};
use tokens::SignatureRules;
use user::SessionNeed;

const NAME: &str = "openid-connect";
const ACCESS_TOKEN: &str = "X-Access-Token";
const ID_TOKEN: &str = "X-ID-Token";
const RAW_ID_TOKEN: &str = "X-Raw-ID-Token";
const USERINFO: &str = "X-Userinfo";
const REFRESH_TOKEN: &str = "X-Refresh-Token";
/// End of the path to which the provider sends users, without a `redirect_uri`.
const REDIRECT_SUFFIX: &str = "/.apisix/redirect";

/// The compiled settings.
pub(crate) struct OpenidConnect {
    /// The object with the settings.
    owner: Box<str>,
    client: OidcClient,
    token_method: ClientAuthMethod,
    /// The method for pushed authorization requests, if they are in use.
    pushes: Option<ClientAuthMethod>,
    /// `None` until the discovery document arrives; the plugin is then built again.
    provider: Option<Box<OidcProvider>>,
    bearer: Option<BearerChecks>,
    checks: ClaimChecks,
    signatures: SignatureRules,
    timeout_ms: u64,
    sessions: Option<SessionStore>,
    refreshes: Arc<RefreshFlights>,
    login: LoginSettings,
    logout: LogoutSettings,
    renewal: RenewalSettings,
    fields: ForwardedFieldSettings,
}

impl PluginFactory for OpenidConnect {
    const NAME: &'static str = NAME;
    const PRIORITY: i32 = 2599;
    const VERSION: &'static str = "0.2";
    const ROLE: AccessRole = AccessRole::Guard;
    const AUTHENTICATES: bool = true;
    type Config = OpenidConnectSettings;

    fn build(
        mut settings: OpenidConnectSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<Self, InvalidSettings> {
        check_requirements(&settings)?;
        let token_method = ClientAuthMethod::parse(
            "token_endpoint_auth_method",
            &settings.client.token_endpoint_auth_method,
        )?;
        let pushes = pushed_method(&settings, token_method)?;
        let logs_in = !settings.bearer.bearer_only;
        let connection = ProviderConnection::build(&settings)?;
        let provider = OidcProvider::discover(&settings, &connection, setup.objects)?;
        let discovered = provider.as_ref().and_then(|one| one.metadata.introspection_endpoint.as_ref());
        let bearer = BearerChecks::build(&mut settings, &connection, discovered, setup)?;
        let mut methods: Vec<ClientAuthMethod> = Vec::new();
        methods.extend(logs_in.then_some(token_method));
        methods.extend(pushes);
        methods.extend(bearer.as_ref().and_then(BearerChecks::auth_method));
        let client = OidcClient::build(&mut settings, &methods)?;
        let signatures = SignatureRules {
            slack_s: settings.id_token.iat_slack,
            allowed: algorithms(settings.bearer.token_signing_alg_values_expected.as_deref())?,
            accept_none: settings.id_token.accept_none_alg,
            accept_unsupported: settings.id_token.accept_unsupported_alg,
        };
        warn_of_settings(&settings, setup);
        let checks = ClaimChecks::build(&mut settings.checks)?;
        let sessions = settings.session.take().filter(|_| logs_in);
        Ok(OpenidConnect {
            owner: setup.owner.into(),
            client,
            token_method,
            pushes,
            provider: provider.map(Box::new),
            bearer,
            checks,
            signatures,
            timeout_ms: connection.timeout_ms(),
            sessions: sessions.map(|session| build_sessions(session, &settings.logout, setup)).transpose()?,
            refreshes: setup.carry.keep("openid-connect/refreshes", RefreshFlights::default),
            login: settings.login,
            logout: settings.logout,
            renewal: settings.renewal,
            fields: settings.fields,
        })
    }
}

/// The sessions. A provider that ends them needs a store.
fn build_sessions(
    session: SessionSettings,
    logout: &LogoutSettings,
    setup: &PluginBuildContext<'_>,
) -> Result<SessionStore, InvalidSettings> {
    let sessions = session.build(setup)?;
    let Some(path) = &logout.backchannel_logout_path else { return Ok(sessions) };
    const PATH: &str = "backchannel_logout_path";
    if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?') {
        return Err(InvalidSettings::at(PATH, "not a path such as /backchannel-logout"));
    }
    let message = "a session in a cookie cannot be ended by the provider; set session.storage to redis";
    sessions.indexed().ok_or_else(|| InvalidSettings::at(PATH, message))
}

/// Requirements between settings, with the messages of APISIX.
fn check_requirements(settings: &OpenidConnectSettings) -> Result<(), InvalidSettings> {
    for name in settings.others.keys() {
        let nested = ["par", "dpop"].iter().find_map(|group| {
            let rest = name.strip_prefix(group)?.strip_prefix('_')?;
            Some(format!("{group}.{rest}"))
        });
        let nested = match name.as_str() {
            "use_par" => Some("par.enabled".to_owned()),
            "use_dpop" => Some("dpop.enabled".to_owned()),
            _ => nested,
        };
        if let Some(nested) = nested {
            return Err(InvalidSettings::at(name, format!("unknown setting; write \"{nested}\" instead")));
        }
    }
    if settings.login.dpop.as_ref().is_some_and(|dpop| dpop.enabled) {
        let message = "proof of possession is not supported; remove it or set it to false";
        return Err(InvalidSettings::at("dpop.enabled", message));
    }
    let bearer = &settings.bearer;
    if !bearer.bearer_only && settings.session.is_none() {
        let message = "property \"session.secret\" is required when \"bearer_only\" is false";
        return Err(InvalidSettings::new(message));
    }
    let verifies_itself = bearer.bearer_only && (bearer.public_key.is_some() || bearer.use_jwks);
    let has_other_proof = verifies_itself
        || settings.client.token_endpoint_auth_method == "private_key_jwt"
        || settings.login.use_pkce;
    if settings.provider.client_secret.is_none() && !has_other_proof {
        return Err(InvalidSettings::new("property \"client_secret\" is required"));
    }
    for (path, url) in [
        ("redirect_uri", &settings.login.redirect_uri),
        ("post_logout_redirect_uri", &settings.logout.post_logout_redirect_uri),
    ] {
        let is_place = |url: &String| {
            let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic());
            let is_path = url.starts_with('/') && !url.starts_with("//") && !url.starts_with("/\\");
            is_plain && (is_path || url.starts_with("http://") || url.starts_with("https://"))
        };
        if url.as_ref().is_some_and(|url| !is_place(url)) {
            return Err(InvalidSettings::at(path, "not an http or https URL or a path such as /callback"));
        }
    }
    Ok(())
}

/// The method for pushed authorization requests, if they are in use.
fn pushed_method(
    settings: &OpenidConnectSettings,
    token_method: ClientAuthMethod,
) -> Result<Option<ClientAuthMethod>, InvalidSettings> {
    let par = settings.login.par.as_ref();
    let Some(par) = par.filter(|par| par.enabled && !settings.bearer.bearer_only) else { return Ok(None) };
    match &par.endpoint_auth_method {
        None => Ok(Some(token_method)),
        Some(name) => ClientAuthMethod::parse("par.endpoint_auth_method", name).map(Some),
    }
}

/// The allowed signature algorithms.
fn algorithms(written: Option<&str>) -> Result<Vec<JwsAlgorithm>, InvalidSettings> {
    let names = written.unwrap_or_default().split([' ', ',']).filter(|name| !name.is_empty());
    let algorithm = |name: &str| {
        let path = "token_signing_alg_values_expected";
        JwsAlgorithm::of(name)
            .ok_or_else(|| InvalidSettings::at(path, format!("unknown signature algorithm \"{name}\"")))
    };
    names.map(algorithm).collect()
}

/// Warns about settings without effect, and about those that accept more than users may expect.
fn warn_of_settings(settings: &OpenidConnectSettings, setup: &PluginBuildContext<'_>) {
    for name in ["client_id", "response_type", "redirect_uri", "state", "nonce", "code_challenge"] {
        let params = settings.login.authorization_params.as_ref();
        if params.is_some_and(|params| params.contains_key(name)) {
            let path = format!("authorization_params.{name}");
            setup.warn(&path, "has no effect: the gateway sets this parameter itself", "remove it");
        }
    }
    let verifies_itself = settings.bearer.use_jwks || settings.bearer.public_key.is_some();
    if verifies_itself && !settings.checks.selects_tokens() {
        let path = "claim_validator.audience.match_with_client_id";
        let message = "bearer tokens are accepted that the provider has issued for other applications";
        setup.warn(path, message, "set it to true, or set required_scopes or claim_schema");
    }
    if settings.id_token.accept_none_alg {
        let message = "ID tokens without a signature are accepted from the token endpoint";
        setup.warn("accept_none_alg", message, "remove it if the provider signs its ID tokens");
    }
}

/// Fields by which the upstream knows a user.
const IDENTITY_FIELDS: [&str; 5] = [ACCESS_TOKEN, USERINFO, ID_TOKEN, REFRESH_TOKEN, RAW_ID_TOKEN];

/// Removes the fields by which the upstream knows a user, and those that an application may equate with them.
fn remove_identity(ex: &mut Exchange<'_>) {
    ex.request.fields.remove_all_equivalent(&IDENTITY_FIELDS);
    remove_consumer_fields(ex);
}

impl OpenidConnect {
    /// Removes the fields by which the upstream knows a user, and returns the access token of the client.
    fn take_identity(&self, ex: &mut Exchange<'_>) -> Option<String> {
        let token = ex.request.fields.get(ACCESS_TOKEN);
        let token = token.map(|token| String::from_utf8_lossy(token).into_owned());
        remove_identity(ex);
        token
    }

    /// Lets a request pass without a user. A bearer token that is not verified is removed if the upstream takes
    /// `Authorization` for that of the gateway.
    fn pass_without_user(&self, ex: &mut Exchange<'_>) {
        ex.leave(PassedWithoutCredential);
        let access = &self.fields.access;
        if access.set_access_token_header && access.access_token_in_authorization_header {
            ex.request.fields.remove_equivalent("Authorization");
        }
    }

    fn add_access_token(&self, token: &str, fields: &mut Vec<(&'static str, Vec<u8>)>) {
        let access = &self.fields.access;
        match (access.set_access_token_header, access.access_token_in_authorization_header) {
            (false, _) => {}
            (true, true) => fields.push(("Authorization", format!("Bearer {token}").into_bytes())),
            (true, false) => fields.push((ACCESS_TOKEN, token.as_bytes().to_vec())),
        }
    }
}

/// 503: the gateway cannot decide without the provider.
fn unavailable(reason: &str) -> LocalResponse {
    LocalResponse::message(503, reason)
}

fn session_failure(fault: SessionFault) -> LocalResponse {
    match fault {
        SessionFault::StorageUnavailable => {
            LocalResponse::message(503, "the session storage is not available")
        }
        SessionFault::TooLarge => {
            let message = "the session needs more than eight cookies: set session.storage to redis";
            LocalResponse::message(500, message)
        }
        SessionFault::Ended => LocalResponse::message(401, "the session has ended"),
    }
}

impl Plugin for OpenidConnect {
    fn phases(&self) -> PhaseSet {
        match self.sessions.is_some() {
            true => PhaseSet::REWRITE | PhaseSet::RESPONSE_HEAD,
            false => PhaseSet::REWRITE,
        }
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let remembered = self.take_identity(ex);
        let given = match self.find_bearer(ex, remembered.as_deref()) {
            Err(refusal) => return Step::Respond(refusal),
            Ok(None) => return self.session_step(ex),
            // Most tokens come again, and are not copied.
            Ok(Some(found)) => match self.known_bearer(ex, &found) {
                Some(known) => {
                    known.identity.apply(ex);
                    return Step::Continue;
                }
                None => found.copied(),
            },
        };
        self.bearer_step(ex, given)
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        self.add_cookies(ex, head);
    }

    fn vouched_fields<'s>(&'s self, _: &'s ConsumerIndex) -> Vec<&'s str> {
        let access = &self.fields.access;
        let is_authorization = access.set_access_token_header && access.access_token_in_authorization_header;
        IDENTITY_FIELDS.into_iter().chain(is_authorization.then_some("Authorization")).collect()
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        if phase != PhaseSet::REWRITE {
            return DryRunResult::Continue;
        }
        let remembered = self.take_identity(ex);
        let given = match self.find_bearer(ex, remembered.as_deref()) {
            Err(refusal) => return DryRunResult::Respond(refusal),
            Ok(None) => return self.foresee_session(ex),
            Ok(Some(found)) => found.copied(),
        };
        match self.foresee_bearer(ex, &given) {
            Some(Step::Respond(refusal)) => DryRunResult::Respond(refusal),
            Some(_) => DryRunResult::Note("the bearer token is valid".into()),
            None => DryRunResult::Note("depends on the introspection endpoint".into()),
        }
    }
}

impl OpenidConnect {
    /// The effect on a request without a bearer token, without calls and without random values.
    fn foresee_session(&self, ex: &mut Exchange<'_>) -> DryRunResult {
        let Some(sessions) = &self.sessions else { return DryRunResult::Respond(LocalResponse::status(401)) };
        let Some(provider) = self.provider.as_deref() else {
            let reason = "the discovery document of the identity provider is not available";
            return DryRunResult::Respond(unavailable(reason));
        };
        let path = ex.request.raw_path();
        if self.is_callback(path) {
            return DryRunResult::Note("ends a login at the identity provider".into());
        }
        if path == self.logout.logout_path.as_bytes() {
            return DryRunResult::Note("ends the session".into());
        }
        if self.is_backchannel_logout(ex) {
            return DryRunResult::Note("ends the sessions that the logout token names".into());
        }
        match sessions.find(ex) {
            SessionLookup::Found(opened)
                if self.need_of(provider, &opened.session, ex.now.unix_s()) == SessionNeed::Nothing =>
            {
                match self.authorize(&opened, ex) {
                    Step::Respond(refusal) => DryRunResult::Respond(refusal),
                    _ => DryRunResult::Note("the session is valid".into()),
                }
            }
            SessionLookup::Found(_) => DryRunResult::Note("depends on the identity provider".into()),
            SessionLookup::Stored(_) => DryRunResult::Note("depends on the session in Redis".into()),
            SessionLookup::Absent | SessionLookup::Invalid(_) => match self.login.unauth_action {
                UnauthAction::Pass => {
                    self.pass_without_user(ex);
                    DryRunResult::Note("passes without a user".into())
                }
                UnauthAction::Deny => DryRunResult::Respond(LocalResponse::status(401)),
                UnauthAction::Auth => {
                    let endpoint = provider.metadata.authorization_endpoint.as_deref().unwrap_or_default();
                    DryRunResult::Respond(LocalResponse::status(302).field("Location", endpoint))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests;
