use serde_json::json;

use crate::testing::PluginBench;

#[test]
fn requests_without_an_api_are_answered_404() {
    let bench = PluginBench::new();
    for (settings, request, status) in [
        (json!({}), "GET /a HTTP/1.1", 404),
        (json!({}), "GET /apisix/plugin/wolf-rbac/user_info HTTP/1.1", 401),
        (json!({}), "POST /apisix/plugin/wolf-rbac/user_info HTTP/1.1", 404),
        (json!({ "uri": "/apisix/plugin/wolf-rbac/user_info" }), "GET /a HTTP/1.1", 401),
        (json!({ "uri": "/apisix/prometheus/metrics" }), "GET /a HTTP/1.1", 404),
    ] {
        let reply = bench.run(&bench.plugin("public-api", settings.clone()), request);
        assert_eq!((reply.status, reply.upstream.is_none()), (status, true), "{settings} {request}");
    }
}

#[test]
fn body_of_an_api_is_bounded() {
    let bench = PluginBench::new();
    let plugin = bench.plugin("public-api", json!({}));
    let login = "POST /apisix/plugin/wolf-rbac/login HTTP/1.1\n\n";
    assert_eq!(bench.run(&plugin, &format!("{login}{}", "a".repeat(64 * 1024))).status, 400);
    assert_eq!(bench.run(&plugin, &format!("{login}{}", "a".repeat(64 * 1024 + 1))).status, 413);
}
