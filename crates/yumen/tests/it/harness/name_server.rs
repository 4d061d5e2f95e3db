//! A name server that resolves every name.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// The behaviour of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Every name has the address 127.0.0.1 with a TTL of one second.
    Answers = 0,
    /// SERVFAIL.
    Fails = 1,
    /// No response.
    Silent = 2,
    /// As `Answers`, after two seconds.
    Slow = 3,
}

/// The server, on loopback until the end of the test.
pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    mood: Arc<AtomicU8>,
}

impl NameServer {
    pub(crate) fn start() -> NameServer {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("an address");
        let mood = Arc::<AtomicU8>::default();
        let mood_now = mood.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 1500];
            while let Ok((length, peer)) = socket.recv_from(&mut bytes) {
                let mood = mood_now.load(Ordering::Relaxed);
                if mood == Mood::Silent as u8 {
                    continue;
                }
                let reply = reply(&bytes[..length], mood == Mood::Fails as u8);
                let reply_socket = socket.try_clone().expect("a socket");
                std::thread::spawn(move || {
                    if mood == Mood::Slow as u8 {
                        // Scripted.
                        std::thread::sleep(Duration::from_secs(2));
                    }
                    // The client may have closed its socket.
                    let _ = reply_socket.send_to(&reply, peer);
                });
            }
        });
        NameServer { address, mood }
    }

    /// Changes the behaviour.
    pub(crate) fn is_in(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::Relaxed);
    }
}

/// A response by RFC 1035 §4: the header, the question, and an address if one is queried.
fn reply(query: &[u8], fails: bool) -> Vec<u8> {
    const HEADER: usize = 12;
    let name = query[HEADER..].iter().position(|byte| *byte == 0).expect("the root ends a name");
    // After the name: two bytes for the type, of which the low one decides here, and two for the class.
    let (kind, end) = (query[HEADER + name + 2], HEADER + name + 5);
    let has_address = kind == 1 && !fails;
    let mut reply = query[..2].to_vec();
    // A response with the recursion flags, SERVFAIL (2) on failure, one question and at most one answer.
    reply.extend([0x81, if fails { 0x82 } else { 0x80 }, 0, 1, 0, has_address.into(), 0, 0, 0, 0]);
    reply.extend(&query[HEADER..end]);
    if has_address {
        // The name by reference, class and type of the question, TTL 1 s, four bytes of address.
        reply.extend([0xc0, HEADER as u8, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1]);
    }
    reply
}
