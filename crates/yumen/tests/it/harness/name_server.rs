//! A name server that knows every name, as long as it answers.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// What it does with questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Every name has the address 127.0.0.1, for a second.
    Answers = 0,
    /// SERVFAIL.
    Fails = 1,
    /// Nothing is said.
    Silent = 2,
    /// As in `Answers`, after two seconds.
    Slow = 3,
}

/// On loopback, until the test ends.
pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    mood: Arc<AtomicU8>,
}

impl NameServer {
    pub(crate) fn start() -> NameServer {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("an address");
        let mood = Arc::<AtomicU8>::default();
        let asked = mood.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 1500];
            while let Ok((length, peer)) = socket.recv_from(&mut bytes) {
                let mood = asked.load(Ordering::Relaxed);
                if mood == Mood::Silent as u8 {
                    continue;
                }
                let reply = reply(&bytes[..length], mood == Mood::Fails as u8);
                let way = socket.try_clone().expect("a socket");
                std::thread::spawn(move || {
                    if mood == Mood::Slow as u8 {
                        std::thread::sleep(Duration::from_secs(2));
                    }
                    // Whoever asked may be gone.
                    let _ = way.send_to(&reply, peer);
                });
            }
        });
        NameServer { address, mood }
    }

    /// From now on.
    pub(crate) fn is_in(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::Relaxed);
    }
}

/// RFC 1035, section 4: the header and the question again, and the address where one is asked for.
fn reply(query: &[u8], fails: bool) -> Vec<u8> {
    const HEADER: usize = 12;
    let name = query[HEADER..].iter().position(|byte| *byte == 0).expect("the root ends a name");
    let (kind, end) = (query[HEADER + name + 2], HEADER + name + 5);
    let has_address = kind == 1 && !fails;
    let mut reply = query[..2].to_vec();
    reply.extend([0x81, if fails { 0x82 } else { 0x80 }, 0, 1, 0, has_address.into(), 0, 0, 0, 0]);
    reply.extend(&query[HEADER..end]);
    if has_address {
        // The name of the question, class and type as asked, one second, four bytes.
        reply.extend([0xc0, HEADER as u8, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1]);
    }
    reply
}
