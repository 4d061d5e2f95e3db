//! Variants of the handshake configuration for one set of rules, by kind of connection.

use std::sync::{Arc, OnceLock};

use rustls::ServerConfig;
use rustls::server::ClientHello;

/// ChaCha20 suites, which clients without AES instructions list first (RFC 8446 §B.4, RFC 7905).
const CHACHA: [u16; 3] = [0x1303, 0xcca9, 0xcca8];

/// The kind of connection that a configuration serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TlsVariant {
    /// The connection is a TCP stream, without ALPN.
    pub(super) streams: bool,
    /// The client's order of cipher suites takes precedence.
    pub(super) clients_order: bool,
}

impl TlsVariant {
    /// The variant for a client. The client's order counts if it prefers ChaCha20. Otherwise the gateway
    /// prefers suites with SHA-256, which CPUs accelerate, over SHA-384.
    pub(super) fn of(hello: &ClientHello<'_>, streams: bool) -> TlsVariant {
        let first =
            hello.cipher_suites().iter().map(|suite| u16::from(*suite)).find(|suite| !is_grease(*suite));
        TlsVariant { streams, clients_order: first.is_some_and(|suite| CHACHA.contains(&suite)) }
    }

    fn index(self) -> usize {
        usize::from(self.streams) + 2 * usize::from(self.clients_order)
    }
}

/// Reserved values that clients insert to keep servers tolerant (RFC 8701).
fn is_grease(suite: u16) -> bool {
    suite & 0x0f0f == 0x0a0a
}

/// Configurations of all variants, each built on first use.
#[derive(Default)]
pub(super) struct TlsVariantConfigs([OnceLock<Arc<ServerConfig>>; 4]);

impl TlsVariantConfigs {
    /// Returns the configuration of a variant, built by `make` on first use.
    pub(super) fn get(
        &self,
        variant: TlsVariant,
        make: impl FnOnce() -> Result<ServerConfig, String>,
    ) -> Result<Arc<ServerConfig>, String> {
        let cell = &self.0[variant.index()];
        if let Some(config) = cell.get() {
            return Ok(config.clone());
        }
        let made = Arc::new(make()?);
        Ok(cell.get_or_init(|| made).clone())
    }
}
