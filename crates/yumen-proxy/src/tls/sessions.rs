//! Sessions with servers, resumed as long as the authorities are the same under which they were begun.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::NamedGroup;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::{ServerName, UnixTime};

use super::authorities::Authorities;

/// Sessions that are remembered, as many as the library does.
const SESSIONS_MAX: usize = 256;

/// A resumed session is not verified again. So all are forgotten when an authority begins or ends, and the next
/// handshakes decide anew.
#[derive(Debug)]
pub(super) struct Sessions {
    authorities: Arc<Authorities>,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    sessions: Arc<ClientSessionMemoryCache>,
    looked_at: UnixTime,
}

impl Kept {
    fn new(now: UnixTime) -> Kept {
        Kept { sessions: Arc::new(ClientSessionMemoryCache::new(SESSIONS_MAX)), looked_at: now }
    }
}

impl Sessions {
    pub(super) fn verified_by(authorities: Arc<Authorities>) -> Sessions {
        Sessions { authorities, kept: Mutex::new(Kept::new(UnixTime::now())) }
    }

    /// Those of a moment.
    pub(super) fn at(&self, now: UnixTime) -> Arc<ClientSessionMemoryCache> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if self.authorities.have_changed(kept.looked_at, now) {
            *kept = Kept::new(now);
        }
        kept.looked_at = now;
        kept.sessions.clone()
    }

    fn now(&self) -> Arc<ClientSessionMemoryCache> {
        self.at(UnixTime::now())
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        self.now().set_kx_hint(server_name, group);
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        self.now().kx_hint(server_name)
    }

    fn set_tls12_session(&self, server_name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.now().set_tls12_session(server_name, value);
    }

    fn tls12_session(&self, server_name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.now().tls12_session(server_name)
    }

    fn remove_tls12_session(&self, server_name: &ServerName<'static>) {
        self.now().remove_tls12_session(server_name);
    }

    fn insert_tls13_ticket(&self, server_name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.now().insert_tls13_ticket(server_name, value);
    }

    fn take_tls13_ticket(&self, server_name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.now().take_tls13_ticket(server_name)
    }
}
