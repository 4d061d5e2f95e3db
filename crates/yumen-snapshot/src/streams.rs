//! Stream routes, and the search for the route of a connection or a session of datagrams.
//!
//! Knows no socket: addresses and server name are the input.

use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use yumen_base::IpSet;
use yumen_config::resource::natural_order_key;
use yumen_plugin::{PluginChain, RouteInfo};

use crate::route::RouteTarget;
use crate::route::ScopeIds;

#[cfg(test)]
mod tests;

/// An address or a network in a stream route.
#[derive(Debug, Clone, PartialEq)]
pub struct AddressBlock {
    members: IpSet,
    /// The text of the route.
    text: Box<str>,
    /// The length of the prefix; the maximum for a single address, which comes before every network.
    bits: u8,
}

impl AddressBlock {
    /// Parses `10.0.0.1` or `10.0.0.0/8`.
    pub fn parse(text: &str) -> Option<AddressBlock> {
        let members = IpSet::parse([text]).ok()?;
        // A single address is more specific than any network.
        let bits = text.split_once('/').and_then(|(_, bits)| bits.parse().ok()).unwrap_or(u8::MAX);
        Some(AddressBlock { members, text: text.into(), bits })
    }

    /// The text of the route.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The conditions on a connection for a stream route to match. Absent conditions match any connection.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamMatching {
    /// The address of the client.
    pub remote_addr: Option<AddressBlock>,
    /// The local address of the connection.
    pub server_addr: Option<AddressBlock>,
    /// The local port of the connection.
    pub server_port: Option<u16>,
    /// The server name, in lower case. A leading `*` matches any beginning.
    pub sni: Option<Box<str>>,
    /// Creation time, in seconds since 1970; of two routes with equally specific conditions the older matches.
    pub created: u64,
}

/// A connection, as the input of the search.
#[derive(Debug, Clone, Copy)]
pub struct StreamLookup<'a> {
    /// The client's address.
    pub remote: IpAddr,
    /// The local address.
    pub server: SocketAddr,
    /// The server name of the TLS handshake.
    pub sni: Option<&'a str>,
}

/// The first condition of a stream route that a connection does not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum StreamMismatch {
    ServerName,
    ServerPort,
    ServerAddress,
    ClientAddress,
}

/// A compiled stream route.
#[derive(Debug)]
pub struct StreamRoute {
    /// Facts for plugins and logs.
    pub info: RouteInfo,
    /// The conditions on connections.
    pub matching: StreamMatching,
    /// The target of connections.
    pub target: RouteTarget,
    /// The plugins of the route over those of its service.
    pub chain: Arc<PluginChain>,
    /// The scopes that the stream route belongs to; `None` for the listeners of the node's settings.
    pub scopes: Option<Arc<ScopeIds>>,
}

impl StreamMatching {
    /// The first condition that the connection does not meet; `None` if it meets all.
    pub fn differs(&self, lookup: &StreamLookup<'_>) -> Option<StreamMismatch> {
        let outside = |network: &Option<AddressBlock>, address: IpAddr| {
            network.as_ref().is_some_and(|network| !network.members.contains(address))
        };
        if self.sni.as_ref().is_some_and(|pattern| !lookup.sni.is_some_and(|sni| is_name(pattern, sni))) {
            return Some(StreamMismatch::ServerName);
        }
        if self.server_port.is_some_and(|port| port != lookup.server.port()) {
            return Some(StreamMismatch::ServerPort);
        }
        if outside(&self.server_addr, lookup.server.ip()) {
            return Some(StreamMismatch::ServerAddress);
        }
        outside(&self.remote_addr, lookup.remote).then_some(StreamMismatch::ClientAddress)
    }

    fn rank(&self, id: &str) -> StreamRouteRank {
        // A missing network sorts after every network: `None` is the lowest, and the order is reversed.
        let bits = |network: &Option<AddressBlock>| Reverse(network.as_ref().map(|network| network.bits));
        StreamRouteRank {
            server_port: Reverse(self.server_port.is_some()),
            server_bits: bits(&self.server_addr),
            remote_bits: bits(&self.remote_addr),
            created: self.created,
            id: natural_order_key(id).into(),
        }
    }
}

fn is_name(pattern: &str, sni: &str) -> bool {
    match pattern.strip_prefix('*') {
        // The star stands for at least one character.
        Some(end) => sni.len() > end.len() && sni.ends_with(end),
        None => pattern == sni,
    }
}

/// The order of routes of one server name: routes with more specific conditions come first, then older ones, then by id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct StreamRouteRank {
    server_port: Reverse<bool>,
    server_bits: Reverse<Option<u8>>,
    remote_bits: Reverse<Option<u8>>,
    created: u64,
    id: Box<str>,
}

type List = imbl::OrdMap<StreamRouteRank, Arc<StreamRoute>>;
type Lists<K> =
    imbl::GenericHashMap<K, List, foldhash::fast::RandomState, imbl::shared_ptr::DefaultSharedPtr>;

/// All stream routes. Clones share their structure. The cost of a search does not grow with routes of other names and
/// ports.
#[derive(Debug, Clone, Default)]
pub struct StreamRouter {
    /// By server name.
    exact: Lists<Box<str>>,
    /// By the end of the server name, without the leading `*`.
    wildcard: Lists<Box<str>>,
    /// Routes without a server name, by port; 0 is any port.
    ports: Lists<u16>,
}

impl StreamRouter {
    /// The route of a connection. An exact server name comes before the longest wildcard, and a wildcard before routes
    /// without a server name. Among those, a port, the longer local network, the longer client network and the age decide.
    pub fn find(&self, lookup: &StreamLookup<'_>) -> Option<&Arc<StreamRoute>> {
        self.candidates(lookup).find(|route| route.matching.differs(lookup).is_none())
    }

    /// The routes that [`Self::find`] tries, in order.
    pub(crate) fn candidates<'r, 'a>(
        &'r self,
        lookup: &StreamLookup<'a>,
    ) -> impl Iterator<Item = &'r Arc<StreamRoute>> + use<'r, 'a> {
        // Without a server name, only routes that require none are candidates.
        let sni = lookup.sni.unwrap_or_default();
        let exact = self.exact.get(sni);
        // Without any wildcard the name is not split into its ends.
        let ends = if self.wildcard.is_empty() { 0 } else { sni.len() };
        let wildcard = (1..=ends).filter_map(move |at| self.wildcard.get(sni.get(at..)?));
        // The port before any port: a condition more is more specific.
        let ports = [lookup.server.port(), 0].into_iter().filter_map(|port| self.ports.get(&port));
        exact.into_iter().chain(wildcard).chain(ports).flat_map(|list| list.values())
    }

    /// All routes, in no order.
    pub fn all(&self) -> impl Iterator<Item = &Arc<StreamRoute>> {
        let named = self.exact.values().chain(self.wildcard.values());
        named.chain(self.ports.values()).flat_map(|list| list.values())
    }

    /// Whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcard.is_empty() && self.ports.is_empty()
    }

    pub(crate) fn insert(&mut self, route: &Arc<StreamRoute>) {
        let (rank, added) = (route.matching.rank(&route.info.id), route.clone());
        match self.key(&route.matching) {
            StreamRouteKey::Exact(name) => self.exact.entry(name).or_default().insert(rank, added),
            StreamRouteKey::Wildcard(end) => self.wildcard.entry(end).or_default().insert(rank, added),
            StreamRouteKey::Port(port) => self.ports.entry(port).or_default().insert(rank, added),
        };
    }

    pub(crate) fn remove(&mut self, route: &StreamRoute) {
        let rank = route.matching.rank(&route.info.id);
        match self.key(&route.matching) {
            StreamRouteKey::Exact(name) => take(&mut self.exact, &name, &rank),
            StreamRouteKey::Wildcard(end) => take(&mut self.wildcard, &end, &rank),
            StreamRouteKey::Port(port) => take(&mut self.ports, &port, &rank),
        }
    }

    fn key(&self, matching: &StreamMatching) -> StreamRouteKey {
        match &matching.sni {
            None => StreamRouteKey::Port(matching.server_port.unwrap_or(0)),
            Some(name) => match name.strip_prefix('*') {
                Some(end) => StreamRouteKey::Wildcard(end.into()),
                None => StreamRouteKey::Exact(name.clone()),
            },
        }
    }
}

/// The key of the list with a route.
enum StreamRouteKey {
    Exact(Box<str>),
    Wildcard(Box<str>),
    Port(u16),
}

fn take<K: std::hash::Hash + Eq + Clone>(lists: &mut Lists<K>, key: &K, rank: &StreamRouteRank) {
    let Some(list) = lists.get_mut(key) else { return };
    list.remove(rank);
    // An empty list would make `is_empty` and the check for wildcards wrong.
    if list.is_empty() {
        lists.remove(key);
    }
}
