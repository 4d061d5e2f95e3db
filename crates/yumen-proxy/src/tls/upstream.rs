//! Upstream TLS configurations, built once and shared so that sessions can be resumed.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use yumen_snapshot::{Upstream, UpstreamTls};

use super::HTTP2;
use super::authorities::TrustedAuthorities;
use super::certificate_key_pair;
use super::endpoint_verifier::{EndpointAnchors, EndpointVerifier};
use super::provider::provider;
use super::sessions::UpstreamTlsClient;

type Known = Vec<(UpstreamTls, bool, Arc<UpstreamTlsClient>)>;

/// The TLS configuration of an upstream. Upstreams with equal settings share one, so sessions survive changes
/// of the configuration.
pub(crate) fn client_of(upstream: &Upstream, http2: bool) -> Result<Arc<UpstreamTlsClient>, String> {
    if http2 {
        // HTTP/2 connections are few, so a lookup in the shared table is fast enough.
        return shared_client(&upstream.tls.settings, true);
    }
    if let Some(client) = upstream.tls.client.get().and_then(|any| any.clone().downcast().ok()) {
        return Ok(client);
    }
    let client = shared_client(&upstream.tls.settings, false)?;
    Ok(upstream.tls.client.get_or_init(|| client.clone()).clone().downcast().unwrap_or(client))
}

/// The most configurations cached; the oldest is removed.
const KNOWN_MAX: usize = 1024;

/// The shared configuration for `tls`. `http2` offers HTTP/2 by ALPN.
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

/// The configuration for servers that are not upstreams. With `verify`, certificates are verified against the
/// system's authorities.
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
        None if tls.names.is_empty() && tls.depth_max.is_none() => by_system()?,
        None => EndpointVerifier::shared(EndpointAnchors::System(system_roots()?), tls),
        Some(given) => EndpointVerifier::shared(EndpointAnchors::Given(given.clone()), tls),
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
    // System stores contain certificates that webpki does not parse; those are left out.
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if store.is_empty() { Err("there is no trusted CA".into()) } else { Ok(store) }
}

/// Verifies against the system's authorities, and the server name.
fn by_system() -> Result<Arc<dyn ServerCertVerifier>, String> {
    let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(system_roots()?), provider());
    Ok(chains.build().map_err(|error| error.to_string())?)
}

/// A verifier that accepts any certificate.
pub(super) fn unverified() -> Arc<dyn ServerCertVerifier> {
    Arc::new(AcceptAnyCertificate)
}

/// Accepts any certificate, even an unparsable one, as APISIX does by default. Handshake signatures are not
/// verified either: an intermediary could present a certificate of its own, so they would prove nothing.
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
