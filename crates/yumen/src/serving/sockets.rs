//! Inherited listening sockets: from the predecessor or from the service manager.
//!
//! Matches sockets to listeners and keeps a handle of each for the next successor. Serves no traffic.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use socket2::{SockRef, Socket, Type};
use tokio::sync::Notify;
use yumen_proxy::{DatagramForwarder, ListenerSettings};

/// Purpose of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SocketRole {
    /// HTTP requests, with or without TLS.
    Http,
    /// TCP stream routes.
    Stream,
    /// UDP stream routes.
    Datagrams,
    /// HTTP/3 requests.
    Http3,
    /// Datagram link to the predecessor, for its HTTP/3 connections.
    Http3Predecessor,
    /// Admin listener.
    Admin,
    /// Status listener.
    Status,
    /// Control API.
    Control,
}

impl SocketRole {
    fn kind(self) -> Type {
        match self {
            SocketRole::Datagrams | SocketRole::Http3 => Type::DGRAM,
            SocketRole::Http3Predecessor => Type::SEQPACKET,
            SocketRole::Http
            | SocketRole::Stream
            | SocketRole::Admin
            | SocketRole::Status
            | SocketRole::Control => Type::STREAM,
        }
    }
}

/// Label of a socket, assigned by the process that bound it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SocketLabel {
    pub(crate) role: SocketRole,
    /// Address as configured; its port may be 0.
    pub(crate) configured: SocketAddr,
    /// Number of the listener within the process; equal for all its sockets.
    pub(crate) listener: u32,
}

/// A socket from the predecessor or the service manager.
pub(crate) struct InheritedSocket {
    /// Label; `None` from the service manager.
    pub(crate) label: Option<SocketLabel>,
    /// Name from the service manager (`LISTEN_FDNAMES`).
    pub(crate) name: String,
    pub(crate) socket: Socket,
}

/// Inherited sockets not taken yet, and handles of all sockets in use.
#[derive(Default)]
pub(crate) struct InheritedSockets {
    passed: Vec<InheritedSocket>,
    pub(crate) handles: Arc<SocketHandles>,
}

/// Handles of all sockets in use, for the next successor.
#[derive(Default)]
pub(crate) struct SocketHandles {
    handles: Mutex<Vec<(SocketLabel, OwnedFd)>>,
    /// Whether listeners stay as they are: a successor has received their sockets.
    is_frozen: Mutex<bool>,
    thawed: Notify,
}

/// Leave to open and close listeners; a handover begins only after its end.
pub(crate) struct ListenerChange<'h>(#[expect(dead_code, reason = "held for its drop")] MutexGuard<'h, bool>);

impl InheritedSockets {
    pub(crate) fn from_outside(passed: Vec<InheritedSocket>) -> InheritedSockets {
        InheritedSockets { passed, handles: Arc::default() }
    }

    /// Nothing inherited, and the same handles.
    pub(crate) fn without_passed(handles: Arc<SocketHandles>) -> InheritedSockets {
        InheritedSockets { passed: Vec::new(), handles }
    }

    /// Sockets of the next listener at this address, in the order received; empty if the address must be
    /// bound.
    pub(crate) fn take(&mut self, role: SocketRole, configured: SocketAddr) -> Vec<Socket> {
        let fits = |label: &SocketLabel| label.role == role && label.configured == configured;
        let listener =
            self.passed.iter().filter_map(|passed| passed.label.as_ref()).find(|label| fits(label));
        let listener = listener.map(|label| label.listener);
        let is_required = |passed: &InheritedSocket| match (&passed.label, listener) {
            // All sockets of one listener, so that no queue is left without a reader.
            (Some(label), Some(listener)) => label.listener == listener,
            // Sockets of another listener type in the predecessor, or from the service manager.
            (_, None) => passed.is_bound_for(role, configured),
            // Labels are exact; the guess by address is for sockets without a label.
            (None, Some(_)) => false,
        };
        let taken = self.passed.extract_if(.., |passed| is_required(passed));
        taken.map(|passed| passed.socket).collect()
    }

    /// Datagram link to the predecessor, for one listener.
    pub(crate) fn take_predecessor_link(&mut self, configured: SocketAddr) -> Option<DatagramForwarder> {
        let fits = |label: &SocketLabel| {
            label.role == SocketRole::Http3Predecessor && label.configured == configured
        };
        let at = self.passed.iter().position(|passed| passed.label.as_ref().is_some_and(fits))?;
        Some(DatagramForwarder::new(self.passed.remove(at).socket.into()))
    }

    /// Fails on an unused socket of the service manager, since its clients would wait for ever. Unused
    /// sockets of the predecessor may belong to listeners of the configuration.
    pub(crate) fn check_activation_taken(&self) -> anyhow::Result<()> {
        match self.passed.iter().find(|passed| passed.label.is_none()) {
            None => Ok(()),
            Some(passed) => {
                let address = passed.address().map_or_else(|| "no address".into(), |one| one.to_string());
                bail!(
                    "the service manager passes the socket `{}` at {address}, and nothing in the configuration \
                     listens there: name it admin, status or control, or give a listener this address",
                    passed.name
                )
            }
        }
    }

    /// Closes the sockets of the predecessor that no listener of this process uses.
    pub(crate) fn drop_rest(&mut self) {
        self.passed.clear();
    }

    /// Keeps handles of one listener's sockets for the next successor.
    pub(crate) fn keep(
        &self,
        role: SocketRole,
        configured: SocketAddr,
        sockets: &[impl AsSocket],
    ) -> anyhow::Result<()> {
        self.handles.keep(role, configured, sockets)
    }
}

impl SocketHandles {
    /// Keeps handles of one listener's sockets.
    fn keep(
        &self,
        role: SocketRole,
        configured: SocketAddr,
        sockets: &[impl AsSocket],
    ) -> anyhow::Result<()> {
        let mut handles = self.lock();
        // Sockets are kept listener by listener, so the last label has the highest number.
        let listener = handles.last().map_or(0, |(label, _)| label.listener + 1);
        for socket in sockets {
            let handle = socket.handle().context("a handle of a listening socket cannot be kept")?;
            handles.push((SocketLabel { role, configured, listener }, handle));
        }
        Ok(())
    }

    /// Closes the handles of a listener's sockets.
    pub(crate) fn forget(&self, role: SocketRole, configured: SocketAddr) {
        self.lock().retain(|(label, _)| label.role != role || label.configured != configured);
    }

    /// Assigns the TCP sockets of one listener to another listener at the same address.
    pub(crate) fn pass_on(
        &self,
        former: SocketRole,
        role: SocketRole,
        settings: &ListenerSettings,
    ) -> std::io::Result<()> {
        let mut handles = self.lock();
        let of_listener = |label: &SocketLabel| label.role == former && label.configured == settings.address;
        for (label, handle) in handles.iter_mut().filter(|(label, _)| of_listener(label)) {
            label.role = role;
            yumen_proxy::listener::settle(&SockRef::from(&*handle), settings)?;
        }
        Ok(())
    }

    /// Permits a change of listeners; `None` while a successor starts.
    pub(crate) fn begin_change(&self) -> Option<ListenerChange<'_>> {
        let is_frozen = self.lock_changes();
        (!*is_frozen).then(|| ListenerChange(is_frozen))
    }

    /// Leaves the listeners as they are from now on: a successor receives their sockets.
    pub(crate) fn freeze(&self) {
        *self.lock_changes() = true;
    }

    /// Permits changes again after a failed handover.
    pub(crate) fn thaw(&self) {
        *self.lock_changes() = false;
        self.thawed.notify_one();
    }

    /// Waits for the end of a failed handover.
    pub(crate) async fn thawed(&self) {
        self.thawed.notified().await;
    }

    fn lock_changes(&self) -> MutexGuard<'_, bool> {
        self.is_frozen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Duplicates all handles, for a successor.
    pub(crate) fn duplicates(&self) -> std::io::Result<Vec<(SocketLabel, OwnedFd)>> {
        // The originals stay: a failed upgrade is followed by another attempt.
        self.lock().iter().map(|(label, fd)| Ok((label.clone(), fd.try_clone()?))).collect()
    }

    /// Closes the handles: a socket is closed only with its last handle.
    pub(crate) fn release(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(SocketLabel, OwnedFd)>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InheritedSocket {
    fn address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    fn is_bound_for(&self, role: SocketRole, configured: SocketAddr) -> bool {
        let named = matches!(
            (&*self.name, role),
            ("admin", SocketRole::Admin) | ("status", SocketRole::Status) | ("control", SocketRole::Control)
        );
        let is_kind = self.socket.r#type().is_ok_and(|kind| kind == role.kind());
        is_kind && (named || self.address() == Some(configured))
    }
}

/// Socket that can be duplicated.
pub(crate) trait AsSocket {
    fn handle(&self) -> std::io::Result<OwnedFd>;
}

impl AsSocket for TcpListener {
    fn handle(&self) -> std::io::Result<OwnedFd> {
        self.try_clone().map(OwnedFd::from)
    }
}

impl AsSocket for UdpSocket {
    fn handle(&self) -> std::io::Result<OwnedFd> {
        self.try_clone().map(OwnedFd::from)
    }
}

#[cfg(test)]
mod tests;
