//! Certificate authorities and certificates for tests.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RevokedCertParams, SerialNumber, date_time_ymd,
};

/// 2100-01-01.
const FAR_UNIX_S: u64 = 4_102_444_800;

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

/// A certificate authority without other trust.
pub(crate) struct Authority {
    pub(crate) cert: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        Authority::until(name, FAR_UNIX_S)
    }

    /// An authority that expires at this time, in seconds since the Unix epoch.
    pub(crate) fn until(name: &str, unix_s: u64) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(unix_s);
        let cert = params.self_signed(&key).expect("a certificate").pem();
        Authority { cert, issuer: Issuer::new(params, key) }
    }

    /// An intermediate authority signed by this one.
    pub(crate) fn under(&self, name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Authority { cert, issuer: Issuer::new(params, key) }
    }

    /// A client certificate with this serial number and year of expiry.
    pub(crate) fn issue_client(&self, name: &str, serial: u8, last_year: i32) -> Pair {
        let key = ecdsa();
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, "Shop, Inc");
        params.serial_number = Some(SerialNumber::from(vec![serial]));
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(last_year, 1, 1);
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Pair { cert, key: key.serialize_pem() }
    }

    /// A self-signed certificate for this name, with the CA flag, as `openssl req -x509` makes it.
    pub(crate) fn own(name: &str, last_year: i32) -> Pair {
        let key = ecdsa();
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(last_year, 1, 1);
        let cert = params.self_signed(&key).expect("a certificate").pem();
        Pair { cert, key: key.serialize_pem() }
    }

    /// The revocation list with these serial numbers.
    pub(crate) fn revoked(&self, serials: &[u8]) -> String {
        self.revoked_until(serials, FAR_UNIX_S)
    }

    /// A revocation list with this `nextUpdate`, in seconds since the Unix epoch.
    pub(crate) fn revoked_until(&self, serials: &[u8], unix_s: u64) -> String {
        let revoked = |serial: &u8| RevokedCertParams {
            serial_number: SerialNumber::from(vec![*serial]),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(1970, 1, 1) + Duration::from_secs(unix_s),
            crl_number: SerialNumber::from(vec![1]),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).expect("a list").pem().expect("PEM")
    }

    /// A certificate for these names; the common name identifies it in tests.
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

/// A certificate for these names with an ECDSA key, from an authority of its own.
pub(crate) fn simple(common_name: &str, names: &[&str]) -> Pair {
    Authority::new("test authority").sign(common_name, names, ecdsa())
}
