//! Pages of plugins that limit, split, protect or inspect traffic.

use super::{check, check_plugins, gateway};

#[test]
fn routes_of_the_traffic_pages_are_accepted() {
    check_plugins(&[
        (
            "limit-count",
            r#"{"count":1,"time_window":30,"rejected_code":429,"key_type":"var","key":"remote_addr","policy":"local"}"#,
        ),
        (
            "limit-count",
            r#"{"count":3,"time_window":30,"key_type":"var_combination","key":"$remote_addr $consumer_name","rejected_msg":"no","group":"g","show_limit_quota_header":false}"#,
        ),
        (
            "limit-count",
            r#"{"count":1,"time_window":30,"policy":"redis","redis_host":"127.0.0.1","redis_port":6379,"redis_password":"p","redis_database":1,"redis_timeout":1001}"#,
        ),
        (
            "limit-count",
            r#"{"count":1,"time_window":30,"policy":"redis-cluster","redis_cluster_nodes":["127.0.0.1:6379"],"redis_password":"p","redis_cluster_name":"c","redis_cluster_ssl":false}"#,
        ),
        (
            "limit-conn",
            r#"{"conn":2,"burst":1,"default_conn_delay":0.1,"key_type":"var","key":"remote_addr","policy":"local","rejected_code":429}"#,
        ),
        (
            "limit-conn",
            r#"{"conn":1,"burst":1,"default_conn_delay":0.1,"key_type":"var_combination","key":"$remote_addr $consumer_name","policy":"redis","redis_host":"127.0.0.1","redis_port":6379,"redis_password":"p","redis_database":1}"#,
        ),
        (
            "limit-req",
            r#"{"rate":1,"burst":0,"rejected_code":503,"key_type":"var","key":"remote_addr","policy":"local","nodelay":true}"#,
        ),
        (
            "graphql-limit-count",
            r#"{"count":10,"time_window":60,"rejected_code":429,"key_type":"var","key":"remote_addr","policy":"local","cost_strategy":"node_quantifier","max_cost":5000}"#,
        ),
        (
            "api-breaker",
            r#"{"break_response_code":502,"unhealthy":{"http_statuses":[500,503],"failures":3},"healthy":{"http_statuses":[200],"successes":1}}"#,
        ),
        (
            "traffic-split",
            r#"{"rules":[{"match":[{"vars":[["http_release","==","new"]]}],"weighted_upstreams":[{"upstream":{"type":"roundrobin","scheme":"https","pass_host":"node","nodes":{"a.example:443":1}},"weight":3},{"weight":2}]}]}"#,
        ),
        (
            "traffic-split",
            r#"{"rules":[{"weighted_upstreams":[{"upstream_id":"u","weight":1},{"weight":1}]}]}"#,
        ),
        (
            "traffic-label",
            r#"{"rules":[{"match":[["arg_v","==","1"]],"actions":[{"set_headers":{"X-Server-Id":"100"}}]}]}"#,
        ),
        ("workflow", r#"{"rules":[{"case":[["uri","==","/no"]],"actions":[["return",{"code":403}]]}]}"#),
        ("request-id", r#"{"header_name":"X-Id","include_in_response":true,"algorithm":"nanoid"}"#),
        (
            "request-validation",
            r#"{"header_schema":{"type":"object","required":["Host"],"properties":{"Host":{"type":"string","enum":["a"]}}},"body_schema":{"type":"object","required":["n"],"properties":{"n":{"type":"integer","minimum":1}}},"rejected_code":403,"rejected_msg":"no"}"#,
        ),
        ("oas-validator", r#"{"spec":"{}","verbose_errors":true,"reject_if_not_match":true}"#),
        (
            "proxy-cache",
            r#"{"cache_strategy":"memory","cache_zone":"memory_cache","cache_ttl":10,"no_cache":["$arg_no"],"cache_bypass":["$arg_by"]}"#,
        ),
        ("graphql-proxy-cache", r#"{"cache_strategy":"memory","cache_zone":"memory_cache","cache_ttl":60}"#),
        ("proxy-mirror", r#"{"host":"http://127.0.0.1:8081","sample_ratio":0.5}"#),
        ("proxy-control", r#"{"request_buffering":false}"#),
        ("client-control", r#"{"max_body_size":1}"#),
        ("kafka-proxy", r#"{"sasl":{"username":"u","password":"p"}}"#),
        ("dubbo-proxy", r#"{"service_name":"a.B","service_version":"0.0.0","method":"m"}"#),
        (
            "http-dubbo",
            r#"{"service_name":"a.B","service_version":"0.0.0","method":"m","params_type_desc":"J","serialized":true}"#,
        ),
        ("public-api", r#"{"uri":"/apisix/batch-requests"}"#),
        ("chaitin-waf", r#"{"mode":"block","append_waf_resp_header":true,"append_waf_debug_header":true}"#),
        ("ip-restriction", r#"{"whitelist":["192.168.0.1/24"],"message":"no"}"#),
        ("ip-restriction", r#"{"blacklist":["127.0.0.0/24","::1"]}"#),
        ("referer-restriction", r#"{"bypass_missing":true,"whitelist":["a.com","*.a.com"]}"#),
        ("ua-restriction", r#"{"bypass_missing":false,"denylist":["bad"],"message":"no"}"#),
        ("uri-blocker", r#"{"block_rules":["root.exe","root.m+"],"rejected_code":403}"#),
        (
            "cors",
            r#"{"allow_origins":"http://a.com,http://b.com","allow_methods":"GET,POST","allow_headers":"h1","expose_headers":"h2","max_age":50,"allow_credential":true,"allow_origins_by_regex":[".*\\.t.com$"]}"#,
        ),
        ("csrf", r#"{"key":"csrf-secret"}"#),
        ("real-ip", r#"{"source":"arg_realip","trusted_addresses":["127.0.0.0/24"],"recursive":true}"#),
        (
            "data-mask",
            r#"{"request":[{"type":"query","name":"p","action":"remove"},{"type":"query","name":"c","action":"regex","regex":"(\\d+)","value":"$1"}]}"#,
        ),
    ]);
}

#[test]
fn plugins_of_stream_routes_and_global_rules_are_accepted() {
    let gateway = gateway();
    let mqtt = r#"{"plugins":{"mqtt-proxy":{"protocol_name":"MQTT","protocol_level":4}},"upstream":{"type":"chash","key":"mqtt_client_id","nodes":[{"host":"127.0.0.1","port":1980,"weight":1}]}}"#;
    let syslog = r#"{"remote_addr":"127.0.0.1","plugins":{"syslog":{"host":"127.0.0.1","port":514,"flush_limit":1}},"upstream":{"nodes":{"127.0.0.1:1980":1}}}"#;
    check(
        &gateway,
        &[
            ("PUT stream_routes/mqtt", mqtt, 201, r#"{"/key":"/apisix/stream_routes/mqtt"}"#),
            ("PUT stream_routes/log", syslog, 201, ""),
            (
                "PUT stream_routes/ip",
                r#"{"plugins":{"ip-restriction":{"whitelist":["127.0.0.1"]}},"upstream_id":"none"}"#,
                400,
                "",
            ),
            ("PUT global_rules/id", r#"{"plugins":{"request-id":{"header_name":"Global-Id"}}}"#, 201, ""),
            (
                "PUT global_rules",
                r#"{"id":"page","plugins":{"error-page":{}}}"#,
                201,
                r#"{"/value/id":"page"}"#,
            ),
            (
                "PUT global_rules/again",
                r#"{"plugins":{"request-id":{}}}"#,
                400,
                r#"{"/error_msg":"plugin 'request-id' already exists in global rule with id 'id'"}"#,
            ),
        ],
    );
}
