//! Kubernetes as a source of the configuration: objects of the API server become resources, statuses and Services.
//!
//! Owns the tasks between the API server and the store. Independent of translation and compilation.

mod api_paths;
mod certificate_reader;
mod cluster_gaps;
mod commit;
mod controller;
mod controller_status;
mod controller_tasks;
mod event_writer;
mod manifests;
mod nginx_metrics;
mod object_applier;
mod object_gate;
mod reference_reader;
mod status_board;
mod webhook;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::Context;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use yumen_config::NodeConfig;
use yumen_config::node::{GatewayModeConfig, IngressMetricNames, KubernetesConfig, StoreKind};
use yumen_kubernetes::{
    ADOPTED_CONTROLLER, GatewayMode, IngressCounting, IngressOptions, TranslationSettings,
};
use yumen_kubernetes_client::{ApiClient, ApiServerConfig};
use yumen_store::MemoryStore;

use crate::control::ControlHandle;
use crate::serving::listener_supervisor::ListenerStates;
use controller::ControllerParts;
use controller_status::WritesEnd;

pub(crate) use controller_status::KubernetesStatus;
pub(crate) use manifests::{
    ManifestObjects, ManifestTranslator, PLACEHOLDER_ADDRESS, TranslatedManifests, read_documents, values_of,
};
pub(crate) use nginx_metrics::{NginxMetrics, ProcessUse};

/// The running controller. Dropping it ends its tasks.
pub(crate) struct KubernetesSource {
    task: AbortHandle,
    listeners: watch::Sender<ListenerStates>,
    writes_end: watch::Sender<Option<WritesEnd>>,
    pub(crate) status: Arc<KubernetesStatus>,
}

impl Drop for KubernetesSource {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl KubernetesSource {
    /// Starts to follow the API server; the control thread gets the first state once all kinds were listed.
    ///
    /// # Errors
    ///
    /// The kubeconfig or service account cannot be used.
    pub(crate) fn start(
        node: &NodeConfig,
        store: Arc<MemoryStore>,
        control: ControlHandle,
        runtime: &Runtime,
    ) -> anyhow::Result<KubernetesSource> {
        let server = runtime.block_on(api_server(&node.kubernetes))?;
        let _guard = runtime.enter();
        let client = ApiClient::new(&server).with_context(|| format!("API server {}", server.url()))?;
        let lease_client = ApiClient::new(&server.clone().with_request_timeout(controller::LEASE_TIMEOUT))?;
        let namespace = written_or(&node.kubernetes.namespace, "POD_NAMESPACE")
            .unwrap_or_else(|| server.namespace().to_owned());
        let identity =
            written_or(&node.kubernetes.identity, "POD_NAME").unwrap_or_else(crate::process::host_name);
        let status = Arc::new(KubernetesStatus::new(server.url()));
        let (listener_states, listeners) = watch::channel(ListenerStates::default());
        let (writes_end, ended) = watch::channel(None);
        let settings = translation_settings(node);
        let flags = &settings.ingress.controller.flags.webhook;
        let webhook = webhook::start(node, flags, writes_end.subscribe())?;
        let parts = ControllerParts {
            webhook,
            client,
            lease_client,
            namespace,
            identity,
            settings,
            config: node.kubernetes.clone(),
            data_dir: node.store.data_dir.clone().into(),
            keyring: node.store.keyring.clone(),
            store,
            control,
            listeners,
            status: status.clone(),
            writes_end: ended,
        };
        let task = runtime.spawn(controller::keep_running(parts)).abort_handle();
        Ok(KubernetesSource { task, listeners: listener_states, writes_end, status })
    }

    /// Reports not ready and lets another replica become the leader, which removes this one from the endpoints of Gateways.
    pub(crate) fn end(&self) {
        self.status.is_ending.store(true, Relaxed);
        self.writes_end.send_replace(Some(WritesEnd::Released));
    }

    /// Ends writes in favor of a successor, which has the same identity: two processes must not hold the lease.
    pub(crate) fn hand_over(&self) {
        self.writes_end.send_replace(Some(WritesEnd::HandedOver));
    }

    /// Passes on the states of listeners, which decide conditions of Gateways.
    pub(crate) fn follow_listeners(&self, runtime: &Runtime, mut states: watch::Receiver<ListenerStates>) {
        let listeners = self.listeners.clone();
        runtime.spawn(async move {
            loop {
                listeners.send_replace(states.borrow_and_update().clone());
                if states.changed().await.is_err() {
                    return;
                }
            }
        });
    }
}

/// The labels of the controller in the metrics of ingress-nginx; `None` unless the settings ask for these.
pub(crate) fn nginx_labels(node: &NodeConfig) -> Option<nginx_metrics::ControllerLabels> {
    let written = &node.kubernetes;
    if written.ingress.metric_names != IngressMetricNames::Nginx || node.store.kind != StoreKind::Kubernetes {
        return None;
    }
    let flags = IngressOptions::with_flags(&written.ingress.flags).controller.flags;
    Some(nginx_metrics::ControllerLabels {
        class: flags.controller_class.as_deref().unwrap_or(ADOPTED_CONTROLLER).to_owned(),
        namespace: written_or(&written.namespace, "POD_NAMESPACE").unwrap_or_default(),
        pod: written_or(&written.identity, "POD_NAME").unwrap_or_else(crate::process::host_name),
    })
}

/// A setting, else a variable of the environment that manifests fill from the pod's metadata. Host names do not serve for
/// it: replicas with `hostNetwork` share that of their machine.
fn written_or(setting: &str, variable: &str) -> Option<String> {
    let written = Some(setting.to_owned()).filter(|text| !text.is_empty());
    written.or_else(|| std::env::var(variable).ok().filter(|text| !text.is_empty()))
}

/// The API server by the node settings: a kubeconfig if one is named, else the service account of the pod, else the
/// user's kubeconfig.
pub(crate) async fn api_server(written: &KubernetesConfig) -> anyhow::Result<ApiServerConfig> {
    let context = Some(written.context.as_str()).filter(|context| !context.is_empty());
    if !written.kubeconfig.is_empty() {
        return Ok(ApiServerConfig::from_kubeconfig(written.kubeconfig.as_ref(), context).await?);
    }
    let in_cluster = ApiServerConfig::in_cluster();
    let path = match (&in_cluster, std::env::var_os("KUBECONFIG"), std::env::var_os("HOME")) {
        (Ok(_), _, _) => return Ok(in_cluster?),
        (Err(_), Some(path), _) => path.into(),
        (Err(_), None, Some(home)) => std::path::Path::new(&home).join(".kube/config"),
        (Err(_), None, None) => return Ok(in_cluster?),
    };
    let hint = "set kubernetes.kubeconfig, or run in a pod with a service account";
    let config = ApiServerConfig::from_kubeconfig(&path, context).await;
    config.with_context(|| format!("no API server: {hint}"))
}

/// Settings of the translation from those of the node.
pub(crate) fn translation_settings(node: &NodeConfig) -> TranslationSettings {
    let written = &node.kubernetes;
    let (first, last) = written.port_range().unwrap_or((20_000, 29_999));
    let port = |address: &str| yumen_config::node::listen_address(address).map(|address| address.port());
    let clients = node.listen.iter().map(|one| one.address.as_str());
    let streams = node.stream_listen.iter().map(|one| one.address.as_str());
    let operators = [&node.admin.listen, &node.status.listen, &node.control.listen].map(String::as_str);
    let webhook = Some(written.webhook.listen.as_str()).filter(|_| written.webhook.enabled);
    TranslationSettings {
        controller_name: written.controller_name.as_str().into(),
        mode: match written.gateway_mode {
            GatewayModeConfig::Service => GatewayMode::Service,
            GatewayModeConfig::Merged => GatewayMode::Merged,
            GatewayModeConfig::Host => GatewayMode::Host,
        },
        service_type: written.service_type.as_str().into(),
        ports: first..=last,
        ports_taken: clients.chain(streams).chain(operators).chain(webhook).filter_map(port).collect(),
        publish_addresses: written.publish_addresses.iter().map(|one| one.as_str().into()).collect(),
        zone: Some(written.zone.as_str()).filter(|zone| !zone.is_empty()).map(Into::into),
        has_ipv6: std::net::TcpListener::bind("[::1]:0").is_ok(),
        take_over: written.take_over,
        ingress: IngressOptions {
            is_enabled: written.ingress.enabled,
            take_over: written.ingress.take_over,
            counting: match written.ingress.metric_names {
                IngressMetricNames::Yumen => IngressCounting::Off,
                IngressMetricNames::Nginx => IngressCounting::PerRoute,
            },
            http_port: written.ingress.http_port,
            https_port: written.ingress.https_port,
            ..IngressOptions::with_flags(&written.ingress.flags)
        },
    }
}
