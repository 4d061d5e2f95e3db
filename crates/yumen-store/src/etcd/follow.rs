//! Keeps the mirror in step with the cluster, for as long as the process lives.
//!
//! Does what the mirror needs, and finds another member when one keeps quiet; decides nothing about what is served.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::client::{EtcdWatch, RetryBackoff, WatchMessage};
use super::mirror::MirrorNeed;
use super::shared::EtcdShared;
use super::wire::RpcError;

/// Follows the cluster; never ends.
pub(super) async fn run(shared: Arc<EtcdShared>) {
    let mut backoff = RetryBackoff::new(shared.settings.retry);
    loop {
        let Err(error) = follow(&shared, &mut backoff).await;
        shared.set_disconnected(&error);
        // A member that is cut off from the others still answers, and never anything of use: the next one is asked.
        shared.client.drop_connection(&error.to_string()).await;
        sleep(backoff.pause()).await;
    }
}

/// Follows the cluster over one connection.
async fn follow(shared: &EtcdShared, backoff: &mut RetryBackoff) -> Result<Infallible, RpcError> {
    let root = shared.layout.root();
    let head = shared.client.head().await?;
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
                revision + 1
            }
        };
        let mut watch = shared.client.watch_prefix(root, from).await?;
        shared.note_followed();
        backoff.reset_after_success();
        need = listen(shared, &mut watch).await?;
    }
}

/// Takes in what a watch tells until that is not enough.
async fn listen(shared: &EtcdShared, watch: &mut EtcdWatch) -> Result<MirrorNeed, RpcError> {
    let mut probe = interval(shared.settings.probe_every);
    probe.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    loop {
        tokio::select! {
            // What came counts before the silence that was.
            biased;
            news = watch.next() => {
                heard = Instant::now();
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
                if heard.elapsed() > shared.settings.probe_timeout {
                    watch.fail("the etcd member does not respond");
                    return Err(RpcError::Late(shared.settings.probe_timeout.as_millis()));
                }
                watch.ask_progress()?;
            }
        }
    }
}
