//! Locations within the server snippet of a host, whose branches answer every request.

use serde_json::{Map, Value, json};

use super::location_path::{IngressPathForm, searching};
use super::locations::{HostLocation, LocationTarget, SnippetUse};
use super::members::HostMembers;
use super::route_writer::RouteWriter;
use crate::ingress_nginx::{LocationMatcher, SnippetLocation};

/// Priority of these routes, above those of paths of Ingresses at the same text.
const PRIORITY: usize = 1_000_000;

/// Writes the routes of the locations of the first server snippet.
pub(super) fn add_snippet_locations<'t>(writer: &mut RouteWriter<'_, '_, 't>, members: &HostMembers<'t>) {
    let Some((owner, plan)) = members.server_plan() else { return };
    let host = super::host_names::id_part(writer.context.host);
    for (at, written) in plan.locations.iter().enumerate() {
        let location = HostLocation {
            path: path_of(written).into(),
            form: IngressPathForm::Exact,
            owner: Some(owner),
            target: LocationTarget::Default,
            canary: None,
            id: format!("{}/{}!ingress!{host}!snippet.{at}", owner.key.namespace, owner.key.name),
            flaw: None,
        };
        let count = written.branches.len();
        for (position, branch) in written.branches.iter().enumerate() {
            let uses = SnippetUse { effects: vec![&branch.effects], ..SnippetUse::under(&branch.conditions) };
            let id = format!("{}.{position}", location.id);
            let priority = PRIORITY + (count - position) * 10;
            writer.write_answer(&location, &uses, matching(written), id, priority);
        }
    }
}

fn path_of(written: &SnippetLocation) -> &str {
    match &written.matcher {
        LocationMatcher::Exact(path) | LocationMatcher::Prefix(path) | LocationMatcher::FinalPrefix(path) => {
            path
        }
        LocationMatcher::Pattern { pattern, .. } => pattern,
    }
}

/// The member `match`.
fn matching(written: &SnippetLocation) -> Value {
    match &written.matcher {
        LocationMatcher::Exact(path) => json!({ "paths": { "exact": [&**path] } }),
        LocationMatcher::Prefix(path) | LocationMatcher::FinalPrefix(path) => {
            json!({ "paths": { "starts_with": [&**path] } })
        }
        LocationMatcher::Pattern { pattern, ignore_case } => {
            // A pattern of NGINX matches anywhere, one of a route from the first byte on.
            let anchored = searching(pattern);
            let anchored = anchored.strip_prefix('^').unwrap_or(&anchored);
            let mut value = Map::from_iter([("pattern".to_owned(), anchored.into())]);
            if *ignore_case {
                value.insert("ignore_case".to_owned(), true.into());
            }
            json!({ "path_regex": value })
        }
    }
}
