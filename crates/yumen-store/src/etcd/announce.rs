//! Publishes this node's record under a lease: on changes, and often enough to keep the lease.
//!
//! Never blocks other work. A record that cannot be written is retried until the cluster is available.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::client::RetryBackoff;
use super::shared::{EtcdShared, EtcdStatus, MirrorPosition};
use super::wire::RpcError;
use crate::state::Revision;

/// Minimum interval between two records.
const PAUSE: Duration = Duration::from_millis(250);
/// Maximum time for revoking the lease on leave.
const LEAVE_WAIT: Duration = Duration::from_secs(1);

/// Produces the text of the record; `None` once the node is shutting down.
pub type Describe = Box<dyn Fn(MirrorPosition, &EtcdStatus) -> Option<String> + Send + Sync>;

/// Identity, lease and content of a node record.
pub struct NodeAnnouncement {
    /// Id of the node, stable across restarts.
    pub id: String,
    /// Time until an unrenewed record expires; renewed after a third of it.
    pub lease: Duration,
    /// Source of the record's text.
    pub describe: Describe,
    /// Triggers a new record on change.
    pub applied: watch::Receiver<Revision>,
}

/// A published node record. Ends with this value or with the store.
pub struct AnnouncedNode {
    leave: oneshot::Sender<KeepNodeRecord>,
    left: mpsc::Receiver<()>,
}

impl AnnouncedNode {
    /// Stops publishing and leaves the record for the successor process.
    ///
    /// Revoking the record would make the other nodes drop this node until the successor publishes.
    pub fn hand_over(self) {
        // The task may have ended with the store; there is then nothing to hand over.
        let _ = self.leave.send(KeepNodeRecord);
        // The task needs up to `LEAVE_WAIT` for its call, and some time to be scheduled.
        let _ = self.left.recv_timeout(LEAVE_WAIT * 2);
    }

    /// Stops publishing and revokes the record. Blocks for at most two seconds.
    pub fn leave(self) {
        drop(self.leave);
        // If the lease cannot be revoked in time, it expires.
        let _ = self.left.recv_timeout(LEAVE_WAIT * 2);
    }
}

/// Signal that a successor process continues the record.
struct KeepNodeRecord;

/// Starts publishing on the store's runtime.
pub(super) fn begin(
    shared: Arc<EtcdShared>,
    runtime: &tokio::runtime::Handle,
    what: NodeAnnouncement,
) -> AnnouncedNode {
    let (leave, leave_requested) = oneshot::channel();
    let (sender, left) = mpsc::channel();
    runtime.spawn(async move {
        let lease = AtomicI64::new(0);
        let stays = tokio::select! {
            // Dropping the sender means leave; sending a value means hand over.
            stays = leave_requested => stays.is_ok(),
            never = keep(&shared, what, &lease) => match never {},
        };
        let lease = lease.into_inner();
        // A successor continues under the same key; revoking would delete it.
        if !stays
            && lease != 0
            && !matches!(timeout(LEAVE_WAIT, shared.client.revoke_lease(lease)).await, Ok(Ok(())))
        {
            tracing::info!("node record not removed from etcd; its lease expires");
        }
        let _ = sender.send(());
    });
    AnnouncedNode { leave, left }
}

async fn keep(shared: &EtcdShared, mut what: NodeAnnouncement, lease: &AtomicI64) -> Infallible {
    let mut backoff = RetryBackoff::new(shared.settings.retry);
    let mut refusals = 0;
    loop {
        let Err(error) = announce(shared, &mut what, lease, &mut refusals).await;
        tracing::debug!(%error, "node record not written");
        if matches!(error, RpcError::Status { .. }) {
            // Most likely the lease has expired.
            // One task reads and writes the lease; the atomic lets the value outlive the cancelled future.
            lease.store(0, Ordering::Relaxed);
            refusals += 1;
            // The first refusal may concern the lease alone.
            if refusals > 1 {
                shared.set_announce_error(Some(error.to_string()));
            }
        }
        // Without a pause a refusing cluster would be called in a loop.
        sleep(backoff.pause()).await;
    }
}

/// Writes records until an error occurs.
async fn announce(
    shared: &EtcdShared,
    what: &mut NodeAnnouncement,
    lease: &AtomicI64,
    refusals: &mut u32,
) -> Result<Infallible, RpcError> {
    let key = shared.nodes.path(&what.id);
    let renew_every = what.lease / 3;
    let mut moves = shared.nodes.moves();
    let mut renewed: Option<Instant> = None;
    loop {
        if renewed.is_none_or(|at| at.elapsed() >= renew_every) {
            // Set before the call, so that a slow call does not delay the next renewal.
            renewed = Some(Instant::now());
            renew(shared, what.lease, lease).await?;
        }
        // Before the record is described: a change during the description leads to another record.
        what.applied.mark_unchanged();
        moves.mark_unchanged();
        let Some(text) = (what.describe)(shared.position(), &shared.status()) else {
            // The node shuts down: no further record, until the caller leaves or hands over.
            return std::future::pending().await;
        };
        let written = Instant::now();
        let at = shared.client.put(&key, text, lease.load(Ordering::Relaxed)).await?;
        *refusals = 0;
        shared.set_announce_error(None);
        let due = sleep_until(renewed.unwrap_or(written) + renew_every);
        tokio::select! {
            () = due => {}
            () = moved(&mut what.applied) => {}
            () = lost(shared, &mut moves, &what.id, at) => {}
        }
        // Bounds the writes of a node during rapid changes (decision 29).
        sleep_until(written + PAUSE).await;
    }
}

/// Renews the lease, or grants a new one.
async fn renew(shared: &EtcdShared, lasts: Duration, lease: &AtomicI64) -> Result<(), RpcError> {
    let known = lease.load(Ordering::Relaxed);
    if known == 0 || shared.client.keep_lease(known).await? == 0 {
        // If the grant fails, no later renewal may rely on the expired lease.
        lease.store(0, Ordering::Relaxed);
        lease.store(shared.client.grant_lease(lasts.as_secs().max(1)).await?, Ordering::Relaxed);
    }
    Ok(())
}

async fn moved<T>(news: &mut watch::Receiver<T>) {
    if news.changed().await.is_err() {
        // A dropped sender means that no further change is possible.
        std::future::pending::<()>().await;
    }
}

/// Returns when the record was deleted by another party.
async fn lost(shared: &EtcdShared, moves: &mut watch::Receiver<u64>, id: &str, at: u64) {
    while !shared.nodes.has_lost(id, at) {
        moved(moves).await;
    }
}
