//! How a request that is being served came to its route.

use serde::Serialize;
use yumen_plugin::Exchange;

use super::{Asking, CertificateChoice, asking, certificate_choice};
use crate::router::Losing;
use crate::{Lost, Snapshot, Trace};

/// How a request came to its route: the part of an explanation that serving can afford to tell.
#[derive(Debug, Clone, Serialize)]
pub struct Arrival {
    /// The request as it came, before plugins changed it.
    pub request: Asking,
    /// The certificate the client was shown; `None` without TLS.
    pub certificate: Option<CertificateChoice>,
    /// The path pattern that matched.
    pub matched_uri: String,
    /// The host pattern that matched; empty is any host.
    pub matched_host: String,
    /// Routes of its host and path that lost, in the order they were looked at.
    pub candidates: Vec<Beaten>,
}

/// A route of the same host and path that lost.
#[derive(Debug, Clone, Serialize)]
pub struct Beaten {
    /// Its id.
    pub route: Box<str>,
    /// Where it lost.
    pub lost: Lost,
}

/// How a request that is being served came to its route; it is looked for once more, among those of its path only.
pub fn arrival<'s>(snapshot: &'s Snapshot, ex: &mut Exchange<'s>) -> Arrival {
    let mut trace = Trace::default();
    // It looks at more routes than serving does.
    ex.aside(|ex| snapshot.router.find(ex, &mut trace));
    let sni = ex.client.tls.as_ref().map(|tls| tls.sni.as_deref().unwrap_or(""));
    let mut candidates: Vec<Beaten> = Vec::new();
    for Losing { id, lost, .. } in trace.lost {
        // A route may be met once for each of its paths; the closest counts.
        if !candidates.iter().any(|known| known.route == id) {
            candidates.push(Beaten { route: id, lost });
        }
    }
    Arrival {
        request: asking(ex, sni),
        certificate: sni.map(|sni| certificate_choice(snapshot, sni)),
        matched_uri: ex.matched_uri().to_owned(),
        matched_host: ex.matched_host.to_owned(),
        candidates,
    }
}
