use yumen_plugin::ServedTraffic;

use super::{TABLE, missing};

/// The plugins of APISIX 3.18 for routes.
const ON_ROUTES: &str = "
    acl ai ai-aliyun-content-moderation ai-aws-content-moderation ai-cache ai-lakera-guard
    ai-prompt-decorator ai-prompt-guard ai-prompt-template ai-proxy ai-proxy-multi ai-rag ai-rate-limiting
    ai-request-rewrite api-breaker attach-consumer-label authz-casbin authz-casdoor authz-keycloak
    aws-lambda azure-functions basic-auth batch-requests body-transformer brotli cas-auth chaitin-waf
    clickhouse-logger client-control consumer-restriction cors csrf data-mask datadog degraphql
    dingtalk-auth dubbo-proxy echo elasticsearch-logger error-log-logger error-page example-plugin
    exit-transformer ext-plugin-post-req ext-plugin-post-resp ext-plugin-pre-req fault-injection feishu-auth
    file-logger forward-auth gm google-cloud-logging graphql-limit-count graphql-proxy-cache grpc-transcode
    grpc-web gzip hmac-auth http-dubbo http-logger inspect ip-restriction jwe-decrypt jwt-auth kafka-logger
    kafka-proxy key-auth lago ldap-auth ldap-auth-advanced limit-conn limit-count limit-req log-rotate
    loggly loki-logger mcp-bridge mocking multi-auth node-status oas-validator ocsp-stapling opa
    openfunction openid-connect opentelemetry openwhisk prometheus proxy-buffering proxy-cache proxy-control
    proxy-mirror proxy-rewrite public-api real-ip redirect referer-restriction request-id request-validation
    response-rewrite rocketmq-logger saml-auth server-info serverless-post-function serverless-pre-function
    skywalking skywalking-logger sls-logger splunk-hec-logging syslog tcp-logger tencent-cloud-cls
    traffic-label traffic-split ua-restriction udp-logger uri-blocker wolf-rbac workflow zipkin
";

/// Those for stream routes.
const ON_STREAM_ROUTES: &str = "ip-restriction limit-conn mqtt-proxy prometheus syslog traffic-split";

/// The only plugins that can be absent without granting access.
const HARMLESS: &str = "
    ai ai-cache ai-rag batch-requests error-page exit-transformer gm graphql-proxy-cache inspect lago log-rotate
    node-status ocsp-stapling proxy-cache rocketmq-logger server-info
";

fn is_built(name: &str, serves: fn(ServedTraffic) -> bool) -> bool {
    crate::BUILTIN.iter().any(|kind| kind.name == name && serves(kind.serves))
}

#[test]
fn the_table_is_sorted_and_holds_no_plugin_that_is_built_in() {
    assert!(TABLE.is_sorted_by_key(|one| one.name));
    for one in TABLE {
        assert!(!(one.serves.http() && is_built(one.name, ServedTraffic::http)), "{} is built in", one.name);
        assert!(
            !(one.serves.streams() && is_built(one.name, ServedTraffic::streams)),
            "{} is built in",
            one.name
        );
    }
}

#[test]
fn every_plugin_of_apisix_is_built_in_or_in_the_table() {
    let missing = missing::<&str>(&[]);
    for name in ON_ROUTES.split_whitespace() {
        assert!(
            is_built(name, ServedTraffic::http) || missing.get(name, false).is_some(),
            "{name} on routes"
        );
    }
    for name in ON_STREAM_ROUTES.split_whitespace() {
        assert!(
            is_built(name, ServedTraffic::streams) || missing.get(name, true).is_some(),
            "{name} on streams"
        );
    }
    let apisix: Vec<&str> = ON_ROUTES.split_whitespace().collect();
    let invented = TABLE.iter().find(|one| !apisix.contains(&one.name));
    assert_eq!(invented, None);
}

#[test]
fn only_plugins_known_to_be_harmless_leave_routes_open() {
    let known: Vec<&str> = HARMLESS.split_whitespace().collect();
    for one in TABLE {
        assert_eq!(!one.guards(), known.contains(&one.name), "{}", one.name);
    }
}
