//! Coordination of ACME orders in a cluster: one node orders at a time, all nodes serve the challenges, and
//! all use the certificates.
//!
//! Owns the shared keys and the lease; has no knowledge of orders and of active certificates.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};
use yumen_store::etcd::SharedKeys;
use yumen_store::{Keyring, TextSeal};

use super::proof::{ChallengeProof, ChallengeResponder, ServedChallenge};
use super::storage::seal_key;

/// Name of the group of shared keys.
pub(crate) const ACME_SHARED_KEYS: &str = "acme";
/// Key held by the ordering node.
const ORDER: &str = "order";
/// Lifetime of the order lease: after the death of a node the next may order.
const ORDER_LEASE_TTL: Duration = Duration::from_secs(30);
/// Time for all nodes to acknowledge a challenge. Others, such as nodes of older versions, are skipped.
const PROOF_WITHIN: Duration = Duration::from_secs(10);
/// Time for the watch to deliver a local write.
const WATCH_WITHIN: Duration = Duration::from_secs(10);

/// Shared keys of the cluster, with encryption.
pub(super) struct AcmeCoordinator {
    shared_keys: SharedKeys,
    /// Id of this node.
    node: Arc<str>,
    keyring: Keyring,
    /// Whether shared texts are encrypted: only if all nodes have the same keys, from the node settings.
    seals: bool,
}

/// A challenge proof in the shared keys.
#[derive(Serialize, Deserialize)]
struct PublishedProof {
    proof: ChallengeProof,
    /// Lease with which the proof expires.
    lease: i64,
}

/// This node's lease to order. Dropping it stops the renewal.
pub(super) struct OrderLease {
    coordinator: Arc<AcmeCoordinator>,
    lease: i64,
    keeping: AbortHandle,
    /// Nodes that did not serve a challenge in time; later challenges do not wait for them.
    skipped_nodes: Mutex<BTreeSet<Arc<str>>>,
}

fn saved_key(id: &str) -> String {
    format!("kept/{id}")
}

fn failed(id: &str) -> String {
    format!("failed/{id}")
}

fn acknowledgement_key(token: &str, node: &str) -> String {
    format!("shown/{token}/{node}")
}

impl AcmeCoordinator {
    pub(super) fn new(shared_keys: SharedKeys, node: &str, keyring: Keyring, seals: bool) -> AcmeCoordinator {
        AcmeCoordinator { shared_keys, node: node.into(), keyring, seals }
    }

    /// Notifies of changes of the shared keys.
    pub(super) fn moves(&self) -> watch::Receiver<u64> {
        self.shared_keys.moves()
    }

    /// Decrypted shared text of an id.
    pub(super) fn text(&self, id: &str) -> anyhow::Result<Option<String>> {
        let texts = self.shared_keys.texts();
        let Some(sealed) = texts.get(&*saved_key(id)) else { return Ok(None) };
        let opened = self.keyring.open(&seal_key(id), sealed);
        opened.map(Some).context("shared data cannot be decrypted: is store.keyring the same on all nodes?")
    }

    /// Stores a text for all nodes. A text that this node cannot decrypt is kept, since other nodes may be
    /// able to.
    pub(super) async fn keep(&self, id: &str, text: &str) -> anyhow::Result<()> {
        if self.text(id).is_err() {
            return Ok(());
        }
        self.shared_keys.put(&saved_key(id), self.sealed(id, text), 0).await.context("etcd")
    }

    /// Stores a text for all nodes, unless there is one.
    pub(super) async fn keep_first(&self, id: &str, text: &str) -> anyhow::Result<()> {
        // Atomic in etcd: two nodes that start together must not overwrite each other.
        self.shared_keys.put_new(&saved_key(id), self.sealed(id, text), 0).await.map(drop).context("etcd")
    }

    fn sealed(&self, id: &str, text: &str) -> String {
        match self.seals {
            true => self.keyring.seal(&seal_key(id), text),
            false => text.to_owned(),
        }
    }

    /// Publishes the failure of an order, so that other nodes do not try it for `waited`.
    pub(super) async fn publish_failure(&self, id: &str, waited: Duration) -> anyhow::Result<()> {
        let lease = self.shared_keys.lease(waited).await?;
        Ok(self.shared_keys.put(&failed(id), self.node.to_string(), lease).await?)
    }

    /// Whether another node's order was rejected recently.
    pub(super) fn is_refused_by_other(&self, id: &str) -> bool {
        // The failed node itself waits by its own pause, which is longer.
        self.shared_keys.texts().get(&*failed(id)).is_some_and(|node| *node != self.node)
    }

    /// Acquires the order lease; `None` if another node holds it. On success, texts of the previous holder
    /// are visible.
    pub(super) async fn acquire_order_lease(self: &Arc<Self>) -> anyhow::Result<Option<OrderLease>> {
        // A hint from the mirror, which saves a lease per check; `put_new` decides.
        if self.shared_keys.texts().contains_key(ORDER) {
            return Ok(None);
        }
        let lease = self.shared_keys.lease(ORDER_LEASE_TTL).await.context("etcd")?;
        // Renewed by a task, since an order may take minutes.
        let keeping = tokio::spawn(keep_lease(self.shared_keys.clone(), lease)).abort_handle();
        let order_lease =
            OrderLease { coordinator: self.clone(), lease, keeping, skipped_nodes: Mutex::default() };
        // The lease id makes the text unique: a delayed watch event of an earlier lease cannot match.
        let text = format!("{} {lease:x}", self.node);
        if !self.shared_keys.put_new(ORDER, text.clone(), lease).await.context("etcd")? {
            // Revoked at once, so that unused leases do not collect in etcd.
            order_lease.end().await;
            return Ok(None);
        }
        // With the write, everything the previous holder wrote has arrived: the watch is ordered.
        let is_watched = || self.shared_keys.texts().get(ORDER).is_some_and(|seen| **seen == *text);
        match self.happens_within(WATCH_WITHIN, is_watched).await {
            true => Ok(Some(order_lease)),
            false => bail!("the etcd watch did not deliver the write in time"),
        }
    }

    async fn happens_within(&self, within: Duration, has_happened: impl Fn() -> bool) -> bool {
        let until = Instant::now() + within;
        let mut moves = self.shared_keys.moves();
        while !has_happened() {
            if !matches!(timeout_at(until, moves.changed()).await, Ok(Ok(()))) {
                // Once more at the deadline.
                return has_happened();
            }
        }
        true
    }
}

async fn keep_lease(shared_keys: SharedKeys, lease: i64) {
    loop {
        // Two renewals may fail before the lease expires.
        sleep(ORDER_LEASE_TTL / 3).await;
        if let Err(error) = shared_keys.keep(lease).await {
            tracing::debug!(%error, "certificate order lease cannot be renewed");
        }
    }
}

impl OrderLease {
    /// Publishes a challenge and waits for the acknowledgements of all nodes.
    pub(super) async fn pin(&self, proof: &ChallengeProof) -> anyhow::Result<()> {
        proof.check()?;
        let (coordinator, token) = (&self.coordinator, &proof.token);
        let pinned = PublishedProof { proof: proof.clone(), lease: self.lease };
        let text = serde_json::to_string(&pinned)?;
        coordinator.shared_keys.put(&format!("proofs/{token}"), text, self.lease).await.context("etcd")?;
        if coordinator.happens_within(PROOF_WITHIN, || self.waits_for(token).is_empty()).await {
            return Ok(());
        }
        let late = self.waits_for(token);
        // Without its own write this node could not serve the challenge that it requests.
        if late.contains(&coordinator.node) {
            bail!("the etcd watch did not deliver the write in time");
        }
        tracing::warn!(nodes = ?late, "nodes did not serve the ACME challenge in time");
        self.skipped_nodes().extend(late);
        Ok(())
    }

    /// Live nodes that have not acknowledged a challenge, without skipped ones.
    fn waits_for(&self, token: &str) -> BTreeSet<Arc<str>> {
        let (coordinator, skipped_nodes) = (&self.coordinator, self.skipped_nodes());
        let texts = coordinator.shared_keys.texts();
        // The own record may not have arrived yet, but the challenge is served here as well.
        let all = coordinator.shared_keys.nodes().into_iter().chain([coordinator.node.clone()]);
        let is_late = |node: &Arc<str>| {
            !skipped_nodes.contains(node) && !texts.contains_key(&*acknowledgement_key(token, node))
        };
        all.filter(is_late).collect()
    }

    /// Withdraws a challenge.
    pub(super) async fn unpin(&self, token: &str) {
        // On failure, the key expires with the lease at the latest.
        let _ = self.coordinator.shared_keys.delete(&format!("proofs/{token}")).await;
    }

    /// Revokes the lease, which deletes all keys attached to it.
    pub(super) async fn end(self) {
        if let Err(error) = self.coordinator.shared_keys.end(self.lease).await {
            tracing::debug!(%error, "certificate order lease not revoked; it expires");
        }
    }

    fn skipped_nodes(&self) -> std::sync::MutexGuard<'_, BTreeSet<Arc<str>>> {
        self.skipped_nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OrderLease {
    fn drop(&mut self) {
        self.keeping.abort();
    }
}

/// Serves the challenges of all nodes on this node.
pub(super) struct ProofFollower {
    pub(super) coordinator: Arc<AcmeCoordinator>,
    pub(super) screen: ChallengeResponder,
    /// By text of the published challenge, since a server may reuse a token in a later order; `None` if it
    /// cannot be served.
    shown: HashMap<Arc<str>, Option<ServedChallenge>>,
}

impl ProofFollower {
    pub(super) fn new(coordinator: Arc<AcmeCoordinator>, screen: ChallengeResponder) -> ProofFollower {
        ProofFollower { coordinator, screen, shown: HashMap::new() }
    }

    /// Follows the shared keys until the store ends.
    pub(super) async fn run(mut self) {
        let mut moves = self.coordinator.moves();
        loop {
            self.look().await;
            if moves.changed().await.is_err() {
                // The store has closed.
                return;
            }
        }
    }

    /// Serves exactly the challenges that are published now.
    pub(super) async fn look(&mut self) {
        let texts = self.coordinator.shared_keys.texts();
        let proofs: BTreeSet<&Arc<str>> =
            texts.iter().filter(|(name, _)| name.starts_with("proofs/")).map(|(_, text)| text).collect();
        // Remove first: the next challenge of a name may replace the previous one.
        let withdrawn = self.shown.extract_if(|text, _| !proofs.contains(text));
        let withdrawn: Vec<ServedChallenge> = withdrawn.filter_map(|(_, shown)| shown).collect();
        self.screen.clear(&withdrawn).await;
        for text in proofs {
            if !self.shown.contains_key(text) {
                let shown = self.show(text).await;
                let shown = shown.inspect_err(|error| {
                    tracing::warn!(error = format!("{error:#}"), "ACME challenge cannot be served");
                });
                self.shown.insert(text.clone(), shown.ok());
            }
        }
    }

    async fn show(&self, text: &str) -> anyhow::Result<ServedChallenge> {
        let PublishedProof { proof, lease } = serde_json::from_str(text)?;
        let shown = self.screen.show(&proof).await?;
        let (shared_keys, name) =
            (self.coordinator.shared_keys.clone(), acknowledgement_key(&proof.token, &self.coordinator.node));
        // The challenge is served already; the acknowledgement must not delay the next one.
        tokio::spawn(async move {
            if let Err(error) = shared_keys.put(&name, String::new(), lease).await {
                tracing::debug!(%error, "ACME challenge acknowledgement not written");
            }
        });
        Ok(shown)
    }
}
