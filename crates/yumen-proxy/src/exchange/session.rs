//! Session persistence of a route: the endpoint that a request names, and the value that names the next one.
//!
//! The format of the value belongs to `yumen-actions`.

use std::rc::Rc;

use yumen_actions::{CookieClient, HashedSession, SessionTicket};
use yumen_http::ResponseHead;
use yumen_plugin::{Exchange, StickyEndpoint};
use yumen_snapshot::{SessionRules, Upstream};

use crate::worker::Worker;

/// The session of an exchange, until its response names the endpoint.
pub(crate) struct ExchangeSession<'s> {
    rules: &'s SessionRules,
    worker: Rc<Worker>,
    /// The name of the backend; 0 at routes without weighted backends.
    pub(crate) backend: u64,
    /// The session that the request named, in mode `hash`.
    named: Option<HashedSession>,
    /// The value that selects the endpoint, in mode `hash`.
    key: u64,
}

impl<'s> ExchangeSession<'s> {
    /// Reads the session of a request into the exchange, ahead of the choice of a backend.
    #[cold]
    pub(crate) fn begin(
        worker: &Rc<Worker>,
        ex: &mut Exchange<'_>,
        rules: &'s SessionRules,
    ) -> Box<ExchangeSession<'s>> {
        let spec = &rules.written;
        let value = yumen_actions::received_value(spec, &ex.request);
        let mut session = ExchangeSession { rules, worker: worker.clone(), backend: 0, named: None, key: 0 };
        if rules.is_hashed() {
            session.named = value.and_then(HashedSession::decode);
            session.key = session.named.map_or_else(|| worker.random(), |named| named.key);
        } else {
            let ticket = value.and_then(|value| worker.settings.session_keys.open(&spec.name, value));
            ex.upstream.sticky = ticket
                .filter(|ticket| !ticket.is_over(spec, ex.now.unix_s()))
                .map(|ticket| Box::new(StickyEndpoint { backend: ticket.backend, address: ticket.address }));
        }
        Box::new(session)
    }

    /// The backend of the session, in mode `hash`.
    pub(crate) fn named_backend(&self) -> Option<u64> {
        self.named.map(|named| named.backend)
    }

    /// Selects the endpoint of the session in mode `hash`, after the choice of the backend.
    #[cold]
    pub(crate) fn bind(&self, ex: &mut Exchange<'_>, upstream: &Upstream) {
        if self.rules.is_hashed() {
            let address = upstream.hashed(self.key);
            let backend = self.backend;
            ex.upstream.sticky = address.map(|address| Box::new(StickyEndpoint { backend, address }));
        }
    }

    /// Adds the value of a new session to the response of an endpoint. The client keeps that of a session that
    /// goes on, since its longest life counts from its start.
    #[cold]
    pub(crate) fn end(&self, ex: &Exchange<'_>, upstream: Option<&Upstream>, head: &mut ResponseHead) {
        let Some(address) = ex.endpoint.address.filter(|_| ex.endpoint.status != 0) else { return };
        let served = StickyEndpoint { backend: self.backend, address };
        let value = match self.rules.is_hashed() {
            true => self.hashed(ex, &served, upstream),
            false => self.ticket(ex, &served, upstream),
        };
        let Some(value) = value else { return };
        let client = CookieClient {
            is_secure: ex.client.tls().is_some(),
            agent: ex.request.fields.get("User-Agent").unwrap_or_default(),
            now_s: ex.now.unix_s(),
        };
        let (name, text) = yumen_actions::response_field(&self.rules.written, &value, client);
        head.fields.add(name, text.as_bytes());
    }

    /// The sealed name of the endpoint; `None` if the session goes on.
    fn ticket(
        &self,
        ex: &Exchange<'_>,
        served: &StickyEndpoint,
        upstream: Option<&Upstream>,
    ) -> Option<String> {
        let spec = &self.rules.written;
        if let Some(sticky) = ex.upstream.sticky.as_deref() {
            let still_exists = || {
                upstream
                    .is_some_and(|upstream| upstream.endpoints.iter().any(|one| one.addr == sticky.address))
            };
            let stays = !spec.change_on_failure && sticky.backend == served.backend && still_exists();
            if sticky == served || stays {
                return None;
            }
        }
        let StickyEndpoint { backend, address } = *served;
        let ticket = SessionTicket { backend, address, issued_s: ex.now.unix_s() };
        self.worker.settings.session_keys.seal(&spec.name, &ticket)
    }

    /// The value that selects the endpoint; `None` if the session goes on.
    fn hashed(
        &self,
        ex: &Exchange<'_>,
        served: &StickyEndpoint,
        upstream: Option<&Upstream>,
    ) -> Option<String> {
        let failed_over = ex.upstream.sticky.as_deref().is_some_and(|sticky| sticky != served);
        let mut session = HashedSession { key: self.key, backend: self.backend };
        if failed_over && self.rules.written.change_on_failure {
            session.key = self.key_of(served, upstream?)?;
        }
        (self.named != Some(session)).then(|| session.encode())
    }

    /// A key that selects an endpoint; `None` if the endpoint has too small a share to find one.
    fn key_of(&self, served: &StickyEndpoint, upstream: &Upstream) -> Option<u64> {
        let tries = upstream.endpoints.len().saturating_mul(8).min(256);
        let keys = std::iter::repeat_with(|| self.worker.random());
        keys.take(tries).find(|key| upstream.hashed(*key) == Some(served.address))
    }
}
