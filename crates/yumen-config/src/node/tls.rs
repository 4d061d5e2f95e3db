//! TLS towards clients, and certificates from an ACME server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yumen_base::Problem;

use super::{SecretText, problem};

/// TLS towards clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DownstreamTlsConfig {
    /// The oldest version spoken, where the certificate does not say.
    pub version_min: TlsVersion,
    /// The cipher suites offered where the certificate does not say, by OpenSSL's or IANA's names, the most
    /// liked first; none offers all there are, which are safe.
    pub ciphers: Vec<String>,
    /// Whether clients may resume with tickets.
    pub session_tickets: bool,
    /// How often the key of tickets is replaced, in seconds; a ticket is taken for twice as long at most.
    #[schemars(range(min = 1, max = 302400))]
    pub ticket_rotation_s: u32,
    /// How many sessions each worker remembers for clients without tickets; 0 remembers none. Room for them is made
    /// at the start.
    #[schemars(range(max = 262144))]
    pub session_entries: u32,
    /// How long a handshake may take, in milliseconds.
    #[schemars(range(min = 1))]
    pub handshake_ms: u64,
    /// Whether the status of certificates that name an OCSP responder is fetched and shown with them.
    pub ocsp_stapling: bool,
    /// A certificate that ends within so many days is told as a problem, and so is an authority or a list of the revoked
    /// that others are verified by; 0 tells only what has ended.
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

/// Certificates fetched from an ACME server (RFC 8555), and renewed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AcmeConfig {
    /// The server's directory, such as `https://acme-v02.api.letsencrypt.org/directory`; empty fetches
    /// nothing. Naming a server means agreeing to its terms.
    pub directory: String,
    /// The certificates wanted: each a list of `names`. What the `ssl` object that fits a name asks of handshakes
    /// and clients holds under them.
    pub certificates: Vec<AcmeCertificate>,
    /// Where the server may write to, such as `mailto:ops@example.com`.
    pub contact: Vec<String>,
    /// How names are proved: `http-01` needs port 80 of each name to lead here, `tls-alpn-01` port 443.
    pub challenge: AcmeChallenge,
    /// The file of the authorities the server's own certificate must lead to, PEM; empty means the
    /// system's.
    pub ca: String,
    /// The account at the authority this one is tied to, where the authority wants that.
    pub external_account: ExternalAccount,
}

/// A certificate to be fetched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcmeCertificate {
    /// The names it is for.
    #[schemars(length(min = 1, max = 100))]
    pub names: Vec<String>,
}

/// How names are proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum AcmeChallenge {
    /// By a document under the name (RFC 8555 §8.3).
    #[default]
    #[serde(rename = "http-01")]
    Http01,
    /// By a certificate for the name (RFC 8737).
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
}

/// An account the ACME account is tied to (RFC 8555 §7.3.4).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExternalAccount {
    /// The id of its key; empty ties to none.
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
    /// Whether anything is to be fetched.
    pub fn is_on(&self) -> bool {
        !self.directory.is_empty()
    }

    /// What a schema cannot say.
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
