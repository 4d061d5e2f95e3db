//! HTTPRoutes and GRPCRoutes with a common host name on one listener.
//!
//! GRPCRoute.spec.hostnames of the API: an implementation accepts exactly one of the two, the oldest, and the other
//! has Accepted False.

use std::sync::Arc;

use super::attach::names_section;
use super::host_names::meet_on;
use crate::derived::{RouteKindConflicts, SectionOutput};
use crate::engine::{DerivedOutput, IndexKey, TrackedView, UnitOutput};
use crate::model::{ClusterKind, GrpcRouteObject, HttpRouteObject, ObjectKey, ParentReference};

const KINDS: [ClusterKind; 2] = [ClusterKind::GrpcRoute, ClusterKind::HttpRoute];

/// A route of a parent.
struct RivalRoute<'t> {
    created_s: i64,
    key: &'t ObjectKey,
    parents: &'t [ParentReference],
    hostnames: &'t [Arc<str>],
}

pub(crate) fn translate_route_kinds(view: &TrackedView<'_>, parent: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let mut routes: Vec<RivalRoute<'_>> = Vec::new();
    for kind in KINDS {
        let keys = view.index(IndexKey::RoutesOf { parent: parent.clone(), kind });
        let before = routes.len();
        routes.extend(keys.filter_map(|key| route(view, key)));
        // Routes of one kind only do not compete, and none of the other kind is read.
        if routes.len() == before {
            return output;
        }
    }
    let Some(found) = view.parent(parent) else { return output };
    routes.sort_by_key(|route| (route.created_s, &route.key.namespace, &route.key.name, route.key.kind));
    let mut conflicts = RouteKindConflicts::default();
    for section in &found.sections {
        judge(view, parent, section, &routes, &mut conflicts);
    }
    if !conflicts.rivals.is_empty() {
        output.derived = Some(DerivedOutput::RouteKinds(Arc::new(conflicts)));
    }
    output
}

/// Accepts the routes of a section from the oldest on.
fn judge(
    view: &TrackedView<'_>,
    parent: &ObjectKey,
    section: &SectionOutput,
    routes: &[RivalRoute<'_>],
    conflicts: &mut RouteKindConflicts,
) {
    let mut accepted: Vec<&RivalRoute<'_>> = Vec::new();
    for route in routes {
        let namespace = &route.key.namespace;
        let is_named = route.parents.iter().any(|reference| {
            reference.key(namespace).as_ref() == Some(parent) && names_section(reference, section)
        });
        let labels = || view.namespace_labels(namespace).cloned();
        if !is_named
            || !section.kinds.contains(&route.key.kind)
            || !section.namespaces.admits(namespace, labels)
        {
            continue;
        }
        let listener = section.hostname.as_deref();
        let rival = accepted.iter().find(|older| {
            older.key.kind != route.key.kind && meet_on(listener, older.hostnames, route.hostnames)
        });
        match rival {
            Some(rival) => {
                let place = (section.name.clone(), route.key.clone());
                conflicts.rivals.insert(place, rival.key.clone());
            }
            None => accepted.push(route),
        }
    }
}

fn route<'t>(view: &TrackedView<'t>, key: &'t ObjectKey) -> Option<RivalRoute<'t>> {
    match key.kind {
        ClusterKind::GrpcRoute => {
            let object = view.get::<GrpcRouteObject>(key)?;
            let (parents, hostnames) = (&*object.spec.parent_refs, &*object.spec.hostnames);
            Some(RivalRoute { created_s: object.meta.created_s, key, parents, hostnames })
        }
        _ => {
            let object = view.get::<HttpRouteObject>(key)?;
            let (parents, hostnames) = (&*object.spec.parent_refs, &*object.spec.hostnames);
            Some(RivalRoute { created_s: object.meta.created_s, key, parents, hostnames })
        }
    }
}
