//! The wolf server of a consumer: its calls and their results.

use std::time::Duration;

use serde_json::Value;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    Exchange, Method, PluginBuildContext, PluginHost, SubrequestResponse, SubrequestSpec, escape_argument,
};

use super::token::RbacToken;
use super::{NAME, USER_FIELDS, WolfRbacSettings};
use crate::service::{ServiceConnection, ServiceTarget};
use crate::text::is_field_name;

/// Time limit of one question about a request, in milliseconds.
const DECISION_MS: u64 = 10_000;
/// Time limit of a call of the public APIs, in milliseconds.
const API_CALL_MS: u64 = 5000;
/// Most questions about one request: a server with a failure of its own is asked again.
const QUESTIONS_MAX: usize = 3;
/// Pause between them in milliseconds.
const PAUSE_MS: u64 = 100;

/// The wolf server of a consumer.
#[derive(Debug)]
pub(crate) struct WolfServer {
    /// The common begin of all its URLs.
    target: ServiceTarget,
    /// Names of the fields with id, name and nickname.
    pub(super) user_fields: [String; 3],
}

/// The decision about a request.
#[derive(Debug)]
pub(super) enum WolfVerdict {
    /// The request may pass; the user of the token.
    Allowed(Option<Value>),
    /// The request is refused.
    Refused { status: u16, reason: Option<String>, user: Option<Value> },
}

impl WolfVerdict {
    fn failed(reason: String) -> WolfVerdict {
        WolfVerdict::Refused { status: 500, reason: Some(reason), user: None }
    }

    /// The user of the token, if the server knows it.
    pub(super) fn user(&self) -> Option<&Value> {
        match self {
            WolfVerdict::Allowed(user) | WolfVerdict::Refused { user, .. } => user.as_ref(),
        }
    }
}

/// Text in a query.
pub(super) fn escaped(text: &[u8]) -> String {
    let mut out = Vec::new();
    escape_argument(text, &mut out);
    // Escaped text is ASCII.
    String::from_utf8(out).unwrap_or_default()
}

impl WolfServer {
    pub(super) fn build(
        settings: &WolfRbacSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<WolfServer, InvalidSettings> {
        let prefix = &settings.header_prefix;
        let user_fields = USER_FIELDS.map(|end| format!("{prefix}{end}"));
        if !user_fields.iter().all(|name| is_field_name(name)) {
            return Err(InvalidSettings::at("header_prefix", format!("\"{prefix}\" begins no field name")));
        }
        if settings.server.contains('?') {
            return Err(InvalidSettings::at("server", "a URL without a query is required"));
        }
        let url = format!("{}/wolf/rbac/", settings.server.trim_end_matches('/'));
        let how = ServiceConnection::new(NAME, DECISION_MS, settings.ssl_verify);
        let target = ServiceTarget::of_setting("server", &url, &how, setup.objects)?;
        Ok(WolfServer { target, user_fields })
    }

    pub(super) fn describe(&self) -> String {
        format!("{}access_check", self.target.describe())
    }

    /// Asks whether a request may pass.
    pub(super) async fn decide(
        &self,
        ex: &Exchange<'_>,
        token: &RbacToken,
        path: &[u8],
        method: &[u8],
    ) -> WolfVerdict {
        let client = ex.client.ip.to_string();
        let arguments: [(&str, &[u8]); 4] = [
            ("appID", token.appid.as_bytes()),
            ("resName", path),
            ("action", method),
            ("clientIP", client.as_bytes()),
        ];
        let mut question = self.call(Method::Get, "access_check", Some(token));
        for (at, (name, value)) in arguments.into_iter().enumerate() {
            question.target.push(if at == 0 { '?' } else { '&' });
            question.target.push_str(name);
            question.target.push('=');
            question.target.push_str(&escaped(value));
        }
        let mut asked = 1;
        let answer = loop {
            match self.target.send(ex.host, question.clone()).await {
                Err(fault) => {
                    return WolfVerdict::failed(format!("request to wolf-server failed, err:{fault}"));
                }
                Ok(answer) if answer.status >= 500 && asked < QUESTIONS_MAX => {
                    asked += 1;
                    ex.host.sleep(Duration::from_millis(PAUSE_MS)).await;
                }
                Ok(answer) => break answer,
            }
        };
        verdict_of(&answer)
    }

    /// A call without a body.
    fn call(&self, method: Method, path: &str, token: Option<&RbacToken>) -> SubrequestSpec {
        let mut call = self.target.request(method);
        call.target.push_str(path);
        call.fields.add("Content-Type", b"application/json; charset=utf-8");
        if let Some(token) = token {
            call.fields.add("x-rbac-token", token.wolf_token.as_bytes());
        }
        call
    }

    /// Calls an API of the server; the document of a success, or the status of the response to the client.
    pub(super) async fn ask(
        &self,
        host: &dyn PluginHost,
        method: Method,
        path: &str,
        token: Option<&RbacToken>,
        arguments: &Value,
    ) -> Result<Value, u16> {
        let mut call = self.call(method, path, token);
        call.body = arguments.to_string().into_bytes();
        call.timeout_ms = API_CALL_MS;
        // A password is changed once.
        call.may_repeat = method == Method::Get;
        let answer = self.target.send(host, call).await.map_err(|_| 500_u16)?;
        let document = whole_document(&answer).filter(|_| answer.status == 200).ok_or(500_u16)?;
        match document.get("ok").and_then(Value::as_bool) {
            Some(true) => Ok(document),
            // The status of APISIX for a refusal of the server.
            _ => Err(200),
        }
    }
}

/// The document of a whole response.
fn whole_document(answer: &SubrequestResponse) -> Option<Value> {
    let body = answer.body.as_deref().filter(|_| answer.fault.is_none())?;
    serde_json::from_slice::<Value>(body).ok().filter(Value::is_object)
}

fn verdict_of(answer: &SubrequestResponse) -> WolfVerdict {
    let status = answer.status;
    if status != 200 && !(400..500).contains(&status) {
        return WolfVerdict::failed(format!("request to wolf-server failed, status:{status}"));
    }
    let Some(document) = whole_document(answer) else {
        let reason = Some("check permission failed! parse response json failed!".to_owned());
        // Without a document, no decision was made: a success does not count.
        let status = if status == 200 { 500 } else { status };
        return WolfVerdict::Refused { status, reason, user: None };
    };
    let user = document.pointer("/data/userInfo").filter(|user| user.is_object()).cloned();
    let is_ok = document.get("ok") == Some(&Value::Bool(true));
    if status == 200 && is_ok {
        return WolfVerdict::Allowed(user);
    }
    let reason = document.get("reason").and_then(Value::as_str).map(str::to_owned);
    // The server answers some failures and refusals with 200, which differ in `ok` only. APISIX lets them pass.
    let status = if status == 200 { 403 } else { status };
    WolfVerdict::Refused { status, reason, user }
}
