//! Certificates of the tests: an authority, and what it signs.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_RSA_SHA256,
};

/// A certificate and its key, PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

/// An authority nobody knows.
pub(crate) struct Authority {
    pub(crate) cert: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let cert = params.self_signed(&key).expect("a certificate").pem();
        Authority { cert, issuer: Issuer::new(params, key) }
    }

    /// A certificate for these names; the common name tells it from others.
    pub(crate) fn sign(&self, common_name: &str, names: &[&str], key: KeyPair) -> Pair {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, common_name);
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Pair { cert, key: key.serialize_pem() }
    }
}

pub(crate) fn ecdsa() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key")
}

pub(crate) fn rsa() -> KeyPair {
    KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key")
}

/// A self-made ECDSA certificate for these names.
pub(crate) fn simple(common_name: &str, names: &[&str]) -> Pair {
    Authority::new("test authority").sign(common_name, names, ecdsa())
}
