//! AWS Secrets Manager: `GetSecretValue`.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Uri};
use serde_json::{Value, json};
use yumen_plugin::SecretFetch;
use yumen_snapshot::compile::FetchFailure;

use super::sigv4::{SigningScope, time_text};
use super::{ManagerHttp, SecretReply, SecretRound, absent, failed, member_of, setting};

const TARGET: &str = "secretsmanager.GetSecretValue";
const CONTENT_TYPE: &str = "application/x-amz-json-1.1";

/// The secret whose name is the whole key; without one, a member of the secret whose name is a shorter part.
pub(super) async fn secret(
    round: &SecretRound<'_>,
    fetch: &SecretFetch,
    settings: &Value,
    http: ManagerHttp<'_>,
) -> Result<String, FetchFailure> {
    let key = &fetch.key;
    let mut name = key.as_str();
    loop {
        let failure = match round.reply(fetch, name, read(settings, name, http)).await {
            Ok(secret) => {
                let text = secret.as_str().unwrap_or_default();
                return match key[name.len()..].strip_prefix('/') {
                    None => Ok(text.to_owned()),
                    Some(member) => member_of(text, member, key),
                };
            }
            Err(failure) if failure.is_absent => failure,
            Err(failure) => return Err(failure),
        };
        // Only the answer that the secret does not exist allows another reading of the key.
        match name.rsplit_once('/') {
            Some((shorter, _)) => name = shorter,
            None => return Err(failure),
        }
    }
}

async fn read(settings: &Value, name: &str, http: ManagerHttp<'_>) -> SecretReply {
    let request = signed_request(settings, name, yumen_proxy::clock::exact().unix_ms / 1000)?;
    let reply = http.send(request, true).await?;
    // The type may be qualified: `com.amazonaws.secretsmanager#ResourceNotFoundException`.
    let fault = reply.body["__type"].as_str().unwrap_or_default();
    let fault = fault.rsplit('#').next().unwrap_or_default();
    match (reply.status, fault) {
        (200, _) => match (reply.body["SecretString"].as_str(), reply.body["SecretBinary"].as_str()) {
            (Some(text), _) => Ok(Arc::new(text.into())),
            (None, Some(binary)) => {
                let bytes = BASE64.decode(binary).map_err(|_| failed("the binary secret is no Base64"))?;
                let text = String::from_utf8(bytes).map_err(|_| failed("the binary secret is no text"))?;
                Ok(Arc::new(text.into()))
            }
            (None, None) => Err(failed("the response has no secret")),
        },
        (_, "ResourceNotFoundException") => Err(absent("ResourceNotFoundException: no such secret")),
        // The type is a constant of the service; the message may repeat parts of the request.
        (status, fault) if is_word(fault) => Err(failed(format!("answered {status}: {fault}"))),
        (status, _) => Err(failed(format!("answered {status}"))),
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.len() < 100 && text.chars().all(|c| c.is_ascii_alphanumeric())
}

fn signed_request(settings: &Value, name: &str, unix_s: u64) -> Result<Request<Full<Bytes>>, FetchFailure> {
    let region = settings["region"].as_str().unwrap_or("us-east-1");
    let endpoint = match settings["endpoint_url"].as_str() {
        Some(url) => url.to_owned(),
        None => format!("https://secretsmanager.{region}.amazonaws.com"),
    };
    let uri: Uri = endpoint.parse().map_err(|_| failed("invalid endpoint_url"))?;
    let host = uri.authority().ok_or_else(|| failed("endpoint_url names no host"))?.to_string();
    let body = json!({ "SecretId": name, "VersionStage": "AWSCURRENT" }).to_string();
    let time = time_text(unix_s);
    let mut fields =
        vec![("content-type", CONTENT_TYPE), ("host", host.as_str()), ("x-amz-date", time.as_str())];
    let token = settings["session_token"].as_str();
    fields.extend(token.map(|token| ("x-amz-security-token", token)));
    fields.push(("x-amz-target", TARGET));
    let scope = SigningScope {
        access_key_id: setting(settings, "access_key_id"),
        secret_access_key: setting(settings, "secret_access_key"),
        region,
        service: "secretsmanager",
        time: &time,
    };
    let authorization = scope.authorization("POST", uri.path(), &fields, body.as_bytes());
    let mut request = Request::post(uri).header("authorization", authorization);
    for (name, value) in fields {
        request = request.header(name, value);
    }
    request.body(Full::from(body)).map_err(|_| failed("the credentials contain invalid characters"))
}
