//! TLS of the admin listener: one certificate, from PEM text that the caller read.
//!
//! Independent of files and of the served routes.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use yumen_base::pem;

/// The TLS configuration of the admin listener.
#[derive(Clone)]
pub struct AdminTls(pub(crate) Arc<ServerConfig>);

impl AdminTls {
    /// From a chain and its key, both PEM. An error names the invalid one and the reason.
    pub fn new(certificate: &[u8], key: &[u8]) -> Result<AdminTls, String> {
        let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
        let chain =
            chain.map_err(|_| format!("admin.tls.certificate: it is not PEM: {}", pem::flaw(certificate)))?;
        if chain.is_empty() {
            return Err("admin.tls.certificate: no certificate found".to_owned());
        }
        // The library's error would quote the text, a private key.
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| format!("admin.tls.key: it is not PEM: {}", pem::flaw(key)))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| format!("admin.tls: {error}"))?.with_no_client_auth();
        let config = builder.with_single_cert(chain, key).map_err(|error| format!("admin.tls: {error}"))?;
        Ok(AdminTls(Arc::new(config)))
    }
}
