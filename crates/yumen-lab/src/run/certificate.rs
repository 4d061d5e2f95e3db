//! The certificate of a run: self-signed, RSA-2048, for `localhost`.

use std::path::Path;

use anyhow::Result;
use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, RsaKeySize};

use crate::targets::LabCertificate;

/// Generates the certificate and writes its files for the gateways.
pub(super) fn make(folder: &Path) -> Result<LabCertificate> {
    let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?;
    let (chain_text, key_text) = (certificate.pem(), key.serialize_pem());
    let made = LabCertificate {
        chain: folder.join("cert.pem"),
        key: folder.join("key.pem"),
        both: folder.join("both.pem"),
        chain_text,
        key_text,
    };
    std::fs::write(&made.chain, &made.chain_text)?;
    std::fs::write(&made.key, &made.key_text)?;
    std::fs::write(&made.both, format!("{}{}", made.chain_text, made.key_text))?;
    Ok(made)
}
