//! Ports for servers that tests start later, or never.
//!
//! A port that the system assigned and that was closed may be assigned to another test. These ports are below
//! the ephemeral range (on Linux from 32768 by default), and each is used once.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// The lowest port, the first of those that come in pairs, and the one after the highest. A look whether a port is free
/// binds it for a moment, so the ranges do not overlap.
const FIRST: u16 = 12_000;
const PAIRS: u16 = 22_000;
const END: u16 = 32_700;

/// A port without a listener for TCP or UDP.
pub(crate) fn free_port() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let number = spread(&NEXT, FIRST, PAIRS);
        if is_free(number) {
            return SocketAddr::from((Ipv4Addr::LOCALHOST, number));
        }
    }
}

/// A port whose port 10000 above is free too, because nodes of a Redis cluster use it for their bus.
pub(crate) fn free_pair() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let number = spread(&NEXT, PAIRS, END - 10_000);
        if is_free(number) && is_free(number + 10_000) {
            return SocketAddr::from((Ipv4Addr::LOCALHOST, number));
        }
    }
}

/// The first four digits of ten free ports.
pub(crate) fn free_block() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let block = spread(&NEXT, 3_000, 3_200);
        if (0..10).all(|last| is_free(block * 10 + last)) {
            return block.to_string();
        }
    }
}

/// The next number in `first..end`; each test run begins elsewhere.
fn spread(next: &AtomicU16, first: u16, end: u16) -> u16 {
    if let Some((from, to)) = handed_out() {
        assert!(
            from >= END || to < FIRST,
            "the system hands out ports {from} to {to} by itself, and tests need {FIRST} to {END} for themselves: \
             sysctl -w net.ipv4.ip_local_port_range=\"32768 60999\""
        );
    }
    // Test processes that run at the same time begin at different ports.
    let number = next.fetch_add(1, Ordering::Relaxed);
    first + number.wrapping_add((std::process::id() as u16).wrapping_mul(31)) % (end - first)
}

/// The ephemeral port range of Linux; on other systems it is far above.
fn handed_out() -> Option<(u16, u16)> {
    static RANGE: OnceLock<Option<(u16, u16)>> = OnceLock::new();
    *RANGE.get_or_init(|| {
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
        let mut ends = range.split_whitespace().map(str::parse);
        Some((ends.next()?.ok()?, ends.next()?.ok()?))
    })
}

fn is_free(number: u16) -> bool {
    let address = (Ipv4Addr::LOCALHOST, number);
    TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
}
