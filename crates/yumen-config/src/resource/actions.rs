//! Native actions of a route: responses, field edits, rewrites and mirrors, without plugins.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::access::{self, AccessSpec, AuthRequestSpec};
use super::common::{self, ResourceId};
use super::reply_actions::{
    self, ErrorResponsesSpec, ForwardedFieldsSpec, HstsSpec, ResponseRewriteSpec, RouteLimitsSpec,
};
use crate::schema::InvalidSettings;

/// Names and values of fields, in order.
pub type FieldPairs = Vec<(String, String)>;

/// Native actions. The order is fixed: `cors`, a `redirect` of stage `first` and conditions on client certificates run
/// before authentication; the others run after all plugins of the access phase, `access` and `external_auth` first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("minProperties" = 1))]
pub struct RouteActionsSpec {
    /// Redirection of every request.
    pub redirect: Option<RedirectSpec>,
    /// A fixed response to every request.
    pub respond: Option<RespondSpec>,
    /// Cross-origin resource sharing, by the rules of the Gateway API.
    pub cors: Option<CorsSpec>,
    /// Access rules: address lists, passwords, client certificates.
    pub access: Option<AccessSpec>,
    /// A service that decides about each request.
    pub external_auth: Option<ExternalAuthSpec>,
    /// Edits of the fields of requests.
    pub request_fields: Option<FieldEditsSpec>,
    /// Host and path for the upstream.
    pub rewrite: Option<RewriteSpec>,
    /// Upstreams that receive copies of requests.
    #[schemars(length(min = 1, max = 16))]
    pub mirrors: Option<Vec<MirrorSpec>>,
    /// Edits of the fields of responses.
    pub response_fields: Option<FieldEditsSpec>,
    /// Rewrites of cookies and locations in responses.
    pub response_rewrite: Option<ResponseRewriteSpec>,
    /// `Strict-Transport-Security` on responses over TLS.
    pub hsts: Option<HstsSpec>,
    /// Error responses: their form, and pages of another upstream.
    pub errors: Option<ErrorResponsesSpec>,
    /// The fields that describe the client to the upstream, in place of the gateway's.
    pub forwarded_fields: Option<ForwardedFieldsSpec>,
    /// Bounds of requests and responses.
    pub limits: Option<RouteLimitsSpec>,
    /// Whether the access log has lines for requests of this route; absent means yes.
    pub access_log: Option<bool>,
}

/// Edits of fields, in the order `remove`, `set`, `add`. Names ignore case.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("minProperties" = 1))]
pub struct FieldEditsSpec {
    /// Names and values that replace all fields of the name: `[[name, value], ...]`.
    #[schemars(schema_with = "pairs_schema")]
    pub set: Option<FieldPairs>,
    /// Names and values of further fields.
    #[schemars(schema_with = "pairs_schema")]
    pub add: Option<FieldPairs>,
    /// Names of fields to remove.
    #[schemars(inner(length(min = 1, max = 256)), length(min = 1))]
    pub remove: Option<Vec<String>>,
    /// Whether values may have variables, such as `$remote_addr`. A field of `set` and `add` with an empty value is not
    /// sent then.
    pub variables: bool,
}

pub(super) fn pairs_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "items": { "type": "string", "maxLength": 4096 },
        },
    })
}

/// The stage in which an action responds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActionStage {
    /// Before the plugins, authentication included.
    First,
    /// After the plugins of the access phase.
    #[default]
    Last,
}

/// A redirection. The parts of the location that are absent are those of the request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedirectSpec {
    /// The stage of the response.
    #[serde(default)]
    pub stage: ActionStage,
    /// The status.
    #[serde(default = "found")]
    #[schemars(extend("enum" = [301, 302, 303, 307, 308]))]
    pub status: u16,
    /// The scheme of the location.
    #[schemars(extend("enum" = ["http", "https"]))]
    pub scheme: Option<String>,
    /// The host of the location, without a port.
    #[schemars(length(min = 1, max = 253))]
    pub host: Option<String>,
    /// The port of the location. Without it: the default port of `scheme`, or else the port of the listener. The default
    /// port of the scheme is left out of the location.
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// The path of the location.
    pub path: Option<PathEditSpec>,
    /// The whole location, in place of its parts; may have variables.
    #[schemars(length(min = 1, max = 4096))]
    pub url: Option<String>,
    /// The requests that are redirected; absent means all. The other actions apply to the rest.
    pub when: Option<RedirectWhenSpec>,
    /// Whether the location is a path without scheme and host.
    #[serde(default)]
    pub relative: bool,
    /// Whether the location has the query of the request.
    #[serde(default = "common::yes")]
    pub keep_query: bool,
}

/// The requests that are redirected: those that fulfil all conditions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("minProperties" = 1))]
pub struct RedirectWhenSpec {
    /// The scheme of the client's request.
    #[schemars(extend("enum" = ["http", "https"]))]
    pub scheme: Option<String>,
    /// The whole decoded paths that are redirected; absent means all.
    #[schemars(inner(length(min = 1, max = 4096), regex(pattern = r"^\/")), length(min = 1))]
    pub paths: Option<Vec<String>>,
    /// Beginnings of decoded paths that are not redirected, such as `/.well-known/acme-challenge`.
    #[schemars(inner(length(min = 1, max = 4096), regex(pattern = r"^\/")), length(min = 1))]
    pub exempt_paths: Option<Vec<String>>,
}

fn found() -> u16 {
    302
}

/// A change of a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PathEditSpec {
    /// The whole path.
    Full(#[schemars(length(max = 4096))] String),
    /// The replacement of a prefix by path element, where it matches.
    Prefix {
        /// The prefix.
        #[schemars(length(min = 1, max = 4096))]
        from: String,
        /// Its replacement; empty removes the prefix.
        #[schemars(length(max = 4096))]
        to: String,
    },
    /// The replacement of the whole path, where a pattern matches.
    Regex {
        /// The regular expression. It begins at the first byte of the decoded path.
        #[schemars(length(min = 1, max = 4096))]
        pattern: String,
        /// Whether upper and lower case are equal.
        #[serde(default)]
        ignore_case: bool,
        /// The new path; `$1` to `$9` are the groups of the match, `$$` is a dollar sign.
        #[schemars(length(max = 4096))]
        to: String,
    },
    /// The path without its last slash, if the request has no query.
    TrimSlash,
}

/// A fixed response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RespondSpec {
    /// The status.
    #[schemars(range(min = 200, max = 599))]
    pub status: u16,
    /// The body.
    #[schemars(length(max = 1048576))]
    pub body: Option<String>,
    /// Names and values of fields: `[[name, value], ...]`.
    #[serde(default)]
    #[schemars(schema_with = "pairs_schema")]
    pub fields: Option<FieldPairs>,
}

/// Cross-origin resource sharing. The gateway responds to preflight requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CorsSpec {
    /// Origins that may read responses: `https://a.example.com:8443`, `https://*.example.com` for any number of labels,
    /// or `*`.
    #[serde(default)]
    #[schemars(inner(length(min = 1, max = 253)))]
    pub allow_origins: Vec<String>,
    /// Whether requests may carry credentials. `*` is never sent then: the origin, method and fields of the request are.
    #[serde(default)]
    pub allow_credentials: bool,
    /// Methods of requests, or `*`.
    #[serde(default)]
    #[schemars(inner(length(min = 1, max = 64)))]
    pub allow_methods: Vec<String>,
    /// Fields of requests, or `*`.
    #[serde(default)]
    #[schemars(inner(length(min = 1, max = 256)))]
    pub allow_headers: Vec<String>,
    /// Fields of responses that scripts may read, or `*`.
    #[serde(default)]
    #[schemars(inner(length(min = 1, max = 256)))]
    pub expose_headers: Vec<String>,
    /// How long clients may cache the response to a preflight request, in seconds.
    #[serde(default = "five")]
    pub max_age: u32,
}

fn five() -> u32 {
    5
}

/// The protocol of an authorization service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExternalAuthProtocol {
    /// A request with method, path and fields of the original one; status 200 admits it.
    #[default]
    Http,
    /// A call of `envoy.service.auth.v3.Authorization/Check`.
    Grpc,
}

/// An authorization service. A request is refused if the service cannot be reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExternalAuthSpec {
    /// Id of the upstream of the service.
    pub upstream_id: ResourceId,
    /// The protocol of the service.
    #[serde(default)]
    pub protocol: ExternalAuthProtocol,
    /// An authorization request with the semantics of NGINX, in place of those of `protocol`.
    pub nginx: Option<AuthRequestSpec>,
    /// Prefix of the path of requests to the service; only for `http`.
    #[schemars(length(min = 1, max = 4096), regex(pattern = r"^\/"))]
    pub path: Option<String>,
    /// Request fields that the service receives beside those that it always receives; absent means all for `grpc` and
    /// none for `http`.
    #[schemars(inner(length(min = 1, max = 256)))]
    pub allowed_headers: Option<Vec<String>>,
    /// Response fields of the service that the upstream receives; absent means all, and none with `nginx`. Not for
    /// `grpc`.
    #[schemars(inner(length(min = 1, max = 256)))]
    pub allowed_response_headers: Option<Vec<String>>,
    /// The most bytes of the request body that the service receives; 0 means no body. The request waits for its whole
    /// body then: one above this limit and 1 MiB is refused with 413.
    #[serde(default)]
    pub body_bytes_max: u32,
    /// Timeout of the decision, in milliseconds.
    #[serde(default = "decision_timeout")]
    #[schemars(range(min = 1, max = 600000))]
    pub timeout_ms: u64,
}

fn decision_timeout() -> u64 {
    10_000
}

/// Host and path for the upstream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("minProperties" = 1))]
pub struct RewriteSpec {
    /// The host, with a port if the upstream expects one.
    #[schemars(length(min = 1, max = 260))]
    pub host: Option<String>,
    /// The path.
    pub path: Option<PathEditSpec>,
}

/// An upstream that receives copies of requests; its responses are discarded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MirrorSpec {
    /// Id of the upstream.
    pub upstream_id: ResourceId,
    /// Numerator of the share of copied requests; 0 copies none.
    #[serde(default = "one")]
    pub numerator: u32,
    /// Denominator of that share.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub denominator: u32,
    /// Largest request body that is copied, in bytes. Requests with a larger body, or one of unknown length, are not
    /// copied.
    #[serde(default = "mirrored_bytes")]
    #[schemars(range(max = 16777216))]
    pub body_bytes_max: u32,
}

fn one() -> u32 {
    1
}

fn mirrored_bytes() -> u32 {
    1024 * 1024
}

/// Whether a text is a token (RFC 9110 §5.6.2).
pub(super) fn is_token(text: &str) -> bool {
    let is_token_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token_byte)
}

/// Applies the rules beyond the schema.
pub(super) fn settle(actions: &RouteActionsSpec) -> Result<(), InvalidSettings> {
    let redirects_all = actions.redirect.as_ref().is_some_and(|redirect| redirect.when.is_none());
    let answering = [("redirect", redirects_all), ("respond", actions.respond.is_some())];
    let mut answering = answering.into_iter().filter(|(_, is_written)| *is_written).map(|(name, _)| name);
    if let Some(first) = answering.next() {
        let is_rewritten = actions.rewrite.is_some().then_some("rewrite");
        if let Some(second) = answering.next().or(is_rewritten) {
            let message = format!("`{first}` answers every request, so `{second}` has no effect");
            return Err(InvalidSettings::at(second, message).hint("remove one of the two"));
        }
    }
    if let Some(redirect) = &actions.redirect {
        check_redirect(redirect).map_err(|invalid| invalid.under("redirect"))?;
    }
    if let Some(respond) = &actions.respond {
        check_pairs(respond.fields.as_ref(), "fields").map_err(|invalid| invalid.under("respond"))?;
    }
    if let Some(cors) = &actions.cors {
        check_cors(cors).map_err(|invalid| invalid.under("cors"))?;
    }
    check_edits(actions.request_fields.as_ref(), "request_fields")?;
    check_edits(actions.response_fields.as_ref(), "response_fields")?;
    check_rewrite(actions.rewrite.as_ref())?;
    settle_nginx(actions)?;
    for (at, mirror) in actions.mirrors.iter().flatten().enumerate() {
        if mirror.numerator > mirror.denominator {
            let message = format!("{} of {} is more than all", mirror.numerator, mirror.denominator);
            return Err(InvalidSettings::at(format!("mirrors[{at}].numerator"), message));
        }
    }
    Ok(())
}

/// Applies the rules of the members that NGINX's semantics need.
fn settle_nginx(actions: &RouteActionsSpec) -> Result<(), InvalidSettings> {
    if let Some(auth) = &actions.external_auth {
        check_external_auth(auth).map_err(|invalid| invalid.under("external_auth"))?;
    }
    if let Some(written) = &actions.access {
        access::settle(written, actions.external_auth.is_some())
            .map_err(|invalid| invalid.under("access"))?;
    }
    if let Some(rewrite) = &actions.response_rewrite {
        reply_actions::settle_rewrite(rewrite).map_err(|invalid| invalid.under("response_rewrite"))?;
    }
    if let Some(limits) = &actions.limits {
        reply_actions::settle_limits(limits).map_err(|invalid| invalid.under("limits"))?;
    }
    if let Some(errors) = &actions.errors {
        reply_actions::settle_errors(errors).map_err(|invalid| invalid.under("errors"))?;
    }
    Ok(())
}

fn check_external_auth(auth: &ExternalAuthSpec) -> Result<(), InvalidSettings> {
    let Some(nginx) = &auth.nginx else { return Ok(()) };
    let unused = [
        ("protocol", auth.protocol == ExternalAuthProtocol::Grpc),
        ("path", auth.path.is_some()),
        ("allowed_headers", auth.allowed_headers.is_some()),
        ("body_bytes_max", auth.body_bytes_max != 0),
    ];
    if let Some((member, _)) = unused.into_iter().find(|(_, is_written)| *is_written) {
        return Err(InvalidSettings::at(member, "has no effect beside `nginx`").hint("remove it"));
    }
    access::settle_request(nginx).map_err(|invalid| invalid.under("nginx"))
}

fn check_redirect(redirect: &RedirectSpec) -> Result<(), InvalidSettings> {
    let parts = [
        ("scheme", redirect.scheme.is_some()),
        ("host", redirect.host.is_some()),
        ("port", redirect.port.is_some()),
        ("path", redirect.path.is_some()),
        ("relative", redirect.relative),
    ];
    let unused = match (&redirect.url, redirect.relative) {
        (Some(_), _) => Some(("url", &parts[..])),
        (None, true) => Some(("relative", &parts[..3])),
        (None, false) => None,
    };
    if let Some((winner, parts)) = unused
        && let Some((part, _)) = parts.iter().find(|(_, is_written)| *is_written)
    {
        let message = format!("has no effect beside `{winner}`");
        return Err(InvalidSettings::at(*part, message).hint("remove one of the two"));
    }
    if redirect.url.as_deref().is_some_and(|url| url.chars().any(|one| one.is_control() || one == ' ')) {
        return Err(InvalidSettings::at("url", "has a space or a control character"));
    }
    if let Some(host) = redirect.host.as_deref().filter(|host| !is_host(host)) {
        return Err(InvalidSettings::at("host", format!("\"{host}\" is no host name or address"))
            .hint("write the host alone, and the port as `port`"));
    }
    redirect.path.as_ref().map_or(Ok(()), check_path_edit)
}

/// Applies the rules of `rewrite` beyond the schema.
pub(super) fn check_rewrite(rewrite: Option<&RewriteSpec>) -> Result<(), InvalidSettings> {
    let Some(rewrite) = rewrite else { return Ok(()) };
    let is_authority = |text: &str| match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => is_host(host) && port.parse::<u16>().is_ok(),
        _ => is_host(text),
    };
    if let Some(host) = rewrite.host.as_deref().filter(|host| !is_authority(host)) {
        let message = format!("\"{host}\" is no host name or address");
        return Err(InvalidSettings::at("rewrite.host", message).hint("write a host, such as a.example.com"));
    }
    rewrite.path.as_ref().map_or(Ok(()), check_path_edit).map_err(|invalid| invalid.under("rewrite"))
}

/// Whether a text is a host without a port: a name, or an address, an IPv6 address in brackets.
fn is_host(text: &str) -> bool {
    match text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        }
    }
}

fn check_path_edit(edit: &PathEditSpec) -> Result<(), InvalidSettings> {
    let is_path = |text: &str| text.starts_with('/');
    match edit {
        // The empty path is `/` (RFC 9110 §4.2.3).
        PathEditSpec::Full(path) if !path.is_empty() && !is_path(path) => {
            Err(InvalidSettings::at("path.full", format!("\"{path}\" must begin with a slash")))
        }
        PathEditSpec::Prefix { from, .. } if !is_path(from) => {
            Err(InvalidSettings::at("path.prefix.from", format!("\"{from}\" must begin with a slash")))
        }
        PathEditSpec::Prefix { to, .. } if !to.is_empty() && !is_path(to) => Err(InvalidSettings::at(
            "path.prefix.to",
            format!("\"{to}\" must begin with a slash, or be empty"),
        )),
        PathEditSpec::Regex { to, .. } if !is_path(to) && !to.starts_with('$') => {
            let message = format!("\"{to}\" must begin with a slash or a group");
            Err(InvalidSettings::at("path.regex.to", message))
        }
        _ => Ok(()),
    }
}

fn check_cors(cors: &CorsSpec) -> Result<(), InvalidSettings> {
    for (at, origin) in cors.allow_origins.iter().enumerate() {
        if origin == "*" {
            continue;
        }
        let Some((scheme, authority)) = origin.split_once("://") else {
            let message = format!("\"{origin}\" is no origin");
            let hint = "write scheme and host, such as https://app.example.com, or *";
            return Err(InvalidSettings::at(format!("allow_origins[{at}]"), message).hint(hint));
        };
        let host = authority.strip_prefix("*.").unwrap_or(authority);
        if scheme.is_empty() || host.is_empty() || host.contains(['/', '?', '#', '*', ' ']) && host != "*" {
            let message =
                format!("\"{origin}\" is no origin: a * stands for the first labels of the host only");
            return Err(InvalidSettings::at(format!("allow_origins[{at}]"), message));
        }
    }
    let lists = [
        ("allow_methods", &cors.allow_methods),
        ("allow_headers", &cors.allow_headers),
        ("expose_headers", &cors.expose_headers),
    ];
    for (member, list) in lists {
        if let Some(at) = list.iter().position(|name| !is_token(name)) {
            let message = format!("\"{}\" is no token (RFC 9110 §5.6.2)", list[at]);
            return Err(InvalidSettings::at(format!("{member}[{at}]"), message));
        }
    }
    Ok(())
}

/// Fields that frame a message or manage its connection (RFC 9110 §7.6.1): an edit would break the message.
const FRAMING_FIELDS: [&str; 6] =
    ["connection", "content-length", "keep-alive", "te", "transfer-encoding", "upgrade"];

/// Applies the rules of field edits beyond the schema.
pub(super) fn check_edits(edits: Option<&FieldEditsSpec>, member: &str) -> Result<(), InvalidSettings> {
    let Some(edits) = edits else { return Ok(()) };
    if edits.set.is_none() && edits.add.is_none() && edits.remove.is_none() {
        return Err(InvalidSettings::at(member, "has no edit").hint("add `set`, `add` or `remove`"));
    }
    check_pairs(edits.set.as_ref(), "set").map_err(|invalid| invalid.under(member))?;
    check_pairs(edits.add.as_ref(), "add").map_err(|invalid| invalid.under(member))?;
    for (at, name) in edits.remove.iter().flatten().enumerate() {
        check_name(name).map_err(|message| InvalidSettings::at(format!("{member}.remove[{at}]"), message))?;
    }
    Ok(())
}

pub(super) fn check_pairs(pairs: Option<&FieldPairs>, member: &str) -> Result<(), InvalidSettings> {
    for (at, (name, value)) in pairs.into_iter().flatten().enumerate() {
        let path = format!("{member}[{at}]");
        check_name(name).map_err(|message| InvalidSettings::at(path.clone(), message))?;
        if value.chars().any(|character| character.is_control() && character != '\t') {
            return Err(InvalidSettings::at(path, format!("the value of {name} has control characters")));
        }
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), String> {
    if !is_token(name) {
        return Err(format!("\"{name}\" is no name of a field"));
    }
    match FRAMING_FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field)) {
        true => Err(format!("{name} frames the message: the gateway sets it")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
