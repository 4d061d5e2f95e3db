//! The listener and the scope of an explained request or stream.

use yumen_config::InvalidSettings;
use yumen_config::resource::Question;
use yumen_plugin::{ClientInfo, ListenerNumber};

use super::CertificateChoice;
use crate::scope::{CompiledListener, ListenProtocol};
use crate::{ScopeTlsMode, Snapshot};

/// The listener that a question names; `None` for those of the node's settings.
pub(super) fn listener_of<'s>(
    snapshot: &'s Snapshot,
    question: &Question,
) -> Result<Option<&'s CompiledListener>, InvalidSettings> {
    let Some(id) = question.listener.as_deref() else { return Ok(None) };
    let found = snapshot.listeners().find(|one| *one.id == *id);
    let absent = || {
        InvalidSettings::at("listener", format!("listener {id} does not exist, is disabled, or is broken"))
    };
    found.map(|found| Some(&**found)).ok_or_else(absent)
}

/// Refuses a question whose URL is of another protocol than its listener.
pub(super) fn check_protocol(
    listener: &CompiledListener,
    accepted: &[ListenProtocol],
    found: &str,
) -> Result<(), InvalidSettings> {
    let protocol = listener.settings.protocol;
    if accepted.contains(&protocol) {
        return Ok(());
    }
    let message = format!("listener {} has protocol {}, the URL {found}", listener.id, protocol.name());
    Err(InvalidSettings::at("listener", message))
}

/// The certificate that a client gets, and the reason for a handshake that fails.
pub(super) fn certificate_choice(
    snapshot: &Snapshot,
    listener: ListenerNumber,
    sni: &str,
) -> (Option<CertificateChoice>, Option<String>) {
    let choice = |id: Option<(&str, &crate::CompiledCertificate)>| CertificateChoice {
        id: id.map(|(_, certificate)| certificate.id.clone()),
        matched: id.map(|(name, _)| name.to_owned()),
    };
    if listener.is_static() {
        return (Some(choice(snapshot.certificate_by_name(sni))), None);
    }
    let name = if sni.is_empty() { "a handshake without server name" } else { sni };
    let Some(scope) = snapshot.scope_of_name(listener, sni) else {
        return (None, Some(format!("the handshake fails: no scope of the listener is for {name}")));
    };
    let id = &scope.id;
    if scope.is_broken() {
        return (None, Some(format!("the handshake fails: scope {id} is not active as written")));
    }
    if scope.mode() == ScopeTlsMode::Passthrough {
        return (None, None);
    }
    match scope.certificate_by_name(sni) {
        None if !scope.default_certificate() => {
            (None, Some(format!("the handshake fails: no certificate of scope {id} is for {name}")))
        }
        found => (Some(choice(found)), None),
    }
}

/// The scope of a request or stream.
#[derive(Debug, Clone, serde::Serialize)]
pub struct ScopeSelection {
    /// Id of the listener.
    pub listener: Box<str>,
    /// Id of the scope; `None` if no scope of the listener has the host.
    pub id: Option<Box<str>>,
}

impl ScopeSelection {
    /// The scope of a host in lower case; `None` on a listener of the node's settings.
    pub(super) fn of(snapshot: &Snapshot, client: &ClientInfo, host: &[u8]) -> Option<ScopeSelection> {
        let listener = snapshot.listener(client.listener)?.id.as_ref().into();
        let id = snapshot.scope_of(client.listener, host).map(|scope| scope.id.as_ref().into());
        Some(ScopeSelection { listener, id })
    }
}

#[cfg(test)]
mod tests;
