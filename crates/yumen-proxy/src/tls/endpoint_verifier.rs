//! Verification of endpoints' certificates against configured authorities, names and a depth.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use webpki::{EndEntityCert, KeyUsage};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use yumen_snapshot::{EndpointName, UpstreamTls};

use super::authorities::{TrustedAuthorities, as_rustls};
use super::provider::provider;
use super::revocation::RevocationLists;

/// The trust anchors of endpoints.
#[derive(Debug)]
pub(super) enum EndpointAnchors {
    System(RootCertStore),
    Given(Arc<TrustedAuthorities>),
}

impl EndpointAnchors {
    /// Verifies a chain. Returns the number of intermediate certificates.
    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<usize, webpki::Error> {
        let usage = KeyUsage::server_auth();
        let roots = match self {
            EndpointAnchors::Given(given) => {
                return given.verify(leaf, above, now, usage, &RevocationLists::default());
            }
            EndpointAnchors::System(roots) => roots,
        };
        let certificate = EndEntityCert::try_from(leaf)?;
        let algorithms = provider().signature_verification_algorithms.all;
        let path = certificate.verify_for_usage(algorithms, &roots.roots, above, now, usage, None, None)?;
        Ok(path.intermediate_certificates().count())
    }
}

/// Verifies the chain of an endpoint, its depth, and one of its names.
#[derive(Debug)]
pub(super) struct EndpointVerifier {
    anchors: EndpointAnchors,
    /// Empty verifies the server name.
    names: Box<[EndpointName]>,
    depth_max: Option<u8>,
    provider: Arc<CryptoProvider>,
}

impl EndpointVerifier {
    pub(super) fn shared(anchors: EndpointAnchors, tls: &UpstreamTls) -> Arc<dyn ServerCertVerifier> {
        let (names, depth_max) = (tls.names.clone(), tls.depth_max);
        Arc::new(EndpointVerifier { anchors, names, depth_max, provider: provider() })
    }
}

impl ServerCertVerifier for EndpointVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let depth = self.anchors.verify(end_entity, intermediates, now).map_err(as_rustls)?;
        if self.depth_max.is_some_and(|depth_max| depth > usize::from(depth_max)) {
            return Err(as_rustls(webpki::Error::MaximumPathDepthExceeded));
        }
        if self.names.is_empty() {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        } else {
            verify_names(end_entity, &self.names)?;
        }
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

/// Fails unless the certificate has one of the names among its subject alternative names (RFC 5280 §4.2.1.6).
fn verify_names(certificate: &CertificateDer<'_>, names: &[EndpointName]) -> Result<(), rustls::Error> {
    let unreadable = |_| as_rustls(webpki::Error::BadDer);
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| as_rustls(webpki::Error::BadDer))?;
    let found = parsed.subject_alternative_name().map_err(unreadable)?;
    let found = found.iter().flat_map(|extension| &extension.value.general_names);
    let mut found = found.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(EndpointName::Dns(name.to_ascii_lowercase().into())),
        GeneralName::URI(uri) => Some(EndpointName::Uri((*uri).into())),
        _ => None,
    });
    match found.any(|found| names.iter().any(|expected| is_match(expected, &found))) {
        true => Ok(()),
        false => Err(rustls::Error::InvalidCertificate(CertificateError::NotValidForName)),
    }
}

/// Whether a name of a certificate is the expected one. A wildcard on either side stands for one label (RFC 9525 §6.3).
fn is_match(expected: &EndpointName, found: &EndpointName) -> bool {
    let (EndpointName::Dns(expected), EndpointName::Dns(found)) = (expected, found) else {
        return expected == found;
    };
    expected == found || covers(expected, found) || covers(found, expected)
}

/// Whether a wildcard stands for a name.
fn covers(wildcard: &str, name: &str) -> bool {
    let suffix = wildcard.strip_prefix("*.");
    // A wildcard does not stand for another one.
    let parent = name.split_once('.').filter(|(label, _)| !label.is_empty() && *label != "*");
    suffix.is_some_and(|suffix| parent.is_some_and(|(_, parent)| parent == suffix))
}

#[cfg(test)]
mod tests;
