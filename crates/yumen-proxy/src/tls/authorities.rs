//! Trust anchors with validity periods, and the verification of certificate chains against them.
//!
//! Used for clients and servers alike. Independent of either side.

use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use rustls::{CertificateError, DistinguishedName, OtherError, RootCertStore};
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};
use x509_parser::extensions::KeyUsage as KeyUsageBits;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::names::rfc2253;
use super::provider::provider;
use super::revocation::RevocationLists;

/// The validity period of an authority or a revocation list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidityTerm {
    /// The subject or issuer, as an X.509 name.
    pub name: String,
    /// Start of the period, in seconds since the Unix epoch.
    pub from_unix_s: i64,
    /// End of the period, in seconds since the Unix epoch.
    pub until_unix_s: i64,
}

/// Trust anchors, each with its validity period. RFC 5280 §6.1.1 gives a trust anchor no period, but OpenSSL
/// checks the one of the certificate, and so does the gateway.
pub(super) struct TrustedAuthorities {
    given: Vec<CertificateDer<'static>>,
    /// In the order of `given`.
    anchors: Vec<TrustAnchor<'static>>,
    /// In the order of `given`.
    terms: Vec<ValidityTerm>,
}

impl std::fmt::Debug for TrustedAuthorities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authorities").field("anchors", &self.anchors.len()).finish_non_exhaustive()
    }
}

impl TrustedAuthorities {
    /// Parses PEM. Errors quote nothing of the text, which may contain a private key.
    pub(super) fn read(pem: &str) -> Result<TrustedAuthorities, String> {
        let mut store = RootCertStore::empty();
        let (mut given, mut terms) = (Vec::new(), Vec::new());
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate
                .map_err(|_| format!("the CA is not PEM: {}", yumen_base::pem::flaw(pem.as_bytes())))?;
            let unusable = |error: String| format!("the CA cannot be used: {error}");
            store.add(certificate.clone()).map_err(|error| unusable(error.to_string()))?;
            terms.push(term(&certificate).map_err(unusable)?);
            given.push(certificate);
        }
        match given.is_empty() {
            true => Err("no CA certificate in the PEM text".into()),
            false => Ok(TrustedAuthorities { given, anchors: store.roots, terms }),
        }
    }

    /// The subject names for the CertificateRequest message (RFC 8446 §4.2.4).
    pub(super) fn hints(&self) -> Vec<DistinguishedName> {
        self.anchors.iter().map(|anchor| DistinguishedName::in_sequence(anchor.subject.as_ref())).collect()
    }

    /// The validity periods, in order.
    pub(super) fn terms(&self) -> &[ValidityTerm] {
        &self.terms
    }

    pub(super) fn into_terms(self) -> Vec<ValidityTerm> {
        self.terms
    }

    /// Verifies a chain, its leaf first, against the authorities at `now`. Returns the number of intermediate
    /// certificates.
    pub(super) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
        revoked: &RevocationLists,
    ) -> Result<usize, webpki::Error> {
        let certificate = EndEntityCert::try_from(leaf)?;
        let path = certificate.verify_for_usage(
            provider().signature_verification_algorithms.all,
            &self.anchors,
            above,
            now,
            usage,
            revoked.options(&revoked.lists()),
            Some(&|path: &VerifiedPath<'_>| {
                path.intermediate_certificates()
                    .try_for_each(|issuer| may_sign_certificates(&issuer.der()))?;
                self.holds(path.anchor(), now).and_then(|()| revoked.check_path(path))
            }),
        );
        match path {
            Ok(path) => Ok(path.intermediate_certificates().count()),
            // A leaf that is itself configured as an authority, such as a self-signed certificate, is
            // accepted as OpenSSL does. webpki reports this error only after it has checked the validity
            // period.
            Err(webpki::Error::CaUsedAsEndEntity) if self.given.iter().any(|given| given == leaf) => {
                revoked.check(&certificate, now).map(|()| 0)
            }
            Err(error) => Err(error),
        }
    }

    /// Checks the validity period of an authority. One key may be configured several times with different
    /// periods.
    fn holds(&self, anchor: &TrustAnchor<'_>, now: UnixTime) -> Result<(), webpki::Error> {
        let given = self.anchors.iter().zip(&self.terms).filter(|(given, _)| *given == anchor);
        let mut found = Err(webpki::Error::UnknownIssuer);
        for (_, term) in given {
            found = term.holds(now);
            if found.is_ok() {
                break;
            }
        }
        found
    }

    /// Whether any authority has become valid or expired between `since` and `now`.
    pub(super) fn have_changed(&self, since: UnixTime, now: UnixTime) -> bool {
        self.terms.iter().any(|term| term.holds(since).is_ok() != term.holds(now).is_ok())
    }
}

impl ValidityTerm {
    fn holds(&self, now: UnixTime) -> Result<(), webpki::Error> {
        let now_unix_s = now.as_secs() as i64;
        if now_unix_s < self.from_unix_s {
            return Err(webpki::Error::CertNotValidYet {
                time: now,
                not_before: unix_time(self.from_unix_s),
            });
        }
        if now_unix_s > self.until_unix_s {
            return Err(webpki::Error::CertExpired { time: now, not_after: unix_time(self.until_unix_s) });
        }
        Ok(())
    }
}

/// Checks that an issuer with a key usage extension may sign certificates (RFC 5280 §6.1.4 (n)). webpki does
/// not check this.
fn may_sign_certificates(issuer: &CertificateDer<'_>) -> Result<(), webpki::Error> {
    match key_usage(issuer)?.is_none_or(|usage| usage.key_cert_sign()) {
        true => Ok(()),
        false => Err(webpki::Error::EndEntityUsedAsCa),
    }
}

/// The key usage extension of a certificate, if it has one.
pub(super) fn key_usage(certificate: &CertificateDer<'_>) -> Result<Option<KeyUsageBits>, webpki::Error> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| webpki::Error::BadDer)?;
    let usage = parsed.key_usage().map_err(|_| webpki::Error::BadDer)?;
    Ok(usage.map(|usage| *usage.value))
}

/// Converts seconds since the Unix epoch; earlier moments become the epoch.
pub(super) fn unix_time(unix_s: i64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(unix_s.max(0).unsigned_abs()))
}

fn term(certificate: &CertificateDer<'_>) -> Result<ValidityTerm, String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| error.to_string())?;
    Ok(ValidityTerm {
        name: rfc2253(parsed.subject()),
        from_unix_s: parsed.validity().not_before.timestamp(),
        until_unix_s: parsed.validity().not_after.timestamp(),
    })
}

/// Maps a verification error of webpki to the rustls error, which selects the alert.
pub(super) fn as_rustls(error: webpki::Error) -> rustls::Error {
    use webpki::Error;
    let of_certificate = match error {
        Error::BadDer | Error::BadDerTime | Error::TrailingData(_) => CertificateError::BadEncoding,
        Error::CertNotValidYet { time, not_before } => {
            CertificateError::NotValidYetContext { time, not_before }
        }
        Error::CertExpired { time, not_after } => CertificateError::ExpiredContext { time, not_after },
        Error::CertRevoked => CertificateError::Revoked,
        Error::CrlExpired { time, next_update } => {
            CertificateError::ExpiredRevocationListContext { time, next_update }
        }
        Error::UnknownIssuer => CertificateError::UnknownIssuer,
        Error::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        Error::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        other => CertificateError::Other(OtherError(std::sync::Arc::new(other))),
    };
    rustls::Error::InvalidCertificate(of_certificate)
}

#[cfg(test)]
mod tests;
