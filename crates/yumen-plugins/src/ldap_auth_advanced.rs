//! `ldap-auth-advanced`: searches the entry of a user in a directory, then checks the password by a bind.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{
    AccessRole, ConsumerAuth, ConsumerIndex, DirectoryFault, DirectoryLogin, DirectoryQuery, DirectoryReply,
    DirectoryResult, DirectorySearch, DirectorySecurity, DirectoryTarget, DryRunResult, Exchange,
    ExternalUser, LocalResponse, PhaseSet, Plugin, PluginBuildContext, PluginFactory, Step,
};

use crate::auth::refuse;
use crate::directory_login::{
    LDAP_PORT, LDAPS_PORT, UserPassword, canonical_dn, deserialize_dn, parse_address,
};

#[cfg(test)]
mod tests;

/// The fields that identify a user for the upstream. Those of the client are removed.
const IDENTITY_FIELDS: [&str; 4] =
    ["X-Consumer-Username", "X-Credential-Identifier", "X-Consumer-Custom-ID", "X-Authenticated-Groups"];

/// Settings of `ldap-auth-advanced`.
#[derive(Deserialize, JsonSchema)]
#[schemars(title = "work with route or service object", extend("encrypt_fields" = ["ldap_password"]))]
pub(crate) struct LdapAuthAdvancedSettings {
    #[serde(flatten)]
    connection: DirectoryConnectionSettings,
    /// The entry below which users are searched, as a distinguished name.
    #[schemars(length(min = 1, max = 4096))]
    base_dn: String,
    /// The attribute of a user's entry that has the user name.
    #[serde(default = "attribute")]
    #[schemars(
        length(max = 256),
        regex(
            pattern = r"^(?:[A-Za-z][A-Za-z0-9-]*|(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*))+)(?:;[A-Za-z0-9-]+)*$"
        )
    )]
    attribute: String,
    /// Distinguished name of the account that searches. Without it, the search is anonymous.
    #[schemars(length(min = 1, max = 4096))]
    bind_dn: Option<String>,
    /// Password of the account that searches.
    #[schemars(length(min = 1, max = 4096))]
    ldap_password: Option<String>,
    /// Maximum number of entries that the directory returns. Two are enough to find that a name is not unique.
    #[serde(default = "size_limit")]
    #[schemars(range(min = 2))]
    size_limit: u32,
    /// Time limit of the search in the directory in seconds; 0 is no limit.
    #[serde(default = "time_limit")]
    time_limit: u32,
    /// Scheme of the credentials: `ldap` or `basic`.
    #[serde(default)]
    #[schemars(extend("default" = "ldap"))]
    header_type: CredentialScheme,
    /// Realm of the challenge.
    #[serde(default = "realm")]
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[ -!#-[\]-~]+$"))]
    realm: String,
    /// Whether users without a consumer are refused. If not, they are known by their user name alone.
    #[serde(default = "yes")]
    consumer_required: bool,
}

/// The directory and its connections.
#[derive(Deserialize, JsonSchema)]
struct DirectoryConnectionSettings {
    /// Host of the directory and, after a colon, its port; 389 by default, 636 with `use_ldaps`.
    #[schemars(length(min = 1, max = 256))]
    ldap_uri: String,
    #[serde(flatten)]
    tls: DirectoryTlsSettings,
    /// Whether the certificate of the directory is verified.
    #[serde(default = "yes")]
    ssl_verify: bool,
    /// Time limit of the whole query in milliseconds.
    #[serde(default = "timeout_ms")]
    #[schemars(range(min = 1, max = 60000))]
    timeout: u64,
    /// Whether connections to the directory are reused.
    #[serde(default = "yes")]
    keepalive: bool,
    /// Idle timeout of connections in milliseconds.
    #[serde(default = "keepalive_ms")]
    #[schemars(range(min = 1000))]
    keepalive_timeout: u64,
    /// Maximum number of idle connections.
    #[serde(default = "keepalive_pool_size")]
    #[schemars(range(min = 1))]
    keepalive_pool_size: usize,
    /// Name of the pool of idle connections; plugins with the same name and directory share it.
    #[schemars(length(min = 1, max = 256))]
    keepalive_pool_name: Option<String>,
}

/// TLS on the way to the directory.
#[derive(Deserialize, JsonSchema)]
struct DirectoryTlsSettings {
    /// Whether connections use TLS from the first byte (LDAPS).
    #[serde(default)]
    use_ldaps: bool,
    /// Whether connections change to TLS by StartTLS.
    #[serde(default)]
    use_starttls: bool,
}

fn yes() -> bool {
    true
}

fn attribute() -> String {
    "cn".to_owned()
}

fn size_limit() -> u32 {
    2
}

fn time_limit() -> u32 {
    5
}

fn timeout_ms() -> u64 {
    10_000
}

fn keepalive_ms() -> u64 {
    60_000
}

fn keepalive_pool_size() -> usize {
    5
}

fn realm() -> String {
    "ldap".to_owned()
}

/// Scheme of the credentials in the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum CredentialScheme {
    #[default]
    Ldap,
    Basic,
}

impl CredentialScheme {
    fn name(self) -> &'static str {
        match self {
            CredentialScheme::Ldap => "ldap",
            CredentialScheme::Basic => "Basic",
        }
    }
}

/// Credentials of a consumer for `ldap-auth-advanced`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(title = "work with consumer object")]
pub(crate) struct LdapAuthAdvancedCredential {
    /// Distinguished name of the consumer's entry, in the case of the directory.
    #[serde(deserialize_with = "deserialize_dn")]
    #[schemars(length(min = 1, max = 4096))]
    user_dn: String,
}

/// The compiled settings.
pub(crate) struct LdapAuthAdvanced {
    target: Arc<DirectoryTarget>,
    searcher: Option<DirectoryLogin>,
    config: LdapAuthAdvancedSettings,
    challenge: Box<str>,
    owner: Box<str>,
}

impl PluginFactory for LdapAuthAdvanced {
    const NAME: &'static str = "ldap-auth-advanced";
    const PRIORITY: i32 = 2541;
    const ROLE: AccessRole = AccessRole::Authentication;
    type Config = LdapAuthAdvancedSettings;

    fn build(
        config: LdapAuthAdvancedSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<Self, InvalidSettings> {
        let target = config.connection.target()?;
        let searcher = match (&config.bind_dn, &config.ldap_password) {
            (Some(dn), Some(password)) => Some(DirectoryLogin { dn: dn.clone(), password: password.clone() }),
            (None, None) => None,
            // A name without a password would bind anonymously (RFC 4513 §5.1.2).
            (Some(_), None) => {
                return Err(InvalidSettings::at(
                    "ldap_password",
                    "\"ldap_password\" is required beside \"bind_dn\"",
                ));
            }
            (None, Some(_)) => {
                return Err(InvalidSettings::at(
                    "bind_dn",
                    "\"bind_dn\" is required beside \"ldap_password\"",
                ));
            }
        };
        let challenge = format!("{} realm=\"{}\"", config.header_type.name(), config.realm).into();
        Ok(LdapAuthAdvanced {
            target: Arc::new(target),
            searcher,
            config,
            challenge,
            owner: setup.owner.into(),
        })
    }
}

impl DirectoryConnectionSettings {
    fn target(&self) -> Result<DirectoryTarget, InvalidSettings> {
        let (security, port) = match (self.tls.use_ldaps, self.tls.use_starttls) {
            (true, true) => {
                let message = "use_ldaps and use_starttls exclude each other; set one of them to false";
                return Err(InvalidSettings::at("use_starttls", message));
            }
            (true, false) => (DirectorySecurity::Tls, LDAPS_PORT),
            (false, true) => (DirectorySecurity::StartTls, LDAP_PORT),
            (false, false) => (DirectorySecurity::Plain, LDAP_PORT),
        };
        let (host, port) = parse_address("ldap_uri", &self.ldap_uri, port)?;
        Ok(DirectoryTarget {
            host,
            port,
            security,
            verify: self.ssl_verify,
            timeout_ms: self.timeout,
            idle_max: if self.keepalive { self.keepalive_pool_size } else { 0 },
            idle_ms: self.keepalive_timeout,
            pool: self.keepalive_pool_name.clone(),
        })
    }
}

impl ConsumerAuth for LdapAuthAdvanced {
    type Consumer = LdapAuthAdvancedCredential;
    const KEY_FIELD: &'static str = "user_dn";

    fn key(consumer: &LdapAuthAdvancedCredential) -> &str {
        &consumer.user_dn
    }
}

/// Name and password of a request, and the field that has them.
struct PresentedUser {
    field: &'static str,
    user: UserPassword,
}

impl LdapAuthAdvanced {
    /// Name and password of the request, and the field that has them: `Proxy-Authorization` if it can be read, else
    /// `Authorization`.
    fn credentials(&self, ex: &Exchange<'_>) -> Option<PresentedUser> {
        ["Proxy-Authorization", "Authorization"].into_iter().find_map(|field| {
            let user = UserPassword::read(ex.request.fields.get(field)?, self.config.header_type.name())?;
            Some(PresentedUser { field, user })
        })
    }

    fn search(&self, user: &UserPassword) -> DirectoryQuery {
        DirectoryQuery::Search(Box::new(DirectorySearch {
            searcher: self.searcher.clone(),
            base_dn: self.config.base_dn.clone(),
            attribute: self.config.attribute.clone(),
            name: user.username.clone(),
            password: user.password.clone(),
            size_limit: self.config.size_limit,
            time_limit_s: self.config.time_limit,
        }))
    }

    async fn wait<'a>(
        &self,
        ex: &mut Exchange<'_>,
        PresentedUser { field, user }: PresentedUser,
        answer: LocalFuture<'static, DirectoryResult>,
    ) -> Step<'a> {
        let dn = match answer.await {
            Ok(DirectoryReply::Accepted { dn }) => dn,
            Ok(DirectoryReply::Refused | DirectoryReply::NotUnique) => return Step::Respond(self.refusal()),
            Err(fault) => {
                let reason = match fault {
                    DirectoryFault::Busy => "too many queries to the directory are in flight",
                    DirectoryFault::Timeout => "the directory gives no answer in time",
                    DirectoryFault::Unreachable(_) => "the directory is out of reach",
                    DirectoryFault::Failed(_) => "the directory answers with an error",
                };
                ex.host.report_undecided(Self::NAME, &self.owner, reason);
                return Step::Respond(LocalResponse::message(500, "Internal Server Error"));
            }
        };
        match ex.consumers.find(Self::NAME, canonical_dn(&dn).as_bytes()) {
            Some(identity) => ex.identify_as(identity),
            None if self.config.consumer_required => return Step::Respond(self.refusal()),
            None => {
                ex.request.fields.set_only("X-Credential-Identifier", user.username.as_bytes());
                let claims = Arc::new(serde_json::json!({ "dn": dn }));
                ex.external_user = Some(Box::new(ExternalUser { id: user.username.into(), claims }));
            }
        }
        if field == "Proxy-Authorization" {
            // Consumed by the proxy that checked it (RFC 9110 §11.7.2).
            ex.request.fields.remove(field);
        }
        Step::Continue
    }

    fn refusal(&self) -> LocalResponse {
        refuse("Authorization required", &self.challenge)
    }
}

impl Plugin for LdapAuthAdvanced {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        for name in IDENTITY_FIELDS {
            ex.request.fields.remove_equivalent(name);
        }
        let Some(presented) = self.credentials(ex) else { return Step::Respond(self.refusal()) };
        match ex.host.ask_directory(&self.target, self.search(&presented.user)) {
            Some(answer) => Step::Wait(Box::pin(self.wait(ex, presented, answer))),
            None => Step::Respond(LocalResponse::message(500, "Internal Server Error")),
        }
    }

    fn vouched_fields<'s>(&'s self, _: &'s ConsumerIndex) -> Vec<&'s str> {
        IDENTITY_FIELDS.to_vec()
    }

    fn dry_run(&self, _: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        match self.credentials(ex) {
            Some(PresentedUser { user, .. }) => {
                let LdapAuthAdvancedSettings { attribute, base_dn, .. } = &self.config;
                let note =
                    format!("searches {attribute}={} below {base_dn} in {}", user.username, self.target);
                DryRunResult::Note(note.into())
            }
            None => DryRunResult::Respond(self.refusal()),
        }
    }
}
