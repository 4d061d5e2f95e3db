//! Which stream route a connection or a session of datagrams gets, and where it leads.
//!
//! Knows no socket: the ends of the connection and the server name it asked for come in.

use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use yumen_base::IpSet;
use yumen_config::resource::natural_order_key;
use yumen_plugin::{PluginChain, RouteInfo};

use crate::route::RouteTarget;

#[cfg(test)]
mod tests;

/// An address or a network, as a stream route names it.
#[derive(Debug, Clone, PartialEq)]
pub struct AddressBlock {
    members: IpSet,
    /// As it was written.
    text: Box<str>,
    /// Length of its prefix; more than any prefix where it is one address.
    bits: u8,
}

impl AddressBlock {
    /// Reads `10.0.0.1` or `10.0.0.0/8`.
    pub fn parse(text: &str) -> Option<AddressBlock> {
        let members = IpSet::parse([text]).ok()?;
        let bits = text.split_once('/').and_then(|(_, bits)| bits.parse().ok()).unwrap_or(u8::MAX);
        Some(AddressBlock { members, text: text.into(), bits })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// What a connection must be like for a stream route to get it; what is absent is not looked at.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamMatching {
    /// Where the client is.
    pub remote_addr: Option<AddressBlock>,
    /// The address the client reached.
    pub server_addr: Option<AddressBlock>,
    /// The port the client reached.
    pub server_port: Option<u16>,
    /// The server name asked for, in lower case; may begin with `*` for any beginning.
    pub sni: Option<Box<str>>,
}

/// A connection that looks for its route.
#[derive(Debug, Clone, Copy)]
pub struct StreamLookup<'a> {
    /// The client's address.
    pub remote: IpAddr,
    /// Where it connected to.
    pub server: SocketAddr,
    /// The server name it asked for, if TLS told one.
    pub sni: Option<&'a str>,
}

/// Why a stream route does not get a connection: the first thing that differs.
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
    /// What plugins and logs may know of it.
    pub info: RouteInfo,
    /// What a connection must be like for the route to get it.
    pub matching: StreamMatching,
    /// Where its connections go.
    pub target: RouteTarget,
    /// Its plugins over its service's.
    pub chain: Arc<PluginChain>,
}

impl StreamMatching {
    /// What keeps the connection from this route; `None` where nothing does.
    pub fn differs(&self, ask: &StreamLookup<'_>) -> Option<StreamMismatch> {
        let outside = |network: &Option<AddressBlock>, address: IpAddr| {
            network.as_ref().is_some_and(|network| !network.members.contains(address))
        };
        if self.sni.as_ref().is_some_and(|pattern| !ask.sni.is_some_and(|sni| is_name(pattern, sni))) {
            return Some(StreamMismatch::ServerName);
        }
        if self.server_port.is_some_and(|port| port != ask.server.port()) {
            return Some(StreamMismatch::ServerPort);
        }
        if outside(&self.server_addr, ask.server.ip()) {
            return Some(StreamMismatch::ServerAddress);
        }
        outside(&self.remote_addr, ask.remote).then_some(StreamMismatch::ClientAddress)
    }

    fn rank(&self, id: &str) -> StreamRouteRank {
        let bits = |network: &Option<AddressBlock>| Reverse(network.as_ref().map(|network| network.bits));
        StreamRouteRank {
            server_port: Reverse(self.server_port.is_some()),
            server_bits: bits(&self.server_addr),
            remote_bits: bits(&self.remote_addr),
            id: natural_order_key(id).into(),
        }
    }
}

fn is_name(pattern: &str, sni: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(end) => sni.len() > end.len() && sni.ends_with(end),
        None => pattern == sni,
    }
}

/// The order of routes of one name: those that ask for more come first, equals in the order of ids.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct StreamRouteRank {
    server_port: Reverse<bool>,
    server_bits: Reverse<Option<u8>>,
    remote_bits: Reverse<Option<u8>>,
    id: Box<str>,
}

type List = imbl::OrdMap<StreamRouteRank, Arc<StreamRoute>>;
type Lists<K> =
    imbl::GenericHashMap<K, List, foldhash::fast::RandomState, imbl::shared_ptr::DefaultSharedPtr>;

/// All stream routes. Shares structure with the one it was made from; finding does not grow with routes of
/// other names and ports.
#[derive(Debug, Clone, Default)]
pub struct StreamRouter {
    /// By server name.
    exact: Lists<Box<str>>,
    /// By the end of the server name, without the `*` before it.
    wildcard: Lists<Box<str>>,
    /// By port, those that look at no name; 0 is any port.
    ports: Lists<u16>,
}

impl StreamRouter {
    /// The route for a connection: an exact server name goes before the longest wildcard, that before
    /// routes that look at no name; then a port, the longer network the client reached and the longer one it
    /// comes from decide.
    pub fn find(&self, ask: &StreamLookup<'_>) -> Option<&Arc<StreamRoute>> {
        self.candidates(ask).find(|route| route.matching.differs(ask).is_none())
    }

    /// All that [`Self::find`] looks at, in its order.
    pub(crate) fn candidates<'r, 'a>(
        &'r self,
        ask: &StreamLookup<'a>,
    ) -> impl Iterator<Item = &'r Arc<StreamRoute>> + use<'r, 'a> {
        let sni = ask.sni.unwrap_or_default();
        let exact = self.exact.get(sni);
        // With no wildcard at all, a name is not taken apart.
        let ends = if self.wildcard.is_empty() { 0 } else { sni.len() };
        let wildcard = (1..=ends).filter_map(move |at| self.wildcard.get(sni.get(at..)?));
        let ports = [ask.server.port(), 0].into_iter().filter_map(|port| self.ports.get(&port));
        exact.into_iter().chain(wildcard).chain(ports).flat_map(|list| list.values())
    }

    /// All routes, in no order.
    pub fn all(&self) -> impl Iterator<Item = &Arc<StreamRoute>> {
        let named = self.exact.values().chain(self.wildcard.values());
        named.chain(self.ports.values()).flat_map(|list| list.values())
    }

    /// Whether there is none.
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

/// Under what a route is found.
enum StreamRouteKey {
    Exact(Box<str>),
    Wildcard(Box<str>),
    Port(u16),
}

fn take<K: std::hash::Hash + Eq + Clone>(lists: &mut Lists<K>, key: &K, rank: &StreamRouteRank) {
    let Some(list) = lists.get_mut(key) else { return };
    list.remove(rank);
    if list.is_empty() {
        lists.remove(key);
    }
}
