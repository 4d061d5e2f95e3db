//! How long what is trusted holds, for whoever tells it before it ends.

use yumen_snapshot::upstream::{ActiveChecks, ProbeKind};
use yumen_snapshot::{CompiledCertificate, Upstream};

use super::authorities::TrustedAuthorities;
pub use super::authorities::ValidityTerm;
use super::loader::CompiledTlsRules;

/// The fields of an ssl object.
pub(super) const CA: &str = "client.ca";
pub(super) const CRL: &str = "client.crl";

/// How long the authorities of clients hold, and the lists of what they have revoked.
#[derive(Debug, Default)]
pub struct ClientTrustTerms<'c> {
    /// Those of `client.ca`.
    pub authorities: &'c [ValidityTerm],
    /// Those of `client.crl`.
    pub revoked: Vec<&'c ValidityTerm>,
}

/// What the handshakes of a certificate trust, and how long.
pub fn client_terms(certificate: &CompiledCertificate) -> ClientTrustTerms<'_> {
    let rules = certificate.rules.as_ref().and_then(|rules| rules.downcast_ref::<CompiledTlsRules>());
    let Some(check) = rules.and_then(|rules| rules.client.as_deref()) else {
        return ClientTrustTerms::default();
    };
    let (authorities, revoked) = check.trusted();
    ClientTrustTerms { authorities: authorities.terms(), revoked: revoked.terms().collect() }
}

/// The authorities that were given for the servers of an upstream, PEM, where requests or health checks verify by them.
pub fn upstream_authorities(upstream: &Upstream) -> Option<&str> {
    let by_checks = || upstream.checks.as_ref().is_some_and(|checks| verifies(&checks.active));
    upstream.tls.ca_pem.as_deref().filter(|_| upstream.tls.verify || by_checks())
}

fn verifies(checks: &ActiveChecks) -> bool {
    matches!(
        &checks.probe,
        ProbeKind::Https { verify: true, .. } | ProbeKind::Grpc { verify: Some(true), .. }
    )
}

/// How long authorities hold, PEM; nothing of what cannot be read, which is told where it is written.
pub fn terms_of(authorities: &str) -> Vec<ValidityTerm> {
    TrustedAuthorities::read(authorities).map(TrustedAuthorities::into_terms).unwrap_or_default()
}
