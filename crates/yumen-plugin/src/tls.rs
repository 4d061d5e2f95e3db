//! What a TLS handshake told of the client: server name, protocol, and the certificate it showed.
//!
//! Knows no TLS library; whoever shook hands fills it in.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

/// What TLS told about a client.
#[derive(Debug, Clone, Default)]
pub struct TlsInfo {
    /// The server name it asked for.
    pub sni: Option<Box<str>>,
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// The cipher suite's IANA name.
    pub cipher: &'static str,
    /// The group keys were exchanged in, by its IANA name; empty where none was.
    pub group: &'static str,
    /// Whether an earlier session was resumed.
    pub is_resumed: bool,
    /// Whether its certificate holds.
    pub verdict: ClientCertVerdict,
    /// The certificate it showed.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// Names the rules `verdict` was reached under; 0 where no certificate was asked for.
    pub rules: u128,
}

/// Whether a client's certificate holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ClientCertVerdict {
    /// None was shown.
    #[default]
    Absent,
    /// It leads to an authority asked for, and holds.
    Verified,
    /// It does not, for this reason.
    Failed(Box<str>),
}

/// A client's certificate in the forms NGINX gives it.
#[derive(Debug, Clone, Default)]
pub struct ClientCertificate {
    /// The certificate and the chain shown with it, DER.
    pub chain: Box<[Box<[u8]>]>,
    /// Its subject, as RFC 2253 writes it.
    pub subject: Box<str>,
    /// Its issuer, as RFC 2253 writes it.
    pub issuer: Box<str>,
    /// Its serial number, in capital hexadecimal digits.
    pub serial: Box<str>,
    /// Its SHA-1 digest, in hexadecimal digits.
    pub fingerprint: Box<str>,
    /// From when it holds, as in `Nov 21 15:00:00 2026 GMT`.
    pub valid_from: Box<str>,
    /// Until when.
    pub valid_until: Box<str>,
    /// Until when, in seconds since the Unix epoch.
    pub not_after_unix_s: i64,
}

impl ClientCertVerdict {
    /// As `$ssl_client_verify` has it: `SUCCESS`, `FAILED:reason` or `NONE`.
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
    /// The certificate as PEM, each line but the first led in by `indent`, without a last line end.
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

    /// How many days it still holds; 0 where it does not.
    pub fn days_left(&self, now_unix_s: u64) -> u64 {
        const DAY_S: i64 = 24 * 60 * 60;
        let left_s = self.not_after_unix_s.saturating_sub(now_unix_s as i64);
        (left_s.max(0) / DAY_S) as u64
    }
}
