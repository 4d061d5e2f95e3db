//! Yumen with its defaults except for the idle timeout and the connection limit. With dynamic changes, it
//! uses the embedded store and the Admin API; otherwise a file.

use serde_json::json;

use super::plan::{GatewayPlan, GatewayStep, RenderedConfig};
use super::{GatewayAdapter, resources};

const ADMIN_KEY: &str = "lab-admin-key-0123456789";

pub(super) struct YumenAdapter;

impl GatewayAdapter for YumenAdapter {
    fn name(&self) -> &'static str {
        "yumen"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["yumen"]
    }

    fn how_to_get(&self) -> &'static str {
        "make dist, then put target/dist/yumen on PATH or name it in YUMEN_BENCH_YUMEN"
    }

    fn version_args(&self) -> &'static [&'static str] {
        &["--version"]
    }

    fn render(&self, plan: &GatewayPlan) -> Result<RenderedConfig, String> {
        let ports = plan.ports;
        let node = json!({
            "admin": { "keys": [{ "name": "lab", "key": ADMIN_KEY, "role": "admin" }] },
            "limits": { "connections_per_worker": plan.connections_room().max(65_536) },
            "logs": { "level": "warn" },
            // The same value as for the other gateways, so that connections are not closed during a hold.
            "timeouts": { "idle_ms": 300_000 },
            "store": { "kind": if plan.is_dynamic() { "embedded" } else { "file" }, "file": plan.path("routes.yaml") },
        });
        let address = |port: u16| format!("127.0.0.1:{port}");
        let mut args: Vec<String> = ["run", "--config", &plan.path("yumen.yaml")].map(str::to_owned).into();
        args.extend(["--data-dir".to_owned(), plan.path("data")]);
        args.extend(["--workers".to_owned(), plan.gateway.workers.to_string()]);
        for (option, port) in [
            ("--listen", ports.http),
            ("--listen-tls", ports.https),
            ("--admin", ports.admin),
            ("--status", ports.status),
        ] {
            args.extend([option.to_owned(), address(port)]);
        }
        let node = serde_yaml_ng::to_string(&node).map_err(|error| error.to_string())?;
        let rendered = RenderedConfig::default().file("yumen.yaml", node).args(args);
        Ok(if plan.is_dynamic() {
            rendered
        } else {
            rendered.file("routes.yaml", resources::standalone_yaml(plan))
        })
    }

    fn setup(&self, plan: &GatewayPlan) -> Vec<GatewayStep> {
        // The file was written before the start.
        if !plan.is_dynamic() {
            return Vec::new();
        }
        // The response must not come before the configuration is applied, since the first request follows it.
        let target = "/yumen/v1/import?mode=replace&confirm=true&wait=applied".to_owned();
        vec![ask("POST", plan, target, resources::standalone_yaml(plan))]
    }

    fn changes_by(&self) -> &'static str {
        "Admin API: PUT of the upstream, answered when it is in force"
    }

    fn change(&self, _before: &GatewayPlan, after: &GatewayPlan) -> Vec<GatewayStep> {
        let target = "/apisix/admin/upstreams/up?wait=applied".to_owned();
        vec![ask("PUT", after, target, resources::upstream(after).to_string())]
    }
}

fn ask(method: &'static str, plan: &GatewayPlan, target: String, body: String) -> GatewayStep {
    GatewayStep::Http {
        method,
        port: plan.ports.admin,
        target,
        headers: vec![("X-API-KEY", ADMIN_KEY.to_owned())],
        body,
    }
}
