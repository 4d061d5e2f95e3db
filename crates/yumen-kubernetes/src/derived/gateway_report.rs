//! Findings about a Gateway and its ListenerSets, for the units that write their status.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{ClusterKind, ObjectKey};
use crate::resources::ResourceName;

/// A reason of the API with a message: why a condition does not hold, or why a bad one holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConditionReason {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl ConditionReason {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> ConditionReason {
        ConditionReason { reason, message: message.into() }
    }
}

/// Findings about a Gateway.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GatewayReport {
    /// Why the Gateway is not accepted.
    pub(crate) refusal: Option<ConditionReason>,
    /// Why the Gateway can have no Service.
    pub(crate) blocked: Option<ConditionReason>,
    /// Why the client certificate for backends cannot be used.
    pub(crate) unresolved: Option<ConditionReason>,
    /// Whether a listener serves clients without a valid certificate although it validates them.
    pub(crate) is_insecure: bool,
    /// The listeners of the Gateway and of admitted ListenerSets, in the order of each object.
    pub(crate) sections: BTreeMap<ObjectKey, Vec<SectionReport>>,
    /// ListenerSets that name the Gateway, with the reason if one is left out.
    pub(crate) sets: BTreeMap<ObjectKey, Option<ConditionReason>>,
    /// Ports of the Service.
    pub(crate) ports: Vec<GatewayPort>,
}

/// Findings about a listener.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SectionReport {
    pub(crate) name: Arc<str>,
    pub(crate) kinds: Vec<ClusterKind>,
    pub(crate) refusal: Option<ConditionReason>,
    pub(crate) conflict: Option<ConditionReason>,
    pub(crate) unresolved: Option<ConditionReason>,
    pub(crate) overlap: Option<ConditionReason>,
    /// The resources of a listener that is served.
    pub(crate) needs: Option<Vec<ResourceName>>,
}

impl GatewayReport {
    /// The listeners of the Gateway or of a ListenerSet.
    pub(crate) fn sections_of(&self, parent: &ObjectKey) -> &[SectionReport] {
        self.sections.get(parent).map_or(&[], Vec::as_slice)
    }

    /// Whether a listener of a ListenerSet can be served.
    pub(crate) fn has_servable_section(&self, set: &ObjectKey) -> bool {
        self.sections_of(set).iter().any(SectionReport::is_servable)
    }
}

impl SectionReport {
    /// Whether the listener is valid by itself and beside the others.
    pub(crate) fn is_accepted(&self) -> bool {
        self.refusal.is_none() && self.conflict.is_none()
    }

    /// Whether the listener is valid and does not lack all its certificates.
    fn is_servable(&self) -> bool {
        self.is_accepted() && (self.unresolved.is_none() || self.needs.is_some())
    }
}

/// A port of a Gateway and the port that the gateway binds for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GatewayPort {
    pub(crate) port: u16,
    pub(crate) is_udp: bool,
    /// `None` if the range of target ports is exhausted.
    pub(crate) target: Option<u16>,
    /// Whether the observed Service has the target port. Before that, no listener is opened.
    pub(crate) is_observed: bool,
}

impl GatewayPort {
    /// Name of the port in Services and slices.
    pub(crate) fn name(&self) -> String {
        let transport = if self.is_udp { "udp" } else { "tcp" };
        format!("p{}-{transport}", self.port)
    }

    /// `TCP` or `UDP`.
    pub(crate) fn transport(&self) -> &'static str {
        if self.is_udp { "UDP" } else { "TCP" }
    }
}

/// The ports that all Gateways share, each with the Gateway that decides on its protocol.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SharedPortTable {
    pub(crate) ports: BTreeMap<SharedPort, SharedPortUse>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SharedPort {
    pub(crate) port: u16,
    pub(crate) is_udp: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SharedPortUse {
    /// Protocol of the `listeners` resource.
    pub(crate) protocol: &'static str,
    pub(crate) gateway: ObjectKey,
}
