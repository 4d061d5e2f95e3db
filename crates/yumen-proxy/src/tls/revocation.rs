//! Certificate revocation lists, and lookups in them.

use std::collections::HashSet;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateRevocationListDer, UnixTime};
use webpki::{
    Cert, CertRevocationList, EndEntityCert, ExpirationPolicy, OwnedCertRevocationList, RevocationOptions,
    RevocationOptionsBuilder, UnknownStatusPolicy, VerifiedPath,
};
use x509_parser::prelude::{CertificateRevocationList, FromDer};

use super::authorities::{ValidityTerm, unix_time};
use super::names::rfc2253;

/// The revocation lists of authorities. Certificates covered by a list past its `nextUpdate` are rejected,
/// because their current status is unknown.
#[derive(Default)]
pub(super) struct RevocationLists {
    /// The newest first, because webpki uses the first list that covers a certificate. Each scope has only
    /// its newest list, which replaces earlier ones even after it has expired (RFC 5280 §5).
    lists: Vec<(CertRevocationList<'static>, ValidityTerm)>,
}

/// The age of a list within its scope, compared field by field. The end of validity decides last: a list
/// valid for a week may replace one valid for a year.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CrlIssue {
    this_update_unix_s: i64,
    /// The CRL number as length and digits, which compares numerically. An authority may issue two lists
    /// within a second.
    number: Option<(usize, Vec<u8>)>,
    next_update_unix_s: i64,
}

impl RevocationLists {
    /// Parses PEM.
    pub(super) fn read(pem: &str) -> Result<RevocationLists, String> {
        let lists = CertificateRevocationListDer::pem_slice_iter(pem.as_bytes()).map(|list| {
            let flaw = || yumen_base::pem::flaw(pem.as_bytes());
            let list =
                list.map_err(|_| format!("the list of revoked certificates is not PEM: {}", flaw()))?;
            let unusable =
                |error: String| format!("the list of revoked certificates cannot be used: {error}");
            let (term, issue) = issued(&list).map_err(unusable)?;
            let list =
                OwnedCertRevocationList::from_der(&list).map_err(|error| unusable(error.to_string()))?;
            Ok((CertRevocationList::from(list), term, issue))
        });
        let mut lists = lists.collect::<Result<Vec<_>, String>>()?;
        // Newest first, so that `retain` keeps the newest list of each scope.
        lists.sort_by(|(.., one), (.., other)| other.cmp(one));
        let mut seen = HashSet::new();
        lists.retain(|(list, ..)| seen.insert(scope(list)));
        match lists.is_empty() {
            true => Err("no CRL in the PEM text".into()),
            false => {
                Ok(RevocationLists { lists: lists.into_iter().map(|(list, term, _)| (list, term)).collect() })
            }
        }
    }

    /// The lists, as input of [`Self::options`].
    pub(super) fn lists(&self) -> Vec<&CertRevocationList<'_>> {
        self.lists.iter().map(|(list, _)| list).collect()
    }

    /// The options for the verification of a path; `None` without lists.
    pub(super) fn options<'o>(
        &self,
        lists: &'o [&'o CertRevocationList<'o>],
    ) -> Option<RevocationOptions<'o>> {
        let options = RevocationOptionsBuilder::new(lists).ok()?;
        // A certificate that no list covers is not revoked: lists may exist for some authorities only.
        let options = options.with_status_policy(UnknownStatusPolicy::Allow);
        Some(options.with_expiration_policy(ExpirationPolicy::Enforce).build())
    }

    /// Checks that no list contains a certificate of the path. webpki consults only one list, although a list
    /// may cover a part of an authority's certificates, and accepts any list for a certificate without a
    /// distribution point.
    pub(super) fn check_path(&self, path: &VerifiedPath<'_>) -> Result<(), webpki::Error> {
        self.check_named(path.end_entity())?;
        path.intermediate_certificates().try_for_each(|certificate| self.check_named(certificate))
    }

    /// Checks a certificate that is itself a trust anchor, so that no issuer can have signed the list.
    pub(super) fn check(&self, certificate: &EndEntityCert<'_>, now: UnixTime) -> Result<(), webpki::Error> {
        self.check_named(certificate)?;
        self.of_issuer(certificate).next().map_or(Ok(()), |(_, term)| is_current(term, now))
    }

    fn check_named(&self, certificate: &Cert<'_>) -> Result<(), webpki::Error> {
        for (list, _) in self.of_issuer(certificate) {
            if list.find_serial(certificate.serial())?.is_some() {
                return Err(webpki::Error::CertRevoked);
            }
        }
        Ok(())
    }

    fn of_issuer(
        &self,
        certificate: &Cert<'_>,
    ) -> impl Iterator<Item = &(CertRevocationList<'static>, ValidityTerm)> {
        self.lists.iter().filter(|(list, _)| list.issuer() == certificate.issuer())
    }

    /// The validity periods of the lists in use.
    pub(super) fn terms(&self) -> impl Iterator<Item = &ValidityTerm> {
        self.lists.iter().map(|(_, term)| term)
    }
}

/// The scope of a list: all certificates of an authority, or those of one distribution point.
fn scope(list: &CertRevocationList<'_>) -> (Vec<u8>, Option<Vec<u8>>) {
    (list.issuer().to_vec(), list.issuing_distribution_point().map(<[u8]>::to_vec))
}

/// Checks that the list is not past its `nextUpdate`.
fn is_current(term: &ValidityTerm, now: UnixTime) -> Result<(), webpki::Error> {
    let next_update = unix_time(term.until_unix_s);
    if now >= next_update { Err(webpki::Error::CrlExpired { time: now, next_update }) } else { Ok(()) }
}

fn issued(list: &CertificateRevocationListDer<'_>) -> Result<(ValidityTerm, CrlIssue), String> {
    let (_, parsed) = CertificateRevocationList::from_der(list).map_err(|error| error.to_string())?;
    // RFC 5280 §5.1.2.5 requires the field. Without it, an outdated list could not be detected.
    let next_update = parsed.next_update().ok_or("the CRL has no nextUpdate")?;
    let term = ValidityTerm {
        name: rfc2253(parsed.issuer()),
        from_unix_s: parsed.last_update().timestamp(),
        until_unix_s: next_update.timestamp(),
    };
    let digits = parsed.crl_number().map(|number| number.to_bytes_be());
    let issue = CrlIssue {
        this_update_unix_s: term.from_unix_s,
        number: digits.map(|digits| (digits.len(), digits)),
        next_update_unix_s: term.until_unix_s,
    };
    Ok((term, issue))
}
