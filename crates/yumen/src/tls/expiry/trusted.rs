//! Expiry of trusted material: certificate authorities and revocation lists (CRL).

use std::collections::{BTreeSet, HashMap};

use yumen_base::Problem;
use yumen_proxy::tls::{
    ClientTrustTerms, ValidityTerm, client_terms, scope_terms, terms_of, upstream_authorities,
};
use yumen_snapshot::Snapshot;

use super::{DAY_S, SERIES_MAX, ends_soon};

/// Trusted material in one field of an object.
pub(super) struct TrustedMaterial {
    object: String,
    path: String,
    what: TrustedKind,
    terms: Vec<ValidityTerm>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrustedKind {
    /// Authorities, with the kind of peer that they verify.
    Authorities(&'static str),
    /// Revocation lists.
    Revoked,
}

/// Trusted material of all objects; at most `SERIES_MAX`, the earliest to expire.
pub(super) fn look(snapshot: &Snapshot) -> Vec<TrustedMaterial> {
    let mut all: Vec<TrustedMaterial> =
        of_clients(snapshot).chain(of_scopes(snapshot)).chain(of_upstreams(snapshot)).collect();
    all.retain(|trusted| !trusted.terms.is_empty());
    all.sort_by_cached_key(|trusted| {
        let first = trusted.terms.iter().map(|term| term.until_unix_s).min();
        (first, trusted.object.clone(), trusted.path.clone())
    });
    all.truncate(SERIES_MAX);
    all
}

fn of_clients(snapshot: &Snapshot) -> impl Iterator<Item = TrustedMaterial> {
    let mut seen = BTreeSet::new();
    // The table has one entry per name: visit each object once.
    let objects = snapshot.certificates().filter(move |(_, certificate)| seen.insert(&certificate.id));
    objects.flat_map(|(_, certificate)| {
        of_handshakes(&format!("ssls/{}", certificate.id), "", client_terms(certificate))
    })
}

fn of_scopes(snapshot: &Snapshot) -> impl Iterator<Item = TrustedMaterial> {
    let scopes = snapshot.scopes();
    scopes.flat_map(|scope| of_handshakes(&format!("scopes/{}", scope.id), "tls.", scope_terms(scope)))
}

/// The material of an object with rules for client certificates at `place`.
fn of_handshakes(object: &str, place: &str, terms: ClientTrustTerms<'_>) -> [TrustedMaterial; 2] {
    let revoked: Vec<ValidityTerm> = terms.revoked.into_iter().cloned().collect();
    let (ca, crl) = (format!("{place}client.ca"), format!("{place}client.crl"));
    [
        TrustedMaterial::new(object, &ca, TrustedKind::Authorities("clients"), terms.authorities),
        TrustedMaterial::new(object, &crl, TrustedKind::Revoked, &revoked),
    ]
}

fn of_upstreams(snapshot: &Snapshot) -> impl Iterator<Item = TrustedMaterial> {
    // Upstreams may share one PEM text: parse it once.
    let mut read: HashMap<*const u8, Vec<ValidityTerm>> = HashMap::new();
    snapshot.upstreams().filter_map(move |(_, upstream)| {
        let pem = upstream_authorities(upstream)?;
        let (object, path) = object_and_path(&upstream.origin);
        let terms = read.entry(pem.as_ptr()).or_insert_with(|| terms_of(pem));
        Some(TrustedMaterial::new(&object, &path, TrustedKind::Authorities("servers"), terms))
    })
}

/// Object and field of an upstream's authorities, from its origin: the object, followed by the path of a
/// plugin's settings if the upstream is defined there.
pub(super) fn object_and_path(origin: &str) -> (String, String) {
    let mut parts = origin.splitn(3, '/');
    let object = parts.by_ref().take(2).collect::<Vec<_>>().join("/");
    let path = match parts.next() {
        Some(settings) => format!("{settings}.tls.ca"),
        None if object.starts_with("upstreams/") => "tls.ca".to_owned(),
        None => "upstream.tls.ca".to_owned(),
    };
    (object, path)
}

impl TrustedMaterial {
    pub(super) fn new(
        object: &str,
        path: &str,
        what: TrustedKind,
        terms: &[ValidityTerm],
    ) -> TrustedMaterial {
        TrustedMaterial { object: object.to_owned(), path: path.to_owned(), what, terms: terms.to_vec() }
    }

    /// Problems of expired terms, and of those that expire soon.
    pub(super) fn problems(&self, warning_days: u32, now_unix_s: i64) -> impl Iterator<Item = Problem> {
        let is_any_left = self.terms.iter().any(|term| term.until_unix_s >= now_unix_s);
        let soon = self.terms.iter().filter(move |term| {
            ends_soon(term.until_unix_s, term.until_unix_s - term.from_unix_s, warning_days, now_unix_s)
        });
        soon.map(move |term| {
            let days = (term.until_unix_s - now_unix_s).abs() / DAY_S;
            let has_ended = term.until_unix_s < now_unix_s;
            let (message, hint) = self.words(&term.name, days, has_ended);
            // An expired authority is only a warning if another one is valid: the replacement is already
            // configured.
            let make = match has_ended && (self.what == TrustedKind::Revoked || !is_any_left) {
                true => Problem::error,
                false => Problem::warning,
            };
            make(self.object.clone(), self.path.clone(), message).hint(hint)
        })
    }

    fn words(&self, name: &str, days: i64, has_ended: bool) -> (String, String) {
        match (self.what, has_ended) {
            (TrustedKind::Authorities(owner), true) => (
                format!(
                    "the authority {name} expired {days} days ago: the {owner} it vouches for are refused"
                ),
                "put the one that follows it in its place".to_owned(),
            ),
            (TrustedKind::Authorities(owner), false) => (
                format!("the authority {name} expires in {days} days"),
                format!("add the one that follows it: the {owner} it vouches for are refused afterwards"),
            ),
            (TrustedKind::Revoked, true) => (
                format!("the CRL of {name} expired {days} days ago: its clients are refused"),
                "put the newest list in its place".to_owned(),
            ),
            (TrustedKind::Revoked, false) => (
                format!("the CRL of {name} expires in {days} days"),
                "put the next list in its place: the authority's clients are refused afterwards".to_owned(),
            ),
        }
    }
}
