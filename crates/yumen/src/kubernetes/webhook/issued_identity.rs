//! Certificates that the gateway issues for its webhook: an authority, whose key is used once and forgotten, and one
//! certificate. The decisions are pure; times are seconds since 1970.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rcgen::{KeyUsagePurpose, date_time_ymd};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use x509_parser::extensions::GeneralName;
use yumen_base::time::utc_text;

const DAY_S: u64 = 86_400;
/// Lifetime of a certificate and its authority.
const LIFETIME_S: u64 = 90 * DAY_S;
/// Time before the end at which the leader issues the next certificate.
const RENEWAL_S: u64 = 30 * DAY_S;
/// Authorities that are trusted at once: the newest, and those of certificates that replicas still serve.
const AUTHORITIES_MAX: usize = 3;

/// A certificate with its key and the authorities to trust, as the Secret holds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IssuedIdentity {
    /// PEM.
    pub(super) certificate: String,
    /// PEM.
    pub(super) key: String,
    /// PEM, the newest first.
    pub(super) authorities: String,
}

impl IssuedIdentity {
    /// Issues a certificate for names and addresses. The authorities of `former` stay trusted while they are valid, since
    /// replicas serve its certificate until they have read the new one.
    pub(super) fn issue(
        names: &[String],
        former: Option<&IssuedIdentity>,
        now_s: u64,
    ) -> Result<IssuedIdentity, rcgen::Error> {
        let mut authority = CertificateParams::new(Vec::new())?;
        // A subject of its own: verifiers find the authority by it.
        let common_name = format!("yumen admission {}", utc_text(now_s));
        authority.distinguished_name.push(DnType::CommonName, common_name);
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        limit(&mut authority, now_s);
        let authority_key = KeyPair::generate()?;
        let authority_pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name.push(DnType::CommonName, "yumen admission webhook");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        limit(&mut params, now_s);
        let certificate = params.signed_by(&key, &issuer)?.pem();
        let mut authorities = vec![authority_pem];
        let known = former.map(|former| pem_blocks(&former.authorities)).unwrap_or_default();
        authorities.extend(known.into_iter().filter(|pem| ends_at(pem).is_some_and(|end| end > now_s)));
        authorities.truncate(AUTHORITIES_MAX);
        Ok(IssuedIdentity { certificate, key: key.serialize_pem(), authorities: authorities.concat() })
    }

    /// The identity in a Secret; `None` if a member is missing.
    pub(super) fn of_secret(secret: &[u8]) -> Option<IssuedIdentity> {
        let secret: Value = serde_json::from_slice(secret).ok()?;
        let text = |name: &str| {
            let bytes = STANDARD.decode(secret["data"][name].as_str()?).ok()?;
            String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
        };
        Some(IssuedIdentity {
            certificate: text("tls.crt")?,
            key: text("tls.key")?,
            authorities: text("ca.crt")?,
        })
    }

    /// The Secret with this identity; with a version, only that version is replaced.
    pub(super) fn secret(&self, name: &str, namespace: &str, version: Option<&str>) -> Value {
        let encoded = |text: &str| STANDARD.encode(text);
        let mut secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": { "app.kubernetes.io/managed-by": "yumen" },
            },
            "type": "kubernetes.io/tls",
            "data": {
                "tls.crt": encoded(&self.certificate),
                "tls.key": encoded(&self.key),
                "ca.crt": encoded(&self.authorities),
            },
        });
        if let Some(version) = version {
            secret["metadata"]["resourceVersion"] = version.into();
        }
        secret
    }

    /// Whether another certificate is to be issued: this one ends soon, lacks a name, or cannot be read.
    pub(super) fn is_due(&self, names: &[String], now_s: u64) -> bool {
        let is_late = ends_at(&self.certificate).is_none_or(|end| end < now_s + RENEWAL_S);
        is_late || names_of(&self.certificate).is_none_or(|has| names.iter().any(|name| !has.contains(name)))
    }
}

fn limit(params: &mut CertificateParams, now_s: u64) {
    // A day earlier, since clocks of API servers differ.
    let (year, month, day) = date(now_s.saturating_sub(DAY_S));
    params.not_before = date_time_ymd(year, month, day);
    let (year, month, day) = date(now_s + LIFETIME_S);
    params.not_after = date_time_ymd(year, month, day);
}

/// Year, month and day of a time.
fn date(unix_s: u64) -> (i32, u8, u8) {
    let text = utc_text(unix_s);
    let number = |from: usize, to: usize| text.get(from..to).and_then(|part| part.parse::<u16>().ok());
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    // Years of five digits are beyond the formats of certificates.
    (year.map_or(9999, i32::from), month.map_or(12, |month| month as u8), day.map_or(31, |day| day as u8))
}

/// The blocks of a PEM text, each with its last line feed.
fn pem_blocks(text: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let blocks = text.split_inclusive(END).filter(|block| block.contains(END));
    blocks.map(|block| format!("{}\n", block.trim())).collect()
}

/// The end of the validity of the first certificate.
fn ends_at(pem: &str) -> Option<u64> {
    with_certificate(pem, |certificate| certificate.validity().not_after.timestamp())
        .and_then(|end| u64::try_from(end).ok())
}

/// Host names and addresses of the first certificate.
fn names_of(pem: &str) -> Option<Vec<String>> {
    with_certificate(pem, |certificate| {
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.map(|extension| extension.value.general_names.iter()).into_iter().flatten();
        let text = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => address_text(bytes),
            _ => None,
        };
        names.filter_map(text).collect()
    })
}

fn address_text(bytes: &[u8]) -> Option<String> {
    let address = match bytes.len() {
        4 => std::net::IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        _ => std::net::IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
    };
    Some(address.to_string())
}

fn with_certificate<T>(
    pem: &str,
    read: impl FnOnce(&x509_parser::certificate::X509Certificate<'_>) -> T,
) -> Option<T> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).ok()?;
    Some(read(&parsed))
}
