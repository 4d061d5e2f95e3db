//! Annotations of a service that decides about each request.

use std::sync::Arc;

use super::AnnotationConsequence::{IngressDenied, LeftOut};
use super::reader::AnnotationReader;
use super::routing::read_snippet;
use crate::ingress_nginx::controller::ControllerSettings;
use crate::ingress_nginx::nginx_text::NginxText;
use crate::ingress_nginx::settings::{
    AuthAnswerCache, AuthCacheRule, AuthServiceSettings, AuthSigninSettings, IngressSettings,
};
use crate::ingress_nginx::snippet::SnippetPlace;
use crate::ingress_nginx::variables::with_raw_arguments;
use crate::model::ClusterKind;

/// The query argument that receives the URL of the request.
pub(in crate::ingress_nginx) const REDIRECT_PARAM: &str = "rd";

/// Times for which answers are kept if `auth-cache-duration` is absent.
const CACHE_DURATION: &str = "200 202 401 5m";

pub(super) fn read_auth_service(
    reader: &mut AnnotationReader<'_>,
    controller: &ControllerSettings,
    settings: &mut IngressSettings,
) {
    let Some(url) = reader.text("auth-url") else {
        if reader.switch("enable-global-auth").unwrap_or(true) {
            settings.auth.service = controller.auth.as_ref().map(|(service, _)| service.clone());
        }
        return;
    };
    let Some(url) = service_url(url) else {
        return reader.deny("auth-url", "the value must be a URL with scheme and host");
    };
    let method = reader.shared("auth-method");
    let cache = read_cache(reader);
    let signin = reader.nginx_text("auth-signin", LeftOut);
    let redirect_param = reader.shared("auth-signin-redirect-param");
    settings.auth.service = Some(AuthServiceSettings {
        url,
        method,
        signin: signin.map(|url| AuthSigninSettings {
            url,
            redirect_param: redirect_param.unwrap_or_else(|| REDIRECT_PARAM.into()),
        }),
        response_headers: field_names(reader.text("auth-response-headers").unwrap_or_default()),
        request_redirect: reader.nginx_text("auth-request-redirect", IngressDenied),
        set_headers: reader.reference("auth-proxy-set-headers", ClusterKind::ConfigMap),
        always_sets_cookie: reader.switch("auth-always-set-cookie").unwrap_or(false),
        cache,
        keepalive: reader.number("auth-keepalive").filter(|connections| *connections > 0),
    });
    settings.snippets.auth = read_snippet(reader, "auth-snippet", SnippetPlace::Auth);
}

/// A URL with scheme and host, whose parts may have variables.
pub(in crate::ingress_nginx) fn service_url(written: &str) -> Option<NginxText> {
    let compact: String = written.chars().filter(|character| *character != ' ').collect();
    let (scheme, rest) = compact.split_once("://")?;
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let is_url = matches!(scheme, "http" | "https") && !host.is_empty() && !host.contains("..");
    is_url.then(|| NginxText::parse(&compact).ok()).flatten().map(with_raw_arguments)
}

/// Names of fields, separated by commas.
pub(in crate::ingress_nginx) fn field_names(written: &str) -> Vec<Arc<str>> {
    let names = written.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(Arc::from).collect()
}

fn read_cache(reader: &mut AnnotationReader<'_>) -> Option<AuthAnswerCache> {
    let key = reader.nginx_text("auth-cache-key", LeftOut)?;
    match cache_rules(reader.text("auth-cache-duration").unwrap_or_default()) {
        Ok(rules) => Some(AuthAnswerCache { key, rules }),
        Err(reason) => {
            reader.deny("auth-cache-duration", reason);
            None
        }
    }
}

/// Reads `200 202 5m, 401 30s`.
pub(in crate::ingress_nginx) fn cache_rules(written: &str) -> Result<Vec<AuthCacheRule>, String> {
    let written = if written.trim().is_empty() { CACHE_DURATION } else { written };
    let mut rules = Vec::new();
    for entry in written.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let mut words: Vec<&str> = entry.split_whitespace().collect();
        let time = words.pop().unwrap_or_default();
        let seconds = nginx_seconds(time).ok_or_else(|| format!("{time:?} is no time, such as 5m"))?;
        let mut statuses = Vec::new();
        for word in words.into_iter().filter(|word| *word != "any") {
            let status = word.parse::<u16>().ok().filter(|status| (100..1000).contains(status));
            statuses.push(status.ok_or_else(|| format!("{word:?} is no status"))?);
        }
        rules.push(AuthCacheRule { statuses, seconds });
    }
    Ok(rules)
}

/// Reads a time with a unit, rounded up to seconds.
fn nginx_seconds(written: &str) -> Option<u32> {
    let unit = written.trim_start_matches(|character: char| character.is_ascii_digit());
    let number = written[..written.len() - unit.len()].parse::<u32>().ok()?;
    let seconds = match unit {
        "ms" => return Some(number.div_ceil(1000)),
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 604_800,
        "M" => 2_592_000,
        "y" => 31_536_000,
        _ => return None,
    };
    number.checked_mul(seconds)
}
