//! TLS of the admin listener: one certificate, from files the caller read.
//!
//! Knows PEM; must not know files, nor what is served.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use yumen_base::pem;

/// What the admin listener shows its clients.
#[derive(Clone)]
pub struct AdminTls(pub(crate) Arc<ServerConfig>);

impl AdminTls {
    /// Of a chain and its key, both PEM. An error tells which of them is wrong, and why.
    pub fn new(certificate: &[u8], key: &[u8]) -> Result<AdminTls, String> {
        let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
        let chain =
            chain.map_err(|_| format!("admin.tls.certificate: it is not PEM: {}", pem::flaw(certificate)))?;
        if chain.is_empty() {
            return Err("admin.tls.certificate: no certificate found".to_owned());
        }
        // The library's error quotes the text.
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| format!("admin.tls.key: it is not PEM: {}", pem::flaw(key)))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| format!("admin.tls: {error}"))?.with_no_client_auth();
        let config = builder.with_single_cert(chain, key).map_err(|error| format!("admin.tls: {error}"))?;
        Ok(AdminTls(Arc::new(config)))
    }
}
