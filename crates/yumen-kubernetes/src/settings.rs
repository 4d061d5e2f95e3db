//! Settings of the translation, from the node settings.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::ingress_nginx::{ControllerProblem, ControllerSettings, read_flags};

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

/// Whether the requests of each Ingress are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IngressCounting {
    /// Unless a plugin counts them.
    #[default]
    Off,
    /// By the plugin `prometheus` on each route.
    PerRoute,
}

/// A controller of Ingresses whose classes are served as well.
pub const ADOPTED_CONTROLLER: &str = "k8s.io/ingress-nginx";

/// Settings of Ingresses.
#[derive(Debug, Clone)]
pub struct IngressOptions {
    /// Whether Ingresses are served.
    pub is_enabled: bool,
    /// Whether statuses of Ingresses are written whose class belongs to ingress-nginx. False while it runs, too.
    pub take_over: bool,
    /// The port for http.
    pub http_port: u16,
    /// The port for https.
    pub https_port: u16,
    /// Whether requests are counted by Ingress.
    pub counting: IngressCounting,
    /// The flags of ingress-nginx.
    pub controller: ControllerSettings,
    /// Flags that are not followed as written.
    pub flag_problems: Vec<ControllerProblem>,
}

impl IngressOptions {
    /// The options with flags of ingress-nginx, such as `--configmap=ingress-nginx/controller`.
    pub fn with_flags(flags: &[String]) -> IngressOptions {
        let (controller, flag_problems) = read_flags(flags);
        IngressOptions { controller, flag_problems, ..IngressOptions::default() }
    }
}

impl Default for IngressOptions {
    fn default() -> Self {
        IngressOptions {
            is_enabled: true,
            take_over: false,
            http_port: 80,
            https_port: 443,
            counting: IngressCounting::Off,
            controller: ControllerSettings::default(),
            flag_problems: Vec::new(),
        }
    }
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
    /// Settings of Ingresses.
    pub ingress: IngressOptions,
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
            ingress: IngressOptions::default(),
        }
    }
}
