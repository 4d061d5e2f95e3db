//! A TLS acceptor with scopes, authorities and clients, for tests.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio_rustls::TlsConnector;
use yumen_config::{Kind, Resource};
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::{Carry, ListenerNumber, PluginRegistry};
use yumen_snapshot::compile::{Compiler, CompilerEnv, ConfigChange, UpstreamDefaults};
use yumen_snapshot::{Publisher, Snapshot};

use super::{
    CertificateLoader, DownstreamTlsAcceptor, DownstreamTlsSettings, TicketKeys, TlsVersions, acceptor,
    load_key_pair, upstream,
};
use crate::transport::tcp::TcpConnection;

/// An authority of client certificates.
pub(crate) struct TestAuthority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl TestAuthority {
    pub(crate) fn new(name: &str) -> TestAuthority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        TestAuthority { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate for a client, with its key.
    pub(crate) fn issue(&self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["client".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        (certificate, key.serialize_der().try_into().unwrap())
    }
}

/// A self-signed certificate for a name, with its key, PEM.
fn pair(name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let made = CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
    (made.pem(), key.serialize_pem())
}

/// A compiler, the publisher of its snapshots, and an acceptor that follows them.
pub(crate) struct ScopedTls {
    compiler: Compiler,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) acceptor: DownstreamTlsAcceptor,
}

impl ScopedTls {
    pub(crate) fn new(changes: Vec<ConfigChange>) -> ScopedTls {
        let env = CompilerEnv {
            node: NodeFacts::default(),
            defaults: UpstreamDefaults::default(),
            path_parameters: true,
            workers: 1,
            closes_broken: false,
            missing: Default::default(),
            fetched: Arc::default(),
            variables: Arc::new(|_| None),
            load_certificate: Arc::new(CertificateLoader::default()),
            sinks: None,
        };
        let registry = Arc::new(PluginRegistry::new(yumen_plugins::BUILTIN));
        let compiler = Compiler::new(registry, Arc::new(Carry::default()), env);
        let publisher = Arc::new(Publisher::default());
        let tickets = TicketKeys::new(60);
        tickets.rotate(&[7; 48]);
        let (certificate, key) = pair("node");
        let acceptor = acceptor(DownstreamTlsSettings {
            publisher: publisher.clone(),
            default: Some(load_key_pair(&certificate, &key).unwrap()),
            versions: TlsVersions { tls12: true, tls13: true },
            ciphers: Vec::new(),
            http2: true,
            tickets: Some(Arc::new(tickets)),
            sessions_max: 100,
            challenges: Arc::default(),
        });
        let mut made = ScopedTls { compiler, publisher, acceptor: acceptor.unwrap() };
        made.apply(changes);
        made
    }

    /// Applies changes, and publishes the snapshot.
    pub(crate) fn apply(&mut self, changes: Vec<ConfigChange>) -> Arc<Snapshot> {
        let snapshot = self.compiler.apply(changes, 1).snapshot;
        self.publisher.publish(snapshot.clone());
        snapshot
    }

    /// The objects with problems, with the path of each.
    pub(crate) fn problems(&self) -> Vec<String> {
        let problems = self.compiler.problems();
        problems.iter().map(|one| format!("{} at {}", one.object, one.path)).collect()
    }

    pub(crate) fn number(&self, listener: &str) -> ListenerNumber {
        let snapshot = self.publisher.load();
        snapshot.listeners().find(|one| *one.id == *listener).expect("a listener").number
    }

    pub(crate) fn acceptor_of(&self, listener: &str) -> DownstreamTlsAcceptor {
        self.acceptor.for_listener(self.number(listener))
    }
}

pub(crate) fn put(kind: Kind, id: &str, value: Value) -> ConfigChange {
    ConfigChange::Put(Resource::new(kind, id, &value))
}

/// A listener; each has another port.
pub(crate) fn listener(id: &str, protocol: &str) -> ConfigChange {
    let port = 1000 + id.bytes().map(u16::from).sum::<u16>();
    put(Kind::Listeners, id, json!({ "address": format!("127.0.0.1:{port}"), "protocol": protocol }))
}

/// A scope of one listener with one host, or with none.
pub(crate) fn scope(id: &str, listener: &str, host: &str, tls: Value) -> ConfigChange {
    let mut value = json!({ "listeners": [listener], "tls": tls });
    if !host.is_empty() {
        value["hosts"] = json!([host]);
    }
    put(Kind::Scopes, id, value)
}

/// A new certificate of a scope, for every server name. Its own name is its id.
pub(crate) fn certificate(id: &str, scope: &str) -> ConfigChange {
    let (cert, key) = pair(id);
    put(Kind::Ssls, id, json!({ "cert": cert, "key": key, "snis": ["*"], "scopes": [scope] }))
}

/// A client without verification of the server. It keeps sessions for its next connections.
pub(crate) fn client(
    certificate: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    protocol: Option<&[u8]>,
) -> TlsConnector {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(upstream::unverified());
    let mut config = match certificate {
        Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = protocol.map(<[u8]>::to_vec).into_iter().collect();
    TlsConnector::from(Arc::new(config))
}

/// Both ends of a TCP connection over loopback.
pub(crate) fn connection() -> (tokio::net::TcpStream, TcpConnection, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let near = TcpStream::connect(address).unwrap();
    let far = listener.accept().unwrap().0;
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    (tokio::net::TcpStream::from_std(near).unwrap(), TcpConnection::fresh(far), address)
}

/// Runs a test on a runtime as a worker has it.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(std::time::Duration::from_secs(60), test).await.expect("the test ends in time");
    });
}
