//! The login of the dashboard at an identity provider by OpenID Connect.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yumen_base::Problem;

use super::{AdminConfig, AdminRole, SecretText, problem};

/// The path to which the provider sends users back.
const CALLBACK_PATH: &str = "/ui/callback";

/// Login at an identity provider, besides the login with a key. Without `issuer` there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OpenidLoginConfig {
    /// Issuer of the provider, an https URL; http is accepted on this host. The discovery document is at
    /// `/.well-known/openid-configuration` below it.
    pub issuer: String,
    /// Identifier of the gateway at the provider.
    pub client_id: String,
    /// Secret of the gateway at the provider; empty for a public client. PKCE protects the login in both cases.
    pub client_secret: SecretText,
    /// URL of the dashboard in browsers with the path `/ui/callback`, as registered at the provider.
    pub redirect_uri: String,
    /// Scopes that the login requests.
    pub scopes: Vec<String>,
    /// Claim with the name of the user, which the history shows as `openid/NAME`; without it, `sub`.
    pub name_claim: String,
    /// Users that may log in: each a `claim`, its accepted `values`, and the `role` of users with one of them: `admin` or
    /// `viewer`. Others are refused.
    pub roles: Vec<OpenidRoleRule>,
    /// PEM file of the authorities that sign the provider's certificate; empty for those of the system.
    pub trusted_ca: String,
}

impl Default for OpenidLoginConfig {
    fn default() -> Self {
        OpenidLoginConfig {
            issuer: String::new(),
            client_id: String::new(),
            client_secret: SecretText(String::new()),
            redirect_uri: String::new(),
            scopes: ["openid", "profile", "email"].map(str::to_owned).to_vec(),
            name_claim: "preferred_username".into(),
            roles: Vec::new(),
            trusted_ca: String::new(),
        }
    }
}

/// Users with a role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenidRoleRule {
    /// Claim of the ID token or of the userinfo endpoint; dots lead into objects, as in `realm_access.roles`.
    #[schemars(length(min = 1))]
    pub claim: String,
    /// Values that give the role: the claim is one of them, or a list with one of them.
    #[schemars(length(min = 1))]
    pub values: Vec<String>,
    /// The role.
    pub role: AdminRole,
}

/// Scheme, host without brackets, and path of a URL without user information.
fn url_parts(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic()) && !url.contains(['@', '?', '#']);
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None => authority.split(':').next().unwrap_or_default(),
    };
    (is_plain && !host.is_empty()).then_some((scheme, host, path))
}

fn is_own_host(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether codes and tokens to this URL stay confidential.
fn is_confidential(scheme: &str, host: &str) -> bool {
    scheme == "https" || scheme == "http" && is_own_host(host)
}

impl OpenidLoginConfig {
    /// Whether this login is offered.
    pub fn is_on(&self) -> bool {
        !self.issuer.is_empty()
    }

    /// Host of the provider, for the button of the login.
    pub fn provider_host(&self) -> &str {
        url_parts(&self.issuer).map_or("", |(_, host, _)| host)
    }

    /// Whether browsers reach the dashboard over TLS.
    pub fn is_over_tls(&self) -> bool {
        self.redirect_uri.starts_with("https://")
    }

    /// Problems of these settings within those of the admin listener.
    pub(super) fn check(&self, admin: &AdminConfig) -> Vec<Problem> {
        let at = |name: &str, found: String| problem(&format!("admin.dashboard.openid.{name}"), found);
        if !self.is_on() {
            let is_unused = *self != OpenidLoginConfig::default();
            let found = "empty, so the other settings of this login have no effect".to_owned();
            let hint = "write the issuer of the provider, or remove the section openid";
            return is_unused.then(|| at("issuer", found).hint(hint)).into_iter().collect();
        }
        let mut problems = Vec::new();
        if let Some(why) = self.reason_without_effect(admin) {
            problems.push(problem("admin.dashboard.openid", format!("has no effect: {why}")));
        }
        if !url_parts(&self.issuer).is_some_and(|(scheme, host, _)| is_confidential(scheme, host)) {
            let found = format!("\"{}\" is not an https URL without query", self.issuer);
            problems.push(at("issuer", found).hint("such as https://login.example.com/realms/operators"));
        }
        if self.client_id.is_empty() {
            problems.push(at("client_id", "is missing".into()).hint("write the identifier of the gateway"));
        }
        problems.extend(self.redirect_problem(admin).map(|found| {
            let hint = format!("the URL of the dashboard in browsers with the path {CALLBACK_PATH}");
            at("redirect_uri", found).hint(hint)
        }));
        if !self.scopes.iter().any(|scope| scope == "openid") {
            problems.push(at("scopes", "the scope \"openid\" is missing, which asks for an ID token".into()));
        }
        let is_token = |text: &String| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if let Some(scope) = self.scopes.iter().find(|scope| !is_token(scope)) {
            problems.push(at("scopes", format!("\"{scope}\" is not a scope")));
        }
        if self.roles.is_empty() {
            let hint = "such as { claim: groups, values: [gateway-admins], role: admin }";
            problems.push(at("roles", "is empty, so no user could log in".into()).hint(hint));
        }
        problems
    }

    fn reason_without_effect(&self, admin: &AdminConfig) -> Option<&'static str> {
        if admin.listen.is_empty() {
            return Some("admin.listen is empty");
        }
        if !admin.dashboard.enabled {
            return Some("admin.dashboard.enabled is false");
        }
        (!admin.key_required).then_some("admin.key_required is false, so no request needs a login")
    }

    fn redirect_problem(&self, admin: &AdminConfig) -> Option<String> {
        let uri = &self.redirect_uri;
        let Some((scheme, host, path)) = url_parts(uri) else {
            return Some(format!("\"{uri}\" is not a URL without query"));
        };
        if !path.ends_with(CALLBACK_PATH) {
            return Some(format!("the path of \"{uri}\" does not end with {CALLBACK_PATH}"));
        }
        if !is_confidential(scheme, host) {
            return Some(format!(
                "\"{uri}\" is without https, so codes would cross the network in clear text"
            ));
        }
        // Without TLS the listener refuses unknown names (DNS rebinding), so the callback would get 403.
        let is_named =
            admin.dashboard.hosts.iter().any(|name| name == "*" || name.eq_ignore_ascii_case(host));
        let is_served = admin.tls.is_on() || is_named || is_own_host(host) || host.parse::<IpAddr>().is_ok();
        (!is_served).then(|| format!("the host \"{host}\" is not in admin.dashboard.hosts"))
    }
}
