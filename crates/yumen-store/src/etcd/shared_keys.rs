//! What nodes pin up for one another beside the configuration: texts by name, for good or for as long as a lease lasts.
//!
//! Every node hears of them by the watch it has anyway. Must not know what the texts mean.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::client::EtcdClient;
use super::plan;
use super::shared::EtcdShared;
use super::wire::RpcError;

/// The texts all nodes of a store see.
#[derive(Clone)]
pub struct SharedKeys {
    shared: Arc<EtcdShared>,
}

impl SharedKeys {
    pub(super) fn new(shared: Arc<EtcdShared>) -> SharedKeys {
        SharedKeys { shared }
    }

    /// The texts by name; while etcd is away, what was known when it went.
    pub fn texts(&self) -> BTreeMap<Arc<str>, Arc<str>> {
        self.shared.board.records().into_iter().map(|(name, record)| (name, record.text)).collect()
    }

    /// Changes when a text did.
    pub fn moves(&self) -> watch::Receiver<u64> {
        self.shared.board.moves()
    }

    /// The ids of the nodes that are there.
    pub fn nodes(&self) -> Vec<Arc<str>> {
        self.shared.nodes.records().into_keys().collect()
    }

    /// Pins up a text in place of what was there, bound to a lease where that is not 0.
    pub async fn put(&self, name: &str, text: String, lease: i64) -> Result<(), RpcError> {
        self.client().put(&self.shared.board.path(name), text, lease).await.map(drop)
    }

    /// The same where nothing is there; whether it was so.
    pub async fn put_new(&self, name: &str, text: String, lease: i64) -> Result<bool, RpcError> {
        let request = plan::creation(self.shared.board.path(name), text, lease);
        Ok(self.client().txn(&request).await?.succeeded)
    }

    /// Takes a text away.
    pub async fn delete(&self, name: &str) -> Result<(), RpcError> {
        self.client().delete(&self.shared.board.path(name)).await.map(drop)
    }

    /// A new lease; texts bound to it are gone when it ends.
    pub async fn lease(&self, lasts: Duration) -> Result<i64, RpcError> {
        self.client().grant_lease(lasts.as_secs().max(1)).await
    }

    /// Begins a lease's time anew.
    pub async fn keep(&self, lease: i64) -> Result<(), RpcError> {
        self.client().keep_lease(lease).await.map(drop)
    }

    /// Ends a lease, and with it what is bound to it.
    pub async fn end(&self, lease: i64) -> Result<(), RpcError> {
        self.client().revoke_lease(lease).await
    }

    fn client(&self) -> &EtcdClient {
        &self.shared.client
    }
}
