//! The revision that a response is as of, and the commit that a response reports. Must not know the gateway that serves.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::HeaderValue;
use axum::response::Response;
use yumen_base::{Problem, ProblemLevel};
use yumen_store::{ResourceKey, Revision, StoreCommit};

/// Header field with the revision of the content.
pub(crate) const REVISION_HEADER: &str = "x-yumen-revision";

/// Sets the header field.
pub(crate) fn set_revision(response: &mut Response, revision: Revision) {
    response.headers_mut().insert(REVISION_HEADER, HeaderValue::from(revision.0));
}

/// Extension of a response to a write: the commit that made it.
#[derive(Debug, Clone)]
pub(crate) struct WrittenRevision(pub(crate) Arc<StoreCommit>);

impl WrittenRevision {
    /// Whether an object of the commit does not compile, given the problems in force. Its last good version serves
    /// then, or none.
    pub(crate) fn is_quarantined(&self, problems: &[Problem]) -> bool {
        let errors = problems.iter().filter(|problem| problem.level == ProblemLevel::Error);
        let refused: BTreeSet<&str> = errors.map(|problem| &*problem.object).collect();
        let name = |key: &ResourceKey| format!("{}/{}", key.kind.name(), key.id);
        let written = self.0.changes.iter().filter(|changed| changed.after.is_some());
        let mut keys = written.map(|changed| &changed.key);
        !refused.is_empty() && keys.any(|key| refused.contains(&*name(key)))
    }
}
