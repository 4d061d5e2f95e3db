//! The public APIs of the plugin: login, change of a password, the user of a token. `public-api` exposes them on a
//! route.

use serde_json::{Map, Value, json};
use yumen_plugin::{Exchange, LocalResponse, Method};

use super::application;
use super::server::WolfServer;
use super::token::RbacToken;
use crate::query::pairs;

/// An API of the plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WolfApi {
    Login,
    ChangePassword,
    UserInfo,
}

/// Method and path of each API.
pub(crate) const WOLF_APIS: [(Method, &str, WolfApi); 3] = [
    (Method::Post, "/apisix/plugin/wolf-rbac/login", WolfApi::Login),
    (Method::Put, "/apisix/plugin/wolf-rbac/change_pwd", WolfApi::ChangePassword),
    (Method::Get, "/apisix/plugin/wolf-rbac/user_info", WolfApi::UserInfo),
];

impl WolfApi {
    /// Whether the API reads the body of the request.
    pub(crate) fn reads_body(self) -> bool {
        self != WolfApi::UserInfo
    }

    /// The response to a request, whose body is buffered.
    pub(crate) async fn answer(self, ex: &Exchange<'_>) -> LocalResponse {
        let answer = match self {
            WolfApi::Login => login(ex).await,
            WolfApi::ChangePassword => change_password(ex).await,
            WolfApi::UserInfo => user_info(ex).await,
        };
        answer.unwrap_or_else(|refusal| refusal).field("Cache-Control", "no-store")
    }
}

type ApiAnswer = Result<LocalResponse, LocalResponse>;

async fn login(ex: &Exchange<'_>) -> ApiAnswer {
    let arguments = arguments(ex)?;
    let appid = arguments.get("appid").and_then(Value::as_str);
    let appid = appid.ok_or_else(|| LocalResponse::message(400, "appid is missing"))?.to_owned();
    let server = server_of(ex, &appid)?;
    let arguments = Value::Object(arguments);
    let asked = server.ask(ex.host, Method::Post, "login.rest", None, &arguments).await;
    let document = asked.map_err(refused_by_server)?;
    let token = document.pointer("/data/token").and_then(Value::as_str);
    let token = token.ok_or_else(|| refused_by_server(500))?;
    let user = document.pointer("/data/userInfo").unwrap_or(&Value::Null);
    Ok(LocalResponse::json(200, &json!({ "rbac_token": RbacToken::write(&appid, token), "user_info": user })))
}

async fn change_password(ex: &Exchange<'_>) -> ApiAnswer {
    let arguments = arguments(ex)?;
    let token = RbacToken::of_request(&ex.request)?;
    let server = server_of(ex, &token.appid)?;
    let arguments = Value::Object(arguments);
    let asked = server.ask(ex.host, Method::Post, "change_pwd", Some(&token), &arguments).await;
    asked.map_err(refused_by_server)?;
    Ok(LocalResponse::message(200, "success to change password"))
}

async fn user_info(ex: &Exchange<'_>) -> ApiAnswer {
    let token = RbacToken::of_request(&ex.request)?;
    let server = server_of(ex, &token.appid)?;
    let asked = server.ask(ex.host, Method::Get, "user_info", Some(&token), &json!({})).await;
    let document = asked.map_err(refused_by_server)?;
    let user = document.pointer("/data/userInfo").unwrap_or(&Value::Null);
    Ok(LocalResponse::json(200, &json!({ "user_info": user })))
}

fn server_of<'s>(ex: &Exchange<'s>, appid: &str) -> Result<&'s WolfServer, LocalResponse> {
    let found = application(ex, appid).map(|(_, server)| server);
    found.ok_or_else(|| LocalResponse::message(400, "appid not found"))
}

fn refused_by_server(status: u16) -> LocalResponse {
    LocalResponse::message(status, "request to wolf-server failed!")
}

/// The arguments of the body: the members of a JSON object, or the pairs of a form.
fn arguments(ex: &Exchange<'_>) -> Result<Map<String, Value>, LocalResponse> {
    let body = ex.body.buffered.as_deref().unwrap_or_default();
    let media_type = ex.request.fields.get("Content-Type").unwrap_or_default();
    let is_json = media_type.windows(JSON_TYPE.len()).any(|part| part.eq_ignore_ascii_case(JSON_TYPE));
    if is_json {
        let arguments: Result<Map<String, Value>, _> = serde_json::from_slice(body);
        return arguments.map_err(|_| LocalResponse::message(400, "invalid request"));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(pairs(body).map(|(name, value)| (text(&name), Value::String(text(&value)))).collect())
}

const JSON_TYPE: &[u8] = b"application/json";
