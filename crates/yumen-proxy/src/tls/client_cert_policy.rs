//! Refusal of requests and streams that require a valid client certificate.
//!
//! The handshake requests the certificate, but the path is known only with the request, and one connection
//! may carry requests for several names.

use rustls::pki_types::CertificateDer;
use yumen_http::HttpVersion;
use yumen_plugin::{ClientCertVerdict, Exchange, ListenerNumber, LocalResponse, TlsInfo};
use yumen_snapshot::{ClientCertMode, CompiledCertificate, CompiledScope, Snapshot};

use super::loader::CompiledTlsRules;

/// The reason why a request is refused.
pub(crate) enum ClientCertRefusal {
    /// The connection was made for another server name, and continues (RFC 9110 §15.5.20).
    Misdirected(LocalResponse),
    /// The client has no valid certificate, and can present one only in a new handshake.
    Uncertified(LocalResponse),
}

/// Returns the refusal of a request without the required certificate; `None` if the request may pass. As in
/// APISIX, the status is 400 and the host must be the server name of the handshake.
#[inline(never)]
pub(crate) fn refusal(snapshot: &Snapshot, ex: &Exchange<'_>) -> Option<ClientCertRefusal> {
    let tls = ex.client.tls()?;
    let sni = tls.sni.as_deref().unwrap_or_default();
    // A request without a host is for the server name of the handshake.
    let host = Some(ex.request.host()).filter(|host| !host.is_empty()).unwrap_or(sni.as_bytes());
    let host = std::str::from_utf8(host).unwrap_or_default();
    let (name, certificate) = snapshot.certificate_by_name(host)?;
    let policy = certificate.client.as_ref()?;
    if policy.skips(ex.request.path()) {
        return None;
    }
    let rules = rules_of(certificate);
    if !sni.eq_ignore_ascii_case(host) && !is_nameless_alike(snapshot, tls, rules) {
        tracing::debug!(
            host,
            sni,
            name,
            "request needs a client certificate, which this server name does not request"
        );
        return Some(misnamed(ex.request.version));
    }
    let why = refusal_reason(&verdict(rules, tls))?;
    Some(ClientCertRefusal::Uncertified(LocalResponse::error_msg(400, &why)))
}

/// Whether the handshake had no server name, as for an IP address, but followed the same rules. The client
/// has then bypassed nothing.
fn is_nameless_alike(snapshot: &Snapshot, tls: &TlsInfo, rules: Option<&CompiledTlsRules>) -> bool {
    let of_nameless = || snapshot.certificate("").and_then(rules_of).map(|rules| rules.id);
    tls.sni.is_none() && rules.is_some_and(|rules| of_nameless() == Some(rules.id))
}

fn rules_of(certificate: &CompiledCertificate) -> Option<&CompiledTlsRules> {
    certificate.rules.as_ref()?.downcast_ref()
}

/// The message of a refusal by host.
const MISNAMED: &str = "the host is not the server name of the TLS handshake";

/// Refusal of a request whose host belongs to another scope than the server name of the handshake. Every version of HTTP
/// has the status (RFC 9110 §15.5.20).
pub(crate) fn misdirected() -> ClientCertRefusal {
    ClientCertRefusal::Misdirected(LocalResponse::error_msg(421, MISNAMED))
}

/// The refusal of a request without the client certificate that its scope requires.
#[inline(never)]
pub(crate) fn scope_refusal(scope: &CompiledScope, ex: &Exchange<'_>) -> Option<ClientCertRefusal> {
    let why = refusal_in(scope, ex.client.tls()?)?;
    Some(ClientCertRefusal::Uncertified(LocalResponse::error_msg(400, &why)))
}

/// The reason why a scope refuses a client, under the current rules of the scope.
fn refusal_in(scope: &CompiledScope, tls: &TlsInfo) -> Option<String> {
    let mode = scope.client_mode()?;
    let of_scope = || verdict(scope.tls().and_then(|rules| rules.downcast_ref()), tls);
    match mode {
        ClientCertMode::AllowInsecureFallback | ClientCertMode::OptionalNoCa => None,
        ClientCertMode::Require => refusal_reason(&of_scope()),
        ClientCertMode::Optional => match of_scope() {
            ClientCertVerdict::Absent => None,
            presented => refusal_reason(&presented),
        },
    }
}

/// Refusal of a request whose host is not the server name. HTTP/2 and HTTP/3 clients coalesce connections by
/// certificate (RFC 9113 §9.1.1) and retry after 421. HTTP/1 clients do not, so a retry would fail again.
fn misnamed(version: HttpVersion) -> ClientCertRefusal {
    match version {
        HttpVersion::Http2 | HttpVersion::Http3 => {
            ClientCertRefusal::Misdirected(LocalResponse::error_msg(421, MISNAMED))
        }
        _ => ClientCertRefusal::Uncertified(LocalResponse::error_msg(400, MISNAMED)),
    }
}

/// The reason why a stream is refused, if its certificate or its scope requires a client certificate. Streams have no
/// path that could be exempt.
pub(crate) fn stream_refusal(snapshot: &Snapshot, listener: ListenerNumber, tls: &TlsInfo) -> Option<String> {
    let sni = tls.sni.as_deref().unwrap_or_default();
    if !listener.is_static() {
        return match snapshot.scope_of_name(listener, sni) {
            Some(scope) => refusal_in(scope, tls),
            // The snapshot may be newer than the handshake.
            None => Some("no scope of the listener has the server name".to_owned()),
        };
    }
    // The snapshot may be newer than the handshake.
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

/// The verdict under the current rules, which may be newer than the handshake.
fn verdict(rules: Option<&CompiledTlsRules>, tls: &TlsInfo) -> ClientCertVerdict {
    match rules {
        Some(rules) if rules.id == tls.rules => tls.verdict.clone(),
        Some(CompiledTlsRules { client: Some(check), .. }) => {
            let chain = tls.certificate.iter().flat_map(|certificate| &certificate.chain);
            let chain: Vec<CertificateDer<'_>> = chain.map(|one| CertificateDer::from(&**one)).collect();
            check.verdict(&chain)
        }
        // Rules without a verifier cannot have verified a certificate, so the request is refused.
        _ => ClientCertVerdict::Absent,
    }
}
