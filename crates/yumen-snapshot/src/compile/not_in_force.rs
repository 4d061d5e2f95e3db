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
    let members = [("session.mode", is_hashed)];
    warnings(name, members)
}
