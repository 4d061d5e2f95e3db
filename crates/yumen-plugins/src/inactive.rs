//! Plugins of APISIX 3.18 that this gateway does not implement, and the effect of their absence.
//!
//! A test checks that no implemented plugin is in the table. Settings of these plugins are accepted, so that
//! a configuration can be moved unchanged. A plugin is `harmless` only if, without it, the same clients reach
//! the same upstream by the same protocol, and nothing becomes visible that the plugin hides. All other
//! plugins are guards, and so is every plugin outside the table.

use yumen_plugin::{MissingPlugin, MissingPlugins, MissingRole, ServedTraffic};

const fn entry(name: &'static str, priority: i32, role: MissingRole) -> MissingPlugin {
    MissingPlugin { name, priority, role, serves: ServedTraffic::Http }
}

/// Logs, traces, caches, and changes to messages that expose nothing.
const fn harmless(name: &'static str, priority: i32) -> MissingPlugin {
    entry(name, priority, MissingRole::Harmless)
}

/// Guards: refuses, limits, checks or hides; selects the upstream; or runs user code, which may do any of
/// this.
const fn guard(name: &'static str, priority: i32) -> MissingPlugin {
    entry(name, priority, MissingRole::Guard)
}

/// Authenticates by an identity provider.
const fn login(name: &'static str, priority: i32) -> MissingPlugin {
    entry(name, priority, MissingRole::Authentication { has_credentials: false })
}

/// Authenticates by credentials in the consumers.
const fn credentials(name: &'static str, priority: i32) -> MissingPlugin {
    entry(name, priority, MissingRole::Authentication { has_credentials: true })
}

const fn on(serves: ServedTraffic, plugin: MissingPlugin) -> MissingPlugin {
    MissingPlugin { serves, ..plugin }
}

/// The table, sorted by name.
pub const TABLE: &[MissingPlugin] = &[
    guard("acl", 2410),
    harmless("ai", 22900),
    guard("ai-aliyun-content-moderation", 1029),
    guard("ai-aws-content-moderation", 1031),
    harmless("ai-cache", 1035),
    guard("ai-lakera-guard", 1028),
    guard("ai-prompt-decorator", 1070),
    guard("ai-prompt-guard", 1072),
    guard("ai-prompt-template", 1071),
    guard("ai-proxy", 1040),
    guard("ai-proxy-multi", 1041),
    harmless("ai-rag", 1060),
    guard("ai-rate-limiting", 1030),
    guard("ai-request-rewrite", 1073),
    guard("attach-consumer-label", 2399),
    guard("authz-casbin", 2560),
    login("authz-casdoor", 2559),
    login("authz-keycloak", 2000),
    guard("aws-lambda", -1899),
    guard("azure-functions", -1900),
    harmless("batch-requests", 4010),
    guard("body-transformer", 1080),
    login("cas-auth", 2597),
    guard("chaitin-waf", 2700),
    harmless("clickhouse-logger", 398),
    guard("data-mask", 1500),
    harmless("datadog", 495),
    login("dingtalk-auth", 2430),
    guard("dubbo-proxy", 507),
    guard("echo", 412),
    harmless("elasticsearch-logger", 413),
    harmless("error-log-logger", 1091),
    harmless("error-page", 450),
    guard("example-plugin", 0),
    harmless("exit-transformer", 22950),
    guard("ext-plugin-post-req", -3000),
    guard("ext-plugin-post-resp", -4000),
    guard("ext-plugin-pre-req", 12000),
    login("feishu-auth", 2420),
    harmless("file-logger", 399),
    harmless("gm", -43),
    harmless("google-cloud-logging", 407),
    guard("graphql-limit-count", 1004),
    harmless("graphql-proxy-cache", 1009),
    guard("http-dubbo", 504),
    harmless("http-logger", 410),
    harmless("inspect", 200),
    credentials("jwe-decrypt", 2509),
    harmless("kafka-logger", 403),
    guard("kafka-proxy", 508),
    harmless("lago", 415),
    credentials("ldap-auth", 2540),
    credentials("ldap-auth-advanced", 2541),
    harmless("log-rotate", 100),
    harmless("loggly", 411),
    harmless("loki-logger", 414),
    guard("mcp-bridge", 510),
    login("multi-auth", 2600),
    harmless("node-status", 1000),
    guard("oas-validator", 512),
    harmless("ocsp-stapling", -44),
    guard("opa", 2001),
    guard("openfunction", -1902),
    login("openid-connect", 2599),
    harmless("opentelemetry", 12009),
    guard("openwhisk", -1901),
    harmless("proxy-cache", 1085),
    guard("public-api", 501),
    harmless("rocketmq-logger", 402),
    login("saml-auth", 2598),
    harmless("server-info", 990),
    guard("serverless-post-function", -2000),
    guard("serverless-pre-function", 10000),
    harmless("skywalking", 12010),
    harmless("skywalking-logger", 408),
    harmless("sls-logger", 406),
    harmless("splunk-hec-logging", 409),
    on(ServedTraffic::Both, harmless("syslog", 401)),
    harmless("tcp-logger", 405),
    harmless("tencent-cloud-cls", 397),
    guard("traffic-label", 967),
    on(ServedTraffic::Streams, guard("traffic-split", 966)),
    harmless("udp-logger", 400),
    credentials("wolf-rbac", 2555),
    guard("workflow", 1006),
    harmless("zipkin", 12011),
];

/// The table for the compiler. `allowed` are the plugins that may be absent by the node settings.
pub fn missing<N: AsRef<str>>(allowed: &[N]) -> MissingPlugins {
    MissingPlugins::of(TABLE).allowing(allowed)
}

#[cfg(test)]
mod tests;
