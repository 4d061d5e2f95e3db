//! ReferenceGrants: whether an object may refer to one of another namespace.

use std::sync::Arc;

use crate::engine::TrackedView;
use crate::model::{ClusterKind, ReferenceGrantObject};

/// A reference across namespaces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GrantQuestion<'q> {
    /// Kind of the Gateway API that refers, such as `Gateway` or `HTTPRoute`.
    pub(crate) from: ClusterKind,
    pub(crate) from_namespace: &'q Arc<str>,
    /// Group of the target; empty for the core group.
    pub(crate) to_group: &'q str,
    pub(crate) to_kind: &'q str,
    pub(crate) to_namespace: &'q Arc<str>,
    pub(crate) to_name: &'q str,
}

/// Whether the reference stays in its namespace, or a grant of the target's namespace permits it.
pub(crate) fn is_permitted(view: &TrackedView<'_>, question: GrantQuestion<'_>) -> bool {
    if question.from_namespace == question.to_namespace {
        return true;
    }
    let grants =
        view.list::<ReferenceGrantObject>(ClusterKind::ReferenceGrant, question.to_namespace).into_iter();
    grants.filter(|grant| !grant.meta.is_deleting).any(|grant| {
        let from_fits = grant.spec.from.iter().any(|from| {
            *from.group == *question.from.api().group
                && *from.kind == *question.from.name()
                && from.namespace == *question.from_namespace
        });
        let to_fits = grant.spec.to.iter().any(|to| {
            let name = to.name.as_deref().unwrap_or_default();
            *to.group == *question.to_group
                && *to.kind == *question.to_kind
                && (name.is_empty() || name == question.to_name)
        });
        from_fits && to_fits
    })
}
