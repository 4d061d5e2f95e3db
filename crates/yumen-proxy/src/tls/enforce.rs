//! Requests that need a certificate of the client: answered here where it has none that holds.
//!
//! The handshake asks for the certificate, but which path is wanted is known only now, and a connection
//! made for one name may carry requests for another.

use rustls::pki_types::CertificateDer;
use yumen_plugin::{ClientVerdict, Exchange, Response, TlsInfo};
use yumen_snapshot::Snapshot;

use super::loader::Rules;

/// The answer to a request that is not served without a certificate; `None` where it may pass. As
/// APISIX: status 400, and the host must be the name the handshake was for.
#[cold]
pub(crate) fn refusal(snapshot: &Snapshot, ex: &Exchange<'_>) -> Option<Response> {
    let tls = ex.client.tls.as_ref()?;
    let host = std::str::from_utf8(ex.request.host()).unwrap_or_default();
    let asked = tls.sni.as_deref().unwrap_or_default();
    let (name, certificate) = snapshot.certificate_by_name(host)?;
    let policy = certificate.client.as_ref()?;
    if policy.skips(ex.request.path()) {
        return None;
    }
    if !asked.eq_ignore_ascii_case(host) {
        tracing::debug!(host, asked, name, "client certificate asked for under another name");
        return Some(Response::error_msg(400, "the host is not the server name of the TLS handshake"));
    }
    let rules = certificate.rules.as_ref().and_then(|rules| rules.downcast_ref::<Rules>());
    match verdict(rules, tls) {
        ClientVerdict::Verified => None,
        ClientVerdict::Absent => Some(Response::error_msg(400, "a client certificate is required")),
        ClientVerdict::Failed(reason) => {
            let message = format!("the client certificate is refused: {reason}");
            Some(Response::error_msg(400, &message))
        }
    }
}

/// Under the rules now in force, which may have changed since the handshake.
fn verdict(rules: Option<&Rules>, tls: &TlsInfo) -> ClientVerdict {
    match rules {
        Some(rules) if rules.id == tls.rules => tls.verdict.clone(),
        Some(Rules { client: Some(check), .. }) => {
            let chain = tls.certificate.iter().flat_map(|certificate| &certificate.chain);
            let chain: Vec<CertificateDer<'_>> = chain.map(|one| CertificateDer::from(&**one)).collect();
            check.verdict(&chain)
        }
        _ => ClientVerdict::Absent,
    }
}
