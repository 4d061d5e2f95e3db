//! Warnings about members that are accepted and not in force yet. A row goes with the code that serves its member.

use yumen_base::Problem;
use yumen_config::resource as config;

use super::names::ObjectName;

fn warnings<const N: usize>(name: &ObjectName, members: [(&str, bool); N]) -> Vec<Problem> {
    let written = members.into_iter().filter(|(_, is_written)| *is_written);
    written
        .map(|(member, _)| {
            Problem::warning(name.to_string(), member, "not in force yet: this version accepts it only")
        })
        .collect()
}

/// Members of a route.
pub(super) fn of_route(name: &ObjectName, written: &config::RouteSpec) -> Vec<Problem> {
    let is_hashed = written.session.as_ref().is_some_and(|session| session.mode == config::SessionMode::Hash);
    let none = config::RouteActionsSpec::default();
    let actions = written.actions.as_ref().unwrap_or(&none);
    let is_canary = written.backends.iter().flatten().any(|backend| backend.canary.is_some());
    let is_nginx = actions.external_auth.as_ref().is_some_and(|auth| auth.nginx.is_some());
    let members = [
        ("session.mode", is_hashed),
        ("backends.canary", is_canary),
        ("actions.external_auth.nginx", is_nginx),
        ("actions.access", actions.access.is_some()),
        ("actions.response_rewrite", actions.response_rewrite.is_some()),
        ("actions.hsts", actions.hsts.is_some()),
        ("actions.errors", actions.errors.is_some()),
        ("actions.forwarded_fields", actions.forwarded_fields.is_some()),
        ("actions.limits", actions.limits.is_some()),
        ("actions.access_log", actions.access_log.is_some()),
    ];
    warnings(name, members)
}
