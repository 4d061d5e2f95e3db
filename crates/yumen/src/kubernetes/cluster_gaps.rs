//! Parts of the cluster that this process cannot read, with the reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use yumen_base::Problem;
use yumen_kubernetes::{ClusterKind, ObjectKey};

/// Time for which gaps are expected to close on their own.
const DOUBT: Duration = Duration::from_secs(15);

/// Kinds and objects that are missing from the translation.
#[derive(Default)]
pub(super) struct ClusterGaps {
    /// Kinds that the identity may not read, or that fail, with the reason.
    pub(super) refusals: BTreeMap<ClusterKind, String>,
    /// Kinds that the API server does not have.
    pub(super) absent: BTreeSet<ClusterKind>,
    /// Objects that the identity may not read, with the missing rule.
    pub(super) denied_references: BTreeMap<ObjectKey, String>,
    doubt_until: Option<Instant>,
}

impl ClusterGaps {
    /// Whether gaps may still close: an API server that starts denies kinds and lacks definitions for some seconds, and a
    /// translation without them drops routes. False for good 15 s after the first call that found gaps.
    pub(super) fn is_doubtful(&mut self) -> bool {
        let is_partial =
            !(self.refusals.is_empty() && self.absent.is_empty() && self.denied_references.is_empty());
        is_partial && Instant::now() < *self.doubt_until.get_or_insert_with(|| Instant::now() + DOUBT)
    }

    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        let kinds = self.refusals.iter().map(|(kind, reason)| (format!("kubernetes/{kind}"), reason));
        let objects = self.denied_references.iter().map(|(key, rule)| (key.to_string(), rule));
        kinds.chain(objects).map(|(object, reason)| Problem::warning(object, "", reason.clone()))
    }
}
