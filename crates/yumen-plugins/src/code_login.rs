//! Logins by an authorization code, which the plugin exchanges for the user: sealed cookies, and the steps that the
//! plugins have in common.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    DryRunResult, Exchange, ExternalUser, LocalResponse, PhaseSet, Plugin, PluginBuildContext, PluginHost,
    ResponseHead, ResponseHeadPhase, Step,
};

use crate::auth::{remove_consumer_fields, same_secret};
use crate::cookie_privacy::forbid_sharing;
use crate::query::{QueryArgument, argument, decode};
use crate::service::ServiceConnection;
use crate::session::{CookiePurpose, LoginCookieAttributes, LoginSealKeys};

/// Field with the user for the upstream.
const USER_FIELD: &str = "X-Userinfo";
/// Longest path and query that a login remembers.
const TARGET_BYTES_MAX: usize = 2048;
/// Longest cookie that all browsers keep (RFC 6265 §6.1).
const COOKIE_BYTES_MAX: usize = 4096;
/// Time for a login in seconds.
pub(crate) const LOGIN_S: u64 = 600;
/// Query argument with the state of a login.
const STATE: &str = "state";

/// A cookie whose content is sealed and has an end.
pub(crate) struct SealedCookie {
    keys: LoginSealKeys,
    purpose: CookiePurpose,
    name: &'static str,
    attributes: LoginCookieAttributes,
}

#[derive(Serialize, Deserialize)]
struct SealedContent<T> {
    until_s: u64,
    content: T,
}

/// The secret of one application, from which the key of its cookies derives. Lengths separate the parts.
fn application_secret(secret: &str, owner: [&str; 2]) -> String {
    let [application, endpoint] = owner;
    format!("{}:{application}{}:{endpoint}{secret}", application.len(), endpoint.len())
}

impl SealedCookie {
    /// A cookie whose first secret seals and whose secrets all open.
    pub(crate) fn new<'s>(
        name: &'static str,
        purpose: CookiePurpose,
        secrets: impl IntoIterator<Item = &'s str>,
    ) -> SealedCookie {
        let attributes = LoginCookieAttributes {
            path: "/".to_owned(),
            domain: None,
            secure: None,
            is_http_only: true,
            same_site: "Lax",
        };
        SealedCookie { keys: LoginSealKeys::new(secrets), purpose, name, attributes }
    }

    /// The content, if the cookie is genuine and has not ended.
    pub(crate) fn read<T: DeserializeOwned>(&self, ex: &Exchange<'_>) -> Option<T> {
        let value = ex.request.cookie(self.name.as_bytes())?;
        let (text, _) = self.keys.open(self.purpose, self.name, value).ok()?;
        let sealed: SealedContent<T> = serde_json::from_slice(&text).ok()?;
        (ex.now.unix_s() < sealed.until_s).then_some(sealed.content)
    }

    /// The value of `Set-Cookie` for a content; `None` if browsers would refuse the cookie for its length.
    pub(crate) fn write<T: Serialize>(
        &self,
        ex: &Exchange<'_>,
        content: &T,
        lifetime_s: u64,
    ) -> Option<String> {
        let sealed = SealedContent { until_s: ex.now.unix_s().saturating_add(lifetime_s), content };
        let text = serde_json::to_vec(&sealed).ok()?;
        let mut salt = [0; 16];
        ex.host.fill_random(&mut salt);
        let value = self.keys.seal(self.purpose, self.name, &text, salt)?;
        let line = self.attributes.line(self.name, &value, Some(lifetime_s), is_https(ex));
        (line.len() <= COOKIE_BYTES_MAX).then_some(line)
    }

    /// The value of `Set-Cookie` that removes the cookie.
    pub(crate) fn clear(&self, ex: &Exchange<'_>) -> String {
        self.attributes.line(self.name, "", Some(0), is_https(ex))
    }
}

/// A random state of a login.
pub(crate) fn new_state(ex: &Exchange<'_>) -> String {
    let mut random = [0; 16];
    ex.host.fill_random(&mut random);
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_https(ex: &Exchange<'_>) -> bool {
    ex.client.scheme() == "https"
}

/// The path and query to which a login returns; `/` if a browser would take them as another host.
pub(crate) fn return_target(ex: &Exchange<'_>) -> String {
    let target = ex.request.request_uri();
    let target: &[u8] = if is_local_target(&target) { &target } else { b"/" };
    String::from_utf8_lossy(target).into_owned()
}

/// Whether a browser takes the text as a path of this host: `//host` and `/\host` name other hosts.
pub(crate) fn is_local_target(target: &[u8]) -> bool {
    target.starts_with(b"/")
        && !matches!(target.get(1), Some(b'/' | b'\\'))
        && target.len() <= TARGET_BYTES_MAX
        && target.iter().all(u8::is_ascii_graphic)
}

/// The reason why a provider named no user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeLoginFault {
    /// The provider refused the code.
    Refused,
    /// The provider did not respond as expected.
    Unavailable,
}

/// Settings that plugins of this kind have in common.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CodeLoginSettings {
    /// Secret from which the keys of the cookies derive.
    #[schemars(length(min = 8, max = 32))]
    secret: String,
    /// Former secrets, which still open sessions.
    #[serde(default)]
    #[schemars(inner(length(min = 8, max = 32)))]
    secret_fallbacks: Vec<String>,
    /// URL to which users without session and code are redirected, with a `state` in its query.
    #[schemars(length(min = 1))]
    redirect_uri: String,
    /// Whether a code in the query needs the `state` of a login that this browser has begun. Without it, a link with
    /// the code of another user logs in as that user. A code in the field needs no state. Beyond APISIX.
    #[serde(default = "yes")]
    verify_state: bool,
    /// Whether the upstream gets the user in `X-Userinfo`, as base64 of JSON.
    #[serde(default = "yes")]
    set_userinfo_header: bool,
    /// Lifetime of the session in seconds.
    #[serde(default = "cookie_expires_in")]
    #[schemars(range(min = 1))]
    cookie_expires_in: u64,
    #[serde(flatten)]
    provider: CodeProviderSettings,
}

/// Calls of the provider.
#[derive(Debug, Deserialize, JsonSchema)]
struct CodeProviderSettings {
    /// Time limit of a call in milliseconds.
    #[serde(default = "timeout_ms")]
    #[schemars(range(min = 1))]
    timeout: u64,
    /// Whether the certificate of the provider is verified.
    #[serde(default = "yes")]
    ssl_verify: bool,
}

fn yes() -> bool {
    true
}

fn cookie_expires_in() -> u64 {
    86_400
}

fn timeout_ms() -> u64 {
    6000
}

impl CodeLoginSettings {
    /// The connections of `plugin` to its provider.
    pub(crate) fn connection(&self, plugin: &'static str) -> ServiceConnection {
        ServiceConnection::new(plugin, self.provider.timeout, self.provider.ssl_verify)
    }
}

/// The names of a plugin, of the application whose sessions it makes, and of the places of its codes.
pub(crate) struct CodeLoginNames<'c> {
    pub(crate) session_cookie: &'static str,
    pub(crate) login_cookie: &'static str,
    /// The application at its provider: its id, and the URL of the user information.
    pub(crate) application: [&'c str; 2],
    /// Field with the code.
    pub(crate) code_header: String,
    /// Query argument with the code; used if the field is absent.
    pub(crate) code_query: String,
}

/// The service that exchanges a code for a user.
pub(crate) trait CodeProvider: Send + Sync + 'static {
    /// Members that identify the user.
    const USER_ID: &'static [&'static str];

    /// The user of a code.
    async fn user(&self, host: &dyn PluginHost, code: &str) -> Result<Value, CodeLoginFault>;

    /// The first service that is called.
    fn describe(&self) -> String;
}

/// A plugin that logs users in at one provider.
pub(crate) struct CodeLogin<P> {
    session: SealedCookie,
    /// The cookie of a login in progress; `None` if the settings do without.
    login: Option<SealedCookie>,
    code_header: String,
    code_query: String,
    page: LoginPage,
    sets_user_field: bool,
    /// Lifetime of the session in seconds.
    lifetime_s: u64,
    provider: P,
}

/// A login in progress.
#[derive(Serialize, Deserialize)]
struct CodeLoginState {
    state: String,
}

/// The page that begins a login, with the texts around its state.
#[derive(Debug)]
struct LoginPage {
    /// The URL as written.
    written: String,
    before: String,
    after: String,
}

impl LoginPage {
    /// The page at a URL. A state in its query is replaced, because it would be the same for all browsers.
    fn of(url: &str) -> LoginPage {
        let (rest, fragment) = url.split_at(url.find('#').unwrap_or(url.len()));
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let is_state = |pair: &str| {
            let name = pair.split('=').next().unwrap_or_default();
            *decode(name.as_bytes()) == *STATE.as_bytes()
        };
        let mut before = format!("{path}?");
        for pair in query.split('&').filter(|pair| !pair.is_empty() && !is_state(pair)) {
            before.push_str(pair);
            before.push('&');
        }
        before.push_str("state=");
        LoginPage { written: url.to_owned(), before, after: fragment.to_owned() }
    }
}

/// The first decision about a request.
enum CodeLoginStep {
    /// The session has the user.
    Known(Value),
    /// The code must be exchanged.
    Exchange(String),
    Respond(LocalResponse),
}

/// The cookies of a session that begins with this request.
struct NewSession(Vec<String>);

impl<P: CodeProvider> CodeLogin<P> {
    pub(crate) fn build(
        names: CodeLoginNames<'_>,
        settings: CodeLoginSettings,
        provider: P,
        setup: &PluginBuildContext<'_>,
    ) -> Result<CodeLogin<P>, InvalidSettings> {
        if settings.verify_state && names.code_query == STATE {
            return Err(InvalidSettings::at("code_query", "\"state\" is the argument of the login state"));
        }
        if !settings.verify_state {
            let message = "a link with the code of another user logs in as that user";
            setup.warn("verify_state", message, "remove it if the provider returns the state");
        }
        // A session is that of one application at one provider.
        let secrets = std::iter::once(&settings.secret).chain(&settings.secret_fallbacks);
        let secrets: Vec<String> =
            secrets.map(|secret| application_secret(secret, names.application)).collect();
        let cookie = |name, purpose| SealedCookie::new(name, purpose, secrets.iter().map(String::as_str));
        Ok(CodeLogin {
            session: cookie(names.session_cookie, CookiePurpose::Session),
            login: settings.verify_state.then(|| cookie(names.login_cookie, CookiePurpose::LoginState)),
            code_header: names.code_header,
            code_query: names.code_query,
            page: LoginPage::of(&settings.redirect_uri),
            sets_user_field: settings.set_userinfo_header,
            lifetime_s: settings.cookie_expires_in,
            provider,
        })
    }

    fn step(&self, ex: &mut Exchange<'_>) -> CodeLoginStep {
        // The upstream trusts the field, so that a client must not set it.
        ex.request.fields.remove_equivalent(USER_FIELD);
        remove_consumer_fields(ex);
        if let Some(user) = self.session.read::<Value>(ex) {
            return CodeLoginStep::Known(user);
        }
        let text =
            |code: &[u8]| std::str::from_utf8(code).ok().filter(|code| !code.is_empty()).map(str::to_owned);
        // Another site cannot make a browser send the field.
        if let Some(code) = ex.request.fields.get(&self.code_header) {
            return text(code).map_or_else(|| self.begin(ex), CodeLoginStep::Exchange);
        }
        let query = ex.request.query().unwrap_or_default();
        let code = match argument(query, self.code_query.as_bytes()) {
            QueryArgument::One(code) => text(&code),
            _ => None,
        };
        match code {
            None => self.begin(ex),
            Some(code) if self.is_own_login(ex) => CodeLoginStep::Exchange(code),
            // Another user may have prepared the link, so that this user works in the account of the other.
            Some(_) => CodeLoginStep::Respond(LocalResponse::message(
                401,
                "The login was not begun in this browser, or has expired",
            )),
        }
    }

    /// Whether the state in the query is that of a login that this browser has begun.
    fn is_own_login(&self, ex: &Exchange<'_>) -> bool {
        let Some(cookie) = &self.login else { return true };
        let Some(login) = cookie.read::<CodeLoginState>(ex) else { return false };
        match argument(ex.request.query().unwrap_or_default(), STATE.as_bytes()) {
            QueryArgument::One(state) => same_secret(&state, login.state.as_bytes()),
            _ => false,
        }
    }

    /// Sends the user to the login page.
    fn begin(&self, ex: &Exchange<'_>) -> CodeLoginStep {
        let response = LocalResponse::status(302).field("Cache-Control", "no-store");
        let Some(cookie) = &self.login else {
            return CodeLoginStep::Respond(response.field("Location", &self.page.written));
        };
        // Tabs of a browser share the state, so that each of them may end its login.
        let login =
            cookie.read::<CodeLoginState>(ex).unwrap_or_else(|| CodeLoginState { state: new_state(ex) });
        let location = format!("{}{}{}", self.page.before, login.state, self.page.after);
        match cookie.write(ex, &login, LOGIN_S) {
            None => CodeLoginStep::Respond(LocalResponse::status(503)),
            Some(cookie) => {
                CodeLoginStep::Respond(response.field("Location", location).field("Set-Cookie", cookie))
            }
        }
    }

    /// Passes the user on to the upstream and to later plugins.
    fn admit(&self, ex: &mut Exchange<'_>, user: Value) {
        if self.sets_user_field {
            let text = STANDARD.encode(user.to_string());
            ex.request.fields.set_only(USER_FIELD, text.as_bytes());
        }
        let id = P::USER_ID.iter().find_map(|member| user.get(member)?.as_str()).unwrap_or_default();
        ex.external_user = Some(Box::new(ExternalUser { id: id.into(), claims: Arc::new(user) }));
    }

    /// Exchanges the code. A new session has its cookie in the response.
    async fn wait<'a>(&self, ex: &mut Exchange<'_>, code: String) -> Step<'a> {
        let user = match self.provider.user(ex.host, &code).await {
            Ok(user) => user,
            Err(CodeLoginFault::Refused) => {
                return Step::Respond(LocalResponse::message(401, "Invalid authorization code"));
            }
            Err(CodeLoginFault::Unavailable) => {
                return Step::Respond(LocalResponse::message(503, "The login service is not available"));
            }
        };
        let Some(cookie) = self.session.write(ex, &user, self.lifetime_s) else {
            return Step::Respond(LocalResponse::message(503, "The user information exceeds a cookie"));
        };
        let ended = self.login.as_ref().filter(|login| ex.request.cookie(login.name.as_bytes()).is_some());
        let cookies = std::iter::once(cookie).chain(ended.map(|login| login.clear(ex)));
        ex.leave(NewSession(cookies.collect()));
        self.admit(ex, user);
        Step::Continue
    }
}

impl<P: CodeProvider> Plugin for CodeLogin<P> {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE | PhaseSet::RESPONSE_HEAD
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        match self.step(ex) {
            CodeLoginStep::Known(user) => {
                self.admit(ex, user);
                Step::Continue
            }
            CodeLoginStep::Exchange(code) => Step::Wait(Box::pin(self.wait(ex, code))),
            CodeLoginStep::Respond(response) => Step::Respond(response),
        }
    }

    /// Adds the cookies of a new session to the response, beside those of the upstream.
    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        if let Some(NewSession(cookies)) = ex.note::<NewSession>() {
            forbid_sharing(head);
            cookies.iter().for_each(|cookie| head.fields.add("Set-Cookie", cookie.as_bytes()));
        }
    }

    fn dry_run(&self, _: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        match self.step(ex) {
            CodeLoginStep::Known(user) => {
                self.admit(ex, user);
                DryRunResult::Continue
            }
            CodeLoginStep::Exchange(_) => {
                DryRunResult::Note(format!("depends on {}", self.provider.describe()).into())
            }
            CodeLoginStep::Respond(response) => DryRunResult::Respond(response),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LoginPage, is_local_target};

    #[test]
    fn state_goes_into_the_query_of_the_login_page() {
        fn check(url: &str, expected: &str) {
            let page = LoginPage::of(url);
            assert_eq!(format!("{}S{}", page.before, page.after), expected, "{url}");
        }
        check("/login", "/login?state=S");
        check("https://a.test/x?b=c", "https://a.test/x?b=c&state=S");
        check("https://a.test/x?state=d&b=c&st%61te=e", "https://a.test/x?b=c&state=S");
        check("https://a.test/#/login?a", "https://a.test/?state=S#/login?a");
    }

    #[test]
    fn targets_of_other_hosts_are_not_local() {
        fn check(target: &str, expected: bool) {
            assert_eq!(is_local_target(target.as_bytes()), expected, "{target:?}");
        }
        check("/a?u=//b", true);
        check("/", true);
        for target in ["", "a", "//evil.test", "/\\evil.test", "/\t/evil.test", "/a b", "http://evil.test/"] {
            check(target, false);
        }
        check(&format!("/{}", "a".repeat(2048)), false);
    }
}
