//! Plugins that APISIX knows and this gateway does not run.
//!
//! Settings of theirs are kept and left inactive, with a warning, so that a configuration can move over
//! as it is. A plugin that gets built leaves this list; a test sees to that.

/// Name and priority of each, by name.
pub const WITH_PRIORITY: &[(&str, i32)] = &[
    ("acl", 2410),
    ("ai", 22900),
    ("ai-aliyun-content-moderation", 1029),
    ("ai-aws-content-moderation", 1031),
    ("ai-cache", 1035),
    ("ai-lakera-guard", 1028),
    ("ai-prompt-decorator", 1070),
    ("ai-prompt-guard", 1072),
    ("ai-prompt-template", 1071),
    ("ai-proxy", 1040),
    ("ai-proxy-multi", 1041),
    ("ai-rag", 1060),
    ("ai-rate-limiting", 1030),
    ("ai-request-rewrite", 1073),
    ("attach-consumer-label", 2399),
    ("authz-casbin", 2560),
    ("authz-casdoor", 2559),
    ("authz-keycloak", 2000),
    ("aws-lambda", -1899),
    ("azure-functions", -1900),
    ("batch-requests", 4010),
    ("body-transformer", 1080),
    ("cas-auth", 2597),
    ("chaitin-waf", 2700),
    ("clickhouse-logger", 398),
    ("data-mask", 1500),
    ("datadog", 495),
    ("dingtalk-auth", 2430),
    ("dubbo-proxy", 507),
    ("echo", 412),
    ("elasticsearch-logger", 413),
    ("error-log-logger", 1091),
    ("error-page", 450),
    ("example-plugin", 0),
    ("exit-transformer", 22950),
    ("ext-plugin-post-req", -3000),
    ("ext-plugin-post-resp", -4000),
    ("ext-plugin-pre-req", 12000),
    ("feishu-auth", 2420),
    ("file-logger", 399),
    ("gm", -43),
    ("google-cloud-logging", 407),
    ("graphql-limit-count", 1004),
    ("graphql-proxy-cache", 1009),
    ("http-dubbo", 504),
    ("http-logger", 410),
    ("inspect", 200),
    ("jwe-decrypt", 2509),
    ("kafka-logger", 403),
    ("kafka-proxy", 508),
    ("lago", 415),
    ("ldap-auth", 2540),
    ("ldap-auth-advanced", 2541),
    ("log-rotate", 100),
    ("loggly", 411),
    ("loki-logger", 414),
    ("mcp-bridge", 510),
    ("multi-auth", 2600),
    ("node-status", 1000),
    ("oas-validator", 512),
    ("ocsp-stapling", -44),
    ("opa", 2001),
    ("openfunction", -1902),
    ("openid-connect", 2599),
    ("opentelemetry", 12009),
    ("openwhisk", -1901),
    ("proxy-cache", 1085),
    ("public-api", 501),
    ("rocketmq-logger", 402),
    ("saml-auth", 2598),
    ("server-info", 990),
    ("serverless-post-function", -2000),
    ("serverless-pre-function", 10000),
    ("skywalking", 12010),
    ("skywalking-logger", 408),
    ("sls-logger", 406),
    ("splunk-hec-logging", 409),
    ("syslog", 401),
    ("tcp-logger", 405),
    ("tencent-cloud-cls", 397),
    ("traffic-label", 967),
    ("udp-logger", 400),
    ("wolf-rbac", 2555),
    ("workflow", 1006),
    ("zipkin", 12011),
];

const NAMES: [&str; WITH_PRIORITY.len()] = {
    let mut names = [""; WITH_PRIORITY.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = WITH_PRIORITY[at].0;
        at += 1;
    }
    names
};

/// Their names, sorted.
pub const KNOWN_ELSEWHERE: &[&str] = &NAMES;

#[cfg(test)]
mod tests {
    use super::KNOWN_ELSEWHERE;

    #[test]
    fn names_are_sorted_and_none_is_built_in() {
        assert!(KNOWN_ELSEWHERE.is_sorted());
        for kind in crate::BUILTIN {
            assert!(!KNOWN_ELSEWHERE.contains(&kind.name), "{} is built in", kind.name);
        }
    }
}
