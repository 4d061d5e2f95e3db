//! Endpoints that come and go while the load runs.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::gateway::Gateway;
use super::upstreams::Upstreams;
use crate::record::ChangeMark;
use crate::scenario::Changes;

/// An endpoint that was taken out goes on for so long, as a pod does.
const GRACE: Duration = Duration::from_secs(1);
/// A change that is not seen in traffic within so long counts as not seen.
const SEEN_LIMIT: Duration = Duration::from_secs(5);

/// Applies the changes until `ended` is set, then goes back to the first count. Marks count from `begun`.
pub(super) fn apply(
    changes: &Changes,
    gateway: &Gateway,
    upstreams: &mut Upstreams,
    begun: Instant,
    ended: &AtomicBool,
) -> Vec<ChangeMark> {
    let mut marks = Vec::new();
    let first = changes.endpoints.first().copied().unwrap_or(1);
    let mut due = begun;
    'rounds: loop {
        for (place, stay_ms) in changes.stay_ms.iter().enumerate() {
            due += Duration::from_millis(*stay_ms);
            if !sleep_until(due, ended) {
                break 'rounds;
            }
            let count = changes.endpoints[(place + 1) % changes.endpoints.len()];
            marks.push(one(changes, count, gateway, upstreams, begun, ended));
            // a gateway that takes longer than the changes come is not given two at once
            due = due.max(Instant::now());
        }
    }
    let back = one(changes, first, gateway, upstreams, begun, ended);
    if let (Some(error), Some(last)) = (back.error, marks.last_mut()) {
        last.error.get_or_insert(error);
    }
    marks
}

fn one(
    changes: &Changes,
    count: usize,
    gateway: &Gateway,
    upstreams: &mut Upstreams,
    begun: Instant,
    ended: &AtomicBool,
) -> ChangeMark {
    let before = gateway.endpoints();
    let mut error = upstreams.grow(count).err();
    let wanted: Vec<SocketAddr> = upstreams.addresses(count);
    let start = Instant::now();
    let outcome = gateway.change(&wanted);
    let took = start.elapsed();
    error = error.or(outcome.err());
    let fresh: Vec<SocketAddr> = wanted.iter().filter(|address| !before.contains(address)).copied().collect();
    // only an endpoint that has just begun has no connections from before
    let looked_for = changes.stop && !fresh.is_empty() && error.is_none();
    let effective = if looked_for { seen(&fresh, start, ended) } else { None };
    if changes.stop && count < before.len() {
        let _ = sleep_until(Instant::now() + GRACE, ended);
        upstreams.shrink(count);
    }
    ChangeMark {
        at_ms: (start - begun).as_millis() as u64,
        what: format!("{count} endpoints"),
        took_ms: took.as_secs_f64() * 1000.0,
        effective_ms: effective.map(|effective| effective.as_secs_f64() * 1000.0),
        error: error.map(|error| format!("{error:#}")),
    }
}

/// When the kernel shows the first connection to one of the endpoints.
fn seen(endpoints: &[SocketAddr], start: Instant, ended: &AtomicBool) -> Option<Duration> {
    while start.elapsed() < SEEN_LIMIT && !ended.load(Ordering::Acquire) {
        let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
        if endpoints.iter().any(|endpoint| connected(&table, endpoint.port())) {
            return Some(start.elapsed());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

/// Whether the table has an established connection whose local end is this port.
fn connected(table: &str, port: u16) -> bool {
    const ESTABLISHED: &str = "01";
    let ending = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().is_some_and(|local| local.ends_with(&ending));
        local && words.nth(1) == Some(ESTABLISHED)
    })
}

/// False where it ended before.
fn sleep_until(due: Instant, ended: &AtomicBool) -> bool {
    loop {
        if ended.load(Ordering::Acquire) {
            return false;
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(Duration::from_millis(5)));
    }
}

#[cfg(test)]
mod tests {
    use super::connected;

    #[test]
    fn established_connections_are_found_by_local_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr\n\
            \x20  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000\n\
            \x20  1: 0100007F:C350 0100007F:1F91 01 00000000:00000000 00:00000000\n\
            \x20  2: 0100007F:1F92 0100007F:C351 01 00000000:00000000 00:00000000\n";
        for (port, expected) in [(0x1F90, false), (0x1F91, false), (0x1F92, true)] {
            assert_eq!(connected(table, port), expected, "{port:x}");
        }
    }
}
