//! A TLS upstream with control over its records, and TLS configurations of clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use super::certs::Pair;

/// The configuration of a server with this certificate.
pub(crate) fn server_config(pair: &Pair) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let chain = CertificateDer::pem_slice_iter(pair.cert.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).unwrap();
    let shown = Shown(Arc::new(CertifiedKey::new(chain, key)));
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(shown))
}

/// The configuration of a client that only trusts this authority.
pub(crate) fn trusting(cert: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Arc::new(config.unwrap().with_root_certificates(roots).with_no_client_auth())
}

/// A client of `a.test`; the handshake runs with its first bytes.
pub(crate) fn over_tls(
    tcp: TcpStream,
    config: &Arc<ClientConfig>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from("a.test").unwrap();
    StreamOwned::new(ClientConnection::new(config.clone(), name).unwrap(), tcp)
}

/// A TLS 1.3 client that trusts this authority, with a client certificate if `client_pair` is set.
pub(crate) fn client_config(authority: &str, client_pair: Option<&Pair>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let Some(pair) = client_pair else { return builder.with_no_client_auth() };
    let chain = CertificateDer::pem_slice_iter(pair.cert.as_bytes()).map(Result::unwrap);
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    builder.with_client_auth_cert(chain.collect(), key).unwrap()
}

/// One certificate for all names, even if it is one that the library would not load.
#[derive(Debug)]
struct Shown(Arc<CertifiedKey>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // Refuses an unknown name, as strict servers do.
        (hello.server_name() != Some("unknown.test")).then(|| self.0.clone())
    }
}

/// A client's connection after its handshake.
pub(crate) struct TlsPeer {
    pub(crate) session: ServerConnection,
    pub(crate) tcp: TcpStream,
}

impl TlsPeer {
    /// Reads a request with its body by Content-Length; `None` if the client has closed.
    pub(crate) fn request(&mut self) -> Option<String> {
        let mut text = Vec::new();
        loop {
            let head = text.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
            if let Some(head) = head {
                let head_text = String::from_utf8_lossy(&text);
                let length = super::client::field(&head_text, "content-length");
                let length: usize = length.map_or(0, |length| length.parse().unwrap());
                if text.len() >= head + length {
                    return String::from_utf8(text).ok();
                }
            }
            let mut room = [0; 4096];
            let count = rustls::Stream::new(&mut self.session, &mut self.tcp).read(&mut room).ok()?;
            if count == 0 {
                return None;
            }
            text.extend_from_slice(&room[..count]);
        }
    }

    /// Encrypts bytes into records without sending them.
    pub(crate) fn records(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut records = Vec::new();
        self.session.writer().write_all(bytes).unwrap();
        while self.session.wants_write() {
            self.session.write_tls(&mut records).unwrap();
        }
        records
    }

    /// The close_notify alert, not sent yet.
    pub(crate) fn goodbye(&mut self) -> Vec<u8> {
        self.session.send_close_notify();
        self.records(b"")
    }
}

type Script = dyn Fn(&mut TlsPeer, usize) -> Option<()> + Send + Sync;

/// A listening upstream with a thread per connection, which the script serves to its end. The script gets the
/// number of previous connections.
pub(crate) struct TlsUpstream {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    names: Arc<Mutex<Vec<Option<String>>>>,
}

impl TlsUpstream {
    pub(crate) fn start(
        pair: &Pair,
        script: impl Fn(&mut TlsPeer, usize) -> Option<()> + Send + Sync + 'static,
    ) -> TlsUpstream {
        let (config, script) =
            (Arc::new(server_config(pair)), Arc::<Script>::from(Box::new(script) as Box<Script>));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().unwrap();
        let upstream = TlsUpstream { address, connections: Arc::default(), names: Arc::default() };
        let (connections, names) = (upstream.connections.clone(), upstream.names.clone());
        std::thread::spawn(move || {
            for mut tcp in listener.incoming().map_while(Result::ok) {
                let before = connections.fetch_add(1, Ordering::AcqRel);
                let (config, script, names) = (config.clone(), script.clone(), names.clone());
                std::thread::spawn(move || {
                    let mut session = ServerConnection::new(config).ok()?;
                    while session.is_handshaking() {
                        session.complete_io(&mut tcp).ok()?;
                    }
                    names.lock().unwrap().push(session.server_name().map(str::to_owned));
                    script(&mut TlsPeer { session, tcp }, before)
                });
            }
        });
        upstream
    }

    /// Responds to every request with this text.
    pub(crate) fn text(pair: &Pair, text: &'static str) -> TlsUpstream {
        TlsUpstream::start(pair, move |peer, _| {
            loop {
                peer.request()?;
                let answer = peer.records(&answer(text));
                peer.tcp.write_all(&answer).ok()?;
            }
        })
    }

    /// Number of connections, including those with a failed handshake.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    /// Server names of the completed handshakes.
    pub(crate) fn names(&self) -> Vec<Option<String>> {
        self.names.lock().unwrap().clone()
    }
}

/// A complete response that keeps the connection.
pub(crate) fn answer(text: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
}
