//! The tasks that a controller runs beside its loop.

use yumen_kubernetes_client::{LeaseElection, LeaseView, StatusWriter, WatchSet};

use super::controller_status::WritesEnd;
use super::event_writer::EventWriter;
use super::object_applier::ObjectApplier;
use super::webhook::CertificateKeeper;

/// The tasks beside the loop.
pub(super) struct ControllerTasks {
    pub(super) watches: WatchSet,
    pub(super) applier: ObjectApplier,
    pub(super) writer: StatusWriter,
    pub(super) events: EventWriter,
    pub(super) lease: LeaseView,
    /// Renews the lease until it is dropped.
    pub(super) keeper: Option<LeaseElection>,
    /// `None` without a webhook.
    pub(super) certificates: Option<CertificateKeeper>,
}

impl ControllerTasks {
    /// Ends the writes of this process; it goes on following the API server while it drains.
    pub(super) fn end_writes(&mut self, end: Option<WritesEnd>) {
        match (self.keeper.take(), end) {
            (Some(keeper), Some(WritesEnd::Released)) => drop(tokio::spawn(keeper.stop())),
            (Some(keeper), Some(WritesEnd::HandedOver)) => drop(keeper),
            (keeper, _) => self.keeper = keeper,
        }
    }

    /// Waits for the next gain or loss of the lease; for ever if there is no election.
    pub(super) async fn next_leadership(&mut self) -> bool {
        match self.lease.changed().await {
            Some(is_held) => is_held,
            None => std::future::pending().await,
        }
    }
}
