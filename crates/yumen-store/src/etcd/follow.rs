//! Keeps the mirror up to date with the cluster for the lifetime of the process.
//!
//! Lists and watches as the mirror requires, and leaves an unresponsive member; the mirror decides the served
//! state.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::client::{EtcdWatch, RetryBackoff, WatchMessage};
use super::mirror::MirrorNeed;
use super::shared::EtcdShared;
use super::wire::RpcError;

/// Follows the cluster; never returns.
pub(super) async fn run(shared: Arc<EtcdShared>) {
    let mut backoff = RetryBackoff::new(shared.settings.retry);
    loop {
        let Err(error) = follow(&shared, &mut backoff).await;
        shared.set_disconnected(&error);
        // A partitioned member may still answer but never makes progress. Dropping the connection leads to
        // the next member.
        shared.client.drop_connection(&error.to_string()).await;
        sleep(backoff.pause()).await;
    }
}

/// Follows the cluster over one connection until an error.
async fn follow(shared: &EtcdShared, backoff: &mut RetryBackoff) -> Result<Infallible, RpcError> {
    let root = shared.layout.root();
    let head = shared.client.head().await?;
    // Decided by the head of this connection: another member may belong to a restored cluster.
    let mut need = shared.need(head);
    let endpoint = shared.client.endpoint().unwrap_or_default();
    loop {
        let from = match need {
            MirrorNeed::Watch(from) => from,
            MirrorNeed::List => {
                let listing = shared.client.get_prefix(root, None).await?;
                let (revision, keys) = (listing.head.revision, listing.kvs.len());
                tracing::info!(endpoint = &*endpoint, revision, keys, "etcd listing loaded");
                shared.take_list(&listing);
                // The watch continues where the listing ended, so nothing falls between the two.
                revision + 1
            }
        };
        let mut watch = shared.client.watch_prefix(root, from).await?;
        shared.note_followed();
        backoff.reset_after_success();
        need = listen(shared, &mut watch).await?;
    }
}

/// Processes messages of a watch until a listing is needed or the member does not respond.
async fn listen(shared: &EtcdShared, watch: &mut EtcdWatch) -> Result<MirrorNeed, RpcError> {
    let mut probe = interval(shared.settings.probe_every);
    // Missed ticks of a suspended process must not cause a burst of probes.
    probe.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_event = Instant::now();
    loop {
        tokio::select! {
            // A received message takes precedence over the probe timeout.
            biased;
            news = watch.next() => {
                // Any message proves that the member is alive, even an error.
                last_event = Instant::now();
                match news? {
                    WatchMessage::Events(head, events) => {
                        if shared.take_events(head, events) {
                            tracing::warn!("etcd watch has a gap, reloading all keys");
                            return Ok(MirrorNeed::List);
                        }
                    }
                    WatchMessage::Progress(head) => shared.take_progress(head),
                    WatchMessage::Compacted => return Ok(MirrorNeed::List),
                }
            }
            _ = probe.tick() => {
                // Before the next request: the silence since the last one counts.
                if last_event.elapsed() > shared.settings.probe_timeout {
                    watch.fail("the etcd member does not respond");
                    return Err(RpcError::Late(shared.settings.probe_timeout.as_millis()));
                }
                watch.ask_progress()?;
            }
        }
    }
}
