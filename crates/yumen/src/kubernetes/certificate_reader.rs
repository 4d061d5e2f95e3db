//! Facts about certificates for the translation.

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use yumen_kubernetes::{CertificateInspector, CertificateNames};

/// Reads PEM texts of Secrets and ConfigMaps.
#[derive(Debug)]
pub(super) struct CertificateReader;

impl CertificateInspector for CertificateReader {
    fn pair(&self, cert: &str, key: &str) -> Result<CertificateNames, String> {
        let chain = chain_of(cert)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| format!("the private key is no PEM text: {error}"))?;
        let key =
            any_supported_type(&key).map_err(|error| format!("the private key cannot sign: {error}"))?;
        let names = names_of(&chain[0])?;
        CertifiedKey::new(chain, key)
            .keys_match()
            .map_err(|_| "the private key is not that of the certificate".to_owned())?;
        Ok(names)
    }

    fn authorities(&self, pem: &str) -> Result<(), String> {
        chain_of(pem)?.iter().try_for_each(|one| names_of(one).map(drop))
    }
}

fn chain_of(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err("no certificate in the text".to_owned()),
        Ok(chain) => Ok(chain),
        Err(error) => Err(format!("no PEM text: {error}")),
    }
}

fn names_of(certificate: &CertificateDer<'_>) -> Result<CertificateNames, String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|error| format!("the certificate cannot be read: {error}"))?;
    let names = match parsed.subject_alternative_name() {
        Ok(Some(extension)) => &extension.value.general_names[..],
        _ => &[],
    };
    let dns = names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    Ok(CertificateNames { dns: dns.collect() })
}
