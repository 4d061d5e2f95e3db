//! How a request that is being served came to its route.

use serde::Serialize;
use yumen_plugin::Exchange;

use super::{CertificateChoice, ExplainedRequest, certificate_choice, explained_request};
use crate::router::RouteMismatch;
use crate::{MatchTrace, MismatchReason, Snapshot};

/// How a request came to its route: the part of an explanation that serving can afford to tell.
#[derive(Debug, Clone, Serialize)]
pub struct MatchExplanation {
    /// The request as it came, before plugins changed it.
    pub request: ExplainedRequest,
    /// The certificate the client was shown; `None` without TLS.
    pub certificate: Option<CertificateChoice>,
    /// The path pattern that matched.
    pub matched_uri: String,
    /// The host pattern that matched; empty is any host.
    pub matched_host: String,
    /// Routes of its host and path that lost, in the order they were looked at.
    pub candidates: Vec<OutrankedRoute>,
}

/// A route of the same host and path that lost.
#[derive(Debug, Clone, Serialize)]
pub struct OutrankedRoute {
    /// Its id.
    pub route: Box<str>,
    /// Where it lost.
    pub lost: MismatchReason,
}

/// How a request that is being served came to its route; it is looked for once more, among those of its path only.
pub fn arrival<'s>(snapshot: &'s Snapshot, ex: &mut Exchange<'s>) -> MatchExplanation {
    let mut trace = MatchTrace::default();
    // It looks at more routes than serving does.
    ex.aside(|ex| snapshot.router.find(ex, &mut trace));
    let sni = ex.client.tls().map(|tls| tls.sni.as_deref().unwrap_or(""));
    let mut candidates: Vec<OutrankedRoute> = Vec::new();
    for RouteMismatch { id, lost, .. } in trace.lost {
        // A route may be met once for each of its paths; the closest counts.
        if !candidates.iter().any(|known| known.route == id) {
            candidates.push(OutrankedRoute { route: id, lost });
        }
    }
    MatchExplanation {
        request: explained_request(ex, sni),
        certificate: sni.map(|sni| certificate_choice(snapshot, sni)),
        matched_uri: ex.route.uri().to_owned(),
        matched_host: ex.route.host.to_owned(),
        candidates,
    }
}
