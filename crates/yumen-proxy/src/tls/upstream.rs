//! TLS towards endpoints: settings made once and shared, so that sessions are resumed.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
};
use yumen_snapshot::{Upstream, UpstreamTls};

use super::HTTP2;
use super::clients::roots;
use super::pair;
use super::provider::provider;

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

/// Settings towards a server that is no upstream, made once: verified against the system's authorities, or
/// not at all.
pub(crate) fn plain_client(verify: bool) -> Result<Arc<ClientConfig>, String> {
    shared_config(&UpstreamTls { verify, ..UpstreamTls::default() }, false)
}

fn build_client(tls: &UpstreamTls) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let verifier = if tls.verify { verified(tls.ca_pem.as_deref())? } else { unverified() };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    match &tls.client {
        None => Ok(builder.with_no_client_auth()),
        Some((certificate, key)) => {
            let pair = pair::load(certificate, key).map_err(|flaw| flaw.to_string())?;
            let resolver = rustls::sign::SingleCertAndKey::from(pair);
            Ok(builder.with_client_cert_resolver(Arc::new(resolver)))
        }
    }
}

fn system_roots() -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if store.is_empty() { Err("there is no trusted CA".into()) } else { Ok(store) }
}

/// Takes a certificate that leads to one of these authorities, PEM, or the system's, and is one for the name.
fn verified(ca_pem: Option<&str>) -> Result<Arc<dyn ServerCertVerifier>, String> {
    let roots = Arc::new(ca_pem.map_or_else(system_roots, roots)?);
    let chains = WebPkiServerVerifier::builder_with_provider(roots, provider());
    let given = CertificateDer::pem_slice_iter(ca_pem.unwrap_or_default().as_bytes());
    Ok(Arc::new(Verified {
        chains: chains.build().map_err(|error| error.to_string())?,
        given: given.filter_map(Result::ok).collect(),
    }))
}

/// Verifies chains, and takes a certificate that was itself given as an authority, as those are that servers signed
/// for themselves: OpenSSL does so, and whoever gave it meant it.
#[derive(Debug)]
struct Verified {
    chains: Arc<WebPkiServerVerifier>,
    given: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verified {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(error) if is_authority(&error) && self.given.iter().any(|given| given == end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            done => done,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// Whether a certificate was refused for nothing but being an authority's. That is found out after its time was
/// looked at, and before its chain and its name.
fn is_authority(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) = error else {
        return false;
    };
    matches!(inner.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// Takes a certificate as it comes.
pub(super) fn unverified() -> Arc<dyn ServerCertVerifier> {
    Arc::new(NotVerified)
}

/// Accepts any certificate, as APISIX does unless told to verify, be it one that could be read or not. Nor is it
/// looked whether the server holds its key: whoever stands between could show a certificate of his own.
#[derive(Debug)]
struct NotVerified;

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
