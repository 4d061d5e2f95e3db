//! Service manager interface: sd_notify(3) and the watchdog.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use yumen_proxy::WorkerCounters;

/// Sends state assignments such as `READY=1` to the service manager, if there is one.
pub(crate) fn notify(lines: &str) {
    if let Err(error) = try_notify(lines) {
        tracing::warn!(%error, lines, "service manager notification failed");
    }
}

/// Notifies the service manager of a reload, with its start time.
pub(crate) fn notify_reloading() {
    let now_us = yumen_proxy::clock::exact().mono_us;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\nSTATUS=upgrading"));
}

fn try_notify(lines: &str) -> io::Result<()> {
    let Some(socket_path) = std::env::var_os("NOTIFY_SOCKET").filter(|socket_path| !socket_path.is_empty())
    else {
        return Ok(());
    };
    let address = match socket_path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&socket_path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(lines.as_bytes(), &address).map(drop)
}

/// Interval of watchdog notifications: half of `WATCHDOG_USEC`, as sd_watchdog_enabled(3) recommends.
pub(crate) fn watchdog_pause() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    // The variables may be inherited and describe another process (sd_watchdog_enabled(3)).
    if number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    number("WATCHDOG_USEC")
        .filter(|allowed_us| *allowed_us > 0)
        .map(|allowed_us| Duration::from_micros(allowed_us / 2))
}

/// Notifies the watchdog as long as every worker runs its periodic tasks. A stalled worker does not recover,
/// so the service manager must restart the process.
pub(crate) async fn ping_watchdog(pause: Duration, workers: Vec<Arc<WorkerCounters>>) {
    let beats = || -> Vec<u64> { workers.iter().map(|worker| worker.runtime.beats.get()).collect() };
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
