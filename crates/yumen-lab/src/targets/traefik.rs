//! Traefik: no access log, a watched file provider, idle upstream connections kept.

use serde_json::{Map, Value, json};

use super::plan::{GatewayPlan, GatewayStep, RenderedConfig, text};
use super::{GatewayAdapter, resources};

pub(super) struct TraefikAdapter;

/// The file provider reads YAML and TOML by extension and skips other files; JSON is YAML.
const DYNAMIC: &str = "dynamic/routes.yaml";

impl GatewayAdapter for TraefikAdapter {
    fn name(&self) -> &'static str {
        "traefik"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["traefik"]
    }

    fn how_to_get(&self) -> &'static str {
        "scripts/deps.sh lab-traefik, or the release archive of Traefik 3 (github.com/traefik/traefik/releases) on PATH"
    }

    fn version_args(&self) -> &'static [&'static str] {
        &["version"]
    }

    fn render(&self, plan: &GatewayPlan) -> Result<RenderedConfig, String> {
        if plan.gateway.requires_key() {
            return Err("Traefik has no authentication by key".to_owned());
        }
        if plan.gateway.responds_itself() {
            return Err("Traefik cannot answer in the place of an upstream".to_owned());
        }
        let rendered = RenderedConfig::default()
            .file("traefik.yaml", format!("{:#}\n", fixed(plan)))
            .file(DYNAMIC, format!("{:#}\n", routes(plan)))
            .args([format!("--configFile={}", plan.path("traefik.yaml"))])
            .env("GOMAXPROCS", plan.gateway.workers)
            .note_if(
                plan.gateway.limit_count,
                "Traefik's limit is a token bucket per address, not a counter per window",
            );
        Ok(rendered)
    }

    fn changes_by(&self) -> &'static str {
        "rewrite of a file it watches"
    }

    fn change(&self, _before: &GatewayPlan, after: &GatewayPlan) -> Vec<GatewayStep> {
        vec![GatewayStep::Write { file: DYNAMIC.to_owned(), text: format!("{:#}\n", routes(after)) }]
    }
}

fn fixed(plan: &GatewayPlan) -> Value {
    let mut entry_points = json!({ "http": { "address": format!("127.0.0.1:{}", plan.ports.http) } });
    if plan.certificate.is_some() {
        entry_points["https"] = json!({ "address": format!("127.0.0.1:{}", plan.ports.https) });
    }
    json!({
        "global": { "checkNewVersion": false, "sendAnonymousUsage": false },
        "log": { "level": "ERROR" },
        "entryPoints": entry_points,
        "providers": { "providersThrottleDuration": "0s",
            "file": { "directory": plan.path("dynamic"), "watch": true } },
        "serversTransport": { "maxIdleConnsPerHost": plan.gateway.keepalive },
    })
}

fn routes(plan: &GatewayPlan) -> Value {
    let middlewares: &[&str] = if plan.gateway.limit_count { &["limit"] } else { &[] };
    let router = |rule: String, priority: u32, entry: &str, tls: bool| {
        let mut router = json!({ "rule": rule, "priority": priority, "service": "up", "entryPoints": [entry],
            "middlewares": middlewares });
        if tls {
            router["tls"] = json!({});
        }
        router
    };
    let mut routers = Map::new();
    routers.insert("all".to_owned(), router("PathPrefix(`/`)".to_owned(), 1, "http", false));
    for i in 0..plan.gateway.routes {
        routers.insert(format!("r{i}"), router(format!("Path(`/r/{i}`)"), 2, "http", false));
    }
    if plan.certificate.is_some() {
        routers.insert("all-tls".to_owned(), router("PathPrefix(`/`)".to_owned(), 1, "https", true));
    }
    let servers: Vec<Value> =
        plan.endpoints.iter().map(|endpoint| json!({ "url": format!("http://{endpoint}") })).collect();
    let mut http =
        json!({ "routers": routers, "services": { "up": { "loadBalancer": { "servers": servers } } } });
    if plan.gateway.limit_count {
        http["middlewares"] = json!({ "limit": { "rateLimit": { "average": resources::LIMIT,
            "burst": resources::LIMIT } } });
    }
    let mut document = json!({ "http": http });
    if let Some(certificate) = &plan.certificate {
        document["tls"] = json!({ "certificates": [
            { "certFile": text(&certificate.chain), "keyFile": text(&certificate.key) }] });
    }
    document
}
