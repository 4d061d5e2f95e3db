//! Routes of all kinds.
//!
//! `translate_route` reads the route, the `ParentOutput` of each parent, namespaces, grants, Services and policies. It
//! writes resources, the status (one entry per parent that has a `ParentOutput`), the attached sections, the keys of
//! upstreams that the resources name, and the policies they use. A TCPRoute or UDPRoute writes no resource: its
//! derived output is a `StreamCandidate`, and `translate_stream_section` writes that of the oldest route of
//! `TrackedView::attached`.

use crate::derived::SectionKey;
use crate::engine::{TrackedView, UnitOutput};
use crate::model::ObjectKey;

pub(crate) fn translate_route(_view: &TrackedView<'_>, _route: &ObjectKey) -> UnitOutput {
    UnitOutput::default()
}

pub(crate) fn translate_stream_section(_view: &TrackedView<'_>, _section: &SectionKey) -> UnitOutput {
    UnitOutput::default()
}
