//! Examples of plugins in the reference. A test of the documents checks each of them with the binary.

/// Resources by the name of the plugin, sorted.
pub(super) const EXAMPLES: &[(&str, &str)] = &[
    ("acl", include_str!("plugin_examples/acl.yaml")),
    ("attach-consumer-label", include_str!("plugin_examples/attach-consumer-label.yaml")),
    ("authz-casbin", include_str!("plugin_examples/authz-casbin.yaml")),
    ("authz-casdoor", include_str!("plugin_examples/authz-casdoor.yaml")),
    ("authz-keycloak", include_str!("plugin_examples/authz-keycloak.yaml")),
    ("cas-auth", include_str!("plugin_examples/cas-auth.yaml")),
    ("clickhouse-logger", include_str!("plugin_examples/clickhouse-logger.yaml")),
    ("data-mask", include_str!("plugin_examples/data-mask.yaml")),
    ("datadog", include_str!("plugin_examples/datadog.yaml")),
    ("dingtalk-auth", include_str!("plugin_examples/dingtalk-auth.yaml")),
    ("elasticsearch-logger", include_str!("plugin_examples/elasticsearch-logger.yaml")),
    ("error-log-logger", include_str!("plugin_examples/error-log-logger.yaml")),
    ("feishu-auth", include_str!("plugin_examples/feishu-auth.yaml")),
    ("file-logger", include_str!("plugin_examples/file-logger.yaml")),
    ("google-cloud-logging", include_str!("plugin_examples/google-cloud-logging.yaml")),
    ("http-logger", include_str!("plugin_examples/http-logger.yaml")),
    ("jwe-decrypt", include_str!("plugin_examples/jwe-decrypt.yaml")),
    ("kafka-logger", include_str!("plugin_examples/kafka-logger.yaml")),
    ("ldap-auth", include_str!("plugin_examples/ldap-auth.yaml")),
    ("ldap-auth-advanced", include_str!("plugin_examples/ldap-auth-advanced.yaml")),
    ("loggly", include_str!("plugin_examples/loggly.yaml")),
    ("loki-logger", include_str!("plugin_examples/loki-logger.yaml")),
    ("multi-auth", include_str!("plugin_examples/multi-auth.yaml")),
    ("opa", include_str!("plugin_examples/opa.yaml")),
    ("openid-connect", include_str!("plugin_examples/openid-connect.yaml")),
    ("public-api", include_str!("plugin_examples/public-api.yaml")),
    ("skywalking-logger", include_str!("plugin_examples/skywalking-logger.yaml")),
    ("sls-logger", include_str!("plugin_examples/sls-logger.yaml")),
    ("splunk-hec-logging", include_str!("plugin_examples/splunk-hec-logging.yaml")),
    ("syslog", include_str!("plugin_examples/syslog.yaml")),
    ("tcp-logger", include_str!("plugin_examples/tcp-logger.yaml")),
    ("tencent-cloud-cls", include_str!("plugin_examples/tencent-cloud-cls.yaml")),
    ("udp-logger", include_str!("plugin_examples/udp-logger.yaml")),
    ("wolf-rbac", include_str!("plugin_examples/wolf-rbac.yaml")),
];

/// The example of a plugin.
pub(super) fn example_of(plugin: &str) -> Option<&'static str> {
    let at = EXAMPLES.binary_search_by(|(name, _)| (*name).cmp(plugin)).ok()?;
    Some(EXAMPLES[at].1)
}
