//! The certificate that the webhook serves, and its replacement without a new listener.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The certificate in use; handshakes fail until there is one.
#[derive(Debug, Default)]
pub(super) struct ServedIdentity {
    current: RwLock<Option<Arc<CertifiedKey>>>,
}

impl ServedIdentity {
    /// A TLS configuration that follows the certificate.
    pub(super) fn server_config(self: &Arc<Self>) -> Result<ServerConfig, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions()?.with_no_client_auth();
        Ok(builder.with_cert_resolver(self.clone()))
    }

    /// Serves another certificate from now on.
    ///
    /// # Errors
    ///
    /// The texts are no certificate chain with its key.
    pub(super) fn replace(&self, certificate: &str, key: &str) -> Result<(), String> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| format!("the certificate is no PEM text: {error}"))?;
        // The error of the library would quote the text.
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|_| "the private key is no PEM text".to_owned())?;
        let key = aws_lc_rs::sign::any_supported_type(&key).map_err(|error| error.to_string())?;
        let pair = CertifiedKey::new(chain, key);
        pair.keys_match().map_err(|_| "the private key is not that of the certificate".to_owned())?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(pair));
        Ok(())
    }
}

impl ResolvesServerCert for ServedIdentity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
