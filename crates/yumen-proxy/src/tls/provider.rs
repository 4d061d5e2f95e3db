//! The cryptography of TLS: cipher suites, versions and key exchange groups, by aws-lc-rs.
//!
//! Independent of configuration objects or connections.

use std::sync::{Arc, OnceLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

/// Key exchange groups in order of preference, post-quantum first.
const GROUPS: &[&dyn rustls::crypto::SupportedKxGroup] = &[
    aws_lc_rs::kx_group::X25519MLKEM768,
    aws_lc_rs::kx_group::X25519,
    aws_lc_rs::kx_group::SECP256R1,
    aws_lc_rs::kx_group::SECP384R1,
];

/// OpenSSL names of the supported suites, with the names of rustls.
const SUITES: [(&str, &str); 9] = [
    ("TLS_AES_256_GCM_SHA384", "TLS13_AES_256_GCM_SHA384"),
    ("TLS_AES_128_GCM_SHA256", "TLS13_AES_128_GCM_SHA256"),
    ("TLS_CHACHA20_POLY1305_SHA256", "TLS13_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
];

/// The default provider, with all suites.
pub(super) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    let make = || {
        let mut provider = CryptoProvider { kx_groups: GROUPS.to_vec(), ..aws_lc_rs::default_provider() };
        // AES-128 first: it is as strong as the curves, and a handshake with SHA-256 costs a tenth less. The
        // stable sort otherwise keeps the order of the library.
        provider.cipher_suites.sort_by_key(|suite| match suite.suite().as_str().unwrap_or_default() {
            name if name.contains("AES_128") => 0,
            name if name.contains("AES_256") => 1,
            _ => 2,
        });
        Arc::new(provider)
    };
    PROVIDER.get_or_init(make).clone()
}

/// The suites with these names, in this order. An error lists the unknown name and all supported ones.
pub(super) fn suites(names: &[String]) -> Result<Vec<SupportedCipherSuite>, String> {
    let all = &provider().cipher_suites;
    let find = |name: &String| {
        let known = SUITES.iter().find(|(openssl, name_rustls)| name == openssl || name == name_rustls);
        let name_rustls = known.map_or(name.as_str(), |(_, name_rustls)| name_rustls);
        let found = all.iter().find(|suite| suite.suite().as_str() == Some(name_rustls)).copied();
        found.ok_or_else(|| {
            let known: Vec<&str> = SUITES.iter().map(|(openssl, _)| *openssl).collect();
            format!("`{name}` is not supported; supported: {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

/// A provider with only these suites. A TLS version without any of them keeps its default suites.
pub(super) fn with_suites(suites: &[SupportedCipherSuite]) -> Arc<CryptoProvider> {
    let usual = provider();
    let is_tls13 = |suite: &SupportedCipherSuite| suite.tls13().is_some();
    let mut chosen = suites.to_vec();
    for version in [true, false] {
        if !suites.iter().any(|suite| is_tls13(suite) == version) {
            chosen.extend(usual.cipher_suites.iter().filter(|suite| is_tls13(suite) == version));
        }
    }
    Arc::new(CryptoProvider { cipher_suites: chosen, ..(*usual).clone() })
}

/// Enabled TLS versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TlsVersions {
    /// TLS 1.2 (RFC 5246).
    pub tls12: bool,
    /// TLS 1.3 (RFC 8446).
    pub tls13: bool,
}

impl TlsVersions {
    pub(super) fn supported(self) -> &'static [&'static SupportedProtocolVersion] {
        static ONLY_12: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS12];
        static ONLY_13: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];
        static BOTH: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
        match (self.tls12, self.tls13) {
            (true, false) => &ONLY_12,
            (false, _) => &ONLY_13,
            (true, true) => &BOTH,
        }
    }
}
