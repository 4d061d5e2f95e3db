//! What a service manager is told, and what it passes: sd_notify, its watchdog, socket activation.
//!
//! Speaks to systemd and to whoever speaks as it does; knows nothing of what the gateway serves.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use listenfd::ListenFd;
use socket2::Socket;
use yumen_proxy::WorkerCounters;

use crate::sockets::{InheritedSocket, InheritedSockets};

/// Tells the service manager something, if there is one: lines such as `READY=1`.
pub(crate) fn notify(lines: &str) {
    if let Err(error) = try_notify(lines) {
        tracing::warn!(%error, lines, "service manager notification failed");
    }
}

/// Tells the service manager that the gateway is being reloaded, and when that began.
pub(crate) fn notify_reloading() {
    let now_us = yumen_proxy::clock::exact().mono_us;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\nSTATUS=upgrading"));
}

fn try_notify(lines: &str) -> io::Result<()> {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET").filter(|place| !place.is_empty()) else {
        return Ok(());
    };
    let address = match place.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&place)?,
    };
    UnixDatagram::unbound()?.send_to_addr(lines.as_bytes(), &address).map(drop)
}

/// The sockets a service manager passes. They are passed once: nobody finds them in the environment afterwards.
pub(crate) fn sockets() -> anyhow::Result<InheritedSockets> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut listening = ListenFd::from_env();
    let mut passed = Vec::new();
    for index in 0..listening.len() {
        let name = names.next().unwrap_or_default().to_owned();
        let socket = take(&mut listening, index)
            .with_context(|| format!("the socket `{name}` of the service manager cannot be used"))?;
        passed.push(InheritedSocket { label: None, name, socket });
    }
    Ok(InheritedSockets::from_outside(passed))
}

/// Streams or datagrams; nothing else is served.
fn take(listening: &mut ListenFd, index: usize) -> io::Result<Socket> {
    let stream = listening.take_tcp_listener(index);
    match stream {
        Ok(stream) => stream.map(Socket::from).ok_or_else(|| io::ErrorKind::NotFound.into()),
        Err(_) => {
            listening.take_udp_socket(index)?.map(Socket::from).ok_or_else(|| io::ErrorKind::NotFound.into())
        }
    }
}

/// How often the watchdog of the service manager wants to hear that all is well; half of what it allows.
pub(crate) fn watchdog_pause() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    number("WATCHDOG_USEC")
        .filter(|allowed_us| *allowed_us > 0)
        .map(|allowed_us| Duration::from_micros(allowed_us / 2))
}

/// Tells the watchdog that all is well as long as every worker does its chores: one that hangs hangs for good,
/// and its clients with it.
pub(crate) async fn ping_watchdog(pause: Duration, workers: Vec<Arc<WorkerCounters>>) {
    let beats = || -> Vec<u64> { workers.iter().map(|worker| worker.beats.get()).collect() };
    let mut before = vec![u64::MAX; workers.len()];
    loop {
        let now = beats();
        match now.iter().zip(&before).position(|(now, before)| now == before) {
            None => notify("WATCHDOG=1"),
            Some(worker) => {
                tracing::error!(worker, "worker stalled, watchdog notification withheld")
            }
        }
        before = now;
        tokio::time::sleep(pause).await;
    }
}
