//! `ldap-auth`: authenticates consumers by a bind to a directory with the name and password of the client.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{
    AccessRole, ConsumerAuth, DirectoryLogin, DirectoryQuery, DirectoryReply, DirectoryResult,
    DirectorySecurity, DirectoryTarget, DryRunResult, Exchange, PhaseSet, Plugin, PluginBuildContext,
    PluginFactory, Step,
};

use crate::auth::refuse;
use crate::directory_login::{
    LDAP_PORT, LDAPS_PORT, UserPassword, canonical_dn, deserialize_dn, escape_dn_value, parse_address,
};

#[cfg(test)]
mod tests;

/// Time limit of a bind in milliseconds, with connecting.
const TIMEOUT_MS: u64 = 10_000;
/// Idle connections to the directory that are kept, and for how long in milliseconds.
const IDLE_MAX: usize = 5;
const IDLE_MS: u64 = 60_000;

/// Settings of `ldap-auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(title = "work with route or service object")]
pub(crate) struct LdapAuthSettings {
    /// The entry below which users are, as a distinguished name.
    base_dn: String,
    /// Host of the directory and, after a colon, its port; 389 by default, 636 with `use_tls`.
    ldap_uri: String,
    /// The attribute of a user's entry that has the user name.
    #[serde(default = "uid")]
    uid: String,
    #[serde(flatten)]
    tls: LdapTlsSettings,
    /// Realm of the challenge.
    #[serde(default = "realm")]
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[ -!#-[\]-~]+$"))]
    realm: String,
    /// Whether the `Authorization` field is removed before the request goes to the upstream.
    #[serde(default)]
    hide_credentials: bool,
}

/// TLS on the way to the directory.
#[derive(Debug, Deserialize, JsonSchema)]
struct LdapTlsSettings {
    /// Whether connections use TLS (LDAPS). Without it, passwords are readable on the way.
    #[serde(default)]
    use_tls: bool,
    /// Whether the certificate of the directory is verified.
    #[serde(default)]
    tls_verify: bool,
}

fn uid() -> String {
    "cn".to_owned()
}

fn realm() -> String {
    "ldap".to_owned()
}

/// Credentials of a consumer for `ldap-auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(title = "work with consumer object")]
pub(crate) struct LdapAuthCredential {
    /// Distinguished name of the consumer's entry: `uid`, `=`, the user name, and `base_dn` of the route.
    #[serde(deserialize_with = "deserialize_dn")]
    #[schemars(length(min = 1))]
    user_dn: String,
}

/// The compiled settings.
#[derive(Debug)]
pub(crate) struct LdapAuth {
    target: Arc<DirectoryTarget>,
    config: LdapAuthSettings,
    challenge: Box<str>,
    owner: Box<str>,
}

impl PluginFactory for LdapAuth {
    const NAME: &'static str = "ldap-auth";
    const PRIORITY: i32 = 2540;
    const ROLE: AccessRole = AccessRole::Authentication;
    type Config = LdapAuthSettings;

    fn build(config: LdapAuthSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let port = if config.tls.use_tls { LDAPS_PORT } else { LDAP_PORT };
        let (host, port) = parse_address("ldap_uri", &config.ldap_uri, port)?;
        if config.tls.tls_verify && !config.tls.use_tls {
            setup.warn("tls_verify", "without effect: connections use no TLS", "set use_tls to true");
        }
        let target = DirectoryTarget {
            host,
            port,
            security: if config.tls.use_tls { DirectorySecurity::Tls } else { DirectorySecurity::Plain },
            verify: config.tls.tls_verify,
            timeout_ms: TIMEOUT_MS,
            idle_max: IDLE_MAX,
            idle_ms: IDLE_MS,
            pool: None,
        };
        let challenge = format!("Basic realm=\"{}\"", config.realm).into();
        Ok(LdapAuth { target: Arc::new(target), config, challenge, owner: setup.owner.into() })
    }
}

impl ConsumerAuth for LdapAuth {
    type Consumer = LdapAuthCredential;
    const KEY_FIELD: &'static str = "user_dn";

    fn key(consumer: &LdapAuthCredential) -> &str {
        &consumer.user_dn
    }
}

impl LdapAuth {
    /// The name and password of the request, as a login of the directory.
    fn login(&self, ex: &Exchange<'_>) -> Result<DirectoryLogin, &'static str> {
        let field = ex.request.fields.get("Authorization").ok_or("Missing authorization in request")?;
        let user = UserPassword::read(field, "basic").ok_or("Invalid authorization in request")?;
        let LdapAuthSettings { uid, base_dn, .. } = &self.config;
        let dn = format!("{uid}={},{base_dn}", escape_dn_value(&user.username));
        Ok(DirectoryLogin { dn, password: user.password })
    }

    async fn wait<'a>(
        &self,
        ex: &mut Exchange<'_>,
        answer: LocalFuture<'static, DirectoryResult>,
    ) -> Step<'a> {
        let dn = match answer.await {
            Ok(DirectoryReply::Accepted { dn }) => dn,
            Ok(_) => return self.refusal("Invalid user authorization"),
            Err(fault) => {
                // The client sees no difference, as in APISIX; the operator does.
                let reason = match fault {
                    yumen_plugin::DirectoryFault::Busy => "too many queries to the directory are in flight",
                    _ => "the directory gives no answer",
                };
                ex.host.report_undecided(Self::NAME, &self.owner, reason);
                return self.refusal("Invalid user authorization");
            }
        };
        let Some(identity) = ex.consumers.find(Self::NAME, canonical_dn(&dn).as_bytes()) else {
            return self.refusal("Invalid user authorization");
        };
        ex.identify_as(identity);
        if self.config.hide_credentials {
            ex.request.fields.remove("Authorization");
        }
        Step::Continue
    }

    fn refusal<'a>(&self, message: &str) -> Step<'a> {
        Step::Respond(refuse(message, &self.challenge))
    }
}

impl Plugin for LdapAuth {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let login = match self.login(ex) {
            Ok(login) => login,
            Err(message) => return self.refusal(message),
        };
        match ex.host.ask_directory(&self.target, DirectoryQuery::Bind(login)) {
            Some(answer) => Step::Wait(Box::pin(self.wait(ex, answer))),
            None => self.refusal("Invalid user authorization"),
        }
    }

    fn credential_field(&self) -> Option<&str> {
        Some("Authorization")
    }

    fn dry_run(&self, _: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        match self.login(ex) {
            Ok(login) => DryRunResult::Note(format!("binds as {} to {}", login.dn, self.target).into()),
            Err(message) => DryRunResult::Respond(refuse(message, &self.challenge)),
        }
    }
}
