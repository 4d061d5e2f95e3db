//! Session persistence of a route: the endpoint that a request names, and the value that names the next one.
//!
//! The format of the value belongs to `yumen-actions`.

use std::rc::Rc;

use yumen_actions::SessionTicket;
use yumen_http::ResponseHead;
use yumen_plugin::{Exchange, StickyEndpoint};
use yumen_snapshot::SessionRules;

use crate::worker::Worker;

/// The session of an exchange, until its response names the endpoint.
pub(crate) struct ExchangeSession<'s> {
    rules: &'s SessionRules,
    worker: Rc<Worker>,
    /// The name of the backend; 0 at routes without weighted backends.
    pub(crate) backend: u64,
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
        let ticket = value.and_then(|value| worker.settings.session_keys.open(&spec.name, value));
        ex.upstream.sticky = ticket
            .filter(|ticket| !ticket.is_over(spec, ex.now.unix_s()))
            .map(|ticket| Box::new(StickyEndpoint { backend: ticket.backend, address: ticket.address }));
        Box::new(ExchangeSession { rules, worker: worker.clone(), backend: 0 })
    }

    /// Adds the value of a new session to the response of an endpoint. The client keeps that of a session that
    /// goes on, since its longest life counts from its start.
    #[cold]
    pub(crate) fn end(&self, ex: &Exchange<'_>, head: &mut ResponseHead) {
        let Some(address) = ex.endpoint.address.filter(|_| ex.endpoint.status != 0) else { return };
        let served = StickyEndpoint { backend: self.backend, address };
        if ex.upstream.sticky.as_deref() == Some(&served) {
            return;
        }
        let spec = &self.rules.written;
        let ticket = SessionTicket { backend: self.backend, address, issued_s: ex.now.unix_s() };
        let Some(value) = self.worker.settings.session_keys.seal(&spec.name, &ticket) else { return };
        let (name, text) = yumen_actions::response_field(spec, &value, ex.client.tls().is_some());
        head.fields.add(name, text.as_bytes());
    }
}
