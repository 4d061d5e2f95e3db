//! Apache APISIX without etcd: API-driven standalone mode, with changes by the Admin API.

use serde_json::{Value, json};

use super::plan::{GatewayPlan, GatewayStep, RenderedConfig, text};
use super::{GatewayAdapter, resources};

pub(super) struct ApisixAdapter;

const ADMIN_KEY: &str = "lab-admin-key-0123456789";

impl GatewayAdapter for ApisixAdapter {
    fn name(&self) -> &'static str {
        "apisix"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["apisix"]
    }

    fn how_to_get(&self) -> &'static str {
        "install Apache APISIX 3.13 or newer from its Debian or RPM repository (apisix.apache.org/docs)"
    }

    fn version_args(&self) -> &'static [&'static str] {
        &["version"]
    }

    fn version_min(&self) -> Option<(u32, u32)> {
        Some((3, 13))
    }

    /// APISIX checks the configuration of its installation only, not a file of the lab.
    fn check_args(&self, _plan: &GatewayPlan) -> Option<Vec<String>> {
        Some(vec!["test".to_owned()])
    }

    fn render(&self, plan: &GatewayPlan) -> Result<RenderedConfig, String> {
        let config = serde_yaml_ng::to_string(&configuration(plan)).map_err(|error| error.to_string())?;
        let path = plan.path("config.yaml");
        Ok(RenderedConfig::default().file("config.yaml", config).args(["start", "-c", &path]))
    }

    fn setup(&self, plan: &GatewayPlan) -> Vec<GatewayStep> {
        vec![put(plan)]
    }

    fn changes_by(&self) -> &'static str {
        "Admin API of the standalone mode: PUT of the whole configuration"
    }

    fn change(&self, _before: &GatewayPlan, after: &GatewayPlan) -> Vec<GatewayStep> {
        vec![put(after)]
    }
}

fn configuration(plan: &GatewayPlan) -> Value {
    let ssl = match &plan.certificate {
        Some(certificate) => {
            json!({ "enable": true, "listen": [{ "ip": "127.0.0.1", "port": plan.ports.https }],
            "ssl_trusted_certificate": text(&certificate.chain) })
        }
        None => json!({ "enable": false }),
    };
    json!({
        "deployment": {
            "role": "traditional",
            "role_traditional": { "config_provider": "yaml" },
            "admin": {
                "admin_key": [{ "name": "admin", "key": ADMIN_KEY, "role": "admin" }],
                "admin_listen": { "ip": "127.0.0.1", "port": plan.ports.admin },
                "allow_admin": ["127.0.0.0/8"],
            },
        },
        "apisix": {
            "node_listen": [{ "ip": "127.0.0.1", "port": plan.ports.http }],
            "enable_admin": true,
            "enable_ipv6": false,
            "ssl": ssl,
        },
        "nginx_config": {
            "worker_processes": plan.gateway.workers,
            "error_log_level": "error",
            "event": { "worker_connections": plan.connections_room() * 2 },
            "worker_rlimit_nofile": plan.connections_room() * 2 + 1024,
            // Keeps the started process in the foreground, so that it can be measured and stopped.
            "main_configuration_snippet": "daemon off;",
            "http": {
                "enable_access_log": false,
                "keepalive_timeout": "300s",
                "upstream": { "keepalive": plan.gateway.keepalive, "keepalive_requests": resources::LIMIT,
                    "keepalive_timeout": "300s" },
            },
            "http_configuration_snippet": format!("keepalive_requests {};", resources::LIMIT),
        },
        "plugins": ["key-auth", "limit-count", "mocking"],
    })
}

/// A different digest makes APISIX apply the configuration.
fn put(plan: &GatewayPlan) -> GatewayStep {
    let digest =
        // The endpoints are all that changes, so their ports identify the configuration.
        plan.endpoints.iter().map(|endpoint| endpoint.port().to_string()).collect::<Vec<_>>().join("-");
    GatewayStep::Http {
        method: "PUT",
        port: plan.ports.admin,
        target: "/apisix/admin/configs".to_owned(),
        headers: vec![
            ("X-API-KEY", ADMIN_KEY.to_owned()),
            ("X-Digest", digest),
            ("Content-Type", "application/json".to_owned()),
        ],
        body: resources::document(plan).to_string(),
    }
}
