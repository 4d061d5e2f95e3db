//! TLS towards endpoints: settings made once and shared, so that sessions are resumed.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use webpki::KeyUsage;
use yumen_snapshot::{Upstream, UpstreamTls};

use super::HTTP2;
use super::authorities::{TrustedAuthorities, as_rustls};
use super::certificate_key_pair;
use super::provider::provider;
use super::revocation::RevocationLists;
use super::sessions::UpstreamTlsClient;

type Known = Vec<(UpstreamTls, bool, Arc<UpstreamTlsClient>)>;

/// The client settings of an upstream, made once and shared by all with the same settings, so that
/// sessions are resumed across configuration changes.
pub(crate) fn client_of(upstream: &Upstream, http2: bool) -> Result<Arc<UpstreamTlsClient>, String> {
    if http2 {
        // Its connections are few: the shared table is quick enough.
        return shared_client(&upstream.tls, true);
    }
    if let Some(client) = upstream.tls_cache.get().and_then(|any| any.clone().downcast().ok()) {
        return Ok(client);
    }
    let client = shared_client(&upstream.tls, false)?;
    Ok(upstream.tls_cache.get_or_init(|| client.clone()).clone().downcast().unwrap_or(client))
}

/// Settings remembered; past this the oldest goes.
const KNOWN_MAX: usize = 1024;

/// `http2` is whether that is asked for in the handshake.
pub(crate) fn shared_client(tls: &UpstreamTls, http2: bool) -> Result<Arc<UpstreamTlsClient>, String> {
    static KNOWN: Mutex<Known> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((.., client)) = known.iter().find(|known| known.0 == *tls && known.1 == http2) {
        return Ok(client.clone());
    }
    let client = Arc::new(build_client(tls, http2)?);
    if known.len() >= KNOWN_MAX {
        known.remove(0);
    }
    known.push((tls.clone(), http2, client.clone()));
    Ok(client)
}

/// Settings towards a server that is no upstream, made once: verified against the system's authorities, or
/// not at all.
pub(crate) fn plain_client(verify: bool) -> Result<Arc<ClientConfig>, String> {
    Ok(shared_client(&UpstreamTls { verify, ..UpstreamTls::default() }, false)?.config())
}

fn build_client(tls: &UpstreamTls, http2: bool) -> Result<UpstreamTlsClient, String> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let given =
        tls.ca_pem.as_deref().filter(|_| tls.verify).map(TrustedAuthorities::read).transpose()?.map(Arc::new);
    let verifier = match &given {
        _ if !tls.verify => unverified(),
        None => by_system()?,
        Some(given) => Arc::new(CustomCaVerifier { authorities: given.clone(), provider: provider() }),
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match &tls.client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let pair = certificate_key_pair::load(certificate, key).map_err(|flaw| flaw.to_string())?;
            let resolver = rustls::sign::SingleCertAndKey::from(pair);
            builder.with_client_cert_resolver(Arc::new(resolver))
        }
    };
    if http2 {
        config.alpn_protocols = vec![HTTP2.to_vec()];
    }
    Ok(UpstreamTlsClient::new(config, given))
}

fn system_roots() -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if store.is_empty() { Err("there is no trusted CA".into()) } else { Ok(store) }
}

/// Takes a certificate that leads to one of the system's authorities, and is one for the name.
fn by_system() -> Result<Arc<dyn ServerCertVerifier>, String> {
    let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(system_roots()?), provider());
    Ok(chains.build().map_err(|error| error.to_string())?)
}

/// Takes a certificate that leads to one of the authorities that were given, and is one for the name.
#[derive(Debug)]
struct CustomCaVerifier {
    authorities: Arc<TrustedAuthorities>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for CustomCaVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let usage = KeyUsage::server_auth();
        let path =
            self.authorities.verify(end_entity, intermediates, now, usage, &RevocationLists::default());
        path.map_err(as_rustls)?;
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Takes a certificate as it comes.
pub(super) fn unverified() -> Arc<dyn ServerCertVerifier> {
    Arc::new(AcceptAnyCertificate)
}

/// Accepts any certificate, as APISIX does unless told to verify, be it one that could be read or not. Nor is it
/// looked whether the server holds its key: whoever stands between could show a certificate of his own.
#[derive(Debug)]
struct AcceptAnyCertificate;

impl ServerCertVerifier for AcceptAnyCertificate {
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
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
