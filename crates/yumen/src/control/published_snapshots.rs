//! Publication of snapshots: to the workers, to followers on the control runtime, and to the tracker of
//! applied revisions.

use std::sync::Arc;

use tokio::sync::watch;
use yumen_config::Resource;
use yumen_snapshot::{Publisher, Snapshot};
use yumen_store::{LastGoodVersion, LastGoodVersions, ResourceKey, Revision};

use super::applied_tracker::AppliedTracker;

/// Receivers of published snapshots, and the snapshots that they have replaced.
pub(super) struct PublishedSnapshots {
    followers: watch::Sender<Arc<Snapshot>>,
    applied_tracker: Arc<AppliedTracker>,
    /// Last good versions in use.
    versions: Arc<LastGoodVersions>,
    /// Snapshots that a worker may still hold. Their tables are freed here and not on a worker.
    retired: Vec<Arc<Snapshot>>,
}

impl PublishedSnapshots {
    pub(super) fn new(
        followers: watch::Sender<Arc<Snapshot>>,
        applied_tracker: Arc<AppliedTracker>,
        versions: Arc<LastGoodVersions>,
    ) -> PublishedSnapshots {
        PublishedSnapshots { followers, applied_tracker, versions, retired: Vec::new() }
    }

    /// Newest published revision.
    pub(super) fn revision(&self) -> Revision {
        self.applied_tracker.revision()
    }

    /// Makes a snapshot current for the workers.
    pub(super) fn publish_to_workers(&mut self, publisher: &Publisher, snapshot: Arc<Snapshot>) {
        self.retired.push(publisher.publish(snapshot));
    }

    /// Passes a current snapshot on to the followers. The channel may have no receivers.
    pub(super) fn publish_to_followers(&self, snapshot: Arc<Snapshot>) {
        let _ = self.followers.send(snapshot);
    }

    /// Exports the last good versions that a revision uses.
    pub(super) fn export_versions<'r>(
        &self,
        revision: Revision,
        versions: impl Iterator<Item = (Resource, &'r Arc<str>)>,
    ) {
        let versions = versions.map(|(resource, instead_of)| {
            let Resource { kind, id, json } = resource;
            LastGoodVersion { key: ResourceKey::new(kind, id), json, instead_of: instead_of.clone() }
        });
        self.versions.report(revision, versions.collect());
    }

    /// Records that all of a publication is visible.
    pub(super) fn record(&self, revision: Revision) {
        self.applied_tracker.record_publication(revision);
    }

    /// Frees retired snapshots that no worker holds any more.
    pub(super) fn free_retired(&mut self) {
        self.retired.retain(|snapshot| Arc::strong_count(snapshot) > 1);
    }
}
