//! Settings of the Kubernetes controller.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yumen_base::Problem;

use super::problem;

/// The API server as the source of the configuration, with the store kind `kubernetes` or `yumen run --kubernetes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KubernetesConfig {
    /// Path of a kubeconfig; empty for the service account of the pod or, outside a cluster, `KUBECONFIG`.
    pub kubeconfig: String,
    /// Context of the kubeconfig; empty for its current one.
    pub context: String,
    /// The `controllerName` of the GatewayClasses that this gateway serves.
    #[schemars(length(min = 1, max = 253))]
    pub controller_name: String,
    /// How clients reach the listeners of Gateways.
    pub gateway_mode: GatewayModeConfig,
    /// The type of the Services of Gateways: `LoadBalancer`, `NodePort` or `ClusterIP`.
    pub service_type: String,
    /// The ports that listeners of Gateways are bound to in mode `service`: `first-last`.
    pub ports: String,
    /// Addresses in the status of Gateways in the modes `merged` and `host`.
    pub publish_addresses: Vec<String>,
    /// The namespace of the gateway's own pods and of its leases; empty for the variable `POD_NAMESPACE` or, without it,
    /// that of the service account or context.
    pub namespace: String,
    /// The label selector of the gateway's own pods, the endpoints of the Services of Gateways.
    pub pod_selector: String,
    /// The name of this replica, unique among the replicas; empty for the variable `POD_NAME` or, without it, the host
    /// name.
    pub identity: String,
    /// Zone of this node, for topology hints of EndpointSlices; empty for none.
    pub zone: String,
    /// How long the start waits for the API server before the last good state is served, in milliseconds.
    pub start_wait_ms: u64,
    /// How long the gateway goes on accepting connections after SIGTERM, in seconds. It is not ready meanwhile, so load
    /// balancers and Services leave it.
    pub linger_s: u64,
    /// Whether statuses, Services and EndpointSlices are written. Off, the gateway serves beside another controller of
    /// the same classes without a conflict.
    pub take_over: bool,
    /// Ingresses.
    pub ingress: IngressConfig,
    /// The admission webhook.
    pub webhook: WebhookConfig,
}

/// The admission webhook, which the API server asks before it stores an Ingress, a route or another object that this
/// gateway translates. It is served while `kubernetes.take_over` is on; Ingresses whose class belongs to ingress-nginx are
/// judged while `kubernetes.ingress.take_over` is on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookConfig {
    /// Whether the webhook is served. The flag `--validating-webhook` of ingress-nginx serves it, too.
    pub enabled: bool,
    /// The address of the webhook, for HTTPS.
    pub listen: String,
    /// The Service by which API servers reach the webhook, in the gateway's own namespace: the name in the certificate.
    pub service: String,
    /// Further host names and addresses in the certificate, for a webhook that is reached by a URL.
    pub names: Vec<String>,
    /// The ValidatingWebhookConfiguration whose `caBundle` the leader sets; empty for none.
    pub configuration: String,
    /// The Secret with the certificate that the leader issues, in the gateway's own namespace.
    pub secret: String,
    /// PEM file of another certificate and its chain; empty for one that the leader issues and renews. The file is read
    /// again every minute.
    pub certificate: String,
    /// PEM file of the private key of `certificate`.
    pub key: String,
}

impl Default for WebhookConfig {
    fn default() -> Self {
        WebhookConfig {
            enabled: false,
            listen: "0.0.0.0:9443".into(),
            service: "yumen-admission".into(),
            names: Vec::new(),
            configuration: "yumen-admission".into(),
            secret: "yumen-admission".into(),
            certificate: String::new(),
            key: String::new(),
        }
    }
}

impl WebhookConfig {
    fn check(&self, problems: &mut Vec<Problem>) {
        if super::listen_address(&self.listen).is_none() {
            let found = format!("\"{}\" is no address", self.listen);
            problems.push(
                problem("kubernetes.webhook.listen", found)
                    .hint("write address:port, or :port for all addresses"),
            );
        }
        if self.certificate.is_empty() != self.key.is_empty() {
            let (path, other) =
                if self.key.is_empty() { ("key", "certificate") } else { ("certificate", "key") };
            let found = format!("a {other} without a {path} serves nothing");
            problems.push(problem(&format!("kubernetes.webhook.{path}"), found).hint("write both, or none"));
        }
        let issued = [("service", &self.service), ("secret", &self.secret)];
        for (name, _) in issued.iter().filter(|(_, value)| value.is_empty() && self.certificate.is_empty()) {
            let path = format!("kubernetes.webhook.{name}");
            problems.push(problem(&path, "the certificate that is issued needs it").hint("write a name"));
        }
    }
}

/// Ingresses, which are served by the rules of ingress-nginx.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IngressConfig {
    /// Whether Ingresses are served.
    pub enabled: bool,
    /// Whether statuses of Ingresses are written whose class belongs to ingress-nginx. Off, the gateway serves them
    /// beside a running ingress-nginx without a conflict.
    pub take_over: bool,
    /// The port for http, opened while an Ingress is served.
    #[schemars(range(min = 1))]
    pub http_port: u16,
    /// The port for https, opened while an Ingress is served.
    #[schemars(range(min = 1))]
    pub https_port: u16,
    /// Flags of ingress-nginx, such as `--configmap=ingress-nginx/ingress-nginx-controller`.
    pub flags: Vec<String>,
    /// The metrics of Ingresses: `nginx` counts the requests of each Ingress by the plugin `prometheus`, and adds the
    /// series `nginx_ingress_controller_*` that dashboards of ingress-nginx read.
    pub metric_names: IngressMetricNames,
}

/// Names of the metrics of Ingresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IngressMetricNames {
    /// Those of this gateway alone.
    #[default]
    Yumen,
    /// Those of ingress-nginx beside them.
    Nginx,
}

impl Default for IngressConfig {
    fn default() -> Self {
        IngressConfig {
            enabled: true,
            take_over: false,
            http_port: 80,
            https_port: 443,
            flags: Vec::new(),
            metric_names: IngressMetricNames::Yumen,
        }
    }
}

/// How clients reach the listeners of Gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GatewayModeConfig {
    /// One Service per Gateway in its namespace.
    Service,
    /// All Gateways share the addresses and ports of the gateway.
    Merged,
    /// Each Gateway binds its ports on its own addresses of the host.
    Host,
}

impl Default for KubernetesConfig {
    fn default() -> Self {
        KubernetesConfig {
            kubeconfig: String::new(),
            context: String::new(),
            controller_name: "gateway.yumen.io/controller".into(),
            gateway_mode: GatewayModeConfig::Service,
            service_type: "LoadBalancer".into(),
            ports: "20000-29999".into(),
            publish_addresses: Vec::new(),
            namespace: String::new(),
            pod_selector: "app.kubernetes.io/name=yumen".into(),
            identity: String::new(),
            zone: String::new(),
            start_wait_ms: 5000,
            linger_s: 15,
            take_over: true,
            ingress: IngressConfig::default(),
            webhook: WebhookConfig::default(),
        }
    }
}

impl KubernetesConfig {
    /// The first and last of `ports`; `None` if the text is no range.
    pub fn port_range(&self) -> Option<(u16, u16)> {
        let (first, last) = self.ports.split_once('-')?;
        let range: (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (range.0 > 0 && range.0 <= range.1).then_some(range)
    }

    pub(super) fn check(&self, problems: &mut Vec<Problem>) {
        if self.port_range().is_none() {
            let found = format!("\"{}\" is no range of ports", self.ports);
            problems.push(problem("kubernetes.ports", found).hint("write first-last, such as 20000-29999"));
        }
        if !["LoadBalancer", "NodePort", "ClusterIP"].contains(&self.service_type.as_str()) {
            let found = format!("\"{}\" is no type of Services", self.service_type);
            problems
                .push(problem("kubernetes.service_type", found).hint("LoadBalancer, NodePort or ClusterIP"));
        }
        if self.ingress.http_port == self.ingress.https_port {
            let found = format!("{} is the port for http, too", self.ingress.https_port);
            problems.push(problem("kubernetes.ingress.https_port", found).hint("write another port"));
        }
        self.webhook.check(problems);
        for (at, address) in self.publish_addresses.iter().enumerate() {
            if address.is_empty() || address.contains(['/', ' ']) {
                let found = format!("\"{address}\" is neither an address nor a host name");
                problems.push(problem(&format!("kubernetes.publish_addresses[{at}]"), found));
            }
        }
    }
}
