//! Records of the nodes in a cluster, each bound to a lease; shared keys are stored in the same form.
//!
//! Keeps the latest text of each record and its time of receipt; does not interpret the texts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use super::client::KeyListing;
use super::proto::KeyEvent;

/// Latest record of a node.
#[derive(Debug, Clone)]
pub struct NodeRecord {
    /// Text as published by the node.
    pub text: Arc<str>,
    /// Time of receipt on this node.
    pub received: Instant,
}

/// The records as of one revision.
pub(super) struct NodeRecords {
    /// Prefix of their keys.
    root: String,
    known: Mutex<KnownRecords>,
    moved: watch::Sender<u64>,
}

#[derive(Default)]
struct KnownRecords {
    up_to: u64,
    records: BTreeMap<Arc<str>, NodeRecord>,
}

impl NodeRecords {
    /// Creates an empty set of records under the prefix `root`.
    pub(super) fn new(root: String) -> NodeRecords {
        NodeRecords { root, known: Mutex::default(), moved: watch::Sender::new(0) }
    }

    /// Key of a node's record.
    pub(super) fn path(&self, id: &str) -> String {
        format!("{}{id}", self.root)
    }

    /// The records by node id.
    pub(super) fn records(&self) -> BTreeMap<Arc<str>, NodeRecord> {
        self.known().records.clone()
    }

    /// Notifies when a record changes.
    pub(super) fn moves(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    /// Whether a record existed at `revision` and was deleted since.
    pub(super) fn has_lost(&self, id: &str, revision: u64) -> bool {
        let known = self.known();
        known.up_to >= revision && !known.records.contains_key(id)
    }

    /// Replaces the records with a listing. The time of receipt changes only with the text.
    pub(super) fn take_list(&self, listing: &KeyListing) {
        let mut known = self.known();
        let before = std::mem::take(&mut known.records);
        for kv in &listing.kvs {
            if let Some((id, record)) = self.record(&kv.key, &kv.value) {
                // Lag is measured from the time of receipt, so an unchanged record must keep it.
                let same = before.get(&id).filter(|known| known.text == record.text).cloned();
                known.records.insert(id, same.unwrap_or(record));
            }
        }
        known.up_to = listing.head.revision;
        drop(known);
        self.moved.send_modify(|count| *count += 1);
    }

    /// Applies events of a watch. Events up to the revision already applied are ignored.
    pub(super) fn take_events(&self, events: &[KeyEvent]) {
        let mut known = self.known();
        let (seen, mut has_moved) = (known.up_to, false);
        for event in events {
            let Some(kv) = &event.kv else { continue };
            let revision = kv.mod_revision.max(0) as u64;
            // A listing may be newer than events that were queued before it.
            if revision <= seen {
                continue;
            }
            // Also for keys of others: `has_lost` compares with the newest revision seen.
            known.up_to = known.up_to.max(revision);
            let Some((id, record)) = self.record(&kv.key, &kv.value) else { continue };
            match event.is_delete() {
                true => drop(known.records.remove(&id)),
                false => drop(known.records.insert(id, record)),
            }
            has_moved = true;
        }
        // Released first, because receivers read the records.
        drop(known);
        if has_moved {
            self.moved.send_modify(|count| *count += 1);
        }
    }

    fn record(&self, key: &[u8], value: &[u8]) -> Option<(Arc<str>, NodeRecord)> {
        let id = std::str::from_utf8(key).ok()?.strip_prefix(&self.root)?;
        let text = String::from_utf8_lossy(value).as_ref().into();
        (!id.is_empty()).then(|| (id.into(), NodeRecord { text, received: Instant::now() }))
    }

    fn known(&self) -> MutexGuard<'_, KnownRecords> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::client::ClusterHead;
    use crate::etcd::proto::KeyValue;

    fn kv(path: &str, value: &str, at: i64) -> KeyValue {
        let (key, value) = (path.to_owned().into(), value.to_owned().into());
        KeyValue { key, value, mod_revision: at, ..KeyValue::default() }
    }

    fn put(path: &str, value: &str, at: i64) -> KeyEvent {
        KeyEvent { kind: 0, kv: Some(kv(path, value, at)) }
    }

    fn delete(path: &str, at: i64) -> KeyEvent {
        KeyEvent { kind: 1, kv: Some(kv(path, "", at)) }
    }

    fn nodes_of(kvs: Vec<KeyValue>) -> NodeRecords {
        let nodes = NodeRecords::new("/apisix/yumen/nodes/".into());
        nodes.take_list(&KeyListing { head: ClusterHead { cluster_id: 1, revision: 10 }, kvs });
        nodes
    }

    fn check(nodes: &NodeRecords, expected: &[(&str, &str)]) {
        let records = nodes.records();
        let found: Vec<(&str, &str)> = records.iter().map(|(id, record)| (&**id, &*record.text)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn records_come_change_and_go() {
        let nodes = nodes_of(vec![kv("/apisix/routes/1", "{}", 3), kv("/apisix/yumen/nodes/a", "1", 4)]);
        check(&nodes, &[("a", "1")]);
        nodes.take_events(&[put("/apisix/yumen/nodes/b", "2", 11), put("/apisix/yumen/last_write", "", 12)]);
        check(&nodes, &[("a", "1"), ("b", "2")]);
        nodes.take_events(&[put("/apisix/yumen/nodes/a", "3", 13), delete("/apisix/yumen/nodes/b", 13)]);
        check(&nodes, &[("a", "3")]);
        // Events redelivered by a restarted watch.
        nodes.take_events(&[put("/apisix/yumen/nodes/b", "2", 11)]);
        check(&nodes, &[("a", "3")]);
        assert!(nodes.has_lost("b", 13) && !nodes.has_lost("a", 13));
        assert!(!nodes.has_lost("b", 14), "what is written there may be told yet");
    }

    #[test]
    fn listing_does_not_refresh_node_records() {
        let nodes = nodes_of(vec![kv("/apisix/yumen/nodes/a", "1", 4), kv("/apisix/yumen/nodes/b", "2", 4)]);
        let before = nodes.records();
        let kvs = vec![kv("/apisix/yumen/nodes/a", "1", 4), kv("/apisix/yumen/nodes/b", "3", 12)];
        nodes.take_list(&KeyListing { head: ClusterHead { cluster_id: 1, revision: 12 }, kvs });
        let after = nodes.records();
        assert_eq!(before["a"].received, after["a"].received);
        assert!(before["b"].received < after["b"].received);
    }

    #[test]
    fn waiters_are_woken_by_records_only() {
        let nodes = nodes_of(Vec::new());
        let mut moves = nodes.moves();
        moves.mark_unchanged();
        nodes.take_events(&[put("/apisix/routes/1", "{}", 11)]);
        assert!(!moves.has_changed().unwrap());
        nodes.take_events(&[put("/apisix/yumen/nodes/a", "1", 12)]);
        assert!(moves.has_changed().unwrap());
    }
}
