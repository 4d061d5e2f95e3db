use std::sync::Arc;

use serde_json::{Value, json};
use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_config::{Kind, Resource};
use yumen_store::{Authorship, MemoryMedium, MemoryStore, Proposal};

use super::*;

/// Metrics of the node, as the status listener would gather them.
struct NodeMetrics(Vec<MetricFamily>);

impl MetricSource for NodeMetrics {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        out.extend(self.0.iter().cloned());
    }
}

fn metric(name: &'static str, labels: &[(&'static str, &str)], value: MetricValue) -> MetricFamily {
    let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let samples = vec![MetricSeries { labels, value }];
    MetricFamily { name: name.into(), help: "h".into(), kind: MetricKind::Counter, samples }
}

fn counted(name: &'static str, labels: &[(&'static str, &str)], value: f64) -> MetricFamily {
    metric(name, labels, MetricValue::Number(value))
}

const ROUTE: &str = "shop/cart!ingress!_.shop.test!0.0";

fn node_metrics() -> NodeMetrics {
    let latency = MetricValue::Buckets { buckets: vec![(1.0, 2), (5.0, 3)], sum: 9.0, count: 4 };
    let request = |kind| vec![("type", kind), ("route", ROUTE)];
    NodeMetrics(vec![
        counted("apisix_http_status", &[("code", "200"), ("route", ROUTE), ("node", "10.0.0.1")], 3.0),
        counted("apisix_http_status", &[("code", "200"), ("route", ROUTE), ("node", "10.0.0.2")], 4.0),
        counted("apisix_http_status", &[("code", "404"), ("route", "infra/web!http!00!000")], 9.0),
        metric("apisix_http_latency", &request("request"), latency.clone()),
        metric("apisix_http_latency", &request("upstream"), latency),
        counted("apisix_bandwidth", &request("ingress"), 700.0),
        counted("apisix_bandwidth", &request("egress"), 1400.0),
        counted("yumen_connections", &[], 5.0),
        counted("yumen_connections_accepted_total", &[], 12.0),
        counted("yumen_connections_refused_total", &[], 2.0),
        counted("yumen_requests_total", &[("class", "2xx")], 7.0),
        counted("yumen_requests_total", &[("class", "4xx")], 9.0),
        counted("yumen_kubernetes_settled", &[], 1.0),
        counted("yumen_kubernetes_translations", &[], 6.0),
        counted("yumen_tls_certificate_expiry_seconds", &[("ssl", "tls!1"), ("sni", "a.shop.test")], 1.8e9),
    ])
}

fn store() -> Arc<MemoryStore> {
    let resource =
        |kind, id: &str, value: Value| Resource { kind, id: id.into(), json: value.to_string().into() };
    let route = |path: &str, backend: Value| json!({ "uri": "/*", "match": { "paths": { "prefix": [path] } }, "backends": [backend] });
    let resources = vec![
        resource(Kind::Upstreams, "shop/cart!ingress!80.http", json!({ "nodes": [{ "host": "10.0.0.1" }] })),
        resource(Kind::Upstreams, "shop/idle!ingress!80.http", json!({ "nodes": [] })),
        resource(Kind::Routes, ROUTE, route("/cart", json!({ "upstream_id": "shop/cart!ingress!80.http" }))),
        resource(
            Kind::Routes,
            "shop/idle!ingress!idle.test!0.0",
            route("/", json!({ "upstream_id": "shop/idle!ingress!80.http" })),
        ),
        resource(Kind::Routes, "shop/gone!ingress!_!0.0", route("/", json!({ "status": 503 }))),
        resource(Kind::Ssls, "tls!1", json!({ "labels": { "origin": "Ingress/shop/cart" } })),
    ];
    let store = Arc::new(MemoryMedium::store(10).unwrap());
    let (done, committed) = std::sync::mpsc::channel();
    store.propose(Proposal {
        by: Authorship::by("test"),
        decide: Box::new(move |draft| {
            draft.replace_all(&resources, &[]);
            true
        }),
        done: Box::new(move |result| {
            let _ = done.send(result.is_ok());
        }),
    });
    assert!(committed.recv().unwrap());
    store
}

#[test]
fn dashboards_of_ingress_nginx_find_their_series() {
    let metrics = NginxMetrics {
        controller: ControllerLabels {
            class: "k8s.io/ingress-nginx".to_owned(),
            namespace: "yumen".to_owned(),
            pod: "yumen-0".to_owned(),
        },
        sources: vec![Arc::new(node_metrics())],
        store: store(),
        process: || ProcessUse { cpu_s: 1.5, resident_bytes: 4096.0 },
    };
    let mut families = Vec::new();
    metrics.gather(&mut families);
    let text = yumen_admin::exposition(families).unwrap();
    let controller =
        "controller_class=\"k8s.io/ingress-nginx\",controller_namespace=\"yumen\",controller_pod=\"yumen-0\"";
    let check = |name: &str, labels: &[&str], value: &str| {
        let is_line = |line: &&str| {
            let rest =
                line.strip_prefix("nginx_ingress_controller_").and_then(|rest| rest.strip_prefix(name));
            rest.is_some_and(|rest| rest.starts_with('{'))
                && line.contains(controller)
                && labels.iter().all(|label| line.contains(label))
        };
        let lines: Vec<&str> = text.lines().filter(is_line).collect();
        assert!(
            matches!(lines[..], [line] if line.ends_with(&format!(" {value}"))),
            "{name} {labels:?}: {lines:#?}\n{text}"
        );
    };
    let cart: &[&str] = &[
        "namespace=\"shop\"",
        "ingress=\"cart\"",
        "service=\"cart\"",
        "host=\"*.shop.test\"",
        "path=\"/cart\"",
    ];
    check("requests", &[cart, &["status=\"200\""]].concat(), "7");
    assert!(!text.contains("404"), "routes of Gateways have no such series");
    check("request_duration_seconds_count", cart, "4");
    check("request_duration_seconds_sum", cart, "0.009");
    check("request_duration_seconds_bucket", &[cart, &["le=\"0.005\""]].concat(), "3");
    check("response_duration_seconds_bucket", &[cart, &["le=\"+Inf\""]].concat(), "4");
    check("request_size_sum", cart, "700");
    check("response_size_sum", cart, "1400");
    check("response_size_count", cart, "7");
    check("nginx_process_connections", &["state=\"active\""], "5");
    check("nginx_process_connections_total", &["state=\"handled\""], "10");
    check("nginx_process_requests_total", &[], "16");
    check("nginx_process_cpu_seconds_total", &[], "1.5");
    check("nginx_process_resident_memory_bytes", &[], "4096");
    check("config_last_reload_successful", &[], "1");
    check("success", &[], "6");
    check("errors", &[], "0");
    check("build_info", &["repository=\"yumen\""], "1");
    check("ssl_expire_time_seconds", &["host=\"a.shop.test\"", "namespace=\"shop\""], "1800000000");
    check("orphan_ingress", &["ingress=\"idle\"", "type=\"no-endpoint\""], "1");
    check("orphan_ingress", &["ingress=\"gone\"", "type=\"no-service\""], "1");
    assert!(!text.contains("ingress=\"cart\",type"), "an Ingress with endpoints is no orphan");
}
