//! The page of the Control API, which the status listener serves without a key.

use serde_json::json;

use super::{check, gateway};
use crate::harness::{Client, Gateway, eventually};

fn ask(gateway: &Gateway, method: &str, path: &str) -> (u16, String) {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    let reply = Client::connect(gateway.status).send(request).reply();
    (reply.status, reply.text())
}

#[test]
fn active_configuration_is_shown_by_kind_and_id() {
    let gateway = gateway();
    check(
        &gateway,
        &[
            ("PUT upstreams/u", r#"{"nodes":{"127.0.0.1:1980":1}}"#, 201, ""),
            ("PUT services/s", r#"{"upstream_id":"u"}"#, 201, ""),
            ("PUT routes/r", r#"{"uri":"/a","service_id":"s"}"#, 201, ""),
            ("PUT plugin_metadata/file-logger?wait=applied", r#"{"path":"logs/a.log"}"#, 201, ""),
        ],
    );
    eventually("the objects are shown", 5, || ask(&gateway, "GET", "/v1/route/r").0 == 200);
    for (request, status, part) in [
        ("GET /v1/schema", 200, r#""stream_plugins":"#),
        ("GET /v1/healthcheck", 200, ""),
        ("GET /v1/healthcheck/upstreams/u", 404, "error_msg"),
        ("POST /v1/gc", 200, ""),
        ("GET /v1/routes", 200, r#""/apisix/routes/r""#),
        ("GET /v1/route/r", 200, r#""service_id":"s""#),
        ("GET /v1/route/none", 404, r#"{"error_msg":"route[none] not found"}"#),
        ("GET /v1/services", 200, r#""/apisix/services/s""#),
        ("GET /v1/service/s", 200, r#""upstream_id":"u""#),
        ("GET /v1/service/none", 404, r#"{"error_msg":"service[none] not found"}"#),
        ("GET /v1/upstreams", 200, r#""/apisix/upstreams/u""#),
        ("GET /v1/upstream/u", 200, "127.0.0.1:1980"),
        ("GET /v1/upstream/none", 404, r#"{"error_msg":"upstream[none] not found"}"#),
        ("GET /v1/plugin_metadatas", 200, r#""id":"file-logger""#),
        ("GET /v1/plugin_metadata/file-logger", 200, "logs/a.log"),
        ("GET /v1/plugin_metadata/none", 404, r#"{"error_msg":"plugin metadata[none] not found"}"#),
        ("PUT /v1/plugins/reload", 200, "done"),
        ("GET /v1/discovery/dns/dump", 200, r#""services":"#),
    ] {
        let (method, path) = request.split_once(' ').unwrap();
        let (found, text) = ask(&gateway, method, path);
        assert_eq!((found, text.contains(part)), (status, true), "{request}: {text}");
    }
    let (_, status) = ask(&gateway, "GET", "/status");
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["status"], json!("ok"));
    let (_, metrics) = ask(&gateway, "GET", "/metrics");
    assert!(metrics.contains("\napisix_nginx_metric_errors_total 0\n"), "{metrics}");
}
