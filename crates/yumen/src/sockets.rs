//! Listening sockets that came from outside: from the process before, or from the service manager.
//!
//! Finds those a listener asks for, and keeps a handle of each for the process that comes after. Knows nothing
//! of what is served on them.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use socket2::{Socket, Type};
use yumen_proxy::DatagramForwarder;

/// What a socket is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SocketRole {
    /// Requests, with TLS or without.
    Http,
    /// Streams.
    Stream,
    /// Streams of datagrams.
    Datagrams,
    /// HTTP/3.
    Http3,
    /// Leads to a process before, for its connections of HTTP/3.
    Http3Before,
    /// The admin listener.
    Admin,
    /// The status listener.
    Status,
    /// The Control API.
    Control,
}

impl SocketRole {
    fn kind(self) -> Type {
        match self {
            SocketRole::Datagrams | SocketRole::Http3 => Type::DGRAM,
            SocketRole::Http3Before => Type::SEQPACKET,
            SocketRole::Http
            | SocketRole::Stream
            | SocketRole::Admin
            | SocketRole::Status
            | SocketRole::Control => Type::STREAM,
        }
    }
}

/// What a socket is for, as the process tells that bound it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SocketLabel {
    pub(crate) door: SocketRole,
    /// The address as the configuration has it; its port may be 0.
    pub(crate) asked: SocketAddr,
    /// Sockets of one listener have the same number.
    pub(crate) listener: u32,
    /// Of the process it leads to.
    #[serde(default)]
    pub(crate) generation: u8,
}

/// A socket from outside.
pub(crate) struct InheritedSocket {
    /// What it is for, where that is known.
    pub(crate) label: Option<SocketLabel>,
    /// What the service manager calls it.
    pub(crate) name: String,
    pub(crate) socket: Socket,
}

/// The sockets from outside that nobody has taken yet, and handles of all that are in use.
#[derive(Default)]
pub(crate) struct InheritedSockets {
    passed: Vec<InheritedSocket>,
    kept: Mutex<Vec<(SocketLabel, OwnedFd)>>,
}

impl InheritedSockets {
    pub(crate) fn from_outside(passed: Vec<InheritedSocket>) -> InheritedSockets {
        InheritedSockets { passed, kept: Mutex::default() }
    }

    /// The sockets of the next listener at this address, in the order they were given; none where it has to be
    /// bound.
    pub(crate) fn take(&mut self, door: SocketRole, asked: SocketAddr) -> Vec<Socket> {
        let fits = |label: &SocketLabel| label.door == door && label.asked == asked;
        let listener =
            self.passed.iter().filter_map(|passed| passed.label.as_ref()).find(|label| fits(label));
        let listener = listener.map(|label| label.listener);
        let is_wanted = |passed: &InheritedSocket| match (&passed.label, listener) {
            (Some(label), Some(listener)) => label.listener == listener,
            // Some other listener's before, or the service manager's.
            (_, None) => passed.is_bound_for(door, asked),
            (None, Some(_)) => false,
        };
        let taken = self.passed.extract_if(.., |passed| is_wanted(passed));
        taken.map(|passed| passed.socket).collect()
    }

    /// What leads to the processes before, for a listener.
    pub(crate) fn take_forwarders(&mut self, asked: SocketAddr) -> Vec<DatagramForwarder> {
        let fits = |label: &SocketLabel| label.door == SocketRole::Http3Before && label.asked == asked;
        let taken = self.passed.extract_if(.., |passed| passed.label.as_ref().is_some_and(fits));
        let pipe = |passed: InheritedSocket| {
            Some(DatagramForwarder { generation: passed.label?.generation, end: passed.socket.into() })
        };
        taken.filter_map(pipe).collect()
    }

    /// Fails where a socket of the service manager's is left over: its clients would wait for ever. Those of the
    /// process before are closed when that process ends.
    pub(crate) fn check_all_taken(&mut self) -> anyhow::Result<()> {
        let left = std::mem::take(&mut self.passed);
        match left.iter().find(|passed| passed.label.is_none()) {
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

    /// Keeps handles of the sockets of one listener for the process that comes after.
    pub(crate) fn keep(
        &self,
        door: SocketRole,
        asked: SocketAddr,
        sockets: &[impl AsSocket],
    ) -> anyhow::Result<()> {
        let mut kept = self.kept();
        let listener = kept.last().map_or(0, |(label, _)| label.listener + 1);
        for socket in sockets {
            let handle = socket.handle().context("a listening socket cannot be kept")?;
            kept.push((SocketLabel { door, asked, listener, generation: 0 }, handle));
        }
        Ok(())
    }

    /// Handles of all sockets in use, for another process.
    pub(crate) fn handles(&self) -> std::io::Result<Vec<(SocketLabel, OwnedFd)>> {
        self.kept().iter().map(|(label, fd)| Ok((label.clone(), fd.try_clone()?))).collect()
    }

    /// Closes the handles: a socket is closed for good only when nobody has one.
    pub(crate) fn release(&self) {
        self.kept().clear();
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<(SocketLabel, OwnedFd)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InheritedSocket {
    fn address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    fn is_bound_for(&self, door: SocketRole, asked: SocketAddr) -> bool {
        let named = matches!(
            (&*self.name, door),
            ("admin", SocketRole::Admin) | ("status", SocketRole::Status) | ("control", SocketRole::Control)
        );
        let is_kind = self.socket.r#type().is_ok_and(|kind| kind == door.kind());
        is_kind && (named || self.address() == Some(asked))
    }
}

/// A socket a handle can be kept of.
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
