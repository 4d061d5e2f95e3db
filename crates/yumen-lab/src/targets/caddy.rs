//! Caddy: no access log, no automatic HTTPS, upstreams changed by the admin API.

use serde_json::{Value, json};

use super::GatewayAdapter;
use super::plan::{GatewayPlan, GatewayStep, RenderedConfig, mock_body, text};

pub(super) struct CaddyAdapter;

impl GatewayAdapter for CaddyAdapter {
    fn name(&self) -> &'static str {
        "caddy"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["caddy"]
    }

    fn how_to_get(&self) -> &'static str {
        "scripts/deps.sh lab-caddy, or apt-get install caddy"
    }

    fn version_args(&self) -> &'static [&'static str] {
        &["version"]
    }

    fn check_args(&self, plan: &GatewayPlan) -> Option<Vec<String>> {
        Some(["validate", "--config", &plan.path("caddy.json")].map(str::to_owned).into())
    }

    fn render(&self, plan: &GatewayPlan) -> Result<RenderedConfig, String> {
        if plan.gateway.limit_count {
            return Err("Caddy counts requests only with a module of others".to_owned());
        }
        let rendered = RenderedConfig::default()
            .file("caddy.json", format!("{:#}\n", configuration(plan)))
            .args(["run", "--config", &plan.path("caddy.json")])
            .env("GOMAXPROCS", plan.gateway.workers)
            .env("XDG_DATA_HOME", plan.path("data"))
            .env("XDG_CONFIG_HOME", plan.path("config"))
            .note_if(
                plan.gateway.requires_key(),
                "Caddy has no consumers; a matcher on the key's field does the nearest",
            );
        Ok(rendered)
    }

    fn changes_by(&self) -> &'static str {
        "admin API: PATCH of the upstreams"
    }

    fn change(&self, _before: &GatewayPlan, after: &GatewayPlan) -> Vec<GatewayStep> {
        let ids: &[&str] = if after.certificate.is_some() { &["up", "up-tls"] } else { &["up"] };
        let step = |id: &&str| GatewayStep::Http {
            method: "PATCH",
            port: after.ports.admin,
            target: format!("/id/{id}/upstreams"),
            headers: vec![("Content-Type", "application/json".to_owned())],
            body: Value::from(upstreams(after)).to_string(),
        };
        ids.iter().map(step).collect()
    }
}

/// Plain and TLS listeners are separate servers, because a TLS policy applies to all addresses of a server.
fn configuration(plan: &GatewayPlan) -> Value {
    let server = |id: &str, port: u16| {
        json!({ "listen": [format!("127.0.0.1:{port}")], "automatic_https": { "disable": true },
            "routes": routes(plan, id) })
    };
    let mut servers = json!({ "http": server("up", plan.ports.http) });
    let mut apps = json!({});
    if let Some(certificate) = &plan.certificate {
        let mut https = server("up-tls", plan.ports.https);
        https["protocols"] = json!(["h1", "h2"]);
        https["tls_connection_policies"] = json!([{}]);
        servers["https"] = https;
        apps["tls"] = json!({ "certificates": { "load_files": [
            { "certificate": text(&certificate.chain), "key": text(&certificate.key) }] } });
    }
    apps["http"] = json!({ "servers": servers });
    json!({
        "admin": { "listen": format!("127.0.0.1:{}", plan.ports.admin), "config": { "persist": false } },
        "logging": { "logs": { "default": { "level": "ERROR" } } },
        "apps": apps,
    })
}

fn routes(plan: &GatewayPlan, id: &str) -> Vec<Value> {
    let mut routes = Vec::new();
    if plan.gateway.requires_key() {
        routes.push(json!({ "match": [{ "not": [{ "header": { "Apikey": plan.keys() } }] }],
            "handle": [{ "handler": "static_response", "status_code": 401 }], "terminal": true }));
    }
    for i in 0..plan.gateway.routes {
        routes.push(json!({ "match": [{ "path": [format!("/r/{i}")] }], "handle": [handler(plan, None)],
            "terminal": true }));
    }
    routes.push(json!({ "handle": [handler(plan, Some(id))] }));
    routes
}

fn handler(plan: &GatewayPlan, id: Option<&str>) -> Value {
    if plan.gateway.responds_itself() {
        return json!({ "handler": "static_response", "status_code": 200, "body": mock_body() });
    }
    let mut handler = json!({ "handler": "reverse_proxy", "upstreams": upstreams(plan),
        "load_balancing": { "selection_policy": { "policy": "round_robin" } },
        "transport": { "protocol": "http", "keep_alive": { "max_idle_conns_per_host": plan.gateway.keepalive } } });
    if let Some(id) = id {
        handler["@id"] = json!(id);
    }
    handler
}

fn upstreams(plan: &GatewayPlan) -> Vec<Value> {
    plan.endpoints.iter().map(|endpoint| json!({ "dial": endpoint.to_string() })).collect()
}
