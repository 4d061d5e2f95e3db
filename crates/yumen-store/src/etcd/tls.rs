//! TLS connections to the members of a cluster.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use yumen_base::pem;

use super::settings::EtcdTlsFiles;
use super::wire::RpcError;

/// TLS configuration built from the files.
pub(super) struct EtcdTlsConnector {
    connector: TlsConnector,
    server_name: Option<String>,
}

impl EtcdTlsConnector {
    /// Reads the files; the error names the unreadable one.
    pub(super) fn new(files: &EtcdTlsFiles) -> Result<EtcdTlsConnector, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(authorities(files.authorities.as_deref())?);
        let mut config = match &files.certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                let key_read = private_key(key)?;
                builder.with_client_auth_cert(chain, key_read).map_err(|error| about(certificate, &error))?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        Ok(EtcdTlsConnector { connector, server_name: files.server_name.clone() })
    }

    pub(super) async fn handshake(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, RpcError> {
        let name = self.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned()).map_err(RpcError::transport)?;
        self.connector.connect(name, stream).await.map_err(RpcError::transport)
    }
}

fn authorities(file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| about(file, &error))?;
            }
        }
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    Ok(roots)
}

/// The error omits the library's message, which quotes the key.
fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let text = std::fs::read(file).map_err(|error| about(file, &error))?;
    let flaw = |_| about(file, &format_args!("the private key is not PEM: {}", pem::flaw(&text)));
    PrivateKeyDer::from_pem_slice(&text).map_err(flaw)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = std::fs::read(file).map_err(|error| about(file, &error))?;
    let read = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let certificates = read.map_err(|_| about(file, &format_args!("it is not PEM: {}", pem::flaw(&text))))?;
    match certificates.is_empty() {
        true => Err(format!("{}: it holds no certificate", file.display())),
        false => Ok(certificates),
    }
}

fn about(file: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", file.display())
}
