//! The test upstream: responses with configurable size, latency and failures.
//! Independent of its clients.

mod answer;
mod behaviour;
mod request;
mod serve;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

pub use behaviour::{LatencyShape, StallSchedule, UpstreamBehaviour};

use crate::alarm::RunClock;
use crate::machine::{allow_many_open_files, own_cost};

/// Listen backlog; the kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;

/// Settings of a test upstream.
#[derive(Clone, Debug)]
pub struct UpstreamOptions {
    /// Address for HTTP/1.1 and HTTP/2 with prior knowledge; port 0 selects a free one.
    pub listen: SocketAddr,
    /// Address for both protocols over TLS.
    pub listen_tls: Option<SocketAddr>,
    /// Certificate for TLS.
    pub certificate: UpstreamCertificate,
    /// Threads, each with its own listening sockets.
    pub threads: usize,
    /// Body size in bytes for paths without a size.
    pub body_bytes: u64,
    /// Latency, failures and limits.
    pub behaviour: UpstreamBehaviour,
}

/// Certificate of the TLS listener.
#[derive(Clone, Debug)]
pub enum UpstreamCertificate {
    /// Self-signed certificate with an RSA key of 2048 bits, generated at start.
    Rsa,
    /// Self-signed certificate with a P-256 key, generated at start.
    Ecdsa,
    /// PEM files of the chain and of the key.
    Files(String, String),
}

/// Counters since the start, served as JSON at `/stats`. Requests for `/stats` do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamStats {
    /// Accepted connections.
    pub connections: u64,
    /// Currently open connections.
    pub open_connections: u64,
    /// Requests read.
    pub requests: u64,
    /// Injected error responses.
    pub errors_on_purpose: u64,
    /// Requests over the rate limit, answered with 429.
    pub limited: u64,
    /// CPU time of the process in nanoseconds.
    pub cpu_ns: u64,
    /// Time since the start in milliseconds.
    pub uptime_ms: u64,
}

/// A running test upstream; stops on drop.
pub struct TestUpstream {
    address: SocketAddr,
    address_tls: Option<SocketAddr>,
    server: Arc<UpstreamServer>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// State shared by the threads.
pub(crate) struct UpstreamServer {
    pub(crate) clock: RunClock,
    pub(crate) behaviour: behaviour::BehaviourState,
    pub(crate) body_bytes: u64,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    connections: AtomicU64,
    open: AtomicU64,
    requests: AtomicU64,
    errors: AtomicU64,
    limited: AtomicU64,
    stopped: AtomicBool,
}

/// Starts a test upstream. The sockets are listening on return.
pub fn upstream(options: &UpstreamOptions) -> io::Result<TestUpstream> {
    // Before the sockets; a server cannot know the number of its clients.
    allow_many_open_files();
    let tls = options.listen_tls.map(|_| server_tls(&options.certificate)).transpose()?;
    let first = listener(options.listen)?;
    let first_tls = options.listen_tls.map(listener).transpose()?;
    // With port 0, the other threads must bind the port that the kernel chose.
    let address = first.local_addr()?;
    let address_tls = first_tls.as_ref().map(TcpListener::local_addr).transpose()?;
    let server = Arc::new(UpstreamServer {
        clock: RunClock::start(),
        behaviour: behaviour::BehaviourState::new(options.behaviour.clone()),
        body_bytes: options.body_bytes,
        tls,
        connections: AtomicU64::new(0),
        open: AtomicU64::new(0),
        requests: AtomicU64::new(0),
        errors: AtomicU64::new(0),
        limited: AtomicU64::new(0),
        stopped: AtomicBool::new(false),
    });
    let mut sockets = vec![(first, first_tls)];
    for _ in 1..options.threads.max(1) {
        sockets.push((listener(address)?, address_tls.map(listener).transpose()?));
    }
    let mut threads = Vec::new();
    for (number, (plain, tls)) in sockets.into_iter().enumerate() {
        let server = server.clone();
        let thread = std::thread::Builder::new().name(format!("upstream-{number}"));
        threads.push(thread.spawn(move || serve::run(server, number as u64, plain, tls))?);
    }
    Ok(TestUpstream { address, address_tls, server, threads })
}

impl TestUpstream {
    /// Address of the clear text listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address of the TLS listener.
    pub fn address_tls(&self) -> Option<SocketAddr> {
        self.address_tls
    }

    /// Current counters.
    pub fn stats(&self) -> UpstreamStats {
        self.server.stats()
    }

    /// Waits until the upstream ends or a thread fails.
    pub fn join(mut self) -> io::Result<()> {
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| io::Error::other("a thread of the upstream panicked"))??;
        }
        Ok(())
    }
}

impl Drop for TestUpstream {
    fn drop(&mut self) {
        self.server.stopped.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // The error of a failed thread is not needed during the drop.
            let _ = thread.join();
        }
    }
}

impl UpstreamServer {
    fn stats(&self) -> UpstreamStats {
        let cost = own_cost();
        UpstreamStats {
            connections: self.connections.load(Ordering::Relaxed),
            open_connections: self.open.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            errors_on_purpose: self.errors.load(Ordering::Relaxed),
            limited: self.limited.load(Ordering::Relaxed),
            cpu_ns: cost.cpu_user_ns + cost.cpu_system_ns,
            uptime_ms: self.clock.now_ns() / 1_000_000,
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

/// Creates one listening socket per thread; `SO_REUSEPORT` distributes the connections.
fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restarted upstream must not wait for the connections in TIME-WAIT.
    socket.set_reuse_address(true)?;
    // Each thread has its own listener at the same port.
    socket.set_reuse_port(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn server_tls(certificate: &UpstreamCertificate) -> io::Result<Arc<ServerConfig>> {
    let (chain, key) = match certificate {
        UpstreamCertificate::Files(chain, key) => from_files(chain, key).map_err(io::Error::other)?,
        UpstreamCertificate::Rsa => {
            self_signed(KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048))?
        }
        UpstreamCertificate::Ecdsa => self_signed(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256))?,
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Tickets need no state; the default cache holds 256 sessions only.
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().map_err(io::Error::other)?;
    Ok(Arc::new(config))
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn from_files(chain: &str, key: &str) -> Result<Identity, String> {
    let read = |error: rustls::pki_types::pem::Error| format!("{chain}: {error}");
    let chain =
        CertificateDer::pem_file_iter(chain).map_err(read)?.collect::<Result<_, _>>().map_err(read)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|_| format!("{key}: it is no private key in PEM"))?;
    Ok((chain, key))
}

fn self_signed(key: Result<KeyPair, rcgen::Error>) -> io::Result<Identity> {
    let key = key.map_err(io::Error::other)?;
    // The names under which the lab connects.
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = rcgen::CertificateParams::new(names)
        .and_then(|parameters| parameters.self_signed(&key))
        .map_err(io::Error::other)?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(io::Error::other)?;
    Ok((vec![certificate.der().clone()], key))
}
