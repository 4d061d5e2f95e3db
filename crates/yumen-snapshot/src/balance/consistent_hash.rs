//! Consistent hashing: a key keeps its endpoint while the endpoint exists, whatever else changes.
//!
//! The hash is fixed, not seeded, so that all nodes and restarts agree.

use std::net::IpAddr;

use yumen_config::resource as config;
use yumen_plugin::{Exchange, Var, VarTemplate};

use super::EndpointCandidates;
use super::policy::{BalancingPolicy, PolicyContext};
use crate::endpoint::Endpoint;

/// Points per unit of weight, enough for shares within a few per cent.
const POINTS: u64 = 160;
/// The most points of an endpoint, and of a ring.
const ENDPOINT_MAX: u64 = 1 << 12;
const RING_MAX: u64 = 1 << 20;

/// The part of a request that is hashed. The address of the client replaces an absent part.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum HashKey {
    /// A variable.
    Var(Var),
    /// A request field.
    Field(Box<str>),
    /// A cookie.
    Cookie(Box<str>),
    /// The consumer's name.
    Consumer,
    /// A text with variables in it.
    Template(VarTemplate),
}

/// A ring of points. Each point belongs to one endpoint.
#[derive(Debug)]
pub struct ConsistentHash {
    key: HashKey,
    /// Hash and endpoint, ascending.
    ring: Box<[(u32, u32)]>,
}

impl ConsistentHash {
    pub(super) fn new(endpoints: &[Endpoint], key: HashKey) -> ConsistentHash {
        // One scale for all endpoints preserves the proportion of weights.
        let shift = shift(endpoints);
        let mut ring = Vec::new();
        for (index, endpoint) in endpoints.iter().enumerate().filter(|(_, one)| one.weight > 0) {
            // The smallest weight keeps a point, or its endpoint would get no requests.
            let points = ((u64::from(endpoint.weight) * POINTS) >> shift).max(1);
            // Points depend on the address only: the same endpoint has them in every order, on every node.
            let seed = hash(endpoint.addr.to_string().as_bytes());
            ring.extend((0..points).map(|point| (mix(seed ^ mix(point + 1)) as u32, index as u32)));
        }
        // Equal hashes are ordered by index, so all nodes agree.
        ring.sort_unstable();
        ConsistentHash { key, ring: ring.into() }
    }

    #[cfg(test)]
    pub(super) fn points(&self) -> usize {
        self.ring.len()
    }

    fn hash_of(&self, ex: &Exchange<'_>) -> u64 {
        let found = match &self.key {
            HashKey::Var(var) => var.get(ex).map(|value| hash(&value)),
            HashKey::Field(name) => ex.request.fields.get(name).map(hash),
            HashKey::Cookie(name) => ex.request.cookie(name.as_bytes()).map(hash),
            HashKey::Consumer => ex.consumer.map(|consumer| hash(consumer.username.as_bytes())),
            HashKey::Template(template) => {
                let mut text = Vec::new();
                (template.render(ex, &mut text) > 0).then(|| hash(&text))
            }
        };
        // As APISIX: without the key, the client's address is hashed.
        found.unwrap_or_else(|| match ex.client.ip {
            IpAddr::V4(address) => hash(&address.octets()),
            IpAddr::V6(address) => hash(&address.octets()),
        })
    }
}

impl BalancingPolicy for ConsistentHash {
    const NAME: &'static str = "chash";

    fn build(context: &PolicyContext<'_>) -> ConsistentHash {
        ConsistentHash::new(context.endpoints, HashKey::of(context.written))
    }

    fn pick(&self, pool: &EndpointCandidates<'_>, ex: &Exchange<'_>) -> Option<usize> {
        let hash = self.hash_of(ex) as u32;
        let start = self.ring.partition_point(|(point, _)| *point < hash);
        // Past an endpoint that is down or tried, the next point serves, so its keys spread over all others.
        let round = self.ring[start..].iter().chain(&self.ring[..start]);
        round.map(|(_, index)| *index as usize).find(|index| pool.has(*index))
    }
}

impl HashKey {
    fn of(written: &config::UpstreamSpec) -> HashKey {
        // The default of APISIX.
        let key = written.key.as_deref().unwrap_or("remote_addr");
        match written.hash_on {
            config::HashOn::Vars => HashKey::Var(Var::parse(key)),
            // Field names are case-insensitive (RFC 9110 §5.1).
            config::HashOn::Header => HashKey::Field(key.to_ascii_lowercase().into()),
            config::HashOn::Cookie => HashKey::Cookie(key.into()),
            config::HashOn::Consumer => HashKey::Consumer,
            config::HashOn::VarsCombinations => HashKey::Template(VarTemplate::parse(key)),
        }
    }
}

/// The number of powers of two by which weights are scaled down to keep the ring within its bounds.
///
/// The result depends only on the magnitudes of the largest weight and of the number of endpoints. So a change of one
/// endpoint seldom changes the points of another, and keys move only to and from the endpoint that changed.
fn shift(endpoints: &[Endpoint]) -> u32 {
    let largest = endpoints.iter().map(|endpoint| u64::from(endpoint.weight)).max().unwrap_or(0).max(1);
    // The most points of an endpoint of this magnitude of weight.
    let points_max = (largest + 1).next_power_of_two() * POINTS;
    let room = (RING_MAX / (endpoints.len().max(1) as u64).next_power_of_two()).clamp(1, ENDPOINT_MAX);
    // Rounded up, so that the ring stays below the bound.
    points_max.div_ceil(room).next_power_of_two().trailing_zeros()
}

/// FNV-1a with a finalizer, since its low bits are badly distributed.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    mix(bytes.iter().fold(0xCBF2_9CE4_8422_2325, step))
}

/// The finalizer of SplitMix64.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
