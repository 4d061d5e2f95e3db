//! Schemas, lists of plugins, and validation: the requests of the dashboard.

use super::{check, gateway, send};

#[test]
fn plugins_are_listed_and_described() {
    let gateway = gateway();
    let (status, list, head) = send(&gateway, "GET plugins/list", "", "");
    assert_eq!(status, 200);
    let head = head.to_ascii_lowercase();
    for field in ["content-type: application/json", "server: apisix/3.", "x-api-version: v3"] {
        assert!(head.contains(field), "{field} is not in {head}");
    }
    let (_, all, _) = send(&gateway, "GET plugins?all=true", "", "");
    for name in list.as_array().unwrap().iter().map(|name| name.as_str().unwrap()) {
        let members = ["version", "priority", "schema", "scope"];
        assert!(members.iter().all(|member| all[name].get(member).is_some()), "{name}");
        check(&gateway, &[(&format!("GET plugins/{name}?subsystem=http"), "", 200, r#"{"/type":"object"}"#)]);
    }
    // The names that tools offer for consumers, and for metadata.
    for name in ["key-auth", "basic-auth", "jwt-auth", "hmac-auth", "ldap-auth", "jwe-decrypt"] {
        assert_eq!(all[name]["type"], "auth", "{name}");
        assert!(all[name]["consumer_schema"]["properties"].is_object(), "{name}");
    }
    for name in ["cors", "limit-count", "prometheus", "http-logger", "error-log-logger", "datadog"] {
        assert!(all[name]["metadata_schema"]["properties"].is_object(), "{name}");
    }
}

#[test]
fn schemas_are_served_by_name_type_and_subsystem() {
    let gateway = gateway();
    let mut requests = vec![
        ("GET plugins/key-auth?subsystem=http".to_owned(), 200, r#"{"/properties/header/default":"apikey"}"#),
        ("GET schema/plugins/key-auth?schema_type=consumer".into(), 200, r#"{"/required":["key"]}"#),
        (
            "GET schema/plugins/http-logger?schema_type=metadata".into(),
            200,
            r#"{"/properties/log_format/type":"object"}"#,
        ),
        ("GET schema/plugins/mqtt-proxy?subsystem=stream".into(), 200, r#"{"/required":["protocol_level"]}"#),
        ("GET plugins?all=true&subsystem=stream".into(), 200, r#"{"/traffic-split/inactive":true}"#),
        ("GET plugins/mqtt-proxy".into(), 404, r#"{"/error_msg":"plugin not found in subsystem http"}"#),
        (
            "GET plugins?all=true&subsystem=mail".into(),
            400,
            r#"{"/error_msg":"unsupported subsystem: mail"}"#,
        ),
        ("GET plugins/list?subsystem=mail".into(), 400, ""),
        ("GET schema/plugins/cors?schema_type=consumer".into(), 400, r#"{"/error_msg":"not found schema"}"#),
        ("GET schema/bogus".into(), 400, r#"{"/error_msg":"not found schema: bogus"}"#),
        ("PUT plugins/reload".into(), 200, ""),
        (
            "GET plugins/reload".into(),
            405,
            r#"{"/error_msg":"please use PUT method to reload the plugins, GET method is not allowed."}"#,
        ),
    ];
    let timed = r#"{"/properties/create_time/type":"integer","/properties/update_time/type":"integer"}"#;
    let kinds = "route service upstream consumer credential ssl proto global_rule stream_route plugin_config \
                 consumer_group plugin_metadata secret";
    requests.extend(kinds.split_whitespace().map(|kind| (format!("GET schema/{kind}"), 200, timed)));
    for (request, status, members) in &requests {
        check(&gateway, &[(request, "", *status, members)]);
    }
    assert_eq!(send(&gateway, "HEAD /apisix/admin", "", "").0, 200);
}

#[test]
fn objects_are_validated_without_the_prefix_of_other_verbs() {
    let gateway = gateway();
    let upstream = r#""upstream":{"scheme":"https","type":"roundrobin","nodes":{"a.example":1}}"#;
    let of = |members: &str| format!("{{{members},{upstream}}}");
    for (body, status, members) in [
        (of(r#""uri":"/a/*""#), 200, ""),
        (of(r#""uri":"/a","create_time":1700000000,"update_time":1700000000"#), 200, ""),
        (
            of(r#""uri":1980"#),
            400,
            r#"{"/error_msg":"property \"uri\" validation failed: wrong type: expected string, got number"}"#,
        ),
        (
            of(r#""uri":"""#),
            400,
            r#"{"/error_msg":"property \"uri\" validation failed: string too short, expected at least 1, got 0"}"#,
        ),
        (
            of(r#""uris":["/a","/a"]"#),
            400,
            r#"{"/error_msg":"property \"uris\" validation failed: expected unique items but items 1 and 2 are equal"}"#,
        ),
        (
            of(r#""name":"n""#),
            400,
            r#"{"/error_msg":"allOf 1 failed: value should match only one schema, but matches none"}"#,
        ),
        ("{".to_owned(), 400, r#"{"/req_body":"{"}"#),
    ] {
        check(&gateway, &[("POST schema/validate/routes", &body, status, members)]);
    }
    let unknown = r#"{"/error_msg":"Unsupported resource type: bogus"}"#;
    check(&gateway, &[("POST schema/validate/bogus", "{}", 404, unknown)]);
}
