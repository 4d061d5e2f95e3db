//! The upstream of an explained request: its next endpoint, the others, and the edited fields.

use std::collections::BTreeMap;

use yumen_plugin::{Exchange, Fields};

use super::{EndpointView, UpstreamChoice, UpstreamView, sent, text};
use crate::{Endpoint, HostRewrite, Upstream};

pub(super) fn upstream_choice(
    upstream: &Upstream,
    ex: &Exchange<'_>,
    before: Option<&Fields>,
) -> UpstreamChoice {
    let next = upstream.peek(ex);
    // As in serving, the host of a plugin takes precedence over `pass_host`.
    let host = match (&ex.upstream.host, &upstream.pass_host) {
        (Some(host), _) => Some(text(host)),
        (None, HostRewrite::Pass) => Some(text(ex.request.authority())),
        (None, HostRewrite::Node) => next.map(|index| upstream.endpoints[index].authority.to_string()),
        (None, HostRewrite::Rewrite(host)) => Some(host.to_string()),
    };
    let (headers_set, headers_removed) = edits(before, &ex.request.fields);
    let headers_sent = sent::fields(ex, host.as_deref());
    let mut view = UpstreamView::of(upstream, next);
    // A plugin may have chosen another scheme.
    view.scheme = ex.upstream.scheme.unwrap_or(view.scheme);
    UpstreamChoice {
        view,
        method: text(ex.request.method_name()),
        host,
        path: text(ex.request.upstream_target()),
        is_rewritten: ex.request.is_rewritten(),
        headers_set,
        headers_removed,
        headers_sent,
    }
}

pub(super) fn endpoints(upstream: &Upstream) -> Vec<EndpointView> {
    let all = upstream.endpoints.iter().zip(upstream.in_rotation());
    let view = |(endpoint, in_rotation): (&Endpoint, bool)| EndpointView {
        address: endpoint.addr.to_string(),
        host: endpoint.host.clone(),
        weight: endpoint.weight,
        priority: endpoint.priority,
        healthy: endpoint.health.as_ref().map(|health| health.is_up()),
        ejected: endpoint.outlier.as_ref().map(|tally| tally.ejection.is_ejected()),
        in_rotation,
    };
    all.map(view).collect()
}

/// The fields that differ: those set or changed, and those removed. Lines of one name are joined.
fn edits(before: Option<&Fields>, after: &Fields) -> (BTreeMap<String, String>, Vec<String>) {
    let Some(before) = before else { return Default::default() };
    let joined = |fields: &Fields| {
        let mut all: BTreeMap<String, (String, String)> = BTreeMap::new();
        for (name, value) in fields.iter() {
            let name = text(name);
            // Field names are case-insensitive (RFC 9110 §5.1).
            let (_, values) = all.entry(name.to_ascii_lowercase()).or_insert((name, String::new()));
            if !values.is_empty() {
                values.push_str(", ");
            }
            values.push_str(&text(value));
        }
        all
    };
    let (before, after) = (joined(before), joined(after));
    let removed = before.iter().filter(|(key, _)| !after.contains_key(*key));
    let removed = removed.map(|(_, (name, _))| name.clone()).collect();
    let is_new = |key: &str, value: &str| before.get(key).is_none_or(|(_, old)| old != value);
    let set = after.into_iter().filter(|(key, (_, value))| is_new(key, value));
    (set.map(|(_, named)| named).collect(), removed)
}
