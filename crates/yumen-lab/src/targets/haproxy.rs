//! HAProxy: reused server connections, no logs, endpoints changed in prepared slots by the runtime API.

use super::plan::{GatewayPlan, GatewayStep, RenderedConfig, StopSignal, mock_body, text};
use super::{GatewayAdapter, resources};
use crate::scenario::GatewaySettings;

pub(super) struct HaProxyAdapter;

impl GatewayAdapter for HaProxyAdapter {
    fn name(&self) -> &'static str {
        "haproxy"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["haproxy"]
    }

    fn how_to_get(&self) -> &'static str {
        "apt-get install haproxy"
    }

    fn version_args(&self) -> &'static [&'static str] {
        &["-v"]
    }

    fn check_args(&self, plan: &GatewayPlan) -> Option<Vec<String>> {
        Some(["-c", "-q", "-f", &plan.path("haproxy.cfg")].map(str::to_owned).into())
    }

    fn render(&self, plan: &GatewayPlan) -> Result<RenderedConfig, String> {
        let keys = plan.keys().join("\n") + "\n";
        let routes: String = (0..plan.gateway.routes).map(|i| format!("/r/{i} b\n")).collect();
        let mut rendered = RenderedConfig::default()
            .file("haproxy.cfg", configuration(plan))
            .args(["-db", "-f", &plan.path("haproxy.cfg")])
            .note_if(plan.gateway.requires_key(), "HAProxy has no consumers; a list of keys does the nearest")
            .note_if(plan.gateway.limit_count, "HAProxy counts in a stick table, a sliding rate per address");
        if plan.gateway.requires_key() {
            rendered = rendered.file("keys.lst", keys);
        }
        if plan.gateway.routes > 0 {
            rendered = rendered.file("routes.map", routes);
        }
        Ok(rendered)
    }

    fn changes_by(&self) -> &'static str {
        "runtime API: prepared server slots are readied and drained"
    }

    fn change(&self, before: &GatewayPlan, after: &GatewayPlan) -> Vec<GatewayStep> {
        let line = |line: String| GatewayStep::Line {
            port: after.ports.admin,
            line,
            good: &["changed from", "no need to change"],
        };
        let mut steps = Vec::new();
        for (slot, endpoint) in after.endpoints.iter().enumerate().skip(before.endpoints.len()) {
            let (ip, port) = (endpoint.ip(), endpoint.port());
            // The address first: a slot that is ready without one would receive requests.
            steps.push(line(format!("set server b/s{} addr {ip} port {port}", slot + 1)));
            steps.push(line(format!("set server b/s{} state ready", slot + 1)));
        }
        for slot in after.endpoints.len()..before.endpoints.len() {
            steps.push(line(format!("set server b/s{} state maint", slot + 1)));
        }
        steps
    }

    fn stop_signal(&self) -> StopSignal {
        StopSignal::Interrupt
    }
}

fn configuration(plan: &GatewayPlan) -> String {
    let GatewayPlan { ports, gateway: GatewaySettings { workers, .. }, connections_max, .. } = plan;
    let tls = plan.certificate.as_ref().map_or(String::new(), |certificate| {
        // HAProxy reads chain and key from one file.
        let both = text(&certificate.both);
        format!("  bind 127.0.0.1:{} ssl crt {both} alpn http/1.1 defer-accept backlog 65535\n", ports.https)
    });
    let routes = match plan.gateway.routes {
        0 => String::new(),
        _ => format!("  use_backend %[path,map_str({},b)]\n", plan.path("routes.map")),
    };
    format!(
        "global
  nbthread {workers}
  maxconn {maxconn}
  tune.ssl.default-dh-param 2048
{admin}defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  timeout http-keep-alive 300s
  http-reuse always
frontend f
  bind 127.0.0.1:{http} defer-accept backlog 65535
{tls}{rules}{routes}  default_backend b
backend b
  balance roundrobin
{servers}",
        maxconn = connections_max + 1024,
        admin = match plan.is_dynamic() {
            true => format!("  stats socket ipv4@127.0.0.1:{} level admin\n", ports.admin),
            false => String::new(),
        },
        http = ports.http,
        rules = rules(plan),
        servers = servers(plan),
    )
}

fn rules(plan: &GatewayPlan) -> String {
    let mut text = String::new();
    if plan.gateway.requires_key() {
        let keys = plan.path("keys.lst");
        text +=
            &format!("  http-request deny deny_status 401 unless {{ req.hdr(apikey) -m str -f {keys} }}\n");
    }
    if plan.gateway.limit_count {
        text += "  stick-table type ip size 100k expire 1h store http_req_rate(1h)\n  http-request track-sc0 src\n";
        let limit = resources::LIMIT;
        text += &format!("  http-request deny deny_status 503 if {{ sc_http_req_rate(0) gt {limit} }}\n");
    }
    if plan.gateway.responds_itself() {
        let body = mock_body().replace('\n', "\\n");
        text += &format!("  http-request return status 200 content-type text/plain string \"{body}\"\n");
    }
    text
}

/// One line per endpoint, and empty slots for further endpoints.
fn servers(plan: &GatewayPlan) -> String {
    let pool = format!("pool-max-conn {}", plan.gateway.keepalive);
    let mut text = String::new();
    for (slot, endpoint) in plan.endpoints.iter().enumerate() {
        text += &format!("  server s{} {endpoint} {pool}\n", slot + 1);
    }
    // Slots for the endpoints that changes add.
    let empty = plan.dynamic_endpoints_max.map_or(0..0, |most| plan.endpoints.len()..most);
    for slot in empty {
        text += &format!("  server s{} 127.0.0.1:1 {pool} disabled\n", slot + 1);
    }
    text
}
