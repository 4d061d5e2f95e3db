//! Keys that nodes share besides the configuration: texts by name, permanent or bound to a lease.
//!
//! The store's watch delivers them, so they cost no further connection. Does not interpret the
//! texts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::client::EtcdClient;
use super::plan;
use super::shared::EtcdShared;
use super::wire::RpcError;

/// Texts shared by all nodes of a store.
#[derive(Clone)]
pub struct SharedKeys {
    shared: Arc<EtcdShared>,
}

impl SharedKeys {
    pub(super) fn new(shared: Arc<EtcdShared>) -> SharedKeys {
        SharedKeys { shared }
    }

    /// The texts by name. During an outage of etcd, the texts received last.
    pub fn texts(&self) -> BTreeMap<Arc<str>, Arc<str>> {
        self.shared.board.records().into_iter().map(|(name, record)| (name, record.text)).collect()
    }

    /// Notifies when a text changes.
    pub fn moves(&self) -> watch::Receiver<u64> {
        self.shared.board.moves()
    }

    /// Ids of the live nodes.
    pub fn nodes(&self) -> Vec<Arc<str>> {
        self.shared.nodes.records().into_keys().collect()
    }

    /// Creates or replaces a text, bound to `lease` unless that is 0.
    pub async fn put(&self, name: &str, text: String, lease: i64) -> Result<(), RpcError> {
        self.client().put(&self.shared.board.path(name), text, lease).await.map(drop)
    }

    /// Creates a text if its name is free; returns whether it was created.
    pub async fn put_new(&self, name: &str, text: String, lease: i64) -> Result<bool, RpcError> {
        let request = plan::creation(self.shared.board.path(name), text, lease);
        Ok(self.client().txn(&request).await?.succeeded)
    }

    /// Deletes a text.
    pub async fn delete(&self, name: &str) -> Result<(), RpcError> {
        self.client().delete(&self.shared.board.path(name)).await.map(drop)
    }

    /// Grants a lease of at least one second. Texts bound to it are deleted on expiry.
    pub async fn lease(&self, lasts: Duration) -> Result<i64, RpcError> {
        self.client().grant_lease(lasts.as_secs().max(1)).await
    }

    /// Renews a lease.
    pub async fn keep(&self, lease: i64) -> Result<(), RpcError> {
        self.client().keep_lease(lease).await.map(drop)
    }

    /// Revokes a lease and deletes the texts bound to it.
    pub async fn end(&self, lease: i64) -> Result<(), RpcError> {
        self.client().revoke_lease(lease).await
    }

    fn client(&self) -> &EtcdClient {
        &self.shared.client
    }
}
