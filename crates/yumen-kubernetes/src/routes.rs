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
mod path_edits;
mod plan;
mod report;
mod rule;
mod rule_route;
mod rule_writer;
mod session;
mod stream;
mod timing;

use crate::engine::{TrackedView, UnitOutput};
use crate::model::{ClusterKind, ObjectKey};

pub(crate) use stream::translate_stream_section;

pub(crate) fn translate_route(view: &TrackedView<'_>, route: &ObjectKey) -> UnitOutput {
    match route.kind {
        ClusterKind::HttpRoute => http::translate(view, route),
        ClusterKind::GrpcRoute => grpc::translate(view, route),
        ClusterKind::TlsRoute => stream::translate_tls(view, route),
        ClusterKind::TcpRoute | ClusterKind::UdpRoute => stream::translate_candidate(view, route),
        _ => UnitOutput::default(),
    }
}
