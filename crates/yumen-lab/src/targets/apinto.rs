//! Apinto: daemonizes by its own command, and is configured object by object by its open API.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::GatewayAdapter;
use super::plan::{GatewayPlan, GatewayStep, RenderedConfig, mock_body};
use super::resources::LIMIT;

pub(super) struct ApintoAdapter;

impl GatewayAdapter for ApintoAdapter {
    fn name(&self) -> &'static str {
        "apinto"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["apinto"]
    }

    fn how_to_get(&self) -> &'static str {
        "scripts/deps.sh lab-apinto, or the release archive of Apinto (github.com/eolinker/apinto/releases) on PATH"
    }

    fn version_args(&self) -> &'static [&'static str] {
        &["version"]
    }

    fn render(&self, plan: &GatewayPlan) -> Result<RenderedConfig, String> {
        let mut rendered = RenderedConfig::default()
            .file("config.yml", configuration(plan))
            .args(["start"])
            .env("GOMAXPROCS", plan.gateway.workers)
            .env("APINTO_CONFIG", plan.path("config.yml"))
            .env("APINTO_ERROR_LOG_LEVEL", "error");
        for (name, folder) in [
            ("APINTO_DATA_DIR", "data"),
            ("APINTO_PID_DIR", "pid"),
            ("APINTO_SOCKET_DIR", "socket"),
            ("APINTO_LOG_DIR", "log"),
            ("APINTO_EXTENDS_DIR", "extends"),
        ] {
            rendered = rendered.env(name, plan.path(folder));
        }
        rendered.pid_file = Some("pid/apinto.pid".to_owned());
        let note =
            "Apinto reads `Connection: Close` with a capital C as keep-alive; see the counted connections";
        rendered.notes.push(note.to_owned());
        Ok(rendered)
    }

    fn setup(&self, plan: &GatewayPlan) -> Vec<GatewayStep> {
        // References must exist first: routes name plugins and the service.
        let ready = GatewayStep::Ready { port: plan.ports.admin, target: "/api/router".to_owned() };
        let mut steps = vec![ready, plugins(plan), put(plan, "service/up", service(plan))];
        for (number, key) in plan.keys().iter().enumerate() {
            steps.push(put(plan, &format!("app/consumer{number}"), consumer(number, key)));
        }
        let numbered = (0..plan.gateway.routes).map(|i| (format!("r{i}"), format!("/r/{i}")));
        let paths: Vec<(String, String)> =
            [("all".to_owned(), "/*".to_owned())].into_iter().chain(numbered).collect();
        let mut ports = vec![("", plan.ports.http)];
        if let Some(certificate) = &plan.certificate {
            let encoded = |text: &str| BASE64_STANDARD.encode(text);
            let pair = json!({ "name": "tls", "driver": "server", "key": encoded(&certificate.key_text),
                "pem": encoded(&certificate.chain_text) });
            steps.push(put(plan, "certificate/tls", pair));
            ports.push(("-tls", plan.ports.https));
        }
        // A route belongs to one port.
        for (suffix, port) in ports {
            for (id, path) in &paths {
                let id = format!("{id}{suffix}");
                steps.push(put(plan, &format!("router/{id}"), route(plan, &id, port, path)));
            }
        }
        steps
    }

    fn changes_by(&self) -> &'static str {
        "open API: PUT of the service"
    }

    fn change(&self, _before: &GatewayPlan, after: &GatewayPlan) -> Vec<GatewayStep> {
        vec![put(after, "service/up", service(after))]
    }
}

fn configuration(plan: &GatewayPlan) -> String {
    let ports = plan.ports;
    let https = match &plan.certificate {
        Some(_) => format!("    - https://127.0.0.1:{}\n", ports.https),
        None => String::new(),
    };
    format!(
        "version: 2
client:
  listen_urls:
    - http://127.0.0.1:{admin}
gateway:
  listen_urls:
    - http://127.0.0.1:{http}
{https}peer:
  listen_urls:
    - http://127.0.0.1:{status}
",
        admin = ports.admin,
        http = ports.http,
        status = ports.status,
    )
}

fn put(plan: &GatewayPlan, object: &str, body: Value) -> GatewayStep {
    GatewayStep::Http {
        method: "PUT",
        port: plan.ports.admin,
        target: format!("/api/{object}"),
        headers: vec![("Content-Type", "application/json".to_owned())],
        body: body.to_string(),
    }
}

/// Registers plugins with the node; routes can only use registered plugins.
fn plugins(plan: &GatewayPlan) -> GatewayStep {
    let plugin = |kind: &str, name: &str, status: &str| json!({ "id": format!("eolinker.com:apinto:{kind}"), "name": name, "status": status, "type": "route" });
    let known = [
        (plan.gateway.requires_key(), plugin("plugin_app", "app", "enable")),
        (plan.gateway.limit_count, plugin("rate_limiting", "rate_limiting", "enable")),
        (plan.gateway.responds_itself(), plugin("http-mocking", "http_mocking", "enable")),
    ];
    let plugins: Vec<Value> =
        known.into_iter().filter(|(is_set, _)| *is_set).map(|(_, plugin)| plugin).collect();
    let mut step = put(plan, "setting/plugin", json!({ "plugins": plugins }));
    if let GatewayStep::Http { target, .. } = &mut step {
        *target = "/setting/plugin".to_owned();
    }
    step
}

fn service(plan: &GatewayPlan) -> Value {
    let nodes: Vec<String> = plan.endpoints.iter().map(|endpoint| format!("{endpoint} weight=1")).collect();
    json!({ "name": "up", "driver": "http", "timeout": 300_000, "retry": 0, "scheme": "http",
        "nodes": nodes, "balance": "round-robin", "pass_host": "pass" })
}

fn consumer(number: usize, key: &str) -> Value {
    json!({ "name": format!("consumer{number}"), "driver": "app", "auth": [{
        "type": "apikey", "position": "header", "token_name": "apikey",
        "users": [{ "expire": 0, "pattern": { "apikey": key } }] }] })
}

fn route(plan: &GatewayPlan, id: &str, port: u16, path: &str) -> Value {
    let mut plugins = serde_json::Map::new();
    if plan.gateway.requires_key() {
        plugins.insert("app".to_owned(), json!({ "config": { "force_auth": true } }));
    }
    if plan.gateway.limit_count {
        plugins.insert("rate_limiting".to_owned(), json!({ "config": { "hour": LIMIT } }));
    }
    if plan.gateway.responds_itself() {
        let config = json!({ "response_status": 200, "content_type": "application/json",
            "response_example": mock_body() });
        plugins.insert("http_mocking".to_owned(), json!({ "config": config }));
    }
    json!({ "name": id, "driver": "http", "listen": port, "location": path, "service": "up@service",
        "plugins": plugins })
}
