//! Settings towards servers, with the sessions that are resumed under them.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::UnixTime;

use super::authorities::TrustedAuthorities;

/// Settings towards servers, kept as long as somebody speaks to them.
#[derive(Debug)]
pub(crate) struct UpstreamTlsClient {
    /// Those that were given. Of the system's it is not known when they begin and end.
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

    /// What a handshake that begins now goes by.
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        self.config_at(UnixTime::now())
    }

    /// A resumed session is not verified again. So each change of who is trusted has sessions of its own: those begun
    /// before are resumed no more, and neither is what their servers send once it has come.
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
