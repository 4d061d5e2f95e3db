//! Hosts that redirect to the one that has rules (`from-to-www-redirect`).

use serde_json::json;
use yumen_base::problem::Problem;

use super::certificates::{HostTls, certificate_value};
use super::effects::annotation_path;
use super::host_names::{covers, id_part};
use super::listeners;
use super::members::HostMembers;
use crate::derived::IngressGroup;
use crate::engine::{TrackedView, UnitOutput};
use crate::ingress_nginx::ControllerSettings;
use crate::resources::TranslatedKind;

/// Writes the scope and the route of the other name of a host, unless it has rules of its own.
pub(super) fn add_redirect_host(
    view: &TrackedView<'_>,
    host: &str,
    members: &HostMembers<'_>,
    tls: &HostTls,
    defaults: &ControllerSettings,
    output: &mut UnitOutput,
) {
    let Some(owner) = members.primary.iter().find(|one| one.settings.redirects.from_to_www) else { return };
    if host.is_empty() || host.starts_with('*') {
        return;
    }
    let other = host.strip_prefix("www.").map_or_else(|| format!("www.{host}"), str::to_owned);
    let groups = [IngressGroup::Host(other.as_str().into()), IngressGroup::Alias(other.as_str().into())];
    if groups.iter().any(|group| view.ingresses(group).len() > 0) {
        let path = annotation_path(defaults, "from-to-www-redirect");
        let message = format!("{other} has rules of its own and is not redirected to {host}");
        output.problems.push(Problem::warning(owner.key.to_string(), path, message));
        return;
    }
    let scope = format!("ingress!www!{}", id_part(&other));
    let origin = owner.key.origin_label();
    let value = json!({
        "listeners": listeners::both(),
        "hosts": [&other],
        "wildcard": "one",
        "tls": { "mode": "terminate", "default_certificate": true, "any_server_name": true },
        "create_time": owner.object.meta.created_s,
        "labels": { "origin": origin },
    });
    output.add_resource(TranslatedKind::Scopes, scope.clone(), &value);
    if let Some(pair) = tls.pair.as_ref().filter(|pair| pair.names.iter().any(|name| covers(name, &other))) {
        let value = certificate_value(pair, &scope, &["*".to_owned()], &origin);
        output.add_resource(TranslatedKind::Ssls, scope.clone(), &value);
    }
    let route = json!({
        "uri": "/*",
        "actions": { "redirect": { "stage": "first", "status": defaults.redirects.status, "host": host } },
        "scopes": [&scope],
        "create_time": owner.object.meta.created_s,
        "labels": { "origin": origin },
    });
    output.add_resource(TranslatedKind::Routes, scope, &route);
}
