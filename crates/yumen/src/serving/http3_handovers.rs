//! The HTTP/3 listeners that a handover makes leave their sockets.
//!
//! Shared by the owner of the listeners and the handover.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use yumen_proxy::Http3HandoverSender;

/// HTTP/3 listeners, in the order in which they were opened.
#[derive(Default)]
pub(crate) struct Http3Handovers {
    /// Address as configured, and the sender that makes the listener leave its sockets.
    listeners: Mutex<Vec<(SocketAddr, Http3HandoverSender)>>,
}

impl Http3Handovers {
    pub(crate) fn add(&self, configured: SocketAddr, leave: Http3HandoverSender) {
        self.lock().push((configured, leave));
    }

    pub(crate) fn remove(&self, configured: SocketAddr) {
        self.lock().retain(|(address, _)| *address != configured);
    }

    /// Addresses as configured.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.lock().iter().map(|(address, _)| *address).collect()
    }

    /// Makes the listeners leave their sockets; `links` leads to the successor, one per listener.
    pub(crate) fn leave(&self, links: Vec<OwnedFd>) {
        for ((_, sender), link) in self.lock().iter().zip(links) {
            sender.leave(link);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(SocketAddr, Http3HandoverSender)>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
