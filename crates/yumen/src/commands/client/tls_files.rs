//! TLS of a command with the admin listener: trust anchors, and the certificate that the command presents.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use yumen_base::pem;

/// Files for TLS with the admin listener.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OperatorTlsArgs {
    /// PEM file of the client certificate, for an admin listener that requires one
    #[arg(long, value_name = "FILE", env = "YUMEN_ADMIN_CERT", requires = "cert_key")]
    cert: Option<PathBuf>,
    /// PEM file of the private key of the client certificate
    #[arg(long, value_name = "FILE", env = "YUMEN_ADMIN_CERT_KEY", requires = "cert")]
    cert_key: Option<PathBuf>,
    /// PEM file of the authorities of the admin listener, in place of the system's
    #[arg(long, value_name = "FILE", env = "YUMEN_ADMIN_CA")]
    ca: Option<PathBuf>,
}

impl OperatorTlsArgs {
    /// The TLS configuration of a connection; reads the files.
    pub(super) fn config(&self) -> anyhow::Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(path) => {
                let authorities = certificates(path)?;
                roots.add_parsable_certificates(authorities);
                if roots.is_empty() {
                    bail!("{}: no certificate of an authority can be used", path.display());
                }
            }
            None => {
                let system = rustls_native_certs::load_native_certs().certs;
                roots.add_parsable_certificates(system);
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let config = match self.cert.as_deref().zip(self.cert_key.as_deref()) {
            Some((certificate, key)) => config
                .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
                .with_context(|| format!("{} and {}", certificate.display(), key.display()))?,
            None => config.with_no_client_auth(),
        };
        Ok(Arc::new(config))
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let text = read(path)?;
    match CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>() {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        _ => bail!("{}: no PEM certificate: {}", path.display(), pem::flaw(&text)),
    }
}

fn private_key(path: &Path) -> anyhow::Result<PrivateKeyDer<'static>> {
    let text = read(path)?;
    // The library's error would quote the text, a private key.
    PrivateKeyDer::from_pem_slice(&text)
        .map_err(|_| anyhow::anyhow!("{}: no PEM private key: {}", path.display(), pem::flaw(&text)))
}
