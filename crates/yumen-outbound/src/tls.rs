//! TLS client configurations by their settings.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use yumen_base::pem;
use yumen_plugin::SinkTls;

/// Most configurations that are kept. Settings that change, such as trust anchors, leave their configurations behind.
const KNOWN_MAX: usize = 256;

/// Client configurations that connections share, with their session tickets.
#[derive(Default)]
pub struct TlsClients {
    known: Mutex<HashMap<SinkTls, Arc<ClientConfig>>>,
}

impl TlsClients {
    /// The configuration for these settings.
    pub fn get(&self, settings: &SinkTls) -> Result<Arc<ClientConfig>, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = known.get(settings) {
            return Ok(config.clone());
        }
        let config = Arc::new(build(settings)?);
        if known.len() >= KNOWN_MAX {
            // Those in use are built again.
            known.clear();
        }
        known.insert(settings.clone(), config.clone());
        Ok(config)
    }
}

fn build(settings: &SinkTls) -> Result<ClientConfig, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match &settings.ca_pem {
        _ if !settings.verify => builder.dangerous().with_custom_certificate_verifier(unverified(algorithms)),
        Some(pem) => builder.with_root_certificates(trust_anchors(pem.as_bytes())?),
        None => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            builder.with_root_certificates(roots)
        }
    };
    let Some(client) = &settings.client else { return Ok(builder.with_no_client_auth()) };
    let certificates = CertificateDer::pem_slice_iter(client.chain_pem.as_bytes());
    let chain = certificates.collect::<Result<Vec<_>, _>>();
    let chain =
        chain.map_err(|_| format!("client certificate: {}", pem::flaw(client.chain_pem.as_bytes())))?;
    let key = PrivateKeyDer::from_pem_slice(client.key_pem.as_bytes())
        .map_err(|_| format!("key of the client certificate: {}", pem::flaw(client.key_pem.as_bytes())))?;
    builder.with_client_auth_cert(chain, key).map_err(|error| format!("client certificate: {error}"))
}

/// The trust anchors in a PEM text.
pub fn trust_anchors(text: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text) {
        let certificate = certificate.map_err(|_| format!("trust anchor: {}", pem::flaw(text)))?;
        roots.add(certificate).map_err(|error| format!("trust anchor: {error}"))?;
    }
    // An empty store would refuse every server with a misleading error.
    if roots.is_empty() { Err(format!("trust anchor: {}", pem::flaw(text))) } else { Ok(roots) }
}

/// A verifier that accepts any certificate, for settings that switch verification off, as several plugins of APISIX do by
/// default. Signatures of the handshake are verified nevertheless.
pub fn unverified(algorithms: WebPkiSupportedAlgorithms) -> Arc<dyn ServerCertVerifier> {
    Arc::new(UnverifiedCertificate(algorithms))
}

#[derive(Debug)]
struct UnverifiedCertificate(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for UnverifiedCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
