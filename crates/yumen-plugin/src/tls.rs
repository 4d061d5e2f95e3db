//! Properties of a client's TLS connection: server name, protocol, and client certificate. Independent of the
//! TLS library.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

/// Properties of a TLS connection.
#[derive(Debug, Clone, Default)]
pub struct TlsInfo {
    /// The server name (SNI).
    pub sni: Option<Box<str>>,
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// The IANA name of the cipher suite.
    pub cipher: &'static str,
    /// The IANA name of the key exchange group; empty without a key exchange.
    pub group: &'static str,
    /// Whether a session was resumed.
    pub is_resumed: bool,
    /// The result of verifying the client certificate.
    pub verdict: ClientCertVerdict,
    /// The client certificate.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// Identifies the handshake rules of `verdict`; 0 if no certificate was requested.
    pub rules: u128,
}

/// The result of verifying a client certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ClientCertVerdict {
    /// The client presented none.
    #[default]
    Absent,
    /// Valid under a requested authority.
    Verified,
    /// Invalid, for this reason.
    Failed(Box<str>),
}

/// A client certificate in the forms that NGINX exposes.
#[derive(Debug, Clone, Default)]
pub struct ClientCertificate {
    /// The certificate and its chain, in DER.
    pub chain: Box<[Box<[u8]>]>,
    /// Subject in the form of RFC 2253.
    pub subject: Box<str>,
    /// Issuer in the form of RFC 2253.
    pub issuer: Box<str>,
    /// Serial number in upper-case hexadecimal.
    pub serial: Box<str>,
    /// SHA-1 digest in hexadecimal.
    pub fingerprint: Box<str>,
    /// Begin of the validity, as in `Nov 21 15:00:00 2026 GMT`.
    pub valid_from: Box<str>,
    /// End of the validity in the same form.
    pub valid_until: Box<str>,
    /// End of the validity in seconds since the Unix epoch.
    pub not_after_unix_s: i64,
}

impl ClientCertVerdict {
    /// Appends the value of `$ssl_client_verify`: `SUCCESS`, `FAILED:reason` or `NONE`.
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
    /// The certificate in PEM, with `indent` before each line but the first, without a final line end.
    pub fn pem(&self, indent: &str) -> String {
        // The certificate of the sender comes first (RFC 8446 §4.4.2).
        let text = BASE64.encode(self.chain.first().map_or(&[][..], |leaf| leaf));
        let mut pem = String::from("-----BEGIN CERTIFICATE-----");
        // PEM has 64 characters per line (RFC 7468 §2).
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

    /// Days until the end of the validity; 0 after it.
    pub fn days_left(&self, now_unix_s: u64) -> u64 {
        const DAY_S: i64 = 24 * 60 * 60;
        let left_s = self.not_after_unix_s.saturating_sub(now_unix_s as i64);
        (left_s.max(0) / DAY_S) as u64
    }
}
