//! Routes of all kinds.
//!
//! `translate_route` reads the route, the `ParentOutput` of each parent, namespaces, grants, Services and policies. It
//! writes resources, the status (one entry per parent that has a `ParentOutput`), the attached sections, the keys of
//! upstreams that the resources name, and the policies they use. A TCPRoute or UDPRoute writes no resource: its
//! derived output is a `StreamRouteCandidate`, and `translate_stream_section` writes that of the oldest route of
//! `TrackedView::attached`.

mod attach;
mod backends;
mod field_edits;
mod grpc;
mod grpc_match;
mod host_names;
mod http;
mod http_actions;
mod http_match;
mod kind_conflicts;
mod path_edits;
mod pattern_budget;
mod plan;
mod report;
mod rule;
mod rule_route;
mod rule_writer;
mod session;
mod stream;
mod timing;

use yumen_base::problem::Problem;

use crate::engine::{TrackedView, UnitOutput};
use crate::model::{ClusterKind, GrpcRouteObject, HttpRouteObject, ObjectKey, StreamRouteObject};

pub(crate) use kind_conflicts::translate_route_kinds;
pub(crate) use stream::translate_stream_section;

pub(crate) fn translate_route(view: &TrackedView<'_>, route: &ObjectKey) -> UnitOutput {
    let mut output = match route.kind {
        ClusterKind::HttpRoute => http::translate(view, route),
        ClusterKind::GrpcRoute => grpc::translate(view, route),
        ClusterKind::TlsRoute => stream::translate_tls(view, route),
        ClusterKind::TcpRoute | ClusterKind::UdpRoute => stream::translate_candidate(view, route),
        _ => UnitOutput::default(),
    };
    // A route that only another controller serves is none of our concern.
    if wants_default_gateways(view, route) && !output.statuses.is_empty() {
        let message = "default Gateways are not supported, so the member has no effect";
        let problem = Problem::warning(route.to_string(), "spec.useDefaultGateways", message);
        output.problems.push(problem.hint("name each Gateway in spec.parentRefs"));
    }
    output
}

fn wants_default_gateways(view: &TrackedView<'_>, route: &ObjectKey) -> bool {
    let choice = match route.kind {
        ClusterKind::HttpRoute => {
            view.get::<HttpRouteObject>(route).and_then(|object| object.spec.use_default_gateways.as_ref())
        }
        ClusterKind::GrpcRoute => {
            view.get::<GrpcRouteObject>(route).and_then(|object| object.spec.use_default_gateways.as_ref())
        }
        _ => {
            view.get::<StreamRouteObject>(route).and_then(|object| object.spec.use_default_gateways.as_ref())
        }
    };
    choice.is_some_and(|choice| &**choice == "All")
}
