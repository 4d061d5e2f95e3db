//! Socket activation by the service manager (sd_listen_fds(3)).

use std::io;

use anyhow::Context;
use listenfd::ListenFd;
use socket2::Socket;

use super::sockets::{InheritedSocket, InheritedSockets};

/// Sockets passed by the service manager. The environment names them once: child processes do not find them
/// there.
pub(crate) fn sockets() -> anyhow::Result<InheritedSockets> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut descriptors = ListenFd::from_env();
    let mut passed = Vec::new();
    for index in 0..descriptors.len() {
        let name = names.next().unwrap_or_default().to_owned();
        let socket = take(&mut descriptors, index)
            .with_context(|| format!("the socket `{name}` of the service manager cannot be used"))?;
        passed.push(InheritedSocket { label: None, name, socket });
    }
    Ok(InheritedSockets::from_outside(passed))
}

/// Takes a TCP listener or a UDP socket; other types are not supported.
fn take(descriptors: &mut ListenFd, index: usize) -> io::Result<Socket> {
    let stream = descriptors.take_tcp_listener(index);
    match stream {
        Ok(stream) => stream.map(Socket::from).ok_or_else(|| io::ErrorKind::NotFound.into()),
        Err(_) => {
            let datagrams = descriptors.take_udp_socket(index)?;
            datagrams.map(Socket::from).ok_or_else(|| io::ErrorKind::NotFound.into())
        }
    }
}
