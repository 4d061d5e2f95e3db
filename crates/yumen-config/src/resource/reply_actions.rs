//! Native actions on the response of a route: rewrites of cookies and locations, error responses, bounds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::actions::{self, FieldPairs};
use super::common::ResourceId;
use crate::schema::InvalidSettings;

/// Rewrites of response fields. Of each list, the first entry that applies to a text replaces it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("minProperties" = 1))]
pub struct ResponseRewriteSpec {
    /// Replacements of the `Domain` of cookies.
    #[schemars(length(min = 1, max = 16))]
    pub cookie_domains: Option<Vec<TextReplacementSpec>>,
    /// Replacements of the beginning of the `Path` of cookies.
    #[schemars(length(min = 1, max = 16))]
    pub cookie_paths: Option<Vec<TextReplacementSpec>>,
    /// Replacements of the beginning of `Location`, and of the URL in `Refresh`.
    #[schemars(length(min = 1, max = 16))]
    pub locations: Option<Vec<TextReplacementSpec>>,
}

/// A replacement of text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TextReplacementSpec {
    /// The text; with `regex`, a pattern in place of it.
    #[schemars(length(min = 1, max = 4096))]
    pub from: String,
    /// Whether `from` is a regular expression. It is matched anywhere in the text.
    #[serde(default)]
    pub regex: bool,
    /// Whether upper and lower case are equal in the pattern.
    #[serde(default)]
    pub ignore_case: bool,
    /// The new text; may have variables. With `regex`, `$1` to `$9` are the groups of the match.
    #[schemars(length(max = 4096))]
    pub to: String,
}

/// `Strict-Transport-Security` (RFC 6797) on responses over TLS.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HstsSpec {
    /// How long clients use TLS only, in seconds.
    #[serde(default = "year")]
    pub max_age_s: u64,
    /// Whether the rule holds for all subdomains.
    #[serde(default)]
    pub include_subdomains: bool,
    /// Whether browsers may ship the rule.
    #[serde(default)]
    pub preload: bool,
}

fn year() -> u64 {
    31_536_000
}

/// Bounds of the messages of a route.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("minProperties" = 1))]
pub struct RouteLimitsSpec {
    /// Largest request body, in bytes, in place of the limit of the node; larger ones get 413. 0 is no limit.
    pub body_bytes_max: Option<u64>,
    /// Bytes per second of one response.
    #[schemars(range(min = 1))]
    pub response_rate: Option<u64>,
    /// Bytes of a response that are sent before `response_rate` applies.
    pub response_rate_after: Option<u64>,
}

/// The form of error responses of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ErrorFormat {
    /// JSON with a message.
    #[default]
    Json,
    /// A small HTML page with the status, as of NGINX.
    Html,
}

/// The error responses of a route.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("minProperties" = 1))]
pub struct ErrorResponsesSpec {
    /// The form of error responses of the gateway.
    pub format: ErrorFormat,
    /// Responses of another upstream in place of error responses.
    pub pages: Option<ErrorPagesSpec>,
}

/// Responses of another upstream in place of those with certain statuses, of the upstream and of the gateway. The
/// upstream receives the method of the request, `X-Code` with the status, `X-Format` with `Accept` of the client,
/// `X-Original-URI` and `X-Request-ID`; its status is that of the response. Calls of gRPC keep their response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorPagesSpec {
    /// Id of the upstream.
    pub upstream_id: ResourceId,
    /// The statuses.
    #[serde(default)]
    #[schemars(inner(range(min = 300, max = 599)), extend("uniqueItems" = true))]
    pub statuses: Vec<u16>,
    /// Whether the 503 of an upstream without endpoints is replaced as well.
    #[serde(default)]
    pub no_endpoint: bool,
    /// The path of the request.
    #[serde(default = "root")]
    #[schemars(length(min = 1, max = 4096), regex(pattern = r"^\/"))]
    pub path: String,
    /// Further fields of the request: `[[name, value], ...]`.
    #[serde(default)]
    #[schemars(schema_with = "actions::pairs_schema")]
    pub fields: Option<FieldPairs>,
    /// Timeout of the response, in milliseconds. After it, the original response is sent.
    #[serde(default = "page_timeout")]
    #[schemars(range(min = 1, max = 600000))]
    pub timeout_ms: u64,
}

fn root() -> String {
    "/".to_owned()
}

fn page_timeout() -> u64 {
    5_000
}

/// The fields that describe the client to the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ForwardedFieldsSpec {
    /// Those of ingress-nginx: `X-Request-ID`, `X-Real-IP`, `X-Forwarded-For` with the address of the client alone,
    /// `X-Forwarded-Host`, `-Port`, `-Proto`, `-Scheme`, `X-Scheme`, `X-Original-Forwarded-For` and
    /// `X-Original-Forwarded-Host` with the values that the client sent.
    Nginx,
    /// As `nginx`, with the address appended to `X-Forwarded-For`.
    NginxAppend,
}

/// Applies the rules of response rewrites beyond the schema.
pub(super) fn settle_rewrite(rewrite: &ResponseRewriteSpec) -> Result<(), InvalidSettings> {
    let lists = [
        ("cookie_domains", &rewrite.cookie_domains),
        ("cookie_paths", &rewrite.cookie_paths),
        ("locations", &rewrite.locations),
    ];
    for (member, list) in lists {
        for (at, one) in list.iter().flatten().enumerate() {
            if one.ignore_case && !one.regex {
                let path = format!("{member}[{at}].ignore_case");
                return Err(InvalidSettings::at(path, "has no effect without `regex`").hint("remove it"));
            }
            if one.to.chars().any(char::is_control) {
                return Err(InvalidSettings::at(format!("{member}[{at}].to"), "has control characters"));
            }
        }
    }
    Ok(())
}

/// Applies the rules of limits beyond the schema.
pub(super) fn settle_limits(limits: &RouteLimitsSpec) -> Result<(), InvalidSettings> {
    match (limits.response_rate, limits.response_rate_after) {
        (None, Some(_)) => {
            let message = "has no effect without `response_rate`";
            Err(InvalidSettings::at("response_rate_after", message).hint("remove it"))
        }
        _ => Ok(()),
    }
}

/// Applies the rules of error responses beyond the schema.
pub(super) fn settle_errors(errors: &ErrorResponsesSpec) -> Result<(), InvalidSettings> {
    let Some(pages) = &errors.pages else {
        return match errors.format {
            ErrorFormat::Html => Ok(()),
            ErrorFormat::Json => Err(InvalidSettings::at("", "changes nothing").hint("remove it")),
        };
    };
    if pages.statuses.is_empty() && !pages.no_endpoint {
        let message = "no response is replaced";
        return Err(
            InvalidSettings::at("pages.statuses", message).hint("list statuses, or set `no_endpoint`")
        );
    }
    actions::check_pairs(pages.fields.as_ref(), "fields").map_err(|invalid| invalid.under("pages"))
}

#[cfg(test)]
mod tests;
