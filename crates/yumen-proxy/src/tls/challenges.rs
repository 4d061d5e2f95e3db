//! Certificates of the TLS-ALPN-01 challenge, which prove control of a name to an ACME server (RFC 8737).
//!
//! They are presented only to clients that offer `acme-tls/1`, and carry no traffic.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls::server::ClientHello;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::certificate_key_pair;
use super::provider::provider;

/// The ALPN protocol of the challenge (RFC 8737 §6.2).
pub(super) const ALPN: &[u8] = b"acme-tls/1";

/// The challenges in progress, by server name.
#[derive(Debug, Default)]
pub struct TlsAlpnChallenges {
    by_name: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

/// One challenge in progress, for its removal.
#[derive(Debug)]
pub struct TlsAlpnChallenge {
    name: String,
    pair: Arc<CertifiedKey>,
}

impl TlsAlpnChallenges {
    /// Presents this PEM certificate to ACME servers that request `name`, in place of an earlier one.
    pub fn put(&self, name: &str, certificate: &str, key: &str) -> Result<TlsAlpnChallenge, String> {
        let pair = certificate_key_pair::load_unchecked(certificate, key).map_err(|flaw| flaw.to_string())?;
        let name = name.to_ascii_lowercase();
        self.lock().insert(name.clone(), pair.clone());
        Ok(TlsAlpnChallenge { name, pair })
    }

    /// Ends a challenge. A newer challenge for the same name is not affected.
    pub fn remove(&self, challenge: &TlsAlpnChallenge) {
        let mut shown = self.lock();
        if shown.get(&challenge.name).is_some_and(|pair| Arc::ptr_eq(pair, &challenge.pair)) {
            shown.remove(&challenge.name);
        }
    }

    /// The configuration for a client hello of an ACME server; `None` for other clients.
    pub(super) fn answer(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        let is_challenge = hello.alpn().is_some_and(|mut all| all.any(|one| one == ALPN));
        if !is_challenge {
            return None;
        }
        let pair = self.lock().get(&hello.server_name()?.to_ascii_lowercase()).cloned()?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .ok()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
        config.alpn_protocols = vec![ALPN.to_vec()];
        // No data follows the handshake, so a ticket could not be used.
        config.send_tls13_tickets = 0;
        Some(Arc::new(config))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<CertifiedKey>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
