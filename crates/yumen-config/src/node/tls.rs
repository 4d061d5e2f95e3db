//! TLS with clients, and certificates from an ACME server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yumen_base::Problem;

use super::{SecretText, problem};

/// TLS with clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DownstreamTlsConfig {
    /// Minimum TLS version, unless the certificate sets one.
    pub version_min: TlsVersion,
    /// Cipher suites by OpenSSL or IANA name in order of preference, unless the certificate sets them; empty
    /// offers all supported suites, which are safe.
    pub ciphers: Vec<String>,
    /// Whether clients may resume sessions with tickets.
    pub session_tickets: bool,
    /// Interval of ticket key rotation, in seconds; a ticket is accepted for at most twice as long.
    #[schemars(range(min = 1, max = 302400))]
    pub ticket_rotation_s: u32,
    /// Sessions that each worker caches for clients without tickets; 0 caches none. The memory is allocated
    /// at startup.
    #[schemars(range(max = 262144))]
    pub session_entries: u32,
    /// Timeout of a handshake, in milliseconds.
    #[schemars(range(min = 1))]
    pub handshake_ms: u64,
    /// Whether OCSP responses are fetched and stapled for certificates that name a responder.
    pub ocsp_stapling: bool,
    /// A certificate, an authority or a revocation list that expires within this number of days is a problem;
    /// 0 reports only those that have expired.
    pub expiry_warning_days: u32,
}

impl Default for DownstreamTlsConfig {
    fn default() -> Self {
        DownstreamTlsConfig {
            version_min: TlsVersion::V1_2,
            ciphers: Vec::new(),
            session_tickets: true,
            ticket_rotation_s: 6 * 60 * 60,
            session_entries: 4096,
            handshake_ms: 10_000,
            ocsp_stapling: true,
            expiry_warning_days: 14,
        }
    }
}

/// A TLS version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum TlsVersion {
    /// RFC 5246.
    #[serde(rename = "1.2")]
    V1_2,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    V1_3,
}

/// Certificates that are obtained from an ACME server (RFC 8555) and renewed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AcmeConfig {
    /// The server's directory, such as `https://acme-v02.api.letsencrypt.org/directory`; empty disables ACME.
    /// Setting a directory means agreeing to the server's terms.
    pub directory: String,
    /// The certificates to obtain: each a list of `names`. TLS versions, ciphers and client certificate rules
    /// come from the `ssl` object that matches a name.
    pub certificates: Vec<AcmeCertificate>,
    /// Contacts for the server, such as `mailto:ops@example.com`.
    pub contact: Vec<String>,
    /// Challenge type: `http-01` needs port 80 of each name to lead to this node, `tls-alpn-01` port 443.
    pub challenge: AcmeChallenge,
    /// PEM file of the trust anchors for the server's certificate; empty means those of the system.
    pub ca: String,
    /// External account binding, if the authority requires one.
    pub external_account: ExternalAccount,
}

/// A certificate to obtain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcmeCertificate {
    /// Names in the certificate.
    #[schemars(length(min = 1, max = 100))]
    pub names: Vec<String>,
}

/// Challenge type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum AcmeChallenge {
    /// A document under the name (RFC 8555 §8.3).
    #[default]
    #[serde(rename = "http-01")]
    Http01,
    /// A certificate for the name (RFC 8737).
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
}

/// External account binding (RFC 8555 §7.3.4).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExternalAccount {
    /// Id of the account's key; empty means no binding.
    pub key_id: String,
    /// The key, in base64url.
    pub key: SecretText,
}

impl Default for ExternalAccount {
    fn default() -> Self {
        ExternalAccount { key_id: String::new(), key: SecretText(String::new()) }
    }
}

impl AcmeConfig {
    /// Whether ACME is enabled.
    pub fn is_on(&self) -> bool {
        !self.directory.is_empty()
    }

    /// Checks the rules that the schema cannot express.
    pub(super) fn check(&self, problems: &mut Vec<Problem>) {
        if self.is_on() && !self.directory.starts_with("https://") {
            let found = format!("\"{}\" is not an https URL", self.directory);
            problems.push(problem("acme.directory", found));
        }
        if self.is_on() && self.certificates.is_empty() {
            let found = "acme.directory is set, but acme.certificates is empty";
            problems.push(problem("acme.certificates", found).hint("such as - names: [shop.example.com]"));
        }
        if !self.is_on() && !self.certificates.is_empty() {
            let found = "acme.certificates is set, but acme.directory is empty";
            let hint = "such as https://acme-v02.api.letsencrypt.org/directory";
            problems.push(problem("acme.directory", found).hint(hint));
        }
        if self.external_account.key_id.is_empty() != self.external_account.key.0.is_empty() {
            let found = "an id and a key belong together: only one of them is set";
            problems.push(problem("acme.external_account", found));
        }
        for (i, certificate) in self.certificates.iter().enumerate() {
            for (j, name) in certificate.names.iter().enumerate() {
                let path = format!("acme.certificates[{i}].names[{j}]");
                if name.starts_with('*') {
                    let found = format!("\"{name}\" is a wildcard, which neither challenge can prove");
                    problems.push(problem(&path, found).hint("name each host"));
                } else if !is_host_name(name) {
                    problems.push(problem(&path, format!("\"{name}\" is not a host name")));
                }
            }
        }
    }
}

fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}
