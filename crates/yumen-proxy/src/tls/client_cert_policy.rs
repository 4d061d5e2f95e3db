//! Requests that need a certificate of the client: answered here where it has none that holds.
//!
//! The handshake asks for the certificate, but which path is wanted is known only now, and a connection
//! made for one name may carry requests for another.

use rustls::pki_types::CertificateDer;
use yumen_http::HttpVersion;
use yumen_plugin::{ClientCertVerdict, Exchange, LocalResponse, TlsInfo};
use yumen_snapshot::{CompiledCertificate, Snapshot};

use super::loader::CompiledTlsRules;

/// Why a request is not served.
pub(crate) enum ClientCertRefusal {
    /// Its connection was made for another name, and goes on for requests of that (RFC 9110 §15.5.20).
    Misdirected(LocalResponse),
    /// Its client has shown no certificate that holds, and can show one only as it connects.
    Uncertified(LocalResponse),
}

/// The answer to a request that is not served without a certificate; `None` where it may pass. As
/// APISIX: status 400, and the host must be the name the handshake was for.
#[inline(never)]
pub(crate) fn refusal(snapshot: &Snapshot, ex: &Exchange<'_>) -> Option<ClientCertRefusal> {
    let tls = ex.client.tls.as_ref()?;
    let asked = tls.sni.as_deref().unwrap_or_default();
    // A request that names no host is one for the name of the handshake.
    let host = Some(ex.request.host()).filter(|host| !host.is_empty()).unwrap_or(asked.as_bytes());
    let host = std::str::from_utf8(host).unwrap_or_default();
    let (name, certificate) = snapshot.certificate_by_name(host)?;
    let policy = certificate.client.as_ref()?;
    if policy.skips(ex.request.path()) {
        return None;
    }
    let rules = rules_of(certificate);
    if !asked.eq_ignore_ascii_case(host) && !is_nameless_alike(snapshot, tls, rules) {
        tracing::debug!(
            host,
            asked,
            name,
            "request needs a client certificate, which this server name does not request"
        );
        return Some(misnamed(ex.request.version));
    }
    let why = refusal_reason(&verdict(rules, tls))?;
    Some(ClientCertRefusal::Uncertified(LocalResponse::error_msg(400, &why)))
}

/// Whether a handshake told no name, as one with an address does not, and was asked for all that these rules ask for:
/// then there is nothing it led around.
fn is_nameless_alike(snapshot: &Snapshot, tls: &TlsInfo, rules: Option<&CompiledTlsRules>) -> bool {
    let of_nameless = || snapshot.certificate("").and_then(rules_of).map(|rules| rules.id);
    tls.sni.is_none() && rules.is_some_and(|rules| of_nameless() == Some(rules.id))
}

fn rules_of(certificate: &CompiledCertificate) -> Option<&CompiledTlsRules> {
    certificate.rules.as_ref()?.downcast_ref()
}

/// Clients of HTTP/2 and 3 ask under every name that the certificate of their connection is for: these are told to
/// connect anew. Those of HTTP/1 do so only where they are told to, and would do it again.
fn misnamed(version: HttpVersion) -> ClientCertRefusal {
    let message = "the host is not the server name of the TLS handshake";
    match version {
        HttpVersion::Http2 | HttpVersion::Http3 => {
            ClientCertRefusal::Misdirected(LocalResponse::error_msg(421, message))
        }
        _ => ClientCertRefusal::Uncertified(LocalResponse::error_msg(400, message)),
    }
}

/// Why a stream is not passed on, if the certificate it asked for wants one of the client. Streams have no
/// path that could be exempt.
pub(crate) fn stream_refusal(snapshot: &Snapshot, tls: &TlsInfo) -> Option<String> {
    let sni = tls.sni.as_deref().unwrap_or_default();
    // Objects may have come since the handshake.
    if snapshot.is_closed(sni) {
        return Some("no ssl object is for the server name".to_owned());
    }
    let certificate = snapshot.certificate(sni)?;
    certificate.client.as_ref()?;
    refusal_reason(&verdict(rules_of(certificate), tls))
}

fn refusal_reason(verdict: &ClientCertVerdict) -> Option<String> {
    match verdict {
        ClientCertVerdict::Verified => None,
        ClientCertVerdict::Absent => Some("a client certificate is required".to_owned()),
        ClientCertVerdict::Failed(reason) => Some(format!("the client certificate is refused: {reason}")),
    }
}

/// Under the rules now in force, which may have changed since the handshake.
fn verdict(rules: Option<&CompiledTlsRules>, tls: &TlsInfo) -> ClientCertVerdict {
    match rules {
        Some(rules) if rules.id == tls.rules => tls.verdict.clone(),
        Some(CompiledTlsRules { client: Some(check), .. }) => {
            let chain = tls.certificate.iter().flat_map(|certificate| &certificate.chain);
            let chain: Vec<CertificateDer<'_>> = chain.map(|one| CertificateDer::from(&**one)).collect();
            check.verdict(&chain)
        }
        _ => ClientCertVerdict::Absent,
    }
}
