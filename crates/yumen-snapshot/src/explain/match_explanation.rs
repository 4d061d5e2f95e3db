//! How a request in service was matched to its route.

use serde::Serialize;
use yumen_plugin::Exchange;

use super::arrival_listener::certificate_choice;
use super::{CertificateChoice, ExplainedRequest, explained_request};
use crate::router::RouteMismatch;
use crate::{MatchTrace, MismatchReason, Snapshot};

/// How a request was matched to its route: the part of an explanation that serving can afford.
#[derive(Debug, Clone, Serialize)]
pub struct MatchExplanation {
    /// The request as received, before plugins changed it.
    pub request: ExplainedRequest,
    /// The certificate that the client got; `None` without TLS.
    pub certificate: Option<CertificateChoice>,
    /// The path pattern that matched.
    pub matched_uri: String,
    /// The host pattern that matched; empty for any host.
    pub matched_host: String,
    /// Routes of its host and path that lost, in the order of examination.
    pub candidates: Vec<OutrankedRoute>,
}

/// A route of the same host and path that lost.
#[derive(Debug, Clone, Serialize)]
pub struct OutrankedRoute {
    /// Id of the route.
    pub route: Box<str>,
    /// The condition on which it lost.
    pub lost: MismatchReason,
}

/// Matches a request in service once more, among the routes of its path only.
pub fn arrival<'s>(snapshot: &'s Snapshot, ex: &mut Exchange<'s>) -> MatchExplanation {
    let mut trace = MatchTrace::default();
    // The trace examines more routes than serving does.
    ex.aside(|ex| snapshot.router_of(ex.client.connection, ex.request.host())?.find(ex, &mut trace));
    let sni = ex.client.tls().map(|tls| tls.sni.as_deref().unwrap_or(""));
    let mut candidates: Vec<OutrankedRoute> = Vec::new();
    for RouteMismatch { id, lost, .. } in trace.lost {
        // A route may occur once for each of its paths; the closest comes first.
        if !candidates.iter().any(|known| known.route == id) {
            candidates.push(OutrankedRoute { route: id, lost });
        }
    }
    MatchExplanation {
        request: explained_request(ex, sni),
        certificate: sni.and_then(|sni| certificate_choice(snapshot, ex.client.connection.listener, sni).0),
        matched_uri: ex.route.uri().to_owned(),
        matched_host: ex.route.host.to_owned(),
        candidates,
    }
}
