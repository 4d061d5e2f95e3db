//! Redis Cluster: the map of slots to nodes, and redirections.
//!
//! Independent of the wire format beyond replies and errors.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use yumen_plugin::background::{
    RedisAddress, RedisFault, RedisReply, RedisResult, RedisScriptCall, RedisTarget, RedisTopology,
};
use yumen_plugin::plugin::LocalFuture;

use crate::RedisRuntime;
use crate::connection::{RedisConnection, RedisPeer};
use crate::resp;
use crate::script::{self, ScriptDigests, ScriptReference};

mod slot;

use slot::{SLOTS, slot};

/// The most redirections that one command follows.
const REDIRECTS_MAX: usize = 5;
/// The shortest interval between requests for the slot map, in milliseconds.
const REFRESH_MS: u64 = 200;
/// Pause before a command is repeated because its keys are being migrated.
const MOVING_PAUSE: Duration = Duration::from_millis(20);

/// A worker's view of one cluster.
pub(crate) struct RedisCluster {
    tools: RedisRuntime,
    target: Rc<RedisTarget>,
    nodes: RefCell<HashMap<RedisAddress, Rc<RedisClusterNode>>>,
    /// The node of each slot; empty until the map was received.
    slots: RefCell<Vec<Option<Rc<RedisClusterNode>>>>,
    is_refreshing: Cell<bool>,
    refreshed: Notify,
    refreshed_ms: Cell<u64>,
    /// The reason why the last request for the map failed.
    fault: RefCell<Option<RedisFault>>,
}

/// A node of the cluster.
struct RedisClusterNode {
    address: RedisAddress,
    link: Rc<RedisConnection>,
}

/// The meaning of an error reply. The command did not run, except with `Final`.
#[derive(Debug, PartialEq, Eq)]
enum ClusterErrorKind {
    /// The slot has moved permanently.
    Moved(RedisAddress),
    /// The key is at another node for this command only.
    Ask(RedisAddress),
    /// The node cannot serve the slot and names no other.
    NotServed,
    /// The keys of the command are split between two nodes until the migration ends.
    SlotMigrating,
    /// The node does not have the script.
    UnknownScript,
    /// Any other error, such as one of the script. Other nodes would return the same.
    Final,
}

/// The slot map of one node.
struct SlotMap {
    ranges: Vec<(usize, usize, RedisAddress)>,
    /// Whether the node reaches the majority of the cluster. Otherwise its map may be outdated.
    is_sound: bool,
}

impl RedisCluster {
    pub(crate) fn new(tools: &RedisRuntime, target: &Rc<RedisTarget>) -> Rc<RedisCluster> {
        Rc::new(RedisCluster {
            tools: tools.clone(),
            target: target.clone(),
            nodes: RefCell::default(),
            slots: RefCell::default(),
            is_refreshing: Cell::new(false),
            refreshed: Notify::new(),
            refreshed_ms: Cell::new(0),
            fault: RefCell::default(),
        })
    }

    /// The number of commands without a reply.
    pub(crate) fn waiting(&self) -> usize {
        self.nodes.borrow().values().map(|node| node.link.waiting()).sum()
    }

    /// The settings of the cluster.
    pub(crate) fn settings(&self) -> Rc<RedisTarget> {
        self.target.clone()
    }

    /// Runs a script on the node of its first key. The command is queued when this returns, unless the map is
    /// missing.
    pub(crate) fn run(
        self: Rc<Self>,
        digests: Rc<ScriptDigests>,
        call: RedisScriptCall,
    ) -> LocalFuture<'static, RedisResult> {
        // All keys of a call are on one node; a script without keys runs anywhere.
        let slot = call.keys.first().map_or(0, |key| slot(key));
        // Sent before the future is polled: commands of one request are pipelined in their order.
        let begun = self.node_of(slot).map(|node| {
            let answer = node.link.send(|out| script::encode(out, &digests, &call, ScriptReference::Digest));
            (node, answer)
        });
        Box::pin(async move {
            let (node, result) = match begun {
                Some((node, answer)) => (node, answer.await),
                None => {
                    // The first command of a worker waits for the map, later ones find it.
                    self.refresh().await?;
                    let not_served = || RedisFault::Connect(format!("no node serves slot {slot}"));
                    let node = self.node_of(slot).ok_or_else(not_served)?;
                    let answer =
                        node.link.send(|out| script::encode(out, &digests, &call, ScriptReference::Digest));
                    (node, answer.await)
                }
            };
            self.follow(slot, node, result, &digests, &call).await
        })
    }

    /// Follows redirections, and sends the script's text if necessary, until there is a final result.
    async fn follow(
        self: &Rc<Self>,
        slot: usize,
        mut node: Rc<RedisClusterNode>,
        mut result: RedisResult,
        digests: &ScriptDigests,
        call: &RedisScriptCall,
    ) -> RedisResult {
        let (mut by, mut before): (ScriptReference, &[&str]) = (ScriptReference::Digest, &[]);
        // Nodes that point at each other must not hold a request for ever.
        for _ in 0..REDIRECTS_MAX {
            let RedisFault::Refused(why) = (match &result {
                Ok(_) => return result,
                Err(fault) => fault,
            }) else {
                // The node may have lost its slots to another.
                // The map is requested beside this command, which has failed and is not repeated.
                self.refresh_soon();
                return result;
            };
            match refusal(why, &node.address) {
                ClusterErrorKind::Moved(address) => {
                    (node, before) = (self.node_at(&address), &[]);
                    // One slot is corrected at once; the rest of the map follows in the background.
                    self.note(slot, &node);
                    self.refresh_soon();
                }
                ClusterErrorKind::Ask(address) => {
                    // ASKING admits one command to a slot that the node is importing.
                    // The map stays: the slot belongs to the other node only after its migration.
                    (node, before) = (self.node_at(&address), &["ASKING"]);
                }
                ClusterErrorKind::NotServed => match self.another(slot, &node).await {
                    Some(other) => (node, before) = (other, &[]),
                    None => return result,
                },
                ClusterErrorKind::SlotMigrating => {
                    (self.tools.sleep)(MOVING_PAUSE).await;
                    // The migration may have ended meanwhile.
                    (node, before) = (self.node_of(slot).unwrap_or(node), &[]);
                }
                // The text is sent only to the node that lacks the script.
                ClusterErrorKind::UnknownScript => by = ScriptReference::Text,
                ClusterErrorKind::Final => return result,
            }
            result = node.link.send_after(before, |out| script::encode(out, digests, call, by)).await;
        }
        result
    }

    /// The node of a slot according to a map newer than the error of `refused`; `None` if it is the same
    /// node.
    async fn another(
        self: &Rc<Self>,
        slot: usize,
        refused: &Rc<RedisClusterNode>,
    ) -> Option<Rc<RedisClusterNode>> {
        // If the request fails, the current map may still be newer than the command.
        let _ = self.refresh().await;
        self.node_of(slot).filter(|node| node.address != refused.address)
    }

    fn node_of(&self, slot: usize) -> Option<Rc<RedisClusterNode>> {
        self.slots.borrow().get(slot).cloned().flatten()
    }

    fn node_at(&self, address: &RedisAddress) -> Rc<RedisClusterNode> {
        let make = || {
            let link = RedisConnection::new(&self.tools, &self.target, RedisPeer::Server(address.clone()));
            Rc::new(RedisClusterNode { address: address.clone(), link })
        };
        self.nodes.borrow_mut().entry(address.clone()).or_insert_with(make).clone()
    }

    fn note(&self, slot: usize, node: &Rc<RedisClusterNode>) {
        if let Some(owner) = self.slots.borrow_mut().get_mut(slot) {
            *owner = Some(node.clone());
        }
    }

    /// Whether the map was requested within the last [`REFRESH_MS`].
    fn is_fresh(&self) -> bool {
        (self.tools.now)().mono_ms() < self.refreshed_ms.get() + REFRESH_MS
    }

    /// Requests the map in the background, unless it is fresh.
    fn refresh_soon(self: &Rc<Self>) {
        if !self.is_fresh() {
            self.spawn_refresh();
        }
    }

    /// Requests the map in a separate task, so that the request survives the command that needed it.
    fn spawn_refresh(self: &Rc<Self>) {
        // Many commands fail together when a node fails; one request for the map serves all.
        if !self.is_refreshing.replace(true) {
            tokio::task::spawn_local(self.clone().fetch_map());
        }
    }

    /// Waits for a map, unless it is fresh.
    async fn refresh(self: &Rc<Self>) -> Result<(), RedisFault> {
        if self.is_refreshing.get() || !self.is_fresh() {
            // Created before the task: `notify_waiters` wakes only those that wait already.
            let refreshed = self.refreshed.notified();
            self.spawn_refresh();
            tokio::select! {
                () = refreshed => {}
                () = (self.tools.sleep)(Duration::from_millis(self.target.timeout_ms)) => {
                    return Err(RedisFault::Timeout);
                }
            }
        }
        self.fault.borrow().clone().map_or(Ok(()), Err)
    }

    async fn fetch_map(self: Rc<Self>) {
        let mut fault = Some(RedisFault::Connect("no node is named".to_owned()));
        let mut unsound = None;
        for address in self.candidates() {
            match self.map_of(&self.node_at(&address)).await {
                Ok(map) if map.is_sound => {
                    self.install(&map.ranges);
                    (fault, unsound) = (None, None);
                    break;
                }
                // Kept in case that no node is in the majority.
                Ok(map) => unsound = unsound.or(Some(map)),
                Err(error) => fault = Some(error),
            }
        }
        // If no node is in the majority, the cluster still serves the slots it can.
        if let Some(map) = unsound {
            self.install(&map.ranges);
            fault = None;
        }
        self.fault.replace(fault);
        self.is_refreshing.set(false);
        // A failed request counts too, so a cluster that is down is not asked for every command.
        self.refreshed_ms.set((self.tools.now)().mono_ms());
        self.refreshed.notify_waiters();
    }

    async fn map_of(&self, node: &RedisClusterNode) -> Result<SlotMap, RedisFault> {
        let command = |words: &[&str]| node.link.send(|out| resp::text_command(out, words));
        // Both commands are sent before the first reply is awaited.
        let (slots, info) = (command(&["CLUSTER", "SLOTS"]), command(&["CLUSTER", "INFO"]));
        let slots = slots.await?;
        // An error for `CLUSTER INFO`, such as a lack of permission, does not invalidate the map.
        let is_cut_off = matches!(info.await, Ok(RedisReply::Text(info)) if reports_failure(&info));
        let none = || RedisFault::Connect(format!("{} has no map of the cluster", node.address));
        let ranges = ranges(&slots, &node.address).ok_or_else(none)?;
        Ok(SlotMap { ranges, is_sound: !is_cut_off })
    }

    /// The nodes to request the map from: reachable ones first, then those in the settings.
    fn candidates(&self) -> Vec<RedisAddress> {
        let nodes = self.nodes.borrow();
        let mut addresses: Vec<(bool, RedisAddress)> =
            nodes.iter().map(|(address, node)| (node.link.is_down(), address.clone())).collect();
        if let RedisTopology::Cluster(named) = &self.target.topology {
            let new = named.iter().filter(|address| !nodes.contains_key(*address));
            addresses.extend(new.map(|address| (false, address.clone())));
        }
        // `false` sorts before `true`: nodes that are up come first.
        addresses.sort();
        addresses.into_iter().map(|(_, address)| address).collect()
    }

    fn install(&self, ranges: &[(usize, usize, RedisAddress)]) {
        let mut slots = vec![None; SLOTS];
        for (first, last, address) in ranges {
            let node = self.node_at(address);
            slots[*first..=*last].fill(Some(node));
        }
        *self.slots.borrow_mut() = slots;
        // Connections of removed nodes close by the idle timeout.
        let is_named = |address: &RedisAddress| match &self.target.topology {
            RedisTopology::Cluster(named) => named.contains(address),
            _ => false,
        };
        let serves = |address: &RedisAddress| ranges.iter().any(|(.., serving)| serving == address);
        // Nodes from the settings stay: they are the way back into the cluster.
        self.nodes.borrow_mut().retain(|address, _| serves(address) || is_named(address));
    }
}

/// Parses an error reply. `MOVED 3999 127.0.0.1:6381` contains the node; an empty host is that of the node
/// that replied.
fn refusal(why: &str, replied: &RedisAddress) -> ClusterErrorKind {
    let mut words = why.split(' ');
    let code = words.next().unwrap_or_default();
    let named = words.nth(1).and_then(|address| {
        let (host, port) = address.rsplit_once(':')?;
        let host = if host.is_empty() { &replied.host } else { host };
        Some(RedisAddress { host: host.to_owned(), port: port.parse().ok()? })
    });
    match (code, named) {
        // With preferred host names, a node without one is `?` here; only the map contains its address.
        ("MOVED" | "ASK", Some(node)) if node.host == UNNAMED => ClusterErrorKind::NotServed,
        ("MOVED", Some(node)) => ClusterErrorKind::Moved(node),
        ("ASK", Some(node)) => ClusterErrorKind::Ask(node),
        ("CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "READONLY", _) => ClusterErrorKind::NotServed,
        ("TRYAGAIN", _) => ClusterErrorKind::SlotMigrating,
        ("NOSCRIPT", _) => ClusterErrorKind::UnknownScript,
        _ => ClusterErrorKind::Final,
    }
}

/// The host of a node without a configured host name.
const UNNAMED: &str = "?";

/// Whether a `CLUSTER INFO` reply has the state `fail`.
fn reports_failure(info: &[u8]) -> bool {
    info.split(|byte| *byte == b'\n').any(|line| line.trim_ascii() == b"cluster_state:fail")
}

/// The slot ranges and their masters in a `CLUSTER SLOTS` reply.
fn ranges(reply: &RedisReply, node: &RedisAddress) -> Option<Vec<(usize, usize, RedisAddress)>> {
    let RedisReply::Array(items) = reply else { return None };
    let ranges: Option<Vec<_>> = items.iter().map(|item| range(item, node)).collect();
    ranges.filter(|ranges| !ranges.is_empty())
}

fn range(item: &RedisReply, node: &RedisAddress) -> Option<(usize, usize, RedisAddress)> {
    let RedisReply::Array(parts) = item else { return None };
    let [first, last, RedisReply::Array(master), ..] = parts.as_slice() else { return None };
    let first = usize::try_from(first.integer()?).ok()?;
    // The reply comes from the network and is used as an index.
    let last = usize::try_from(last.integer()?).ok().filter(|last| first <= *last && *last < SLOTS)?;
    let host = match master.first()? {
        RedisReply::Text(host) if host == UNNAMED.as_bytes() => preferred_address(master),
        RedisReply::Text(host) if !host.is_empty() => Some(String::from_utf8(host.clone()).ok()?),
        _ => None,
    };
    // An empty host is that of the node that replied.
    let host = host.unwrap_or_else(|| node.host.clone());
    let port = u16::try_from(master.get(1)?.integer()?).ok()?;
    Some((first, last, RedisAddress { host, port }))
}

/// The IP address in the metadata of a node that is listed by host name.
fn preferred_address(node: &[RedisReply]) -> Option<String> {
    let RedisReply::Array(metadata) = node.get(3)? else { return None };
    let is_ip = |name: &RedisReply| matches!(name, RedisReply::Text(name) if name == b"ip");
    match metadata.chunks_exact(2).find(|pair| is_ip(&pair[0]))? {
        [_, RedisReply::Text(ip)] if !ip.is_empty() => String::from_utf8(ip.clone()).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
