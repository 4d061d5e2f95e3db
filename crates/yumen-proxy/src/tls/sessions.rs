//! Upstream TLS configurations with their cached sessions.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::UnixTime;

use super::authorities::TrustedAuthorities;

/// A TLS configuration for upstream connections, shared while any connection uses it.
#[derive(Debug)]
pub(crate) struct UpstreamTlsClient {
    /// The configured authorities; `None` for the system's, whose validity periods are unknown.
    authorities: Option<Arc<TrustedAuthorities>>,
    current: Mutex<CurrentTlsConfig>,
}

#[derive(Debug)]
struct CurrentTlsConfig {
    config: Arc<ClientConfig>,
    looked_at: UnixTime,
}

impl UpstreamTlsClient {
    pub(super) fn new(
        config: ClientConfig,
        authorities: Option<Arc<TrustedAuthorities>>,
    ) -> UpstreamTlsClient {
        let current = CurrentTlsConfig { config: Arc::new(config), looked_at: UnixTime::now() };
        UpstreamTlsClient { authorities, current: Mutex::new(current) }
    }

    /// The configuration for a handshake that begins now.
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        self.config_at(UnixTime::now())
    }

    /// Like [`Self::config`], at `now`. A resumed session is not verified again. Each change of the valid
    /// authorities therefore starts a new session cache, so that no earlier session is resumed.
    pub(super) fn config_at(&self, now: UnixTime) -> Arc<ClientConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let has_changed = |given: &Arc<TrustedAuthorities>| given.have_changed(current.looked_at, now);
        if self.authorities.as_ref().is_some_and(has_changed) {
            let mut config = ClientConfig::clone(&current.config);
            config.resumption = Resumption::default();
            current.config = Arc::new(config);
        }
        current.looked_at = now;
        current.config.clone()
    }
}
