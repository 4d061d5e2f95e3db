//! Validity periods of trusted authorities and revocation lists, for expiry warnings.

use yumen_snapshot::compile::Loaded;
use yumen_snapshot::upstream::{ActiveChecks, ProbeKind};
use yumen_snapshot::{CompiledCertificate, CompiledScope, Upstream};

use super::authorities::TrustedAuthorities;
pub use super::authorities::ValidityTerm;
use super::loader::CompiledTlsRules;

/// Fields of an ssl object.
pub(super) const CA: &str = "client.ca";
pub(super) const CRL: &str = "client.crl";

/// Validity periods of client authorities and their revocation lists.
#[derive(Debug, Default)]
pub struct ClientTrustTerms<'c> {
    /// The authorities of `client.ca`.
    pub authorities: &'c [ValidityTerm],
    /// The revocation lists of `client.crl`.
    pub revoked: Vec<&'c ValidityTerm>,
}

/// The validity periods that the handshakes of a certificate depend on.
pub fn client_terms(certificate: &CompiledCertificate) -> ClientTrustTerms<'_> {
    terms_of_rules(certificate.rules.as_ref())
}

/// The validity periods that the handshakes of a scope depend on.
pub fn scope_terms(scope: &CompiledScope) -> ClientTrustTerms<'_> {
    terms_of_rules(scope.tls())
}

fn terms_of_rules(rules: Option<&Loaded>) -> ClientTrustTerms<'_> {
    let rules = rules.and_then(|rules| rules.downcast_ref::<CompiledTlsRules>());
    let Some(check) = rules.and_then(|rules| rules.client.as_deref()) else {
        return ClientTrustTerms::default();
    };
    let (authorities, revoked) = check.trusted();
    ClientTrustTerms { authorities: authorities.terms(), revoked: revoked.terms().collect() }
}

/// The PEM authorities of an upstream, if requests or health checks verify against them.
pub fn upstream_authorities(upstream: &Upstream) -> Option<&str> {
    let by_checks = || upstream.checks.as_ref().is_some_and(|checks| verifies(&checks.active));
    upstream.tls.settings.ca_pem.as_deref().filter(|_| upstream.tls.settings.verify || by_checks())
}

fn verifies(checks: &ActiveChecks) -> bool {
    matches!(
        &checks.probe,
        ProbeKind::Https { verify: true, .. } | ProbeKind::Grpc { verify: Some(true), .. }
    )
}

/// The validity periods of PEM authorities; empty if the text is invalid, which the compiler reports.
pub fn terms_of(authorities: &str) -> Vec<ValidityTerm> {
    TrustedAuthorities::read(authorities).map(TrustedAuthorities::into_terms).unwrap_or_default()
}
