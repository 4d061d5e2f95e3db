//! The pages of the Admin API and of the first steps: resources and their verbs.

use serde_json::json;

use super::{check, gateway, send};
use crate::harness::certs;

const KEY_NOT_FOUND: &str = r#"{"/message":"Key not found"}"#;

#[test]
fn routes_are_written_changed_and_listed_as_the_page_says() {
    let gateway = gateway();
    let route = r#"{"uri":"/i","hosts":["a.example","*.b.example"],"remote_addrs":["127.0.0.0/8"],"methods":["PUT","GET"],"enable_websocket":true,"priority":3,"name":"one","desc":"d","labels":{"version":"v1"},"vars":[["http_user","==","ios"]],"timeout":{"connect":1,"send":2,"read":3},"status":1,"upstream":{"type":"roundrobin","nodes":{"127.0.0.1:1980":1}}}"#;
    check(
        &gateway,
        &[
            ("PUT routes/1", route, 201, r#"{"/key":"/apisix/routes/1","/value/id":"1"}"#),
            ("PUT routes/2?ttl=60", r#"{"uri":"/j","upstream":{"nodes":{"127.0.0.1:1980":1}}}"#, 201, ""),
            (
                "PUT routes/2?ttl=soon",
                r#"{"uri":"/j","plugins":{}}"#,
                400,
                r#"{"/error_msg":"invalid argument ttl: should be a number"}"#,
            ),
            (
                "PATCH routes/1",
                r#"{"upstream":{"nodes":{"127.0.0.1:1981":1}}}"#,
                200,
                r#"{"/value/upstream/nodes":{"127.0.0.1:1980":1,"127.0.0.1:1981":1}}"#,
            ),
            (
                "PATCH routes/1",
                r#"{"upstream":{"nodes":{"127.0.0.1:1981":10}}}"#,
                200,
                r#"{"/value/upstream/nodes":{"127.0.0.1:1980":1,"127.0.0.1:1981":10}}"#,
            ),
            (
                "PATCH routes/1",
                r#"{"upstream":{"nodes":{"127.0.0.1:1980":null}}}"#,
                200,
                r#"{"/value/upstream/nodes":{"127.0.0.1:1981":10}}"#,
            ),
            (
                "PATCH routes/1/upstream/nodes",
                r#"{"127.0.0.1:1982":1}"#,
                200,
                r#"{"/value/upstream/nodes":{"127.0.0.1:1982":1}}"#,
            ),
            (
                "PATCH routes/1/methods",
                r#"["POST","DELETE","PATCH"]"#,
                200,
                r#"{"/value/methods":["POST","DELETE","PATCH"]}"#,
            ),
            ("PATCH routes/1", r#"{"status":0}"#, 200, r#"{"/value/status":0,"/value/uri":"/i"}"#),
            ("PATCH routes/1", "", 400, r#"{"/error_msg":"missing new configuration"}"#),
            ("PATCH routes/none", r#"{"status":0}"#, 404, KEY_NOT_FOUND),
            ("GET routes/1", "", 200, r#"{"/key":"/apisix/routes/1","/value/name":"one"}"#),
            ("GET routes?name=on&uri=i&label=version", "", 200, r#"{"/total":1,"/list/0/value/id":"1"}"#),
            // With the route of the first start.
            ("GET routes?page=1&page_size=10", "", 200, r#"{"/total":3}"#),
            ("GET routes?page=1&page_size=5", "", 400, ""),
            ("DELETE routes/1", "", 200, r#"{"/deleted":"1","/key":"/apisix/routes/1"}"#),
            ("DELETE routes/1", "", 404, KEY_NOT_FOUND),
            ("GET routes/1", "", 404, KEY_NOT_FOUND),
            ("POST routes", r#"{"uri":"/k","plugins":{}}"#, 201, r#"{"/value/uri":"/k"}"#),
            ("PUT routes", r#"{"uri":"/k","plugins":{}}"#, 400, r#"{"/error_msg":"missing route id"}"#),
            (
                "PUT routes/2",
                r#"{"id":"3","uri":"/k","plugins":{}}"#,
                400,
                r#"{"/error_msg":"wrong route id"}"#,
            ),
            ("PUT routes", r#"{"id":"steps","uri":"/ip","upstream":{"nodes":{"127.0.0.1:80":1}}}"#, 201, ""),
            (
                "PATCH routes/steps",
                r#"{"plugins":{"limit-count":{"count":5,"time_window":60,"rejected_code":429,"key_type":"var","key":"remote_addr"}}}"#,
                200,
                r#"{"/value/plugins/limit-count/count":5}"#,
            ),
            (
                "PATCH routes/steps",
                r#"{"plugins":{"limit-count":{"_meta":{"disable":true}}}}"#,
                200,
                r#"{"/value/plugins/limit-count/_meta/disable":true,"/value/plugins/limit-count/count":5}"#,
            ),
            (
                "PATCH routes/steps",
                r#"{"plugins":{"key-auth":{}}}"#,
                200,
                r#"{"/value/plugins/key-auth":{}}"#,
            ),
        ],
    );
}

#[test]
fn references_are_checked_unless_the_deletion_is_forced() {
    let gateway = gateway();
    let in_use = r#"{"/error_msg":"can not delete this upstream, route [1] is still using it now"}"#;
    check(
        &gateway,
        &[
            ("PUT upstreams/1", r#"{"nodes":{"127.0.0.1:8080":1},"type":"roundrobin"}"#, 201, ""),
            ("PUT services/1", r#"{"upstream_id":"1","hosts":["a.example"]}"#, 201, ""),
            ("PUT routes/1", r#"{"uri":"/*","upstream_id":1,"service_id":"1"}"#, 201, ""),
            ("GET routes?filter=service_id%3D1", "", 200, r#"{"/total":1}"#),
            ("GET routes?filter=service_id%3D2", "", 200, r#"{"/total":0}"#),
            ("DELETE upstreams/1", "", 400, in_use),
            ("DELETE upstreams/1?force=anyvalue", "", 400, in_use),
            (
                "DELETE services/1",
                "",
                400,
                r#"{"/error_msg":"can not delete this service directly, route [1] is still using it now"}"#,
            ),
            ("DELETE upstreams/1?force=true", "", 200, r#"{"/deleted":"1","/key":"/apisix/upstreams/1"}"#),
            (
                "PUT routes/2",
                r#"{"uri":"/a","upstream_id":"9"}"#,
                400,
                r#"{"/error_msg":"failed to fetch upstream info by upstream id [9], response code: 404"}"#,
            ),
            (
                "PUT routes/2",
                r#"{"uri":"/a","service_id":"9"}"#,
                400,
                r#"{"/error_msg":"failed to fetch service info by service id [9], response code: 404"}"#,
            ),
            (
                "PUT routes/2",
                r#"{"uri":"/a","plugin_config_id":"9","plugins":{}}"#,
                400,
                r#"{"/error_msg":"failed to fetch plugin config info by plugin config id [9], response code: 404"}"#,
            ),
        ],
    );
}

#[test]
fn services_and_upstreams_are_written_as_the_page_says() {
    let gateway = gateway();
    let checks = r#"{"nodes":{"127.0.0.1:80":1},"retries":2,"retry_timeout":1,"keepalive_pool":{"size":4,"idle_timeout":8,"requests":16},"timeout":{"connect":15,"send":15,"read":15},"checks":{"active":{"timeout":5,"http_method":"POST","http_path":"/s","http_req_body":"a","host":"a.example","healthy":{"interval":2,"successes":1},"unhealthy":{"interval":1,"http_failures":2},"req_headers":["User-Agent: a"]},"passive":{"healthy":{"http_statuses":[200,201],"successes":3},"unhealthy":{"http_statuses":[500],"http_failures":3,"tcp_failures":3}}}}"#;
    check(
        &gateway,
        &[
            (
                "PUT services/201",
                r#"{"plugins":{"limit-count":{"count":2,"time_window":60,"rejected_code":503,"key":"remote_addr"}},"enable_websocket":true,"upstream":{"type":"roundrobin","nodes":{"127.0.0.1:1980":1}}}"#,
                201,
                r#"{"/key":"/apisix/services/201"}"#,
            ),
            (
                "PATCH services/201/upstream/nodes",
                r#"{"127.0.0.1:1982":1}"#,
                200,
                r#"{"/value/upstream/nodes":{"127.0.0.1:1982":1}}"#,
            ),
            ("PUT upstreams/100", r#"{"type":"roundrobin","nodes":{"127.0.0.1:1980":1}}"#, 201, ""),
            (
                "PATCH upstreams/100",
                r#"{"nodes":{"127.0.0.1:1980":null,"127.0.0.1:1981":10}}"#,
                200,
                r#"{"/value/nodes":{"127.0.0.1:1981":10}}"#,
            ),
            (
                "PATCH upstreams/100/nodes",
                r#"{"127.0.0.1:1982":1}"#,
                200,
                r#"{"/value/nodes":{"127.0.0.1:1982":1}}"#,
            ),
            ("PUT upstreams/checked", checks, 201, ""),
            (
                "PUT upstreams/hash",
                r#"{"type":"chash","hash_on":"header","key":"Content-Type","nodes":{"127.0.0.1:80":1}}"#,
                201,
                "",
            ),
            (
                "PUT upstreams/hash",
                r#"{"type":"chash","nodes":{"127.0.0.1:80":1}}"#,
                400,
                r#"{"/error_msg":"missing key"}"#,
            ),
            (
                "PUT upstreams/port",
                r#"{"nodes":{"127.0.0.1:0":1}}"#,
                400,
                r#"{"/error_msg":"invalid port 0"}"#,
            ),
            (
                "PUT upstreams/tls",
                r#"{"scheme":"https","pass_host":"rewrite","upstream_host":"a.example","nodes":[{"host":"a.example","port":443,"weight":1,"priority":-1}]}"#,
                201,
                "",
            ),
            (
                "PUT upstreams/found",
                r#"{"service_name":"a","type":"roundrobin","discovery_type":"consul","discovery_args":{"group_name":"g"}}"#,
                201,
                "",
            ),
            ("POST upstreams", r#"{"nodes":[{"host":"127.0.0.1","port":80,"weight":0}]}"#, 201, ""),
        ],
    );
}

#[test]
fn sets_of_plugins_secrets_and_metadata_are_written_as_the_page_says() {
    let gateway = gateway();
    let vault = r#"{"uri":"http://127.0.0.1:8200","prefix":"kv","token":"t","namespace":"n"}"#;
    check(
        &gateway,
        &[
            (
                "PUT plugin_configs/1",
                r#"{"desc":"d","labels":{"a":"b"},"plugins":{"limit-count":{"count":2,"time_window":60}}}"#,
                201,
                "",
            ),
            (
                "PUT routes/1",
                r#"{"uris":["/i"],"plugin_config_id":1,"upstream":{"nodes":{"127.0.0.1:80":1}}}"#,
                201,
                "",
            ),
            (
                "DELETE plugin_configs/1",
                "",
                400,
                r#"{"/error_msg":"can not delete this plugin config, route [1] is still using it now"}"#,
            ),
            (
                "POST plugin_configs",
                "{}",
                405,
                r#"{"/error_msg":"not supported `POST` method for plugin config"}"#,
            ),
            (
                "PUT consumer_groups/g",
                r#"{"plugins":{"limit-count":{"count":200,"time_window":60,"group":"g"}}}"#,
                201,
                "",
            ),
            (
                "PUT consumers",
                r#"{"username":"jack","group_id":"g","plugins":{"key-auth":{"key":"k"}}}"#,
                201,
                r#"{"/key":"/apisix/consumers/jack"}"#,
            ),
            ("DELETE consumer_groups/g", "", 400, ""),
            (
                "PUT secrets/vault/test2",
                vault,
                201,
                r#"{"/key":"/apisix/secrets/vault/test2","/value/id":"vault/test2"}"#,
            ),
            (
                "PUT secrets/aws/test3",
                r#"{"access_key_id":"a","secret_access_key":"s","session_token":"t","region":"us-east-1","endpoint_url":"http://127.0.0.1:4566"}"#,
                201,
                r#"{"/value/id":"aws/test3"}"#,
            ),
            (
                "PUT secrets/gcp/test4",
                r#"{"auth_config":{"client_email":"a@b","private_key":"k","project_id":"p","token_uri":"https://t","entries_uri":"https://e","scope":["https://s"]},"ssl_verify":true}"#,
                201,
                "",
            ),
            ("PUT secrets/other/1", vault, 400, r#"{"/error_msg":"invalid secret manager: other"}"#),
            (
                "PUT plugin_metadata/example-plugin",
                r#"{"skey":"val","ikey":1}"#,
                201,
                r#"{"/value/id":"example-plugin"}"#,
            ),
            ("DELETE plugin_metadata/example-plugin", "", 200, ""),
            ("PUT plugin_metadata/none", "{}", 400, r#"{"/error_msg":"invalid plugin name"}"#),
            ("PUT plugin_metadata", "{}", 400, r#"{"/error_msg":"missing plugin name"}"#),
            (
                "PUT stream_routes/1",
                r#"{"remote_addr":"192.168.5.0/24","server_addr":"127.0.0.1","server_port":2000,"sni":"a.example","upstream":{"nodes":{"127.0.0.1:4":1}}}"#,
                201,
                "",
            ),
            (
                "PUT services/1/graphql_cost_decorations/p",
                r#"{"field_path":"Query.p"}"#,
                404,
                r#"{"/error_msg":"Unsupported resource type: graphql_cost_decorations"}"#,
            ),
            ("GET bogus", "", 404, r#"{"/error_msg":"Unsupported resource type: bogus"}"#),
        ],
    );
}

#[test]
fn certificates_are_written_and_returned_without_their_keys() {
    let gateway = gateway();
    let pair = certs::simple("a.example", &["a.example"]);
    let (cert, key) = (pair.cert.as_str(), pair.key.as_str());
    let client =
        json!({ "ca": certs::Authority::new("clients").cert, "depth": 10, "skip_mtls_uri_regex": ["/a.*"] });
    let invalid = |message: &str| json!({ "error_msg": message });
    for (body, status, expected) in [
        (
            json!({ "cert": cert, "key": key, "snis": ["a.example"], "ssl_protocols": ["TLSv1.2", "TLSv1.3"] }),
            201,
            json!({}),
        ),
        (
            json!({ "cert": cert, "key": key, "sni": "*.a.example", "client": client, "labels": { "a": "b" } }),
            200,
            json!({}),
        ),
        (
            json!({ "cert": cert, "key": key, "sni": "a.example", "certs": [cert], "keys": [key] }),
            200,
            json!({}),
        ),
        (json!({ "cert": cert, "key": key, "type": "client" }), 200, json!({})),
        (
            json!({ "cert": cert, "key": key, "sni": "a", "certs": [cert] }),
            400,
            invalid("mismatched number of certs and keys"),
        ),
        (
            json!({ "cert": cert, "sni": "a" }),
            400,
            invalid("invalid configuration: then clause did not match"),
        ),
        (
            json!({ "cert": cert, "key": key }),
            400,
            invalid("invalid configuration: then clause did not match"),
        ),
    ] {
        let (found, response, _) = send(&gateway, "PUT ssls/1", "", &body.to_string());
        assert_eq!(found, status, "{response}");
        if status == 400 {
            assert_eq!(response["error_msg"], expected["error_msg"]);
        }
    }
    let (_, bad, _) =
        send(&gateway, "PUT ssls/1", "", &json!({ "sni": "a", "cert": "x", "key": key }).to_string());
    assert!(bad["error_msg"].as_str().unwrap().starts_with("failed to parse cert: "), "{bad}");
    let (_, bad, _) =
        send(&gateway, "PUT ssls/1", "", &json!({ "sni": "a", "cert": cert, "key": "x" }).to_string());
    assert!(bad["error_msg"].as_str().unwrap().starts_with("failed to parse key: "), "{bad}");
    let (status, shown, _) = send(&gateway, "GET ssls/1", "", "");
    assert_eq!((status, shown["value"].get("key"), &shown["value"]["cert"]), (200, None, &json!(cert)));
}
