//! `feishu-auth`: logs users in by an authorization code of Feishu (Lark).

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{AccessRole, Method, PluginBuildContext, PluginFactory, PluginHost};

use crate::code_login::{CodeLogin, CodeLoginFault, CodeLoginNames, CodeLoginSettings, CodeProvider};
use crate::service::{ServiceTarget, provider_document};

#[cfg(test)]
mod tests;

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
    /// Field that carries the code.
    #[serde(default = "code_header")]
    code_header: String,
    /// Query argument that carries the code; used if the field is absent.
    #[serde(default = "code_query")]
    code_query: String,
    /// The `redirect_uri` with which the code was requested.
    auth_redirect_uri: String,
    /// URL of the token endpoint.
    #[serde(default = "access_token_url")]
    access_token_url: String,
    /// URL of the user information.
    #[serde(default = "userinfo_url")]
    userinfo_url: String,
    #[serde(flatten)]
    login: CodeLoginSettings,
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

/// The application at Feishu.
pub(crate) struct FeishuProvider {
    token: ServiceTarget,
    userinfo: ServiceTarget,
    app_id: String,
    app_secret: String,
    auth_redirect_uri: String,
}

/// The plugin.
pub(crate) type FeishuAuth = CodeLogin<FeishuProvider>;

impl PluginFactory for FeishuAuth {
    const NAME: &'static str = "feishu-auth";
    const PRIORITY: i32 = 2420;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = FeishuAuthSettings;

    fn build(config: FeishuAuthSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let how = config.login.connection(Self::NAME);
        let target = |path, url: &str| ServiceTarget::of_setting(path, url, &how, setup.objects);
        let names = CodeLoginNames {
            session_cookie: "feishu_session",
            login_cookie: "feishu_login",
            application: [&config.app_id, &config.userinfo_url],
            code_header: config.code_header,
            code_query: config.code_query,
        };
        let provider = FeishuProvider {
            token: target("access_token_url", &config.access_token_url)?,
            userinfo: target("userinfo_url", &config.userinfo_url)?,
            app_id: config.app_id.clone(),
            app_secret: config.app_secret,
            auth_redirect_uri: config.auth_redirect_uri,
        };
        CodeLogin::build(names, config.login, provider, setup)
    }
}

impl CodeProvider for FeishuProvider {
    const USER_ID: &'static [&'static str] = &["user_id", "open_id", "union_id"];

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

    fn describe(&self) -> String {
        self.token.describe()
    }
}

/// Whether a response reports success: `code` is 0, or absent as RFC 6749 has it.
fn is_success(document: &Value) -> bool {
    document.get("code").is_none_or(|code| code == 0)
}
