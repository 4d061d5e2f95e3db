//! Says for this node, under a lease, what it serves: when that changes, and often enough to keep the lease.
//!
//! Never on anybody's way: what cannot be said now is said when the cluster is there again.

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

/// Between two records, however often what is served changes.
const PAUSE: Duration = Duration::from_millis(250);
/// How long leaving may take.
const LEAVE_WAIT: Duration = Duration::from_secs(1);

/// What a node says of itself, as of now; nothing more once it is ending.
pub type Describe = Box<dyn Fn(MirrorPosition, &EtcdStatus) -> Option<String> + Send + Sync>;

/// How a node announces itself.
pub struct NodeAnnouncement {
    /// Who it is, on every start again.
    pub id: String,
    /// How long it counts as there when it says nothing; a third of it passes between two records.
    pub lease: Duration,
    /// What it says.
    pub describe: Describe,
    /// Changes when it has more to say.
    pub applied: watch::Receiver<Revision>,
}

/// A node that is announced until this is told to leave, or the store ends.
pub struct AnnouncedNode {
    leave: oneshot::Sender<KeepNodeRecord>,
    left: mpsc::Receiver<()>,
}

impl AnnouncedNode {
    /// Says nothing more and leaves the record as it is: another process of this node goes on with it. Were it taken back
    /// before that one has said something, the others would do without this node.
    pub fn hand_over(self) {
        let _ = self.leave.send(KeepNodeRecord);
        let _ = self.left.recv_timeout(LEAVE_WAIT * 2);
    }

    /// Takes the record back, if that is possible within a second. Blocks as long.
    pub fn leave(self) {
        drop(self.leave);
        // Late or gone: the lease will end by itself.
        let _ = self.left.recv_timeout(LEAVE_WAIT * 2);
    }
}

/// The node is there: another process of it announces it.
struct KeepNodeRecord;

/// Announces on the store's runtime.
pub(super) fn begin(
    shared: Arc<EtcdShared>,
    runtime: &tokio::runtime::Handle,
    what: NodeAnnouncement,
) -> AnnouncedNode {
    let (leave, asked) = oneshot::channel();
    let (tell, left) = mpsc::channel();
    runtime.spawn(async move {
        let lease = AtomicI64::new(0);
        let stays = tokio::select! {
            // Whoever lets go of the other end wants it to leave.
            stays = asked => stays.is_ok(),
            never = keep(&shared, what, &lease) => match never {},
        };
        let lease = lease.into_inner();
        if !stays
            && lease != 0
            && !matches!(timeout(LEAVE_WAIT, shared.client.revoke_lease(lease)).await, Ok(Ok(())))
        {
            tracing::info!("node record not removed from etcd; its lease expires");
        }
        let _ = tell.send(());
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
            // Most likely the lease is one the cluster does not know any more.
            lease.store(0, Ordering::Relaxed);
            refusals += 1;
            // The first may be about the lease alone.
            if refusals > 1 {
                shared.set_announce_error(Some(error.to_string()));
            }
        }
        sleep(backoff.pause()).await;
    }
}

/// Writes records for as long as that works.
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
            renewed = Some(Instant::now());
            renew(shared, what.lease, lease).await?;
        }
        what.applied.mark_unchanged();
        moves.mark_unchanged();
        let Some(text) = (what.describe)(shared.position(), &shared.status()) else {
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
        sleep_until(written + PAUSE).await;
    }
}

/// Keeps the lease, or takes one where there is none.
async fn renew(shared: &EtcdShared, lasts: Duration, lease: &AtomicI64) -> Result<(), RpcError> {
    let known = lease.load(Ordering::Relaxed);
    if known == 0 || shared.client.keep_lease(known).await? == 0 {
        lease.store(0, Ordering::Relaxed);
        lease.store(shared.client.grant_lease(lasts.as_secs().max(1)).await?, Ordering::Relaxed);
    }
    Ok(())
}

async fn moved<T>(news: &mut watch::Receiver<T>) {
    if news.changed().await.is_err() {
        // Nothing will change any more.
        std::future::pending::<()>().await;
    }
}

/// Returns when somebody else took the record away.
async fn lost(shared: &EtcdShared, moves: &mut watch::Receiver<u64>, id: &str, at: u64) {
    while !shared.nodes.has_lost(id, at) {
        moved(moves).await;
    }
}
