//! Plugins of APISIX 3.18 that this gateway does not implement, and the effect of their absence.
//!
//! A test checks that no implemented plugin is in the table. Settings of these plugins are accepted, so that
//! a configuration can be moved unchanged. A plugin is `harmless` only if, without it, the same clients reach
//! the same upstream by the same protocol, and nothing becomes visible that the plugin hides. All other
//! plugins are guards, and so is every plugin outside the table.

use yumen_plugin::{MemberTypes, MissingPlugin, MissingPlugins, MissingRole, ServedTraffic};

const fn entry(name: &'static str, priority: i32, role: MissingRole) -> MissingPlugin {
    MissingPlugin { name, priority, role, serves: ServedTraffic::Http, metadata: &[], consumer: &[] }
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
    entry(name, priority, MissingRole::Authentication)
}

/// The same plugin with metadata.
const fn with(metadata: MemberTypes, plugin: MissingPlugin) -> MissingPlugin {
    MissingPlugin { metadata, ..plugin }
}

/// A logger, whose metadata sets the form of its entries.
const fn logger(name: &'static str, priority: i32) -> MissingPlugin {
    with(LOG_METADATA, harmless(name, priority))
}

const LOG_METADATA: MemberTypes =
    &[("log_format", "object"), ("log_format_extra", "object"), ("max_pending_entries", "integer")];
const ERROR_PAGE_METADATA: MemberTypes = &[
    ("enable", "boolean"),
    ("error_404", "object"),
    ("error_500", "object"),
    ("error_502", "object"),
    ("error_503", "object"),
];
const LIMIT_METADATA: MemberTypes =
    &[("limit_header", "string"), ("remaining_header", "string"), ("reset_header", "string")];
const WAF_METADATA: MemberTypes = &[("nodes", "array"), ("mode", "string"), ("config", "object")];

const fn on(serves: ServedTraffic, plugin: MissingPlugin) -> MissingPlugin {
    MissingPlugin { serves, ..plugin }
}

/// The table, sorted by name.
pub const TABLE: &[MissingPlugin] = &[
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
    guard("aws-lambda", -1899),
    with(&[("master_apikey", "string"), ("master_clientid", "string")], guard("azure-functions", -1900)),
    with(
        &[("max_body_size", "integer"), ("max_pipeline_items", "integer")],
        harmless("batch-requests", 4010),
    ),
    guard("body-transformer", 1080),
    with(WAF_METADATA, guard("chaitin-waf", 2700)),
    guard("dubbo-proxy", 507),
    guard("echo", 412),
    with(ERROR_PAGE_METADATA, harmless("error-page", 450)),
    with(&[("ikey", "number"), ("skey", "string")], guard("example-plugin", 0)),
    harmless("exit-transformer", 22950),
    guard("ext-plugin-post-req", -3000),
    guard("ext-plugin-post-resp", -4000),
    guard("ext-plugin-pre-req", 12000),
    harmless("gm", -43),
    with(LIMIT_METADATA, guard("graphql-limit-count", 1004)),
    harmless("graphql-proxy-cache", 1009),
    guard("http-dubbo", 504),
    harmless("inspect", 200),
    guard("kafka-proxy", 508),
    with(&[("max_pending_entries", "integer")], harmless("lago", 415)),
    harmless("log-rotate", 100),
    guard("mcp-bridge", 510),
    harmless("node-status", 1000),
    with(&[("spec_url_ttl", "integer")], guard("oas-validator", 512)),
    harmless("ocsp-stapling", -44),
    guard("openfunction", -1902),
    guard("openwhisk", -1901),
    harmless("proxy-cache", 1085),
    logger("rocketmq-logger", 402),
    login("saml-auth", 2598),
    harmless("server-info", 990),
    guard("serverless-post-function", -2000),
    guard("serverless-pre-function", 10000),
    guard("traffic-label", 967),
    on(ServedTraffic::Streams, guard("traffic-split", 966)),
    guard("workflow", 1006),
];

/// The table for the compiler. `allowed` are the plugins that may be absent by the node settings.
pub fn missing<N: AsRef<str>>(allowed: &[N]) -> MissingPlugins {
    MissingPlugins::of(TABLE).allowing(allowed)
}

#[cfg(test)]
mod tests;
