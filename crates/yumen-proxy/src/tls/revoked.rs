//! Lists of revoked certificates, and what they say of one.

use std::collections::HashSet;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateRevocationListDer, UnixTime};
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, OwnedCertRevocationList, RevocationOptions,
    RevocationOptionsBuilder, UnknownStatusPolicy,
};
use x509_parser::prelude::{CertificateRevocationList, FromDer};

use super::authorities::{Term, unix_time};
use super::names::rfc2253;

/// Lists of what authorities have revoked. One that its authority should have replaced by now refuses all it speaks
/// of: nobody knows what it would say today.
#[derive(Default)]
pub(super) struct Revoked {
    /// Of each authority, the one that holds longest first: the first that speaks of a certificate counts.
    lists: Vec<(CertRevocationList<'static>, Term)>,
}

impl Revoked {
    /// Reads PEM.
    pub(super) fn read(pem: &str) -> Result<Revoked, String> {
        let lists = CertificateRevocationListDer::pem_slice_iter(pem.as_bytes()).map(|list| {
            let flaw = || yumen_base::pem::flaw(pem.as_bytes());
            let list =
                list.map_err(|_| format!("the list of revoked certificates is not PEM: {}", flaw()))?;
            let unusable =
                |error: String| format!("the list of revoked certificates cannot be used: {error}");
            let term = term(&list).map_err(unusable)?;
            let list =
                OwnedCertRevocationList::from_der(&list).map_err(|error| unusable(error.to_string()))?;
            Ok((CertRevocationList::from(list), term))
        });
        let mut lists = lists.collect::<Result<Vec<_>, String>>()?;
        lists.sort_by_key(|(_, term)| std::cmp::Reverse((term.until_unix_s, term.from_unix_s)));
        match lists.is_empty() {
            true => Err("there is no list of revoked certificates in the PEM text".into()),
            false => Ok(Revoked { lists }),
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

    /// What the lists say of a certificate that leads to no other, so that nobody is there to have signed them.
    pub(super) fn check(&self, certificate: &EndEntityCert<'_>, now: UnixTime) -> Result<(), webpki::Error> {
        let of_issuer = || self.lists.iter().filter(|(list, _)| list.issuer() == certificate.issuer());
        for (list, _) in of_issuer() {
            if list.find_serial(certificate.serial())?.is_some() {
                return Err(webpki::Error::CertRevoked);
            }
        }
        of_issuer().next().map_or(Ok(()), |(_, term)| is_current(term, now))
    }

    /// Until when what is in force of them holds: of lists for the same, the one that holds longest.
    pub(super) fn terms(&self) -> impl Iterator<Item = &Term> {
        let scope = |list: &CertRevocationList<'_>| {
            (list.issuer().to_vec(), list.issuing_distribution_point().map(<[u8]>::to_vec))
        };
        let mut seen = HashSet::new();
        self.lists.iter().filter(move |(list, _)| seen.insert(scope(list))).map(|(_, term)| term)
    }
}

/// Whether the next list is not due yet.
fn is_current(term: &Term, now: UnixTime) -> Result<(), webpki::Error> {
    let next_update = unix_time(term.until_unix_s);
    if now >= next_update { Err(webpki::Error::CrlExpired { time: now, next_update }) } else { Ok(()) }
}

fn term(list: &CertificateRevocationListDer<'_>) -> Result<Term, String> {
    let (_, parsed) = CertificateRevocationList::from_der(list).map_err(|error| error.to_string())?;
    let until = parsed.next_update().ok_or("it does not say when the next one comes")?;
    Ok(Term {
        name: rfc2253(parsed.issuer()),
        from_unix_s: parsed.last_update().timestamp(),
        until_unix_s: until.timestamp(),
    })
}
