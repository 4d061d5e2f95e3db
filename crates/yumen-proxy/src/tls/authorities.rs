//! Authorities that somebody gave, and which certificates lead to one of them now.
//!
//! Knows neither clients nor servers: both are verified by it.

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

/// When something that is trusted holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidityTerm {
    /// Whose it is, as a name of X.509.
    pub name: String,
    /// When it begins, in seconds since the Unix epoch.
    pub from_unix_s: i64,
    /// When it ends.
    pub until_unix_s: i64,
}

/// Authorities, each with its time. A trust anchor has none by itself (RFC 5280 §6.1.1), but OpenSSL looks at it, and
/// whoever gave an authority for a year did not mean it for ever.
pub(super) struct TrustedAuthorities {
    given: Vec<CertificateDer<'static>>,
    /// As many as given, in the same order.
    anchors: Vec<TrustAnchor<'static>>,
    /// As many as given, in the same order.
    terms: Vec<ValidityTerm>,
}

impl std::fmt::Debug for TrustedAuthorities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authorities").field("anchors", &self.anchors.len()).finish_non_exhaustive()
    }
}

impl TrustedAuthorities {
    /// Reads PEM. An error quotes nothing of it: a key may stand where a certificate should.
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

    /// What clients are told of whom they should be vouched for by.
    pub(super) fn hints(&self) -> Vec<DistinguishedName> {
        self.anchors.iter().map(|anchor| DistinguishedName::in_sequence(anchor.subject.as_ref())).collect()
    }

    /// When each of them holds.
    pub(super) fn terms(&self) -> &[ValidityTerm] {
        &self.terms
    }

    pub(super) fn into_terms(self) -> Vec<ValidityTerm> {
        self.terms
    }

    /// Whether a chain, its own certificate first, leads to one of these that holds now; how many certificates
    /// stand between.
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
            // One that was itself given, as those are that somebody signed for himself: OpenSSL takes it, and whoever
            // gave it meant it. That it is an authority's is found out after its time was looked at.
            Err(webpki::Error::CaUsedAsEndEntity) if self.given.iter().any(|given| given == leaf) => {
                revoked.check(&certificate, now).map(|()| 0)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether an authority holds now. It may be given several times, with the same key and another time.
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

    /// Whether one of these has begun or ended after the first of these moments, and up to the second.
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

/// Whether an issuer's key is for certificates, where it says what it is for (RFC 5280 §6.1.4, step n). The library
/// does not look.
fn may_sign_certificates(issuer: &CertificateDer<'_>) -> Result<(), webpki::Error> {
    match key_usage(issuer)?.is_none_or(|usage| usage.key_cert_sign()) {
        true => Ok(()),
        false => Err(webpki::Error::EndEntityUsedAsCa),
    }
}

/// What the key of a certificate is for, if it says so.
pub(super) fn key_usage(certificate: &CertificateDer<'_>) -> Result<Option<KeyUsageBits>, webpki::Error> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| webpki::Error::BadDer)?;
    let usage = parsed.key_usage().map_err(|_| webpki::Error::BadDer)?;
    Ok(usage.map(|usage| *usage.value))
}

/// Moments before the epoch are the epoch.
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

/// What the TLS library knows the refusal of a chain by.
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
