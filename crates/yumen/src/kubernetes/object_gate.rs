//! Holds back the objects that the controller writes until the objects that decide on them are known.
//!
//! A Gateway that is translated before its Service is listed gets a proposal of new target ports. Written, it would move
//! the ports of all Gateways at each start of a leader.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use yumen_kubernetes::{ClusterKind, ClusterTranslator, DesiredObject};

/// Kinds that decide on the objects. A kind that the API server refuses to list keeps the gate closed.
const DECISIVE: [ClusterKind; 4] =
    [ClusterKind::GatewayClass, ClusterKind::Gateway, ClusterKind::ListenerSet, ClusterKind::Service];

pub(super) struct ObjectGate {
    /// Decisive kinds without a list.
    unlisted: BTreeSet<ClusterKind>,
    is_open: bool,
}

impl ObjectGate {
    pub(super) fn new() -> ObjectGate {
        ObjectGate { unlisted: BTreeSet::from(DECISIVE), is_open: false }
    }

    /// Notes that all objects of a kind are known.
    pub(super) fn observe_list(&mut self, kind: ClusterKind) {
        self.unlisted.remove(&kind);
    }

    /// The objects to submit after a translation: none before everything is known, then once all, then the changes.
    pub(super) fn admit(
        &mut self,
        is_settled: bool,
        changes: Vec<DesiredObject>,
        translator: &ClusterTranslator,
    ) -> Vec<DesiredObject> {
        if self.is_open {
            return changes;
        }
        self.is_open = is_settled && self.unlisted.is_empty();
        if self.is_open { translator.desired_objects() } else { Vec::new() }
    }
}
