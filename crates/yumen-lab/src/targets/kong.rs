//! Kong Gateway without a database: one declarative document, replaced as a whole at `/config`.

use serde_json::{Value, json};

use super::plan::{GatewayPlan, GatewayStep, RenderedConfig, mock_body, text};
use super::{GatewayAdapter, resources};
use crate::scenario::GatewaySettings;

pub(super) struct KongAdapter;

impl GatewayAdapter for KongAdapter {
    fn name(&self) -> &'static str {
        "kong"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["kong"]
    }

    fn how_to_get(&self) -> &'static str {
        "install Kong Gateway (OSS) 3 from its Debian or RPM package (developer.konghq.com/gateway/install)"
    }

    fn version_args(&self) -> &'static [&'static str] {
        &["version"]
    }

    fn version_min(&self) -> Option<(u32, u32)> {
        Some((3, 0))
    }

    fn check_args(&self, plan: &GatewayPlan) -> Option<Vec<String>> {
        Some(
            ["config", "parse", &plan.path("kong.json"), "-c", &plan.path("kong.conf")]
                .map(str::to_owned)
                .into(),
        )
    }

    fn render(&self, plan: &GatewayPlan) -> Result<RenderedConfig, String> {
        let rendered = RenderedConfig::default()
            .file("kong.conf", configuration(plan))
            .file("kong.json", format!("{:#}\n", document(plan)))
            .args(["start", "-c", &plan.path("kong.conf"), "-p", &plan.path("prefix")]);
        Ok(rendered)
    }

    fn changes_by(&self) -> &'static str {
        "Admin API: POST of the whole document to /config"
    }

    fn change(&self, _before: &GatewayPlan, after: &GatewayPlan) -> Vec<GatewayStep> {
        vec![GatewayStep::Http {
            method: "POST",
            port: after.ports.admin,
            target: "/config?check_hash=1".to_owned(),
            headers: vec![("Content-Type", "application/json".to_owned())],
            body: document(after).to_string(),
        }]
    }
}

fn configuration(plan: &GatewayPlan) -> String {
    let GatewayPlan { ports, gateway: GatewaySettings { workers, keepalive, .. }, .. } = plan;
    let connections = plan.connections_room() * 2;
    let mut listen = format!("127.0.0.1:{} reuseport deferred backlog=65535", ports.http);
    let mut certificates = String::new();
    if let Some(certificate) = &plan.certificate {
        listen += &format!(", 127.0.0.1:{} ssl reuseport deferred backlog=65535", ports.https);
        let (chain, key) = (text(&certificate.chain), text(&certificate.key));
        certificates = format!("ssl_cert = {chain}\nssl_cert_key = {key}\n");
    }
    format!(
        "database = off
declarative_config = {document}
proxy_listen = {listen}
admin_listen = 127.0.0.1:{admin}
admin_gui_listen = off
status_listen = off
nginx_daemon = off
nginx_worker_processes = {workers}
nginx_events_worker_connections = {connections}
nginx_main_worker_rlimit_nofile = {connections}
nginx_http_keepalive_requests = {limit}
nginx_http_keepalive_timeout = 300s
proxy_access_log = off
admin_access_log = off
log_level = error
anonymous_reports = off
upstream_keepalive_pool_size = {keepalive}
upstream_keepalive_max_requests = {limit}
upstream_keepalive_idle_timeout = 300
{certificates}",
        document = plan.path("kong.json"),
        admin = ports.admin,
        limit = resources::LIMIT,
    )
}

fn document(plan: &GatewayPlan) -> Value {
    let targets: Vec<Value> = plan
        .endpoints
        .iter()
        .map(|endpoint| json!({ "target": endpoint.to_string(), "weight": 100 }))
        .collect();
    let all = json!({ "name": "all", "paths": ["/"], "strip_path": false });
    let numbered = (0..plan.gateway.routes)
        .map(|i| json!({ "name": format!("r{i}"), "paths": [format!("/r/{i}")], "strip_path": false }));
    let routes: Vec<Value> = std::iter::once(all).chain(numbered).collect();
    let service = json!({ "name": "up", "host": "up", "port": 80, "protocol": "http", "retries": 0,
        "connect_timeout": 5000, "routes": routes, "plugins": plugins(plan) });
    let mut document = json!({ "_format_version": "3.0",
        "upstreams": [{ "name": "up", "targets": targets }], "services": [service] });
    let keys = plan.keys();
    if !keys.is_empty() {
        let consumer = |(number, key): (usize, &String)| json!({ "username": format!("consumer{number}"), "keyauth_credentials": [{ "key": key }] });
        document["consumers"] = keys.iter().enumerate().map(consumer).collect();
    }
    document
}

fn plugins(plan: &GatewayPlan) -> Vec<Value> {
    let mut plugins = Vec::new();
    if plan.gateway.requires_key() {
        plugins.push(json!({ "name": "key-auth", "config": { "key_names": ["apikey"] } }));
    }
    if plan.gateway.limit_count {
        let config = json!({ "hour": resources::LIMIT, "policy": "local", "limit_by": "ip" });
        plugins.push(json!({ "name": "rate-limiting", "config": config }));
    }
    if plan.gateway.responds_itself() {
        let config = json!({ "status_code": 200, "content_type": "text/plain", "body": mock_body() });
        plugins.push(json!({ "name": "request-termination", "config": config }));
    }
    plugins
}
