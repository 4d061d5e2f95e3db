//! Facts about certificates, which the owner of a certificate reader supplies.

use yumen_config::resource::PEM_CHARACTERS_MAX;

/// Server names of a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateNames {
    /// DNS names of the subject alternative name extension, in lower case.
    pub dns: Vec<String>,
}

/// Reads certificates for the translation, which has no reader of its own.
pub trait CertificateInspector: Send + Sync {
    /// The names of a PEM chain, if `key` is the private key of its first certificate.
    ///
    /// # Errors
    ///
    /// The reason why the pair cannot serve.
    fn pair(&self, cert: &str, key: &str) -> Result<CertificateNames, String>;

    /// Checks that a PEM text has at least one certificate that can be a trust anchor.
    ///
    /// # Errors
    ///
    /// The reason why the text cannot verify a peer.
    fn authorities(&self, pem: &str) -> Result<(), String>;
}

/// The names of a pair that an ssl object may hold. The compiler would refuse a longer text, and no status would show it.
///
/// # Errors
///
/// The reason why the pair cannot serve.
pub(crate) fn served_names(
    inspector: &dyn CertificateInspector,
    cert: &str,
    key: &str,
) -> Result<CertificateNames, String> {
    for (part, text) in [("certificate chain", cert), ("key", key)] {
        let length = text.chars().count();
        if length > PEM_CHARACTERS_MAX {
            return Err(format!(
                "the {part} has {length} characters, and at most {PEM_CHARACTERS_MAX} are allowed"
            ));
        }
    }
    inspector.pair(cert, key)
}
