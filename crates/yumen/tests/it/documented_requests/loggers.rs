//! Pages of plugins that log, trace or measure, and their metadata.

use super::{check_metadata, check_plugins};

#[test]
fn routes_of_the_logging_pages_are_accepted() {
    check_plugins(&[
        ("prometheus", "{}"),
        ("prometheus", r#"{"prefer_name":true}"#),
        (
            "zipkin",
            r#"{"endpoint":"http://127.0.0.1:9411/api/v2/spans","sample_ratio":1,"span_version":2,"service_name":"s","server_addr":"127.0.0.1"}"#,
        ),
        ("skywalking", r#"{"sample_ratio":1}"#),
        ("opentelemetry", r#"{"sampler":{"name":"always_on"}}"#),
        ("datadog", r#"{"batch_max_size":1,"max_retry_count":0}"#),
        (
            "http-logger",
            r#"{"uri":"http://127.0.0.1:1/log","include_req_body":true,"include_req_body_expr":[["arg_log","==","yes"]]}"#,
        ),
        (
            "tcp-logger",
            r#"{"host":"127.0.0.1","port":5044,"tls":false,"batch_max_size":1,"name":"tcp logger"}"#,
        ),
        ("udp-logger", r#"{"host":"127.0.0.1","port":3000,"batch_max_size":1,"name":"udp logger"}"#),
        ("file-logger", r#"{"path":"logs/a.log","match":[[["arg_n","==","a"]]],"include_req_body":true}"#),
        (
            "clickhouse-logger",
            r#"{"user":"u","password":"","database":"d","logtable":"t","endpoint_addrs":["http://127.0.0.1:8123"]}"#,
        ),
        (
            "elasticsearch-logger",
            r#"{"endpoint_addrs":["http://e:9200"],"field":{"index":"g"},"auth":{"username":"u","password":"p"},"include_req_body":true}"#,
        ),
        (
            "google-cloud-logging",
            r#"{"auth_config":{"client_email":"a@b","project_id":"p","private_key":"k","token_uri":"https://t"},"resource":{"type":"global"},"log_id":"a"}"#,
        ),
        (
            "kafka-logger",
            r#"{"brokers":[{"host":"127.0.0.1","port":9092}],"kafka_topic":"t","key":"k","batch_max_size":1,"meta_format":"origin","tls":{"verify":true}}"#,
        ),
        (
            "rocketmq-logger",
            r#"{"nameserver_list":["127.0.0.1:9876"],"topic":"t","key":"k","timeout":30,"meta_format":"default"}"#,
        ),
        (
            "loggly",
            r#"{"customer_token":"t","tags":["a"],"severity":"info","severity_map":{"503":"err"},"buffer_duration":60,"max_retry_count":0,"retry_delay":1,"inactive_timeout":2,"batch_max_size":10}"#,
        ),
        (
            "loki-logger",
            r#"{"endpoint_addrs":["http://l:3100"],"log_format":{"r":"$route_id"},"include_req_body":true}"#,
        ),
        ("skywalking-logger", r#"{"endpoint_addr":"http://s:12800","include_req_body":true}"#),
        (
            "sls-logger",
            r#"{"host":"h","port":10009,"project":"p","logstore":"l","access_key_id":"a","access_key_secret":"s","timeout":30000}"#,
        ),
        ("splunk-hec-logging", r#"{"endpoint":{"uri":"http://s:8088/collector","token":"t"}}"#),
        ("syslog", r#"{"host":"127.0.0.1","port":514,"flush_limit":1,"include_req_body":true}"#),
        (
            "tencent-cloud-cls",
            r#"{"cls_host":"h","cls_topic":"t","secret_id":"i","secret_key":"k","global_tag":{"m":"a"},"include_req_body":true,"include_resp_body":true}"#,
        ),
        (
            "lago",
            r#"{"endpoint_addrs":["http://l:3000"],"token":"t","event_transaction_id":"${http_x_id}","event_subscription_id":"${http_x_user}","event_code":"c","event_properties":{"tier":"a"}}"#,
        ),
    ]);
}

#[test]
fn metadata_of_the_pages_is_accepted() {
    let format = r#"{"log_format":{"host":"$host","@timestamp":"$time_iso8601","request":{"method":"$request_method"}}}"#;
    let mut all = vec![
        ("authz-casbin", r#"{"model":"m","policy":"p"}"#),
        ("azure-functions", r#"{"master_apikey":"k","master_clientid":"c"}"#),
        ("batch-requests", r#"{"max_body_size":4194304,"max_pipeline_items":9}"#),
        ("chaitin-waf", r#"{"nodes":[{"host":"127.0.0.1","port":8000}],"mode":"monitor"}"#),
        (
            "cors",
            r#"{"allow_origins":{"key_1":"https://a.com","key_2":"https://b.com,https://c.com","key_3":"*"}}"#,
        ),
        ("datadog", r#"{"host":"127.0.0.1","port":8125,"namespace":"n","constant_tags":["source:a"]}"#),
        (
            "error-log-logger",
            r#"{"tcp":{"host":"127.0.0.1","port":19000},"level":"INFO","skywalking":{"endpoint_addr":"http://s"},"clickhouse":{"endpoint_addr":"http://c"},"kafka":{"brokers":[]},"batch_max_size":1}"#,
        ),
        (
            "error-page",
            r#"{"enable":true,"error_404":{"body":"<p>404</p>","content_type":"text/html"},"error_500":{},"error_502":{},"error_503":{}}"#,
        ),
        ("file-logger", r#"{"path":"logs/m.log","log_format":{"a":"$host"}}"#),
        ("limit-count", r#"{"limit_header":"X-L","remaining_header":"X-Re","reset_header":"X-S"}"#),
        ("loggly", r#"{"protocol":"http","host":"h","port":514,"timeout":5000}"#),
        ("oas-validator", r#"{"spec_url_ttl":600}"#),
        (
            "opentelemetry",
            r#"{"trace_id_source":"x-request-id","resource":{"service.name":"a"},"collector":{"address":"127.0.0.1:4318","request_timeout":3},"batch_span_processor":{"max_queue_size":9},"set_ngx_var":true}"#,
        ),
        ("prometheus", r#"{"disabled_labels":{"http_status":["node","consumer"]}}"#),
    ];
    let loggers = "clickhouse-logger elasticsearch-logger google-cloud-logging http-logger kafka-logger loki-logger \
                   rocketmq-logger skywalking-logger sls-logger splunk-hec-logging syslog tcp-logger \
                   tencent-cloud-cls udp-logger";
    all.extend(loggers.split_whitespace().map(|name| (name, format)));
    check_metadata(&all);
}
