//! Ports for what tests start later or never.
//!
//! A port the system chose and that was closed again goes to the next who asks for any, which may be another test.
//! These are below the ones it hands out by itself (on Linux from 32768 on, where nobody has set it otherwise), and
//! each is given out once.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// The lowest port that is given out, and the one above the highest.
const FIRST: u16 = 12_000;
const END: u16 = 32_700;

/// On which nobody listens, for connections or datagrams, unless whoever asks does. Nobody is given the one 10000 above
/// either, where a node of Redis talks to the others of its cluster.
pub(crate) fn free_port() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let number = spread(&NEXT, FIRST, 20_000);
        if is_free(number) && is_free(number + 10_000) {
            return SocketAddr::from((Ipv4Addr::LOCALHOST, number));
        }
    }
}

/// The first four digits of ten such ports.
pub(crate) fn free_block() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let block = spread(&NEXT, 3_000, END / 10);
        if (0..10).all(|last| is_free(block * 10 + last)) {
            return block.to_string();
        }
    }
}

/// The next number of those from `first` to below `end`; another run of the tests begins elsewhere.
fn spread(next: &AtomicU16, first: u16, end: u16) -> u16 {
    if let Some((from, to)) = handed_out() {
        assert!(
            from >= END || to < FIRST,
            "the system hands out ports {from} to {to} by itself, and tests need {FIRST} to {END} for themselves: \
             sysctl -w net.ipv4.ip_local_port_range=\"32768 60999\""
        );
    }
    let number = next.fetch_add(1, Ordering::Relaxed);
    first + number.wrapping_add((std::process::id() as u16).wrapping_mul(31)) % (end - first)
}

/// The ports the system gives to who asks for any; other systems than Linux have theirs far above.
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
