//! The page of deployment modes: the whole configuration in one document.

use serde_json::Value;

use super::{check, gateway, send};

#[test]
fn a_document_is_read_replaced_and_versioned() {
    let gateway = gateway();
    let put = |digest: &str, body: &str| {
        let fields = format!("Content-Type: application/json\r\nX-Digest: {digest}\r\n");
        let (status, response, head) = send(&gateway, "PUT configs", &fields, body);
        (status, response, head.to_ascii_lowercase())
    };
    let (status, empty, _) = send(&gateway, "GET configs", "", "");
    assert_eq!(status, 200);
    let kinds = "consumer_groups consumers global_rules plugin_configs plugin_metadata protos routes secrets services \
                 ssls stream_routes upstreams";
    for kind in kinds.split_whitespace() {
        assert_eq!(empty[format!("{kind}_conf_version")], 0, "{kind}");
    }
    check(&gateway, &[("PUT configs", "{}", 400, r#"{"/error_msg":"missing digest header"}"#)]);
    let (status, _, head) = put("example_string#1", "{}");
    assert_eq!(status, 202, "{head}");
    assert!(head.contains("x-digest: example_string#1") && head.contains("x-last-modified: "), "{head}");
    assert_eq!(put("example_string#1", "{}").0, 204);

    let first = r#"{"routes_conf_version":1000,"upstreams_conf_version":1000,"routes":[{"modifiedIndex":1000,"id":"r1","uri":"/hello","upstream_id":"u1"}],"upstreams":[{"modifiedIndex":1000,"id":"u1","nodes":{"127.0.0.1:1980":1},"type":"roundrobin"}]}"#;
    assert_eq!(put("2", first).0, 202);
    let second = first
        .replace(r#""upstreams_conf_version":1000"#, r#""upstreams_conf_version":1001"#)
        .replace(r#""modifiedIndex":1000,"id":"u1""#, r#""modifiedIndex":1001,"id":"u1""#)
        .replace("127.0.0.1:1980", "127.0.0.1:1981");
    assert_eq!(put("3", &second).0, 202);
    let (_, read, head) = send(&gateway, "GET configs", "", "");
    assert_eq!(
        (&read["routes_conf_version"], &read["routes"][0]["modifiedIndex"]),
        (&Value::from(1000), &Value::from(1000))
    );
    assert_eq!(
        (&read["upstreams"][0]["modifiedIndex"], &read["upstreams"][0]["nodes"]["127.0.0.1:1981"]),
        (&Value::from(1001), &Value::from(1))
    );
    assert!(head.to_ascii_lowercase().contains("x-digest: 3"), "{head}");
    let (status, refused, _) = put("4", first);
    let message = "upstreams_conf_version must be greater than or equal to (1001)";
    assert_eq!((status, &refused["error_msg"]), (400, &Value::from(message)));
    let (status, _, head) = send(&gateway, "HEAD configs", "", "");
    assert!(status == 200 && head.to_ascii_lowercase().contains("x-digest: 3"), "{head}");
}

#[test]
fn a_document_is_validated_item_by_item() {
    let gateway = gateway();
    let failed = r#""error_msg":"Configuration validation failed""#;
    for (body, status, expected) in [
        (
            r#"{"routes":[{"uri":"/a","plugins":{}},{"uri":"/b","plugins":{}}],"services":[{"name":"s"}]}"#,
            200,
            "{}".to_owned(),
        ),
        (
            r#"{"routes":[{"id":"r1","uri":"/a","plugins":{"no":{}}},{"uri":"/","plugins":{"no":{}}}]}"#,
            400,
            format!(
                r#"{{{failed},"errors":[{{"resource_type":"routes","resource_id":"r1","index":0,"error":"unknown plugin [no]"}},{{"resource_type":"routes","resource_id":"","index":1,"error":"unknown plugin [no]"}}]}}"#
            ),
        ),
        (
            r#"{"routes":[{"id":"r","uri":"/a","plugins":{}},{"id":"r","uri":"/b","plugins":{}}]}"#,
            400,
            format!(
                r#"{{{failed},"errors":[{{"resource_type":"routes","resource_id":"r","index":1,"error":"found duplicate id r in routes"}}]}}"#
            ),
        ),
        (
            r#"{"routes_conf_version":"1"}"#,
            400,
            format!(
                r#"{{{failed},"errors":[{{"resource_type":"routes","error":"routes_conf_version must be a number, got string"}}]}}"#
            ),
        ),
        ("", 400, r#"{"error_msg":"invalid request body: empty request body"}"#.to_owned()),
    ] {
        let (found, response, _) = send(&gateway, "POST configs/validate", "", body);
        let expected: Value = serde_json::from_str(&expected).unwrap();
        assert_eq!((found, response), (status, expected), "{body}");
    }
    let yaml = "routes:\n  - id: r1\n    uri: /a\n    plugins: {}\n";
    let fields = "Content-Type: application/yaml\r\n";
    assert_eq!(send(&gateway, "POST configs/validate", fields, yaml).0, 200);
}
