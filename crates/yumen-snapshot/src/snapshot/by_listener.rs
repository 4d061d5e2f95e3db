//! The listeners and scopes of a snapshot, and the tables that a connection or a request is looked up in.

use std::sync::Arc;

use yumen_plugin::{ClientInfo, ListenerNumber};

use super::Snapshot;
use crate::router::Router;
use crate::scope::{CompiledListener, CompiledScope, ScopeSlotId};
use crate::streams::StreamRouter;

/// The relation of a request to the TLS handshake of its connection.
#[derive(Debug, Clone, Copy)]
pub enum ScopeOfRequest<'s> {
    /// The scope of the host; `None` if no scope of the listener has it.
    Found(Option<&'s CompiledScope>),
    /// The host belongs to another scope than the server name of the handshake (RFC 9110 §15.5.20).
    Misdirected,
}

impl Snapshot {
    /// The listeners of the configuration, beside those of the node's settings.
    pub fn listeners(&self) -> impl Iterator<Item = &Arc<CompiledListener>> {
        self.listeners.iter().flatten()
    }

    /// The listener that accepted a connection; `None` for one of the node's settings, or if it is gone.
    pub fn listener(&self, number: ListenerNumber) -> Option<&Arc<CompiledListener>> {
        // Another epoch: the slot has passed to another listener, and this connection was not accepted by it.
        self.listeners.get(usize::from(number.slot)).filter(|one| one.number == number)
    }

    /// The scope of a host in lower case on a listener of the configuration. The empty name stands for none.
    #[inline]
    pub fn scope_of(&self, listener: ListenerNumber, host: &[u8]) -> Option<&CompiledScope> {
        self.scope(self.listener(listener)?.hosts.find(host)?)
    }

    /// The scope of a server name in any case on a listener of the configuration. The empty name stands for none.
    pub fn scope_of_name(&self, listener: ListenerNumber, sni: &str) -> Option<&CompiledScope> {
        self.scope_of(listener, sni.to_ascii_lowercase().as_bytes())
    }

    /// The scope in a slot.
    #[inline]
    pub fn scope(&self, slot: ScopeSlotId) -> Option<&CompiledScope> {
        self.scopes.get(slot.0 as usize).map(Arc::as_ref)
    }

    /// All scopes, in no particular order.
    pub fn scopes(&self) -> impl Iterator<Item = &Arc<CompiledScope>> {
        self.scopes.iter().flatten()
    }

    /// The routing table of a request; `None` if its listener is gone, or no scope of the listener has the host.
    #[inline]
    pub fn router_of(&self, client: &ClientInfo, host: &[u8]) -> Option<&Router> {
        if client.listener.is_static() {
            return Some(&self.router);
        }
        self.scope_of(client.listener, host).map(|scope| &scope.router)
    }

    /// The stream routes of a connection; `None` if its listener is gone, or no scope of the listener has the name.
    pub fn streams_of(&self, listener: ListenerNumber, sni: Option<&str>) -> Option<&StreamRouter> {
        if listener.is_static() {
            return Some(&self.streams);
        }
        self.scope_of_name(listener, sni.unwrap_or_default()).map(|scope| &scope.streams)
    }

    /// The scope of a request on a listener of the configuration.
    ///
    /// Clients coalesce connections by certificate (RFC 9113 §9.1.1), so a request may arrive on a connection whose
    /// handshake followed the rules of another scope. A host that no scope has is not misdirected: no other connection
    /// would serve it.
    pub fn scope_of_request(&self, client: &ClientInfo, host: &[u8]) -> ScopeOfRequest<'_> {
        match &client.tls {
            // By itself, since it needs no more than the look-up.
            None => ScopeOfRequest::Found(self.scope_of(client.listener, host)),
            Some(tls) => {
                self.scope_of_encrypted(client.listener, tls.sni.as_deref().unwrap_or_default(), host)
            }
        }
    }

    fn scope_of_encrypted(&self, listener: ListenerNumber, sni: &str, host: &[u8]) -> ScopeOfRequest<'_> {
        let scope = self.scope_of(listener, host);
        let Some(of_host) = scope else { return ScopeOfRequest::Found(None) };
        // The common case costs one comparison.
        if sni.as_bytes() == host {
            return ScopeOfRequest::Found(scope);
        }
        // A request without a host is for the server name of the handshake.
        if host.is_empty() {
            return ScopeOfRequest::Found(self.scope_of_name(listener, sni));
        }
        match self.scope_of_name(listener, sni) {
            Some(of_name) if of_name.slot == of_host.slot => ScopeOfRequest::Found(scope),
            _ if of_host.admits_any_name() => ScopeOfRequest::Found(scope),
            _ => ScopeOfRequest::Misdirected,
        }
    }
}
