//! Warnings about members that are accepted and not in force yet. A row goes with the code that serves its member.

use yumen_base::Problem;
use yumen_config::resource as config;

use super::names::ObjectName;

fn warnings<const N: usize>(name: &ObjectName, under: &str, members: [(&str, bool); N]) -> Vec<Problem> {
    let written = members.into_iter().filter(|(_, is_written)| *is_written);
    let path = |member: &str| match under {
        "" => member.to_owned(),
        under => format!("{under}.{member}"),
    };
    written
        .map(|(member, _)| {
            Problem::warning(name.to_string(), path(member), "not in force yet: this version accepts it only")
        })
        .collect()
}

/// Members of a route.
pub(super) fn of_route(name: &ObjectName, written: &config::RouteSpec) -> Vec<Problem> {
    let actions = written.actions.as_ref();
    let members = [
        ("actions.external_auth", actions.is_some_and(|actions| actions.external_auth.is_some())),
        ("retry", written.retry.is_some()),
        ("session", written.session.is_some()),
        ("timeout.attempt", written.timeout.is_some_and(|timeout| timeout.attempt.is_some())),
    ];
    let mut problems = warnings(name, "", members);
    problems.extend(of_upstream(name, "upstream", written.upstream.as_ref()));
    problems
}

/// Members of an upstream at `path` of an object.
pub(super) fn of_upstream(
    name: &ObjectName,
    path: &str,
    written: Option<&config::UpstreamSpec>,
) -> Vec<Problem> {
    let Some(written) = written else { return Vec::new() };
    let tls = written.tls.as_ref();
    let members = [
        ("timeout.attempt", written.timeout.is_some_and(|timeout| timeout.attempt.is_some())),
        ("tls.server_name", tls.is_some_and(|tls| tls.server_name.is_some())),
        ("tls.subject_alt_names", tls.is_some_and(|tls| tls.subject_alt_names.is_some())),
        ("tls.verify_depth", tls.is_some_and(|tls| tls.verify_depth.is_some())),
    ];
    warnings(name, path, members)
}
