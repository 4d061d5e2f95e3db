//! `dingtalk-auth`: logs users in by an authorization code of DingTalk.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{AccessRole, PluginBuildContext, PluginFactory, PluginHost};

use crate::code_login::{CodeLogin, CodeLoginFault, CodeLoginNames, CodeLoginSettings, CodeProvider};
use crate::service::{ServiceTarget, add_arguments, provider_document};

#[cfg(test)]
mod tests;

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
    /// Field that carries the code.
    #[serde(default = "code_header")]
    #[schemars(length(min = 1))]
    code_header: String,
    /// Query argument that carries the code; used if the field is absent.
    #[serde(default = "code_query")]
    #[schemars(length(min = 1))]
    code_query: String,
    /// URL of the token endpoint.
    #[serde(default = "access_token_url")]
    #[schemars(length(min = 1))]
    access_token_url: String,
    /// URL of the user information.
    #[serde(default = "userinfo_url")]
    #[schemars(length(min = 1))]
    userinfo_url: String,
    #[serde(flatten)]
    login: CodeLoginSettings,
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

/// The application at DingTalk.
pub(crate) struct DingtalkProvider {
    token: ServiceTarget,
    userinfo: ServiceTarget,
    app_key: String,
    app_secret: String,
}

/// The plugin.
pub(crate) type DingtalkAuth = CodeLogin<DingtalkProvider>;

impl PluginFactory for DingtalkAuth {
    const NAME: &'static str = "dingtalk-auth";
    const PRIORITY: i32 = 2430;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = DingtalkAuthSettings;

    fn build(config: DingtalkAuthSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let how = config.login.connection(Self::NAME);
        let target = |path, url: &str| ServiceTarget::of_setting(path, url, &how, setup.objects);
        let names = CodeLoginNames {
            session_cookie: "dingtalk_session",
            login_cookie: "dingtalk_login",
            application: [&config.app_key, &config.userinfo_url],
            code_header: config.code_header,
            code_query: config.code_query,
        };
        let provider = DingtalkProvider {
            token: target("access_token_url", &config.access_token_url)?,
            userinfo: target("userinfo_url", &config.userinfo_url)?,
            app_key: config.app_key.clone(),
            app_secret: config.app_secret,
        };
        CodeLogin::build(names, config.login, provider, setup)
    }
}

impl CodeProvider for DingtalkProvider {
    const USER_ID: &'static [&'static str] = &["userid", "unionid"];

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

    fn describe(&self) -> String {
        self.token.describe()
    }
}

/// Whether a response reports success.
fn is_success(document: &Value) -> bool {
    document.get("errcode").is_some_and(|code| code == 0)
}
