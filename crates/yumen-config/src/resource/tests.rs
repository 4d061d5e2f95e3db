//! Typed decoding: rules, messages, paths, normal forms.

use serde_json::{Value, json};

use super::*;

fn refused(kind: Kind, value: Value, path: &str, message: &str) {
    let given = value.to_string();
    let expected = if message.is_empty() { Ok(()) } else { Err((path.to_owned(), message.to_owned())) };
    let found = check(kind, value).map_err(|refused| (refused.path, refused.message));
    assert_eq!(found, expected, "{given}");
}

#[test]
fn route_errors_match_apisix() {
    let uri = "property \"uri\" validation failed: ";
    let needs = concat!(
        r#"object matches none of the required: ["plugins","uri"] or ["upstream","uri"] or ["upstream_id","uri"]"#,
        r#" or ["service_id","uri"] or ["plugins","uris"] or ["upstream","uris"] or ["upstream_id","uris"]"#,
        r#" or ["service_id","uris"] or ["script","uri"] or ["script","uris"]"#,
    );
    let table = [
        (json!({"uri": "/", "plugins": {}}), "", String::new()),
        (json!({"id": 7, "uris": ["/a"], "service_id": "s", "methods": ["GET"]}), "", String::new()),
        (json!({"uri": "/"}), "", needs.to_owned()),
        (
            json!({"plugins": {}}),
            "",
            "allOf 1 failed: value should match only one schema, but matches none".to_owned(),
        ),
        (
            json!({"uri": "/", "uris": ["/"], "plugins": {}}),
            "",
            "allOf 1 failed: value should match only one schema, but matches both schemas 1 and 2".to_owned(),
        ),
        (
            json!({"uri": "/", "host": "a", "hosts": ["b"], "plugins": {}}),
            "hosts",
            "only one of host or hosts is allowed".to_owned(),
        ),
        (
            json!({"uri": "/", "remote_addr": "1.1.1.1", "remote_addrs": ["1.1.1.1"], "plugins": {}}),
            "remote_addrs",
            "only one of remote_addr or remote_addrs is allowed".to_owned(),
        ),
        (
            json!({"uri": "/", "script": "return 1 + 1", "plugins": {}}),
            "",
            "value wasn't supposed to match schema".to_owned(),
        ),
        (json!({"uri": 1, "plugins": {}}), "uri", format!("{uri}wrong type: expected string, got number")),
        (
            json!({"uri": "/", "plugins": {}, "methods": ["GOT"]}),
            "methods[0]",
            "property \"methods\" validation failed: failed to validate item 1: matches none of the enum values"
                .to_owned(),
        ),
        (
            json!({"id": "a b", "uri": "/", "plugins": {}}),
            "id",
            "property \"id\" validation failed: object matches none of the required".to_owned(),
        ),
        (
            json!({"uri": "/", "plugins": {}, "hots": "x"}),
            "hots",
            "additional properties forbidden, found hots".to_owned(),
        ),
        (
            json!({"uri": "/", "plugins": {}, "timeout": {"connect": 0, "send": 1, "read": 1}}),
            "timeout.connect",
            "property \"timeout\" validation failed: property \"connect\" validation failed: expected 0 to be greater than 0"
                .to_owned(),
        ),
        (
            json!({"uri": "/", "upstream": {"type": "chash", "nodes": {}}}),
            "upstream.key",
            "missing key".to_owned(),
        ),
    ];
    for (value, path, message) in table {
        refused(Kind::Routes, value, path, &message);
    }
}

#[test]
fn upstream_errors_match_apisix() {
    let none = "value should match only one schema, but matches none";
    let table = [
        (json!({}), "", none),
        (
            json!({"nodes": {}, "service_name": "a", "discovery_type": "dns"}),
            "",
            "value should match only one schema, but matches both schemas 1 and 2",
        ),
        (json!({"service_name": "a", "discovery_type": "dns"}), "", ""),
        (
            json!({"nodes": [{"host": "a", "port": 65536, "weight": 1}]}),
            "nodes",
            "property \"nodes\" validation failed: object matches none of the required",
        ),
        (json!({"nodes": {"a:65536": 1}}), "", "invalid port 65536"),
        (json!({"nodes": {"127.0.0.1:+1": 1}}), "", "invalid port +1"),
        (json!({"nodes": {"127.0.0.1:1": 1, "127.0.0.1:01": 1}}), "", "invalid port 01"),
        (
            json!({"nodes": {"a": 1}, "pass_host": "rewrite"}),
            "upstream_host",
            "`upstream_host` can't be empty when `pass_host` is `rewrite`",
        ),
        (json!({"nodes": {"a": 1}, "scheme": "tcp"}), "nodes[0].port", "property \"port\" is required"),
        (json!({"nodes": {"a": 1}, "type": "chash", "hash_on": "consumer"}), "", ""),
        (
            json!({"nodes": {"a": 1}, "type": "chash", "key": "uri", "slow_start_ms": 5}),
            "slow_start_ms",
            "`slow_start_ms` cannot be used with `type` chash: a key always has the same endpoint",
        ),
        (
            json!({"nodes": {"a": 1}, "checks": {"active": {"timeout": 0}}}),
            "checks.active.timeout",
            "`timeout` of a probe must be more than 0 seconds",
        ),
        (
            json!({"nodes": {"a": 1}, "checks": {"active": {"req_headers": ["a: b", "c"]}}}),
            "checks.active.req_headers[1]",
            "a header is written `Name: value`",
        ),
        (json!({"nodes": {"a": 1}, "checks": {"active": {"req_headers": ["a: b"]}}}), "", ""),
        // Reported, and left out of the probe.
        (json!({"nodes": {"a": 1}, "checks": {"active": {"req_headers": ["Content-Length: 5"]}}}), "", ""),
        (json!({"nodes": {"a": 1}, "slow_start_ms": 5, "on_change": {"drain": 2.5}}), "", ""),
        (json!({"nodes": {"a": 1}, "on_change": "close"}), "", ""),
        (
            json!({"nodes": {"a": 1}, "on_change": "later"}),
            "on_change",
            "property \"on_change\" validation failed: value should match only one schema, but matches none",
        ),
        (json!({"nodes": {"a": 1}, "type": "chash", "key": "remote_addr"}), "", ""),
        (
            json!({"nodes": {"a": 1}, "type": "chash", "hash_on": "header", "key": "a b"}),
            "key",
            "failed to match pattern \"^[a-zA-Z0-9-_]+$\" with \"a b\"",
        ),
        (
            json!({"nodes": {"a": 1}, "checks": {}}),
            "checks",
            "property \"checks\" validation failed: object matches none of the required: [\"active\"] or [\"active\",\"passive\"]",
        ),
        (
            json!({"nodes": {"a": 1}, "tls": {"client_cert": "x"}}),
            "tls.client_cert",
            "property \"tls\" validation failed: property \"client_cert\" validation failed: string too short, expected at least 128, got 1",
        ),
    ];
    for (value, path, message) in table {
        refused(Kind::Upstreams, value, path, message);
    }
}

#[test]
fn other_kinds_have_their_rules() {
    let pem = "x".repeat(128);
    let table = [
        (Kind::Consumers, json!({"username": "a_b-c"}), "", ""),
        (Kind::Consumers, json!({}), "username", "property \"username\" is required"),
        (
            Kind::Consumers,
            json!({"username": "a b"}),
            "username",
            r#"property "username" validation failed: failed to match pattern "^[a-zA-Z0-9_\\-]+$" with "a b""#,
        ),
        (Kind::Credentials, json!({"plugins": {"key-auth": {"key": "a"}}}), "", ""),
        (
            Kind::Credentials,
            json!({"plugins": {"a": {}, "b": {}}}),
            "plugins",
            "property \"plugins\" validation failed: expect object to have at most 1 properties",
        ),
        (Kind::ConsumerGroups, json!({}), "plugins", "property \"plugins\" is required"),
        (
            Kind::PluginConfigs,
            json!({"plugins": {}, "labels": {"a": "b c"}}),
            "labels.a",
            "property \"labels\" validation failed: failed to validate a (matching \".*\"): failed to match pattern \"^\\\\S+$\" with \"b c\"",
        ),
        (Kind::GlobalRules, json!({"id": "1", "plugins": {}}), "", ""),
        (Kind::PluginMetadata, json!({"id": "x", "log_format": {}}), "", ""),
        (
            Kind::Services,
            json!({"hosts": ["a b"]}),
            "hosts[0]",
            r#"property "hosts" validation failed: failed to validate item 1: failed to match pattern "^\\*$|^\\*?[0-9a-zA-Z-._\\[\\]:]+$" with "a b""#,
        ),
        (Kind::Ssls, json!({"cert": pem, "key": "$env://KEY", "sni": "a.com"}), "", ""),
        (Kind::Ssls, json!({"cert": pem, "key": format!("$secret://{pem}"), "sni": "a.com"}), "", ""),
        // The loader of certificates reports why the key is invalid.
        (Kind::Ssls, json!({"cert": pem, "key": "short", "sni": "a.com"}), "", ""),
        (
            Kind::Ssls,
            json!({"cert": pem, "key": "", "sni": "a.com"}),
            "key",
            "property \"key\" validation failed: value should match only one schema, but matches none",
        ),
        (Kind::Ssls, json!({"cert": pem, "key": pem}), "", "then clause did not match"),
        (Kind::Ssls, json!({"cert": pem, "key": pem, "type": "client"}), "", ""),
        (
            Kind::Ssls,
            json!({"cert": pem, "key": pem, "sni": "a", "certs": [pem]}),
            "keys",
            "mismatched number of certs and keys",
        ),
        (Kind::Protos, json!({"content": "x"}), "", ""),
        (
            Kind::StreamRoutes,
            json!({"server_port": 9100, "upstream": {"scheme": "tcp", "nodes": {"a:1": 1}}}),
            "",
            "",
        ),
        (Kind::Secrets, json!({"id": "vault/1", "uri": "http://a", "prefix": "kv", "token": "t"}), "", ""),
        (Kind::Tests, json!({"request": {"url": "/a"}, "expect": {"route": null}}), "", ""),
        (Kind::Tests, json!({"request": {"url": "/a"}, "expect": {"route": 7, "path": "/b"}}), "", ""),
        (
            Kind::Tests,
            json!({"request": {"url": "/a", "metod": "GET"}, "expect": {"status": 404}}),
            "request.metod",
            "property \"request\" validation failed: additional properties forbidden, found metod",
        ),
        (
            Kind::Tests,
            json!({"request": {"url": "/a"}, "expect": {"status": 42}}),
            "expect.status",
            "property \"expect\" validation failed: property \"status\" validation failed: expected 42 to be at least 100",
        ),
    ];
    for (kind, value, path, message) in table {
        refused(kind, value, path, message);
    }
}

fn nodes(upstream: Value) -> Vec<(String, u16, u32)> {
    let upstream: UpstreamSpec = decode(&upstream.to_string()).expect("valid");
    upstream.nodes.unwrap_or_default().0.into_iter().map(|n| (n.host, n.port, n.weight)).collect()
}

#[test]
fn nodes_have_one_form_however_written() {
    let table = [
        (json!({"nodes": {"a:81": 2, "b": 0}}), vec![("a", 81, 2), ("b", 80, 0)]),
        (json!({"nodes": {"a": 1}, "scheme": "https"}), vec![("a", 443, 1)]),
        (
            json!({"nodes": {"[::1]:8080": 1, "::1": 1, "[::2]": 1}}),
            vec![("[::1]", 8080, 1), ("[::1]", 80, 1), ("[::2]", 80, 1)],
        ),
        (json!({"nodes": [{"host": "::1", "weight": 1.0}]}), vec![("[::1]", 80, 1)]),
        (json!({"nodes": []}), vec![]),
        (json!({"nodes": {}}), vec![]),
    ];
    for (written, expected) in table {
        let expected: Vec<_> =
            expected.into_iter().map(|(host, port, weight)| (host.to_owned(), port, weight)).collect();
        assert_eq!(nodes(written.clone()), expected, "{written}");
    }
}

#[test]
fn defaults_are_apisixs() {
    let route: RouteSpec = decode(r#"{"id": 3, "uri": "/", "upstream": {"nodes": {"a": 1}, "checks": {"active": {"healthy": {"interval": 2}}}, "keepalive_pool": {"size": 4}}}"#).expect("valid");
    assert_eq!((route.id, route.priority, route.status), (Some(ResourceId::from("3")), 0, 1));
    let upstream = route.upstream.expect("written");
    assert_eq!(
        (upstream.balance, upstream.hash_on, upstream.scheme, upstream.pass_host),
        (BalancerType::Roundrobin, HashOn::Vars, SchemeSpec::Http, PassHostMode::Pass)
    );
    let checks = upstream.checks.expect("written");
    assert_eq!((checks.active.healthy.interval, checks.active.healthy.http_statuses), (2, vec![200, 302]));
    assert_eq!(
        (checks.active.unhealthy, checks.active.http_path.as_str()),
        (ActiveUnhealthy::default(), "/")
    );
    assert!(checks.passive.is_none());
    let pool = upstream.keepalive_pool.expect("written");
    assert_eq!((pool.size, pool.idle_timeout, pool.requests), (4, 60.0, 1000));
}

#[test]
fn every_kind_has_a_name_and_a_plain_schema() {
    for kind in Kind::ALL {
        assert_eq!(Kind::from_name(kind.name()), Some(kind));
        let schema = schema_of(kind);
        assert_eq!(schema["type"], "object", "{}", kind.name());
        let text = schema.to_string();
        for noise in [
            "\"$ref\"",
            "\"null\"",
            "\"title\"",
            "\"$schema\"",
            "\"format\":\"int",
            "\"format\":\"uint",
            "\"default\":null",
        ] {
            assert!(!text.contains(noise), "{noise} in {text}");
        }
    }
    assert_eq!(Kind::from_name("route"), None);
}

#[test]
fn bounds_of_an_upstream_must_bound_something() {
    let with = |limits: Value| json!({"nodes": {"a:80": 1}, "limits": limits});
    let table = [
        (with(json!({"max_requests": 1})), "", ""),
        (with(json!({"per_endpoint": {"max_connections": 1}})), "", ""),
        (
            with(json!({"per_endpoint": {}})),
            "limits.per_endpoint",
            "needs `max_requests` or `max_connections`",
        ),
    ];
    for (value, path, message) in table {
        refused(Kind::Upstreams, value, path, message);
    }
    let http1 = "`max_connections` bounds connections of HTTP/1.1; use `max_requests` with HTTP/2";
    let mut grpc = with(json!({"max_connections": 1}));
    grpc["scheme"] = json!("grpc");
    refused(Kind::Upstreams, grpc, "limits.max_connections", http1);
    let mut http2 = with(json!({"per_endpoint": {"max_connections": 1}}));
    http2["http_version"] = json!("2");
    refused(Kind::Upstreams, http2, "limits.per_endpoint.max_connections", http1);
    assert!(check(Kind::Upstreams, with(json!({"max_pending": 3}))).is_err(), "it bounds nothing");
}

#[test]
fn protection_has_mild_defaults() {
    let upstream: UpstreamSpec = decode(
        r#"{"nodes": {"a": 1}, "limits": {"max_requests": 9}, "outlier_detection": {}, "retry_budget": {}, "timeout": {"connect": 1, "send": 1, "read": 1, "total": 2.5}}"#,
    )
    .expect("valid");
    let limits = upstream.limits.expect("written");
    assert_eq!((limits.max_pending, limits.pending_timeout), (0, 1.0));
    let outliers = upstream.outlier_detection.expect("written");
    assert_eq!((outliers.consecutive_5xx, outliers.max_ejected_percent), (5, 50));
    assert_eq!(outliers, OutlierDetectionSpec::default());
    assert_eq!(upstream.retry_budget, Some(RetryBudgetSpec::default()));
    assert_eq!(upstream.timeout.and_then(|timeout| timeout.total), Some(2.5));
}

#[test]
fn a_probe_leaves_out_the_fields_that_would_frame_it_twice() {
    // (body, req_headers, fields that are sent)
    for (body, lines, sent) in [
        ("", &["Content-Length: 0", "A: 1"][..], &[("Content-Length", "0"), ("A", "1")][..]),
        ("", &["content-length: 1", "A:1"], &[("A", "1")]),
        ("", &["Content-Length: +0"], &[]),
        ("abc", &["Content-Length: 0", "Content-Length: 3"], &[]),
        ("abc", &["Transfer-Encoding: chunked", "Transfer-Encoding : identity"], &[]),
        ("", &["X: a\r\nY: b", "X\r\nY: b", "Z: 1\r\n", "T: a\tb"], &[("Z", "1"), ("T", "a\tb")]),
        ("", &["Host: a", "host: b", "A B: 1", ": 1"], &[("Host", "a")]),
    ] {
        let req_headers = Some(lines.iter().map(|line| (*line).to_owned()).collect());
        let check = ActiveCheck { http_req_body: body.into(), req_headers, ..ActiveCheck::default() };
        assert_eq!(check.probe_fields().collect::<Vec<_>>(), sent, "{body} {lines:?}");
    }
}
