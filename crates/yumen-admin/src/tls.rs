//! TLS of the admin listener: one certificate and the authorities of clients, from PEM text that the caller read.
//!
//! Independent of files and of the served routes.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use yumen_base::pem;

/// The TLS configuration of the admin listener.
#[derive(Clone)]
pub struct AdminTls(pub(crate) Arc<ServerConfig>);

impl AdminTls {
    /// From a chain and its key, both PEM. With `client_ca`, clients must present a certificate of one of these
    /// authorities. An error names the invalid text and the reason.
    pub fn new(certificate: &[u8], key: &[u8], client_ca: Option<&[u8]>) -> Result<AdminTls, String> {
        let chain = certificates("admin.tls.certificate", certificate)?;
        // The library's error would quote the text, a private key.
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| format!("admin.tls.key: it is not PEM: {}", pem::flaw(key)))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder =
            builder.with_safe_default_protocol_versions().map_err(|error| format!("admin.tls: {error}"))?;
        let builder = match client_ca {
            Some(client_ca) => builder.with_client_cert_verifier(verifier(client_ca, provider)?),
            None => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(chain, key).map_err(|error| format!("admin.tls: {error}"))?;
        Ok(AdminTls(Arc::new(config)))
    }
}

fn certificates(path: &str, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|_| format!("{path}: it is not PEM: {}", pem::flaw(text)))?;
    match chain.is_empty() {
        true => Err(format!("{path}: no certificate found")),
        false => Ok(chain),
    }
}

fn verifier(client_ca: &[u8], provider: Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, String> {
    const PATH: &str = "admin.tls.client_ca";
    let mut roots = RootCertStore::empty();
    for authority in certificates(PATH, client_ca)? {
        // Skipping an unusable one would refuse its clients without a reason.
        roots.add(authority).map_err(|error| format!("{PATH}: an authority cannot be used: {error}"))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| format!("{PATH}: {error}"))
}
