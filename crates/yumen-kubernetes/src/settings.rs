//! Settings of the translation, from the node settings.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// How clients reach the listeners of Gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GatewayMode {
    /// One Service per Gateway in its namespace, whose target ports the gateway binds.
    #[default]
    Service,
    /// All Gateways share the addresses and ports of the gateway.
    Merged,
    /// Each Gateway binds its ports on its own addresses of the host.
    Host,
}

/// Settings of the translation.
#[derive(Debug, Clone)]
pub struct TranslationSettings {
    /// The `controllerName` of the classes that the translation serves.
    pub controller_name: Arc<str>,
    /// How clients reach listeners.
    pub mode: GatewayMode,
    /// Type of the Services of Gateways: `LoadBalancer`, `NodePort` or `ClusterIP`.
    pub service_type: Arc<str>,
    /// Ports for the listeners of Gateways in mode `Service`.
    pub ports: RangeInclusive<u16>,
    /// Ports that static listeners of the node hold.
    pub ports_taken: BTreeSet<u16>,
    /// Addresses in the status of Gateways in the modes `Merged` and `Host`.
    pub publish_addresses: Vec<Arc<str>>,
    /// Zone of the node, for topology hints.
    pub zone: Option<Arc<str>>,
    /// Whether the host has IPv6, so that listeners bind `[::]`.
    pub has_ipv6: bool,
    /// Whether the translation yields statuses and objects to write. False while another controller serves the same
    /// classes.
    pub take_over: bool,
}

impl Default for TranslationSettings {
    fn default() -> Self {
        TranslationSettings {
            controller_name: "gateway.yumen.io/controller".into(),
            mode: GatewayMode::Service,
            service_type: "LoadBalancer".into(),
            ports: 20_000..=29_999,
            ports_taken: BTreeSet::new(),
            publish_addresses: Vec::new(),
            zone: None,
            has_ipv6: true,
            take_over: true,
        }
    }
}
