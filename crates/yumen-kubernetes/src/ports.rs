//! Allocation of target ports for the listeners of Gateways.
//!
//! The Services of Gateways are the durable record of the allocation: a listener is opened on the target port of the
//! observed Service. The allocator only proposes ports for Services that are not written yet.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use yumen_base::time::Now;

use crate::model::{
    ClusterKind, ClusterObject, ObjectBody, ObjectKey, OwningGateway, PortNumberOrName, ServiceObject,
};

/// Time for which a freed port is not proposed again, so that clients of its previous Gateway are not mixed up with
/// those of another.
const FREED_HOLD_MS: u64 = 60_000;

/// Length of a label value and of the name of a Service.
const LABEL_MAX: usize = 63;

/// Label and value of the objects that the controller makes.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// See [`MANAGED_BY`].
pub(crate) const MANAGER: &str = "yumen";

/// A port of a Gateway that needs a target port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PortClaim {
    pub(crate) gateway: ObjectKey,
    pub(crate) port: u16,
    pub(crate) is_udp: bool,
}

/// A port of an observed Service of a Gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObservedPort {
    pub(crate) port: u16,
    pub(crate) is_udp: bool,
    pub(crate) target: u16,
}

/// The Gateway whose Service an object claims to be: it has the label of the controller, the name that the Service of the
/// Gateway has, and the Gateway as its owner. The uid of the owner is for the caller to compare.
pub(crate) fn owning_gateway(service: &ServiceObject) -> Option<(ObjectKey, &OwningGateway)> {
    let meta = &service.meta;
    let is_managed = meta.labels.get(MANAGED_BY).is_some_and(|manager| &**manager == MANAGER);
    let owner = meta.owner.as_deref().filter(|_| is_managed)?;
    let gateway =
        ObjectKey { kind: ClusterKind::Gateway, namespace: meta.namespace.clone(), name: owner.name.clone() };
    (*service_name(&gateway.name) == *meta.name).then_some((gateway, owner))
}

/// Name of the Service of a Gateway. Two Gateways never share one.
pub(crate) fn service_name(gateway: &str) -> String {
    // The name of a Gateway may have dots, that of a Service may not.
    let plain: String = gateway.chars().map(|c| if c == '.' { '-' } else { c }).collect();
    let name = format!("yumen-{plain}");
    // A name that ends like one with a hash gets a hash of its own.
    let is_exact = plain == gateway && name.len() <= LABEL_MAX && !ends_with_hash(&plain);
    if is_exact { name } else { with_hash(&name, gateway) }
}

/// A name as the value of a label: cut, with a hash of the whole.
pub(crate) fn cut_name(name: &str) -> String {
    if name.len() <= LABEL_MAX { name.to_owned() } else { with_hash(name, name) }
}

fn ends_with_hash(name: &str) -> bool {
    let hash = name.rsplit_once('-').map_or("", |(_, end)| end);
    hash.len() == 8 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn with_hash(text: &str, hashed: &str) -> String {
    // FNV-1a, 32 bits: the same in every version, as the name of an object must be.
    let hash =
        hashed.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let mut end = text.len().min(LABEL_MAX - 9);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{hash:08x}", text[..end].trim_end_matches(['-', '.']))
}

/// The ports of a Service that claims to be one of the controller; none of another Service.
pub(crate) fn observed_ports(service: &ServiceObject) -> impl Iterator<Item = ObservedPort> {
    let ports = if owning_gateway(service).is_some() { &*service.spec.ports } else { &[] };
    ports.iter().filter_map(|port| {
        let Some(PortNumberOrName::Number(target)) = port.target_port else { return None };
        let is_udp = port.protocol.as_deref() == Some("UDP");
        Some(ObservedPort { port: port.port, is_udp, target })
    })
}

/// Proposes target ports, and remembers which claim holds which port.
#[derive(Debug, Clone)]
pub(crate) struct PortAllocator {
    range: RangeInclusive<u16>,
    /// Ports of static listeners.
    taken: BTreeSet<u16>,
    proposed: BTreeMap<PortClaim, u16>,
    /// The claim whose Service had a target port first: the order in which Services were created would let a user take
    /// a port by an edit of an old one.
    held: BTreeMap<(bool, u16), PortClaim>,
    /// Times at which ports were freed, in milliseconds of the monotonic clock.
    freed: BTreeMap<(bool, u16), u64>,
    /// Gateways with a claim for which no port was free.
    starved: BTreeSet<ObjectKey>,
}

impl PortAllocator {
    pub(crate) fn new(range: RangeInclusive<u16>, taken: BTreeSet<u16>) -> PortAllocator {
        PortAllocator {
            range,
            taken,
            proposed: BTreeMap::new(),
            held: BTreeMap::new(),
            freed: BTreeMap::new(),
            starved: BTreeSet::new(),
        }
    }

    /// Records the ports that a change of a Service frees.
    pub(crate) fn observe(
        &mut self,
        before: Option<&ClusterObject>,
        after: Option<&ClusterObject>,
        now: Now,
    ) {
        let service = |object: Option<&ClusterObject>| match object.map(|object| &object.body) {
            Some(ObjectBody::Service(service)) => Some(service.clone()),
            _ => None,
        };
        let (before, after) = (service(before), service(after));
        let Some((gateway, _)) = before.as_deref().and_then(owning_gateway) else { return };
        let kept: BTreeSet<(bool, u16)> = after
            .as_deref()
            .into_iter()
            .flat_map(observed_ports)
            .map(|observed| (observed.is_udp, observed.target))
            .collect();
        for observed in before.as_deref().into_iter().flat_map(observed_ports) {
            let port = (observed.is_udp, observed.target);
            if !kept.contains(&port) && self.held.get(&port).is_some_and(|holder| holder.gateway == gateway) {
                self.held.remove(&port);
                self.freed.insert(port, now.mono_ms());
            }
        }
        self.freed.retain(|_, freed_ms| now.mono_ms().saturating_sub(*freed_ms) < FREED_HOLD_MS);
    }

    /// Whether a target port may be bound for Gateways at all.
    pub(crate) fn is_usable(&self, target: u16) -> bool {
        self.range.contains(&target) && !self.taken.contains(&target)
    }

    /// The claim that holds a port, of those whose Services have it, in order of precedence.
    pub(crate) fn hold<'c>(
        &mut self,
        is_udp: bool,
        target: u16,
        claims: &'c [PortClaim],
    ) -> Option<&'c PortClaim> {
        let held = self.held.get(&(is_udp, target));
        let holder = claims.iter().find(|claim| held == Some(claim)).or_else(|| claims.first())?;
        self.held.insert((is_udp, target), holder.clone());
        Some(holder)
    }

    /// The port proposed for a claim: the previous proposal, else the lowest free port of the range. `is_observed`
    /// is whether a Service has the target port, `is_real` whether it has the right to it: ports of others are given away
    /// last. `None` if the range is exhausted.
    pub(crate) fn propose(
        &mut self,
        claim: &PortClaim,
        now: Now,
        is_observed: impl Fn(u16) -> bool,
        is_real: impl Fn(u16) -> bool,
    ) -> Option<u16> {
        if let Some(port) = self.proposed.get(claim).copied().filter(|port| !is_observed(*port)) {
            return Some(port);
        }
        let others =
            self.proposed.iter().filter(|(other, _)| other.is_udp == claim.is_udp && *other != claim);
        let proposed: BTreeSet<u16> = others.map(|(_, port)| *port).collect();
        let (freed, held) = (&mut self.freed, &mut self.held);
        let mut is_waiting = |port: u16| {
            let key = (claim.is_udp, port);
            // Its holder went away without a change of the Service.
            if held.remove(&key).is_some() {
                freed.insert(key, now.mono_ms());
            }
            let freed_ms = freed.get(&key);
            freed_ms.is_some_and(|freed_ms| now.mono_ms().saturating_sub(*freed_ms) < FREED_HOLD_MS)
        };
        let candidates = || {
            let all = self.range.clone();
            all.filter(|port| !self.taken.contains(port) && !proposed.contains(port))
        };
        let unobserved = candidates().find(|port| !is_observed(*port) && !is_waiting(*port));
        let port = unobserved.or_else(|| {
            candidates().find(|port| is_observed(*port) && !is_real(*port) && !is_waiting(*port))
        });
        match port {
            Some(port) => drop(self.proposed.insert(claim.clone(), port)),
            None => drop(self.starved.insert(claim.gateway.clone())),
        }
        port
    }

    /// Drops the proposals of a Gateway for all claims but `open`.
    pub(crate) fn retain(&mut self, gateway: &ObjectKey, open: &BTreeSet<PortClaim>) {
        self.proposed.retain(|claim, _| claim.gateway != *gateway || open.contains(claim));
    }

    /// Takes the Gateways that wait for a port.
    pub(crate) fn take_starved(&mut self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut self.starved)
    }
}
