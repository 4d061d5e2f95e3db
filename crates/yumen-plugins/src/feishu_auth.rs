//! `feishu-auth`: logs users in by an authorization code of Feishu (Lark).

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, Method, PhaseSet, Plugin, PluginBuildContext, PluginFactory,
    PluginHost, ResponseHead, ResponseHeadPhase, Step,
};

use crate::code_login::{
    CodeLogin, CodeLoginFault, CodeLoginStep, SealedCookie, add_cookie, application_secret,
};
use crate::service::{ServiceConnection, ServiceTarget, provider_document};
use crate::session::CookiePurpose;

#[cfg(test)]
mod tests;

/// Members that identify the user.
const USER_ID: &[&str] = &["user_id", "open_id", "union_id"];

/// Settings of `feishu-auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("encrypt_fields" = ["app_secret", "secret", "secret_fallbacks"]))]
pub(crate) struct FeishuAuthSettings {
    /// Id of the application.
    #[schemars(length(min = 1))]
    app_id: String,
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
    code_header: String,
    /// Query argument that carries the code; used if the field is absent.
    #[serde(default = "code_query")]
    code_query: String,
    /// The `redirect_uri` with which the code was requested.
    auth_redirect_uri: String,
    /// URL to which users without session and code are redirected.
    redirect_uri: String,
    /// URL of the token endpoint.
    #[serde(default = "access_token_url")]
    access_token_url: String,
    /// URL of the user information.
    #[serde(default = "userinfo_url")]
    userinfo_url: String,
    /// Whether the upstream gets the user in `X-Userinfo`, as base64 of JSON.
    #[serde(default = "yes")]
    set_userinfo_header: bool,
    /// Lifetime of the session in seconds.
    #[serde(default = "cookie_expires_in")]
    cookie_expires_in: u64,
    /// Time limit of a call in milliseconds.
    #[serde(default = "timeout_ms")]
    timeout: u64,
    /// Whether the certificate of Feishu is verified.
    #[serde(default = "yes")]
    ssl_verify: bool,
}

fn code_header() -> String {
    "X-Feishu-Code".to_owned()
}

fn code_query() -> String {
    "code".to_owned()
}

fn access_token_url() -> String {
    "https://open.feishu.cn/open-apis/authen/v2/oauth/token".to_owned()
}

fn userinfo_url() -> String {
    "https://open.feishu.cn/open-apis/authen/v1/user_info".to_owned()
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
pub(crate) struct FeishuAuth {
    login: CodeLogin,
    token: ServiceTarget,
    userinfo: ServiceTarget,
    app_id: String,
    app_secret: String,
    auth_redirect_uri: String,
}

impl PluginFactory for FeishuAuth {
    const NAME: &'static str = "feishu-auth";
    const PRIORITY: i32 = 2420;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = FeishuAuthSettings;

    fn build(config: FeishuAuthSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let how = ServiceConnection::new(Self::NAME, config.timeout, config.ssl_verify);
        // A session is that of one application at one provider.
        let owner = [&config.app_id, &config.userinfo_url].map(String::as_str);
        let secrets = std::iter::once(&config.secret).chain(&config.secret_fallbacks);
        let secrets: Vec<String> = secrets.map(|secret| application_secret(secret, owner)).collect();
        let secrets = secrets.iter().map(String::as_str);
        let cookie = SealedCookie::new("feishu_session", CookiePurpose::Session, secrets);
        Ok(FeishuAuth {
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
            app_id: config.app_id,
            app_secret: config.app_secret,
            auth_redirect_uri: config.auth_redirect_uri,
        })
    }
}

impl FeishuAuth {
    /// The user of a code.
    async fn user(&self, host: &dyn PluginHost, code: &str) -> Result<Value, CodeLoginFault> {
        let mut call = self.token.json(&json!({
            "grant_type": "authorization_code",
            "client_id": self.app_id,
            "client_secret": self.app_secret,
            "code": code,
            "redirect_uri": self.auth_redirect_uri,
        }));
        // A code is valid once (RFC 6749 §4.1.2).
        call.may_repeat = false;
        let document =
            provider_document(self.token.send(host, call).await).ok_or(CodeLoginFault::Unavailable)?;
        let token = document.get("access_token").and_then(Value::as_str).filter(|_| is_success(&document));
        let token = token.ok_or(CodeLoginFault::Refused)?;
        let mut call = self.userinfo.request(Method::Get);
        call.fields.add("Authorization", format!("Bearer {token}").as_bytes());
        let mut document =
            provider_document(self.userinfo.send(host, call).await).ok_or(CodeLoginFault::Unavailable)?;
        match document.get_mut("data").map(Value::take) {
            Some(user @ Value::Object(_)) if is_success(&document) => Ok(user),
            _ => Err(CodeLoginFault::Refused),
        }
    }

    async fn wait<'a>(&self, ex: &mut Exchange<'_>, code: String) -> Step<'a> {
        let user = self.user(ex.host, &code).await;
        self.login.finish(ex, user, USER_ID)
    }
}

/// Whether a response reports success: `code` is 0, or absent as RFC 6749 has it.
fn is_success(document: &Value) -> bool {
    document.get("code").is_none_or(|code| code == 0)
}

impl Plugin for FeishuAuth {
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
