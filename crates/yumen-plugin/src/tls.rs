//! The TLS session of a client: server name, protocol and certificate.
//!
//! Independent of the TLS library.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

/// The TLS session of a client.
#[derive(Debug, Clone, Default)]
pub struct TlsInfo {
    /// The server name that the client requested.
    pub sni: Option<Box<str>>,
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// The IANA name of the cipher suite.
    pub cipher: &'static str,
    /// The IANA name of the key exchange group; empty without a key exchange.
    pub group: &'static str,
    /// Whether the session was resumed.
    pub is_resumed: bool,
    /// The result of the certificate verification.
    pub verdict: ClientCertVerdict,
    /// The certificate of the client.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// Number of the rules that `verdict` applies; 0 if no certificate was requested.
    pub rules: u128,
}

/// The result of verifying a client certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ClientCertVerdict {
    /// The client has sent no certificate.
    #[default]
    Absent,
    /// The certificate is valid and issued by a requested authority.
    Verified,
    /// The certificate is invalid, for this reason.
    Failed(Box<str>),
}

/// A client certificate in the formats of NGINX.
#[derive(Debug, Clone, Default)]
pub struct ClientCertificate {
    /// The certificate and the chain that the client sent, DER.
    pub chain: Box<[Box<[u8]>]>,
    /// The subject, as in RFC 2253.
    pub subject: Box<str>,
    /// The issuer, as in RFC 2253.
    pub issuer: Box<str>,
    /// The serial number, in upper-case hexadecimal digits.
    pub serial: Box<str>,
    /// The SHA-1 digest, in hexadecimal digits.
    pub fingerprint: Box<str>,
    /// Start of the validity, as in `Nov 21 15:00:00 2026 GMT`.
    pub valid_from: Box<str>,
    /// End of the validity.
    pub valid_until: Box<str>,
    /// End of the validity, in seconds since the Unix epoch.
    pub not_after_unix_s: i64,
}

impl ClientCertVerdict {
    /// The value of `$ssl_client_verify`: `SUCCESS`, `FAILED:reason` or `NONE`.
    pub fn append(&self, out: &mut Vec<u8>) {
        match self {
            ClientCertVerdict::Absent => out.extend_from_slice(b"NONE"),
            ClientCertVerdict::Verified => out.extend_from_slice(b"SUCCESS"),
            ClientCertVerdict::Failed(reason) => {
                out.extend_from_slice(b"FAILED:");
                out.extend_from_slice(reason.as_bytes());
            }
        }
    }
}

impl ClientCertificate {
    /// The certificate as PEM, each line but the first after `indent`, without the last line end.
    pub fn pem(&self, indent: &str) -> String {
        let text = BASE64.encode(self.chain.first().map_or(&[][..], |leaf| leaf));
        let mut pem = String::from("-----BEGIN CERTIFICATE-----");
        for line in text.as_bytes().chunks(64) {
            pem.push('\n');
            pem.push_str(indent);
            pem.extend(line.iter().map(|byte| char::from(*byte)));
        }
        pem.push('\n');
        pem.push_str(indent);
        pem.push_str("-----END CERTIFICATE-----");
        pem
    }

    /// Number of days until the end of the validity; 0 after it.
    pub fn days_left(&self, now_unix_s: u64) -> u64 {
        const DAY_S: i64 = 24 * 60 * 60;
        let left_s = self.not_after_unix_s.saturating_sub(now_unix_s as i64);
        (left_s.max(0) / DAY_S) as u64
    }
}
