//! NGINX, open source: upstream keep-alive, no logs, endpoints changed by a rewrite and a reload.

use super::plan::{GatewayPlan, GatewayStep, RenderedConfig, StopSignal, mock_body, text};
use super::{GatewayAdapter, resources};
use crate::scenario::GatewaySettings;

pub(super) struct NginxAdapter;

const PROXY: &str = "proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection \"\";";

impl GatewayAdapter for NginxAdapter {
    fn name(&self) -> &'static str {
        "nginx"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["nginx"]
    }

    fn how_to_get(&self) -> &'static str {
        "apt-get install nginx-light"
    }

    fn version_args(&self) -> &'static [&'static str] {
        &["-v"]
    }

    fn check_args(&self, plan: &GatewayPlan) -> Option<Vec<String>> {
        Some(
            ["-t", "-q", "-p", &plan.path(""), "-c", &plan.path("nginx.conf"), "-e", "stderr"]
                .map(str::to_owned)
                .into(),
        )
    }

    fn render(&self, plan: &GatewayPlan) -> Result<RenderedConfig, String> {
        if plan.gateway.responds_itself() && plan.gateway.limit_count {
            // `return` belongs to the rewrite phase, `limit_req` to the later preaccess phase.
            return Err("NGINX answers with `return` before it counts, so it cannot do both".to_owned());
        }
        let rendered = RenderedConfig::default()
            .file("nginx.conf", configuration(plan))
            .args(["-p", &plan.path(""), "-c", &plan.path("nginx.conf"), "-e", &plan.path("error.log")])
            .note_if(
                plan.gateway.limit_count,
                "NGINX has no counter per window; limit_req, a leaky bucket per address, does the nearest",
            )
            .note_if(
                plan.gateway.requires_key(),
                "NGINX has no consumers; a map of keys to names does the nearest",
            );
        Ok(rendered)
    }

    fn changes_by(&self) -> &'static str {
        "rewrite of nginx.conf and reload"
    }

    fn change(&self, _before: &GatewayPlan, after: &GatewayPlan) -> Vec<GatewayStep> {
        vec![
            GatewayStep::Write { file: "nginx.conf".to_owned(), text: configuration(after) },
            GatewayStep::Reload,
        ]
    }

    fn stop_signal(&self) -> StopSignal {
        StopSignal::Terminate
    }
}

fn configuration(plan: &GatewayPlan) -> String {
    let GatewayPlan { ports, gateway: GatewaySettings { workers, keepalive, .. }, .. } = plan;
    let limit = resources::LIMIT;
    // The temporary directories too: the compiled-in ones may not be writable.
    let folder = plan.path("");
    let servers: String = plan.endpoints.iter().map(|endpoint| format!(" server {endpoint};")).collect();
    let location = location(plan);
    let routes: String =
        (0..plan.gateway.routes).map(|i| format!("    location = /r/{i} {location}\n")).collect();
    let (tls, listen_tls) = tls(plan);
    format!(
        "daemon off;
worker_processes {workers};
worker_rlimit_nofile {files};
pid {pid};
error_log {errors} error;
events {{ worker_connections {connections}; multi_accept on; }}
http {{
  access_log off; server_tokens off; sendfile on; tcp_nopush on; tcp_nodelay on;
  keepalive_timeout 300s; keepalive_requests {limit}; default_type text/plain;
  client_body_temp_path {folder}b; proxy_temp_path {folder}p; fastcgi_temp_path {folder}f;
  uwsgi_temp_path {folder}u; scgi_temp_path {folder}s;
{zones}  upstream up {{{servers} keepalive {keepalive}; keepalive_requests {limit}; keepalive_timeout 300s; }}
{tls}  server {{
    listen 127.0.0.1:{http} deferred reuseport backlog=65535;
{listen_tls}    location / {location}
{routes}  }}
}}
",
        files = plan.connections_room() * 2,
        pid = plan.path("nginx.pid"),
        errors = plan.path("error.log"),
        connections = plan.connections_room() * 2,
        zones = zones(plan),
        http = ports.http,
    )
}

/// Shared memory zones and maps for keys and limits.
fn zones(plan: &GatewayPlan) -> String {
    let mut text = String::new();
    if plan.gateway.requires_key() {
        let keys: String =
            plan.keys().iter().enumerate().map(|(i, key)| format!(" \"{key}\" consumer{i};")).collect();
        text += &format!("  map $http_apikey $consumer {{ default \"\";{keys} }}\n");
    }
    if plan.gateway.limit_count {
        text += "  limit_req_zone $binary_remote_addr zone=z:1m rate=1000000r/s;\n";
    }
    text
}

fn location(plan: &GatewayPlan) -> String {
    let auth = if plan.gateway.requires_key() { "if ($consumer = \"\") { return 401; } " } else { "" };
    let limit = if plan.gateway.limit_count { "limit_req zone=z burst=1000000 nodelay; " } else { "" };
    let answer = match plan.gateway.responds_itself() {
        true => format!("return 200 \"{}\";", mock_body().replace('\n', "\\n")),
        false => PROXY.to_owned(),
    };
    format!("{{ {auth}{limit}{answer} }}")
}

/// Settings of the http block, and the TLS listener.
fn tls(plan: &GatewayPlan) -> (String, String) {
    let Some(certificate) = &plan.certificate else { return Default::default() };
    let settings = format!(
        "  ssl_certificate {}; ssl_certificate_key {};
  ssl_session_cache shared:s:10m; ssl_session_tickets on; ssl_protocols TLSv1.2 TLSv1.3;\n",
        text(&certificate.chain),
        text(&certificate.key)
    );
    let listen = format!("    listen 127.0.0.1:{} ssl deferred reuseport backlog=65535;\n", plan.ports.https);
    (settings, listen)
}
