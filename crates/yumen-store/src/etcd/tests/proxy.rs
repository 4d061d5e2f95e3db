//! A proxy to a member that can drop responses: requests arrive, responses do not.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

#[derive(Default)]
struct Shared {
    is_deaf: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

/// The proxy; it ends with the test.
pub(super) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Starts a proxy to this member.
    pub(super) fn to(url: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (shared, to) = (Arc::new(Shared::default()), url.trim_start_matches("http://").to_owned());
        let used = shared.clone();
        thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(&to)) else { continue };
                let ends = [near.try_clone().unwrap(), far.try_clone().unwrap()];
                used.open.lock().unwrap().extend(ends);
                let back = used.clone();
                let (near_in, far_out) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                thread::spawn(move || copy(far, near, || back.is_deaf.load(Ordering::SeqCst)));
                thread::spawn(move || copy(near_in, far_out, || false));
            }
        });
        Proxy { address, shared }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts or stops dropping responses. The stream is corrupt afterwards, so all connections are closed.
    pub(super) fn set_deaf(&self, is_deaf: bool) {
        self.shared.is_deaf.store(is_deaf, Ordering::SeqCst);
        if !is_deaf {
            for end in self.shared.open.lock().unwrap().drain(..) {
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, is_lost: impl Fn() -> bool) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if !is_lost() && to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
