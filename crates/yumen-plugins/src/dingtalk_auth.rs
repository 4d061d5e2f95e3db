//! `dingtalk-auth`: logs users in by an authorization code of DingTalk.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, PhaseSet, Plugin, PluginBuildContext, PluginFactory, PluginHost,
    ResponseHead, ResponseHeadPhase, Step,
};

use crate::code_login::{
    CodeLogin, CodeLoginFault, CodeLoginStep, SealedCookie, add_cookie, application_secret,
};
use crate::service::{ServiceConnection, ServiceTarget, add_arguments, provider_document};
use crate::session::CookiePurpose;

#[cfg(test)]
mod tests;

/// Members that identify the user.
const USER_ID: &[&str] = &["userid", "unionid"];

/// Settings of `dingtalk-auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("encrypt_fields" = ["app_secret", "secret", "secret_fallbacks"]))]
pub(crate) struct DingtalkAuthSettings {
    /// Key of the application.
    #[schemars(length(min = 1))]
    app_key: String,
    /// Secret of the application.
    #[schemars(length(min = 1))]
    app_secret: String,
    /// Secret from which the key of the session cookie derives.
    #[schemars(length(min = 8, max = 32))]
    secret: String,
    /// Former secrets, which still open sessions.
    #[serde(default)]
    #[schemars(inner(length(min = 8, max = 32)))]
    secret_fallbacks: Vec<String>,
    /// Field that carries the code.
    #[serde(default = "code_header")]
    #[schemars(length(min = 1))]
    code_header: String,
    /// Query argument that carries the code; used if the field is absent.
    #[serde(default = "code_query")]
    #[schemars(length(min = 1))]
    code_query: String,
    /// URL to which users without session and code are redirected.
    #[schemars(length(min = 1))]
    redirect_uri: String,
    /// URL of the token endpoint.
    #[serde(default = "access_token_url")]
    #[schemars(length(min = 1))]
    access_token_url: String,
    /// URL of the user information.
    #[serde(default = "userinfo_url")]
    #[schemars(length(min = 1))]
    userinfo_url: String,
    /// Whether the upstream gets the user in `X-Userinfo`, as base64 of JSON.
    #[serde(default = "yes")]
    set_userinfo_header: bool,
    /// Lifetime of the session in seconds.
    #[serde(default = "cookie_expires_in")]
    #[schemars(range(min = 1))]
    cookie_expires_in: u64,
    /// Time limit of a call in milliseconds.
    #[serde(default = "timeout_ms")]
    #[schemars(range(min = 1))]
    timeout: u64,
    /// Whether the certificate of DingTalk is verified.
    #[serde(default = "yes")]
    ssl_verify: bool,
}

fn code_header() -> String {
    "X-DingTalk-Code".to_owned()
}

fn code_query() -> String {
    "code".to_owned()
}

fn access_token_url() -> String {
    "https://api.dingtalk.com/v1.0/oauth2/accessToken".to_owned()
}

fn userinfo_url() -> String {
    "https://oapi.dingtalk.com/topapi/v2/user/getuserinfo".to_owned()
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

/// The compiled settings.
pub(crate) struct DingtalkAuth {
    login: CodeLogin,
    token: ServiceTarget,
    userinfo: ServiceTarget,
    app_key: String,
    app_secret: String,
}

impl PluginFactory for DingtalkAuth {
    const NAME: &'static str = "dingtalk-auth";
    const PRIORITY: i32 = 2430;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = DingtalkAuthSettings;

    fn build(config: DingtalkAuthSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let how = ServiceConnection::new(Self::NAME, config.timeout, config.ssl_verify);
        // A session is that of one application at one provider.
        let owner = [&config.app_key, &config.userinfo_url].map(String::as_str);
        let secrets = std::iter::once(&config.secret).chain(&config.secret_fallbacks);
        let secrets: Vec<String> = secrets.map(|secret| application_secret(secret, owner)).collect();
        let secrets = secrets.iter().map(String::as_str);
        let cookie = SealedCookie::new("dingtalk_session", CookiePurpose::Session, secrets);
        Ok(DingtalkAuth {
            token: ServiceTarget::of_setting(
                "access_token_url",
                &config.access_token_url,
                &how,
                setup.objects,
            )?,
            userinfo: ServiceTarget::of_setting("userinfo_url", &config.userinfo_url, &how, setup.objects)?,
            login: CodeLogin {
                cookie,
                code_header: config.code_header,
                code_query: config.code_query,
                redirect_uri: config.redirect_uri,
                sets_user_field: config.set_userinfo_header,
                lifetime_s: config.cookie_expires_in,
            },
            app_key: config.app_key,
            app_secret: config.app_secret,
        })
    }
}

impl DingtalkAuth {
    /// The user of a code.
    async fn user(&self, host: &dyn PluginHost, code: &str) -> Result<Value, CodeLoginFault> {
        let call = self.token.json(&json!({ "appKey": self.app_key, "appSecret": self.app_secret }));
        let document = provider_document(self.token.send(host, call).await);
        let token = document.as_ref().and_then(|document| document.get("accessToken")?.as_str());
        // The secret of the application is refused, which no code can help.
        let token = token.ok_or(CodeLoginFault::Unavailable)?;
        let mut call = self.userinfo.json(&json!({ "code": code }));
        // A code is valid once.
        call.may_repeat = false;
        add_arguments(&mut call, &[("access_token", token)]);
        let mut document =
            provider_document(self.userinfo.send(host, call).await).ok_or(CodeLoginFault::Unavailable)?;
        match document.get_mut("result").map(Value::take) {
            Some(user @ Value::Object(_)) if is_success(&document) => Ok(user),
            _ => Err(CodeLoginFault::Refused),
        }
    }

    async fn wait<'a>(&self, ex: &mut Exchange<'_>, code: String) -> Step<'a> {
        let user = self.user(ex.host, &code).await;
        self.login.finish(ex, user, USER_ID)
    }
}

/// Whether a response reports success.
fn is_success(document: &Value) -> bool {
    document.get("errcode").is_some_and(|code| code == 0)
}

impl Plugin for DingtalkAuth {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE | PhaseSet::RESPONSE_HEAD
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        match self.login.step(ex) {
            CodeLoginStep::Known(user) => {
                self.login.admit(ex, user, USER_ID);
                Step::Continue
            }
            CodeLoginStep::Exchange(code) => Step::Wait(Box::pin(self.wait(ex, code))),
            CodeLoginStep::Respond(response) => Step::Respond(response),
        }
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        add_cookie(ex, head);
    }

    fn dry_run(&self, _: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        self.login.dry_run(ex, USER_ID, self.token.describe())
    }
}
