//! Plugins with local responses, and `cors`.

use serde_json::{Value, json};

use super::transform::literal;
use super::{ConvertedPlugins, PluginJob};

/// The methods that Kong's `cors` allows by default.
const METHODS: [&str; 9] = ["GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS", "TRACE", "CONNECT"];

pub(super) fn cors(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let mut out = json!({});
    let credentials = job.flag("credentials", false);
    let origins = job.texts("origins");
    let is_plain = |origin: &String| {
        origin.split_once("://").is_some_and(|(scheme, host)| {
            !scheme.is_empty()
                && scheme.chars().all(|c| c.is_ascii_alphanumeric())
                && !host.is_empty()
                && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-:[]".contains(c))
        })
    };
    // With credentials, a browser does not accept `*`; Kong returns the origin then.
    if origins.is_empty() || origins.iter().any(|origin| origin == "*") {
        out["allow_origins"] = json!(if credentials { "**" } else { "*" });
    } else if origins.iter().all(is_plain) {
        out["allow_origins"] = json!(origins.join(","));
    } else {
        let anchored = |origin: &String| match is_plain(origin) {
            // Anchored: a pattern that matches a part would admit `https://example.com.evil.test`.
            true => format!("^{}$", origin.replace('.', "\\.")),
            false => origin_pattern(origin),
        };
        // Patterns replace the list, but its default is not valid with credentials.
        out["allow_origins"] = json!("null");
        out["allow_origins_by_regex"] = origins.iter().map(anchored).collect();
    }
    let methods = job.texts("methods");
    out["allow_methods"] = json!(if methods.is_empty() { METHODS.join(",") } else { methods.join(",") });
    let headers = job.texts("headers");
    out["allow_headers"] = json!(if headers.is_empty() { "**".to_owned() } else { headers.join(",") });
    // With credentials `*` is the name of a field (Fetch standard), not a wildcard.
    if credentials && out["allow_headers"] == "*" {
        out["allow_headers"] = json!("**");
    }
    let exposed = job.texts("exposed_headers");
    if credentials && exposed.iter().any(|field| field == "*") {
        job.dropped("exposed_headers", "with credentials browsers take * for the name of a field");
    } else if !exposed.is_empty() {
        out["expose_headers"] = json!(exposed.join(","));
    }
    // Without a setting browsers remember preflight responses for 5 seconds (Fetch), the default of `cors`.
    if let Some(seconds) = job.count("max_age") {
        out["max_age"] = json!(seconds);
    }
    if credentials {
        out["allow_credential"] = json!(true);
    }
    // Kong forwards other OPTIONS requests.
    out["answer"] = json!(if job.flag("preflight_continue", false) { "none" } else { "preflight" });
    job.skip("private_network", json!(false), "private networks are not told apart");
    job.skip("allow_origin_absent", json!(true), "requests without an origin pass");
    super::one("cors", out)
}

/// The pattern over origins that corresponds to a pattern of Kong.
fn origin_pattern(pattern: &str) -> String {
    let bare = pattern.strip_prefix('^').unwrap_or(pattern);
    let bare = if bare.ends_with("\\$") { bare } else { bare.strip_suffix('$').unwrap_or(bare) };
    // In a group, so that the anchors apply to every alternative.
    match bare.contains(':') {
        true => format!("^(?:{bare})$"),
        // Kong compares a pattern without a colon with the host alone.
        false => format!("^[^:/]+://(?:{bare})(?::[0-9]+)?$"),
    }
}

pub(super) fn redirect(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let location = job.text("location").unwrap_or_default();
    let status = job.count("status_code").unwrap_or(301);
    let uri = match job.flag("keep_incoming_path", false) {
        true => {
            // The slashes of the scheme are not the beginning of the path.
            let authority = location.find("://").map_or(0, |at| at + 3);
            let end = location[authority..].find('/').map_or(location.len(), |at| authority + at);
            format!("{}$request_uri", literal(&location[..end]))
        }
        false => literal(&location),
    };
    super::one("redirect", json!({ "uri": uri, "ret_code": status }))
}

/// The local response comes after all other plugins, so `mocking` gets a low priority.
pub(super) fn request_termination(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let status = job.count("status_code").unwrap_or(503);
    let message = job.text("message");
    let body = job.text("body");
    let given_type = job.text("content_type");
    let body_of = |message: &str| json!({ "message": message }).to_string();
    let (body, default_type) = match (body, message) {
        (Some(body), _) => (body, "application/json; charset=utf-8"),
        (None, Some(message)) => (body_of(&message), "application/json; charset=utf-8"),
        (None, None) => (body_of("Service unavailable"), "application/json; charset=utf-8"),
    };
    let content_type = given_type.as_deref().unwrap_or(default_type);
    let bare = content_type.split(';').next().unwrap_or_default().trim();
    let known = ["application/json", "text/plain", "application/xml", "text/xml", "text/html"];
    // `mocking` refuses other types at validation.
    let content_type = if known.contains(&bare) && content_type.matches(';').count() < 2 {
        content_type
    } else {
        job.different("content_type", "text/plain is sent", format!("{content_type} is not known here"));
        "text/plain"
    };
    let mut out = json!({
        "response_status": status,
        "content_type": content_type,
        "response_example": literal(&body),
        "with_mock_header": false,
        "_meta": { "priority": 2 },
    });
    if let Some(trigger) = job.text("trigger") {
        let name = trigger.to_lowercase().replace('-', "_");
        let header = json!([format!("http_{name}"), "~=", null]);
        // Kong accepts the trigger as a field or as an argument.
        out["_meta"]["filter"] = json!(["OR", header, [format!("arg_{trigger}"), "~=", null]]);
    }
    if job.flag("echo", false) {
        job.dropped("echo", "the request is not sent back");
    }
    super::one("mocking", out)
}

/// Settings of `mocking` for a response in Kong's format.
pub(in super::super) fn message(status: u16, message: &str) -> Value {
    json!({
        "response_status": status,
        "content_type": "application/json; charset=utf-8",
        "response_example": json!({ "message": message }).to_string(),
        "with_mock_header": false,
        "_meta": { "priority": 2 },
    })
}
