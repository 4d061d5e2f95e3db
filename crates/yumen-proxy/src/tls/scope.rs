//! Handshakes on listeners of the configuration: the scope of the server name has the rules and the certificates.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::server::StoresServerSessions;
use tokio::io::AsyncWriteExt;
use yumen_plugin::{ClientCertVerdict, ListenerNumber, TlsInfo};
use yumen_snapshot::compile::ScopeTlsRules;
use yumen_snapshot::{ClientCertMode, ScopeSlotId};

use super::loader::CompiledTlsRules;
use super::{CertificateResolver, DownstreamTlsAcceptor, SharedTls, clients};
use crate::transport::tcp::TcpConnection;

/// A fatal alert before any key is known: `unrecognized_name` (RFC 8446 §6.2, RFC 6066 §3).
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// The scope that handshake rules belong to.
#[derive(Debug, Clone)]
pub(super) struct ScopeTlsIdentity {
    /// The slot in the snapshots of this process, in which the rules live as long as the scope.
    slot: ScopeSlotId,
    id: Box<str>,
    /// Whether a server name without a certificate gets that of the node.
    default_certificate: bool,
    /// Whether a certificate that is not valid is treated as absent.
    hides_invalid: bool,
}

impl ScopeTlsIdentity {
    pub(super) fn of(written: &ScopeTlsRules<'_>) -> ScopeTlsIdentity {
        ScopeTlsIdentity {
            slot: written.slot,
            id: written.scope.into(),
            default_certificate: written.default_certificate,
            hides_invalid: written.client_mode == Some(ClientCertMode::AllowInsecureFallback),
        }
    }

    pub(super) fn slot(&self) -> ScopeSlotId {
        self.slot
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

impl DownstreamTlsAcceptor {
    /// An acceptor for a listener of the configuration, whose scopes have the rules and the certificates.
    pub fn for_listener(&self, listener: ListenerNumber) -> DownstreamTlsAcceptor {
        DownstreamTlsAcceptor { listener, ..self.clone() }
    }
}

impl SharedTls {
    /// The handshake rules for a server name on a listener of the configuration; `None` if the handshake must fail.
    pub(super) fn rules_on(&self, listener: ListenerNumber, sni: &str) -> Option<Arc<CompiledTlsRules>> {
        let snapshot = self.settings.publisher.load();
        snapshot.scope_of_name(listener, sni)?.tls().cloned()?.downcast().ok()
    }

    /// The source of certificates under these rules.
    pub(super) fn resolver_of(&self, rules: Option<&CompiledTlsRules>) -> Arc<CertificateResolver> {
        let Some(scope) = rules.and_then(|rules| rules.scope.as_ref()) else { return self.resolver.clone() };
        Arc::new(CertificateResolver {
            publisher: self.settings.publisher.clone(),
            default: self.settings.default.clone().filter(|_| scope.default_certificate),
            scope: Some(scope.clone()),
        })
    }
}

/// Sends an alert for a server name without a scope. The handshake has not begun, so no library sends one.
pub(super) async fn refuse_name(mut tcp: TcpConnection) {
    // The refusal stands, whether or not the client receives it.
    let _ = tcp.write_all(&UNRECOGNIZED_NAME).await;
    let _ = tcp.shutdown().await;
}

/// The facts of a handshake that follow from the certificate chain of the client.
pub(super) fn client_facts(chain: &[CertificateDer<'_>], rules: Option<&CompiledTlsRules>) -> TlsInfo {
    let check = rules.and_then(|rules| rules.client.as_deref());
    // A resumed session was verified in an earlier handshake, so the chain is verified again.
    let verdict = check.map(|check| check.verdict(chain)).unwrap_or_default();
    let hides_invalid = rules.and_then(|rules| rules.scope.as_ref()).is_some_and(|scope| scope.hides_invalid);
    // Plugins and endpoints take a certificate for an identity, and this one proves none.
    let is_hidden = hides_invalid && verdict != ClientCertVerdict::Verified;
    TlsInfo {
        verdict,
        certificate: clients::describe(chain).filter(|_| !is_hidden).map(Arc::new),
        rules: check.and(rules).map_or(0, |rules| rules.id),
        ..TlsInfo::default()
    }
}

/// A cache of sessions that belong to one set of rules: the key of a session of other rules does not occur.
pub(super) struct BoundSessions {
    pub(super) sessions: Arc<dyn StoresServerSessions>,
    /// The id of the rules.
    pub(super) binding: u128,
}

impl BoundSessions {
    /// The cache for `rules`. Rules without a scope share one, since the server name is part of their sessions.
    pub(super) fn of(
        sessions: &Arc<dyn StoresServerSessions>,
        rules: Option<&CompiledTlsRules>,
    ) -> Arc<dyn StoresServerSessions> {
        match rules.filter(|rules| rules.scope.is_some()) {
            Some(rules) => Arc::new(BoundSessions { sessions: sessions.clone(), binding: rules.id }),
            None => sessions.clone(),
        }
    }

    fn key(&self, id: &[u8]) -> Vec<u8> {
        [&self.binding.to_be_bytes(), id].concat()
    }
}

impl fmt::Debug for BoundSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sessions.fmt(f)
    }
}

impl StoresServerSessions for BoundSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.sessions.put(self.key(&key), value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.sessions.get(&self.key(key))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.sessions.take(&self.key(key))
    }

    fn can_cache(&self) -> bool {
        self.sessions.can_cache()
    }
}

#[cfg(test)]
mod tests;
