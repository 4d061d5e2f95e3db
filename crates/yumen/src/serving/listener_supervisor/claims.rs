//! The sockets that each listener of the configuration claims.
//!
//! Pure: decides between listeners, binds nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use yumen_base::Problem;
use yumen_plugin::ListenerNumber;
use yumen_proxy::{ListenAddress, ListenTransport};
use yumen_snapshot::{CompiledListener, ListenProtocol, ListenSettings};

use crate::serving::sockets::SocketRole;

/// A listener of the configuration, as the sockets need it.
#[derive(Debug, Clone)]
pub(super) struct RequestedListener {
    pub(super) id: Arc<str>,
    pub(super) number: ListenerNumber,
    pub(super) created_s: i64,
    pub(super) settings: Arc<ListenSettings>,
}

impl RequestedListener {
    pub(super) fn of(listener: &CompiledListener) -> RequestedListener {
        let CompiledListener { id, number, created_s, settings, .. } = listener;
        RequestedListener {
            id: id.clone(),
            number: *number,
            created_s: *created_s,
            settings: settings.clone(),
        }
    }

    /// Whether another listener has the same sockets and connections.
    pub(super) fn is_same(&self, other: &RequestedListener) -> bool {
        // A snapshot keeps the allocation of equal settings.
        self.number == other.number
            && self.created_s == other.created_s
            && self.id == other.id
            && Arc::ptr_eq(&self.settings, &other.settings)
    }

    /// The address of the sockets that decide whether the listener is open.
    pub(super) fn address(&self) -> ListenAddress {
        let transport = match self.settings.protocol {
            ListenProtocol::Udp => ListenTransport::Udp,
            _ => ListenTransport::Tcp,
        };
        ListenAddress { transport, address: self.settings.address }
    }

    fn role(&self) -> SocketRole {
        match self.settings.protocol {
            ListenProtocol::Http | ListenProtocol::Https => SocketRole::Http,
            ListenProtocol::Tcp | ListenProtocol::Tls => SocketRole::Stream,
            ListenProtocol::Udp => SocketRole::Datagrams,
        }
    }

    pub(super) fn object(&self) -> String {
        format!("listeners/{}", self.id)
    }
}

/// Sockets that a listener claims.
#[derive(Debug, Clone)]
pub(super) struct SocketClaim {
    pub(super) at: ListenAddress,
    pub(super) role: SocketRole,
    pub(super) listener: RequestedListener,
}

/// The reason why a listener claims no sockets.
#[derive(Debug, Clone)]
pub(super) struct ClaimRefusal {
    pub(super) reason: String,
    /// Whether the sockets of its former address stay open.
    pub(super) keeps_former: bool,
}

/// The claims of all listeners.
#[derive(Debug, Default)]
pub(super) struct ListenerClaims {
    /// The oldest listener first; each address at most once.
    pub(super) sockets: Vec<SocketClaim>,
    by_address: BTreeMap<ListenAddress, usize>,
    /// Listeners without sockets.
    pub(super) refused: BTreeMap<Arc<str>, ClaimRefusal>,
    pub(super) problems: Vec<Problem>,
}

impl ListenerClaims {
    /// Assigns each address to the oldest listener that has it. `occupied` are the addresses of the node's settings.
    pub(super) fn of(
        mut listeners: Vec<RequestedListener>,
        occupied: &BTreeMap<ListenAddress, &'static str>,
        listeners_max: usize,
    ) -> ListenerClaims {
        listeners.sort_by(|one, other| (one.created_s, &one.id).cmp(&(other.created_s, &other.id)));
        let mut claims = ListenerClaims::default();
        let mut owners: BTreeMap<ListenAddress, String> =
            occupied.iter().map(|(at, owner)| (*at, (*owner).to_owned())).collect();
        for (at, listener) in listeners.into_iter().enumerate() {
            if at >= listeners_max {
                let reason = format!("not opened: more than {listeners_max} listeners");
                let problem = Problem::error(listener.object(), "", &*reason);
                let hint = "delete listeners, or raise limits.listeners in yumen.yaml";
                claims.refuse(&listener, ClaimRefusal { reason, keeps_former: false }, problem.hint(hint));
                continue;
            }
            let address = listener.address();
            if let Some(owner) = owners.get(&address) {
                let reason = format!("not opened: {owner} has the address {}", address.address);
                let problem =
                    Problem::error(listener.object(), "address", &*reason).hint("use another address");
                claims.refuse(&listener, ClaimRefusal { reason, keeps_former: true }, problem);
                continue;
            }
            owners.insert(address, listener.object());
            let http3 = listener.settings.http3.then(|| claims.http3(&listener, &mut owners)).flatten();
            claims.sockets.push(SocketClaim { at: address, role: listener.role(), listener });
            claims.sockets.extend(http3);
        }
        let places = claims.sockets.iter().enumerate().map(|(place, claim)| (claim.at, place));
        claims.by_address = places.collect();
        claims
    }

    /// The claim of the UDP port of the same number.
    fn http3(
        &mut self,
        listener: &RequestedListener,
        owners: &mut BTreeMap<ListenAddress, String>,
    ) -> Option<SocketClaim> {
        let at = ListenAddress { transport: ListenTransport::Udp, address: listener.settings.address };
        if let Some(owner) = owners.get(&at) {
            let message = format!("HTTP/3 is not served: {owner} has the UDP address {}", at.address);
            let problem = Problem::warning(listener.object(), "http3", message);
            self.problems.push(problem.hint("use another address, or set http3 to false"));
            return None;
        }
        owners.insert(at, listener.object());
        Some(SocketClaim { at, role: SocketRole::Http3, listener: listener.clone() })
    }

    fn refuse(&mut self, listener: &RequestedListener, refusal: ClaimRefusal, problem: Problem) {
        self.refused.insert(listener.id.clone(), refusal);
        self.problems.push(problem);
    }

    pub(super) fn at(&self, at: ListenAddress) -> Option<&SocketClaim> {
        self.sockets.get(*self.by_address.get(&at)?)
    }
}

#[cfg(test)]
mod tests;
