//! Allocation of target ports for the listeners of Gateways.
//!
//! The Services of Gateways are the durable record of the allocation: a listener is opened on the target port of the
//! observed Service. The allocator only proposes ports for Services that are not written yet.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use yumen_base::time::Now;

use crate::model::{ClusterObject, ObjectBody, ObjectKey, PortNumberOrName, ServiceObject};

/// Time for which a freed port is not proposed again, so that clients of its previous Gateway are not mixed up with
/// those of another.
const FREED_HOLD_MS: u64 = 60_000;

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

/// The ports of a Service that the controller made; none of a foreign Service.
pub(crate) fn observed_ports(service: &ServiceObject) -> impl Iterator<Item = ObservedPort> {
    let is_managed = service.meta.labels.get(MANAGED_BY).is_some_and(|manager| &**manager == MANAGER);
    let ports = if is_managed { &*service.spec.ports } else { &[] };
    ports.iter().filter_map(|port| {
        let Some(PortNumberOrName::Number(target)) = port.target_port else { return None };
        let is_udp = port.protocol.as_deref() == Some("UDP");
        Some(ObservedPort { port: port.port, is_udp, target })
    })
}

/// Proposes target ports.
#[derive(Debug, Clone)]
pub(crate) struct PortAllocator {
    range: RangeInclusive<u16>,
    /// Ports of static listeners.
    taken: BTreeSet<u16>,
    proposed: BTreeMap<PortClaim, u16>,
    /// Times at which ports were freed, in milliseconds of the monotonic clock.
    freed: BTreeMap<(bool, u16), u64>,
}

impl PortAllocator {
    pub(crate) fn new(range: RangeInclusive<u16>, taken: BTreeSet<u16>) -> PortAllocator {
        PortAllocator { range, taken, proposed: BTreeMap::new(), freed: BTreeMap::new() }
    }

    /// Records the ports that a change of a Service frees.
    pub(crate) fn observe(
        &mut self,
        before: Option<&ClusterObject>,
        after: Option<&ClusterObject>,
        now: Now,
    ) {
        let targets = |object: Option<&ClusterObject>| -> BTreeSet<(bool, u16)> {
            match object.map(|object| &object.body) {
                Some(ObjectBody::Service(service)) => {
                    observed_ports(service).map(|observed| (observed.is_udp, observed.target)).collect()
                }
                _ => BTreeSet::new(),
            }
        };
        self.freed.retain(|_, freed_ms| now.mono_ms().saturating_sub(*freed_ms) < FREED_HOLD_MS);
        for port in targets(before).difference(&targets(after)) {
            self.freed.insert(*port, now.mono_ms());
        }
    }

    /// The port proposed for a claim: the previous proposal, else the lowest free port of the range. `is_observed`
    /// is whether a Service has the target port. `None` if the range is exhausted.
    pub(crate) fn propose(
        &mut self,
        claim: &PortClaim,
        now: Now,
        is_observed: impl Fn(u16) -> bool,
    ) -> Option<u16> {
        if let Some(port) = self.proposed.get(claim).copied().filter(|port| !is_observed(*port)) {
            return Some(port);
        }
        let others =
            self.proposed.iter().filter(|(other, _)| other.is_udp == claim.is_udp && *other != claim);
        let proposed: BTreeSet<u16> = others.map(|(_, port)| *port).collect();
        let is_held = |port: u16| {
            let freed_ms = self.freed.get(&(claim.is_udp, port));
            freed_ms.is_some_and(|freed_ms| now.mono_ms().saturating_sub(*freed_ms) < FREED_HOLD_MS)
        };
        let is_free = |port: &u16| {
            !self.taken.contains(port) && !proposed.contains(port) && !is_held(*port) && !is_observed(*port)
        };
        let port = self.range.clone().find(is_free)?;
        self.proposed.insert(claim.clone(), port);
        Some(port)
    }

    /// Drops the proposals of a Gateway for all claims but `open`.
    pub(crate) fn retain(&mut self, gateway: &ObjectKey, open: &BTreeSet<PortClaim>) {
        self.proposed.retain(|claim, _| claim.gateway != *gateway || open.contains(claim));
    }
}
