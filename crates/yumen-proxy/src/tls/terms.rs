//! How long what is trusted holds, for whoever tells it before it ends.

use yumen_snapshot::upstream::{ActiveChecks, Probe};
use yumen_snapshot::{Certificate, Upstream};

use super::authorities::Authorities;
pub use super::authorities::Term;
use super::loader::Rules;

/// The fields of an ssl object.
pub(super) const CA: &str = "client.ca";
pub(super) const CRL: &str = "client.crl";

/// How long the authorities of clients hold, and the lists of what they have revoked.
#[derive(Debug, Default)]
pub struct ClientTerms<'c> {
    /// Those of `client.ca`.
    pub authorities: &'c [Term],
    /// Those of `client.crl`.
    pub revoked: Vec<&'c Term>,
}

/// What the handshakes of a certificate trust, and how long.
pub fn client_terms(certificate: &Certificate) -> ClientTerms<'_> {
    let rules = certificate.rules.as_ref().and_then(|rules| rules.downcast_ref::<Rules>());
    let Some(check) = rules.and_then(|rules| rules.client.as_deref()) else { return ClientTerms::default() };
    let (authorities, revoked) = check.trusted();
    ClientTerms { authorities: authorities.terms(), revoked: revoked.terms().collect() }
}

/// The authorities that were given for the servers of an upstream, PEM, where requests or health checks verify by them.
pub fn upstream_authorities(upstream: &Upstream) -> Option<&str> {
    let by_checks = || upstream.checks.as_ref().is_some_and(|checks| verifies(&checks.active));
    upstream.tls.ca_pem.as_deref().filter(|_| upstream.tls.verify || by_checks())
}

fn verifies(checks: &ActiveChecks) -> bool {
    matches!(&checks.probe, Probe::Https { verify: true, .. } | Probe::Grpc { verify: Some(true), .. })
}

/// How long authorities hold, PEM; nothing of what cannot be read, which is told where it is written.
pub fn terms_of(authorities: &str) -> Vec<Term> {
    Authorities::read(authorities).map(Authorities::into_terms).unwrap_or_default()
}
