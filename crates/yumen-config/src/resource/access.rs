//! Native access rules of a route: client certificates, address lists, passwords, and an authorization request.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::actions::{self, FieldPairs};
use super::common::RouteMethod;
use crate::schema::InvalidSettings;

/// The access rules of a route. They run after all plugins of the access phase, so that limits count refused requests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("minProperties" = 1))]
pub struct AccessSpec {
    /// Whether a request has to satisfy all of address lists, passwords and `external_auth`, or any of them.
    pub satisfy: SatisfySpec,
    /// Addresses and networks that are admitted; all others get 403.
    #[schemars(length(min = 1))]
    pub allow: Option<Vec<String>>,
    /// Addresses and networks that get 403, also those in `allow`.
    #[schemars(length(min = 1))]
    pub deny: Option<Vec<String>>,
    /// Names and hashed passwords for basic authentication.
    pub basic_auth_file: Option<BasicAuthFileSpec>,
    /// Conditions on the client certificate. They run before the plugins and do not count for `satisfy`.
    pub client_certificate: Option<ClientCertificateSpec>,
}

/// The number of access rules that a request has to satisfy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum SatisfySpec {
    /// All of them.
    #[default]
    All,
    /// One of them.
    Any,
}

/// Names and hashed passwords: the lines of a htpasswd file, or a map.
///
/// Hashes are those of htpasswd: bcrypt (`$2y$`), MD5 (`$apr1$`), `{SHA}`, and beyond htpasswd `{SSHA}` and the
/// SHA-256, SHA-512 and MD5 forms of crypt (`$5$`, `$6$`, `$1$`). Plain passwords are refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["file"]}, {"required": ["users"]}]))]
pub struct BasicAuthFileSpec {
    /// The lines of a htpasswd file: `name:hash`.
    #[schemars(length(min = 1, max = 1048576))]
    pub file: Option<String>,
    /// Hashes by name.
    #[serde(default)]
    #[schemars(schema_with = "users_schema")]
    pub users: Option<BTreeMap<String, String>>,
    /// The realm in the field `WWW-Authenticate`.
    #[serde(default = "realm")]
    #[schemars(length(max = 256))]
    pub realm: String,
}

fn users_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "additionalProperties": { "type": "string", "minLength": 1, "maxLength": 512 },
    })
}

fn realm() -> String {
    "Authentication Required".to_owned()
}

/// Conditions on the client certificate of a connection. The scope requests certificates with `mode` `optional_no_ca`
/// or `optional`, so that the gateway answers with a status in place of an alert.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("minProperties" = 1))]
pub struct ClientCertificateSpec {
    /// Whether a valid certificate is required. A request without one gets 400, or a redirect to `error_page`.
    #[serde(default)]
    pub required: bool,
    /// A pattern that the subject has to match, in the form of `$ssl_client_s_dn`; another one gets 403.
    #[schemars(length(min = 1, max = 4096))]
    pub subject_pattern: Option<String>,
    /// The location of a redirect with 302 in place of 400.
    #[schemars(length(min = 1, max = 4096))]
    pub error_page: Option<String>,
}

/// An authorization request with the semantics of NGINX's `auth_request`: a 2xx admits, 401 and 403 are passed on, any
/// other response or none is a 500. The service receives all fields of the request, without its body, and
/// `X-Original-URL`, `X-Original-Method`, `X-Auth-Request-Redirect`, `X-Sent-From`, `X-Real-IP`, `X-Forwarded-For`,
/// `X-Request-ID`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthRequestSpec {
    /// Path and query of the request; may have variables.
    #[schemars(length(min = 1, max = 4096), regex(pattern = r"^[\/$]"))]
    pub url: String,
    /// `Host` of the request; may have variables. Absent means that of the client's request.
    #[schemars(length(min = 1, max = 260))]
    pub host: Option<String>,
    /// The method. Absent means GET; a written one adds `X-Original-URI` and `X-Scheme` to the request.
    pub method: Option<RouteMethod>,
    /// Further fields of the request; values may have variables. An empty value removes the field.
    #[serde(default)]
    #[schemars(schema_with = "actions::pairs_schema")]
    pub fields: Option<FieldPairs>,
    /// Fields of the request for the upstream, whose values may have fields of the service's answer, such as
    /// `$upstream_http_x_user`. A field with an empty value is removed.
    #[serde(default)]
    #[schemars(schema_with = "actions::pairs_schema")]
    pub answer_fields: Option<FieldPairs>,
    /// The value of `X-Auth-Request-Redirect`; may have variables. Absent means `$request_uri`.
    #[schemars(length(min = 1, max = 4096))]
    pub redirect_field: Option<String>,
    /// The location of a redirect with 302 in place of 401; may have variables.
    #[schemars(length(min = 1, max = 4096))]
    pub signin: Option<String>,
    /// The query argument that `signin` gets with the URL of the request, unless it has one with this name.
    #[serde(default = "redirect_parameter")]
    #[schemars(length(min = 1, max = 256))]
    pub signin_parameter: String,
    /// The cache of decisions.
    pub cache: Option<AuthCacheSpec>,
    /// Whether `Set-Cookie` of the service is added to error responses too. Others have it in any case.
    #[serde(default)]
    pub always_set_cookie: bool,
}

fn redirect_parameter() -> String {
    "rd".to_owned()
}

/// The cache of the decisions of an authorization service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthCacheSpec {
    /// The key; may have variables, such as `$remote_user$http_authorization`.
    #[schemars(length(min = 1, max = 4096))]
    pub key: String,
    /// How long responses are used, by status. Others are not cached.
    #[schemars(length(min = 1))]
    pub durations: Vec<AuthCacheDuration>,
}

/// How long responses with these statuses are used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthCacheDuration {
    /// The statuses.
    #[schemars(length(min = 1), inner(range(min = 200, max = 599)))]
    pub statuses: Vec<u16>,
    /// The time, in seconds.
    #[schemars(range(min = 1, max = 31536000))]
    pub seconds: u64,
}

/// Applies the rules of access beyond the schema.
pub(super) fn settle(access: &AccessSpec, has_external_auth: bool) -> Result<(), InvalidSettings> {
    let has_lists = access.allow.is_some() || access.deny.is_some();
    if !has_lists && access.basic_auth_file.is_none() && access.client_certificate.is_none() {
        return Err(InvalidSettings::at("", "has no rule").hint("add a rule, or remove it"));
    }
    let rules = [has_lists, access.basic_auth_file.is_some(), has_external_auth];
    if access.satisfy == SatisfySpec::Any && rules.into_iter().filter(|is_written| *is_written).count() < 2 {
        let message = "any of fewer than two rules is the same as all";
        return Err(InvalidSettings::at("satisfy", message)
            .hint("remove it, or add `allow`, `basic_auth_file` or `external_auth`"));
    }
    let lists = [("allow", &access.allow), ("deny", &access.deny)];
    for (member, list) in lists {
        for (at, one) in list.iter().flatten().enumerate() {
            if yumen_base::IpSet::parse([one.as_str()]).is_err() {
                let message = format!("\"{one}\" is neither an address nor a network");
                return Err(InvalidSettings::at(format!("{member}[{at}]"), message)
                    .hint("write an address or a network, as in \"10.1.2.3\" or \"10.0.0.0/8\""));
            }
        }
    }
    if let Some(file) = &access.basic_auth_file
        && file.realm.chars().any(|one| one.is_control() || one == '"' || one == '\\')
    {
        let message = "a realm has no quotes, backslashes and control characters";
        return Err(InvalidSettings::at("basic_auth_file.realm", message));
    }
    let certificate = access.client_certificate.as_ref();
    match certificate {
        Some(rules) if rules.error_page.is_some() && !rules.required => {
            let message = "has no effect: no certificate is required";
            Err(InvalidSettings::at("client_certificate.error_page", message).hint("set `required`"))
        }
        Some(rules) if !rules.required && rules.subject_pattern.is_none() => {
            Err(InvalidSettings::at("client_certificate", "has no condition").hint("set `required`"))
        }
        _ => Ok(()),
    }
}

/// Applies the rules of an authorization request beyond the schema.
pub(super) fn settle_request(request: &AuthRequestSpec) -> Result<(), InvalidSettings> {
    actions::check_pairs(request.fields.as_ref(), "fields")?;
    actions::check_pairs(request.answer_fields.as_ref(), "answer_fields")?;
    let texts = [
        ("url", Some(&request.url)),
        ("host", request.host.as_ref()),
        ("redirect_field", request.redirect_field.as_ref()),
        ("signin", request.signin.as_ref()),
        ("signin_parameter", Some(&request.signin_parameter)),
    ];
    for (member, text) in texts {
        if text.is_some_and(|text| text.chars().any(|one| one.is_control() || one == ' ')) {
            return Err(InvalidSettings::at(member, "has a space or a control character"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
