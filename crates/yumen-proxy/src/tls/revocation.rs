//! Lists of revoked certificates, and what they say of one.

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

/// Lists of what authorities have revoked. One that its authority should have replaced by now refuses all it speaks
/// of: nobody knows what it would say today.
#[derive(Default)]
pub(super) struct RevocationLists {
    /// The newest first: the library asks the first that speaks of a certificate. Of those of one scope there is but
    /// the newest, which replaces those before it even once it has ended (RFC 5280 §5).
    lists: Vec<(CertRevocationList<'static>, ValidityTerm)>,
}

/// What tells the newer of two lists of one scope, in this order. Until when they hold does not: a list for a week
/// replaces one for a year.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CrlIssue {
    this_update_unix_s: i64,
    /// Its length and its digits. An authority may issue two lists within a second.
    number: Option<(usize, Vec<u8>)>,
    next_update_unix_s: i64,
}

impl RevocationLists {
    /// Reads PEM.
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

    /// The lists, as [`Self::options`] takes them.
    pub(super) fn lists(&self) -> Vec<&CertRevocationList<'_>> {
        self.lists.iter().map(|(list, _)| list).collect()
    }

    /// How the certificates of a path are looked up in the lists; `None` where there are none.
    pub(super) fn options<'o>(
        &self,
        lists: &'o [&'o CertRevocationList<'o>],
    ) -> Option<RevocationOptions<'o>> {
        let options = RevocationOptionsBuilder::new(lists).ok()?;
        // What no list speaks of is not revoked: lists are given for some authorities and not for others.
        let options = options.with_status_policy(UnknownStatusPolicy::Allow);
        Some(options.with_expiration_policy(ExpirationPolicy::Enforce).build())
    }

    /// Whether a list names a certificate of a path. The library asks one list only, though some are for a part of an
    /// authority's certificates, and takes each for the list of a certificate that does not tell where its own is.
    pub(super) fn check_path(&self, path: &VerifiedPath<'_>) -> Result<(), webpki::Error> {
        self.check_named(path.end_entity())?;
        path.intermediate_certificates().try_for_each(|certificate| self.check_named(certificate))
    }

    /// What the lists say of a certificate that leads to no other, so that nobody is there to have signed them.
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

    /// Until when what is in force of them holds.
    pub(super) fn terms(&self) -> impl Iterator<Item = &ValidityTerm> {
        self.lists.iter().map(|(_, term)| term)
    }
}

/// What a list is for: all certificates of an authority or a part of them.
fn scope(list: &CertRevocationList<'_>) -> (Vec<u8>, Option<Vec<u8>>) {
    (list.issuer().to_vec(), list.issuing_distribution_point().map(<[u8]>::to_vec))
}

/// Whether the next list is not due yet.
fn is_current(term: &ValidityTerm, now: UnixTime) -> Result<(), webpki::Error> {
    let next_update = unix_time(term.until_unix_s);
    if now >= next_update { Err(webpki::Error::CrlExpired { time: now, next_update }) } else { Ok(()) }
}

fn issued(list: &CertificateRevocationListDer<'_>) -> Result<(ValidityTerm, CrlIssue), String> {
    let (_, parsed) = CertificateRevocationList::from_der(list).map_err(|error| error.to_string())?;
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
