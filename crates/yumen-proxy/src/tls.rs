//! TLS of both sides, by rustls over aws-lc-rs.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use yumen_plugin::TlsInfo;
use yumen_snapshot::{Publisher, Upstream, UpstreamTls};

use crate::stream::Stream;

/// How HTTP/2 is called in a handshake (RFC 9113 §3.2).
const HTTP2: &[u8] = b"h2";

/// Makes TLS streams of accepted connections.
#[derive(Clone)]
pub struct Acceptor {
    pub(crate) inner: tokio_rustls::TlsAcceptor,
}

/// How clients are answered.
pub struct ServerTls {
    /// Where certificates are found; a new snapshot's are used from its publication on.
    pub publisher: Arc<Publisher>,
    /// Shown where no certificate of the snapshot fits.
    pub default: Option<Arc<CertifiedKey>>,
    /// Whether TLS 1.2 is spoken.
    pub tls12: bool,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
    /// Whether clients may resume with tickets.
    pub tickets: bool,
    /// How many sessions are remembered for clients without tickets; 0 remembers none.
    pub sessions_max: usize,
}

/// The acceptor all listeners and workers share, with its tickets.
pub fn acceptor(settings: ServerTls) -> Result<Acceptor, String> {
    let versions: &[&rustls::SupportedProtocolVersion] = if settings.tls12 {
        &[&rustls::version::TLS13, &rustls::version::TLS12]
    } else {
        &[&rustls::version::TLS13]
    };
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Resolver { publisher: settings.publisher, default: settings.default }));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if settings.http2 {
        config.alpn_protocols.insert(0, HTTP2.to_vec());
    }
    if settings.tickets {
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(|error| error.to_string())?;
    }
    config.session_storage = match settings.sessions_max {
        0 => Arc::new(rustls::server::NoServerSessionStorage {}),
        sessions => rustls::server::ServerSessionMemoryCache::new(sessions),
    };
    config.send_half_rtt_data = false;
    Ok(Acceptor { inner: tokio_rustls::TlsAcceptor::from(Arc::new(config)) })
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: std::sync::OnceLock<Arc<CryptoProvider>> = std::sync::OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(aws_lc_rs::default_provider())).clone()
}

struct Resolver {
    publisher: Arc<Publisher>,
    default: Option<Arc<CertifiedKey>>,
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let snapshot = self.publisher.load();
        let certificate = snapshot.certificate(hello.server_name().unwrap_or_default());
        let keys = certificate.map(|certificate| &certificate.keys[..]).unwrap_or_default();
        let mut keys = keys.iter().filter_map(|key| key.clone().downcast::<CertifiedKey>().ok()).peekable();
        let first = keys.peek().cloned();
        // Of several pairs, the first whose algorithm the client can verify.
        keys.find(|key| key.key.choose_scheme(hello.signature_schemes()).is_some())
            .or(first)
            .or_else(|| self.default.clone())
    }
}

/// Reads a certificate chain and its key, in PEM; they must belong together.
pub fn load_key_pair(certificate: &str, key: &str) -> Result<Arc<CertifiedKey>, String> {
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("the certificate is not PEM: {error}"))?;
    if chain.is_empty() {
        return Err("there is no certificate in the PEM text".into());
    }
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| format!("the private key is not PEM: {error}"))?;
    let pair = CertifiedKey::from_der(chain, key, &provider())
        .map_err(|error| format!("the certificate and its key cannot be used: {error}"))?;
    Ok(Arc::new(pair))
}

/// [`load_key_pair`] for the compiler, which does not know TLS.
pub fn load_certificate(certificate: &str, key: &str) -> Result<Arc<dyn Any + Send + Sync>, String> {
    Ok(load_key_pair(certificate, key)?)
}

/// Whether the handshake with a client settled on HTTP/2.
pub(crate) fn speaks_http2(stream: &Stream) -> bool {
    matches!(stream, Stream::Accepted(tls) if tls.get_ref().1.alpn_protocol() == Some(HTTP2))
}

/// What the handshake with a client told.
pub(crate) fn info(connection: &rustls::ServerConnection) -> TlsInfo {
    TlsInfo {
        sni: connection.server_name().map(Box::from),
        version: match connection.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "TLSv1.2",
        },
        cipher: connection
            .negotiated_cipher_suite()
            .and_then(|suite| suite.suite().as_str())
            .unwrap_or_default(),
    }
}

type Known = Vec<(UpstreamTls, bool, Arc<ClientConfig>)>;

/// The client settings of an upstream, made once and shared by all with the same settings, so that
/// sessions are resumed across configuration changes.
pub(crate) fn client_config(upstream: &Upstream, http2: bool) -> Result<Arc<ClientConfig>, String> {
    if http2 {
        // Its connections are few: the shared table is quick enough.
        return shared_config(&upstream.tls, true);
    }
    if let Some(config) = upstream.tls_cache.get().and_then(|any| any.clone().downcast().ok()) {
        return Ok(config);
    }
    let config = shared_config(&upstream.tls, false)?;
    Ok(upstream.tls_cache.get_or_init(|| config.clone()).clone().downcast().unwrap_or(config))
}

/// Settings remembered; past this the oldest goes.
const KNOWN_MAX: usize = 1024;

/// `http2` is whether that is asked for in the handshake.
pub(crate) fn shared_config(tls: &UpstreamTls, http2: bool) -> Result<Arc<ClientConfig>, String> {
    static KNOWN: Mutex<Known> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((.., config)) = known.iter().find(|known| known.0 == *tls && known.1 == http2) {
        return Ok(config.clone());
    }
    let mut config = build_client(tls)?;
    if http2 {
        config.alpn_protocols = vec![HTTP2.to_vec()];
    }
    let config = Arc::new(config);
    if known.len() >= KNOWN_MAX {
        known.remove(0);
    }
    known.push((tls.clone(), http2, config.clone()));
    Ok(config)
}

fn build_client(tls: &UpstreamTls) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = if tls.verify {
        builder.with_root_certificates(roots(tls.ca_pem.as_deref())?)
    } else {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(NotVerified(provider())))
    };
    match &tls.client {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => {
            let pair = load_key_pair(certificate, key)?;
            let resolver = rustls::sign::SingleCertAndKey::from(pair);
            Ok(builder.with_client_cert_resolver(Arc::new(resolver)))
        }
    }
}

fn roots(ca_pem: Option<&str>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    match ca_pem {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate = certificate.map_err(|error| format!("the CA is not PEM: {error}"))?;
                store.add(certificate).map_err(|error| format!("the CA cannot be used: {error}"))?;
            }
        }
        None => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if store.is_empty() { Err("there is no trusted CA".into()) } else { Ok(store) }
}

/// The name an endpoint's certificate is asked for.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned()).map_err(|_| format!("`{host}` is no server name"))
}

/// Accepts any certificate, as APISIX does unless told to verify; signatures are still checked.
#[derive(Debug)]
struct NotVerified(Arc<CryptoProvider>);

impl ServerCertVerifier for NotVerified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
