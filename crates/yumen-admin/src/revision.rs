//! The revision that a response is as of, and the commit that a response reports. Must not know the gateway that serves.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::HeaderValue;
use axum::response::Response;
use yumen_base::Problem;
use yumen_config::Kind;
use yumen_store::{Revision, StoreCommit, StoreState};

/// Header field with the revision of the content.
pub(crate) const REVISION_HEADER: &str = "x-yumen-revision";

/// Sets the header field.
pub(crate) fn set_revision(response: &mut Response, revision: Revision) {
    response.headers_mut().insert(REVISION_HEADER, HeaderValue::from(revision.0));
}

/// Extension of a response to a write: the objects that it is about.
#[derive(Debug, Clone)]
pub(crate) enum WrittenObjects {
    /// Those of a commit.
    Commit(Arc<StoreCommit>),
    /// All that a whole configuration contains, of this state of the store.
    Document(StoreState),
}

impl WrittenObjects {
    /// The problems in force of these objects. An object with an error does not compile: its last good version serves,
    /// or none.
    pub(crate) fn problems_among<'p>(&self, problems: &'p [Problem]) -> Vec<&'p Problem> {
        let names: BTreeSet<String> = match self {
            WrittenObjects::Commit(commit) => {
                let written = commit.changes.iter().filter(|changed| changed.after.is_some());
                written.map(|changed| format!("{}/{}", changed.key.kind.name(), changed.key.id)).collect()
            }
            WrittenObjects::Document(state) => {
                let is_written = |problem: &&Problem| is_in_document(state, &problem.object);
                return problems.iter().filter(is_written).collect();
            }
        };
        problems.iter().filter(|problem| names.contains(&problem.object)).collect()
    }
}

/// Whether a whole configuration contains an object of this name.
fn is_in_document(state: &StoreState, object: &str) -> bool {
    let Some((kind, id)) = object.split_once('/') else { return false };
    let kind = Kind::from_name(kind).filter(|kind| kind.descriptor().admin_api.in_configs);
    kind.is_some_and(|kind| state.get(kind, id).is_some())
}
