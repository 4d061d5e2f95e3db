//! The settings of handshakes that follow from the same rules, one for each kind of connection.

use std::sync::{Arc, OnceLock};

use rustls::ServerConfig;
use rustls::server::ClientHello;

/// Suites that a client without AES in hardware puts first (RFC 8446 §B.4, RFC 7905).
const CHACHA: [u16; 3] = [0x1303, 0xcca9, 0xcca8];

/// What sets handshakes under the same rules apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TlsVariant {
    /// Inside is a stream of bytes, for which no protocol is agreed on.
    pub(super) streams: bool,
    /// The client's order of suites counts, because it knows what is dear to it.
    pub(super) clients_order: bool,
}

impl TlsVariant {
    /// What serves this client best. Where both have AES in hardware, the gateway chooses: SHA-256 is made
    /// by the processor as well, and SHA-384 is not.
    pub(super) fn of(hello: &ClientHello<'_>, streams: bool) -> TlsVariant {
        let first =
            hello.cipher_suites().iter().map(|suite| u16::from(*suite)).find(|suite| !is_grease(*suite));
        TlsVariant { streams, clients_order: first.is_some_and(|suite| CHACHA.contains(&suite)) }
    }

    fn index(self) -> usize {
        usize::from(self.streams) + 2 * usize::from(self.clients_order)
    }
}

/// Numbers that mean nothing, which clients put first to keep servers tolerant (RFC 8701).
fn is_grease(suite: u16) -> bool {
    suite & 0x0f0f == 0x0a0a
}

/// Settings, each made when first wanted.
#[derive(Default)]
pub(super) struct TlsVariantConfigs([OnceLock<Arc<ServerConfig>>; 4]);

impl TlsVariantConfigs {
    /// Those of a variant, made by `make` the first time.
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
