//! Guard plugins: those whose absence would grant access. An import must not grant access that the original denied.

/// Response message in place of a missing guard. Clients read it, so it does not name the plugin.
pub(super) const UNGUARDED: &str = "a plugin that guards access is not available";

/// Plugins whose absence grants no access and reveals nothing: they observe, cache, or relax restrictions. Every other
/// plugin counts as a guard, unknown ones included.
const HARMLESS: [&str; 23] = [
    "acme",
    "ai-semantic-cache",
    "app-dynamics",
    "correlation-id",
    "cors",
    "datadog",
    "file-log",
    "graphql-proxy-cache-advanced",
    "grpc-web",
    "http-log",
    "kafka-log",
    "loggly",
    "opentelemetry",
    "prometheus",
    "proxy-cache",
    "proxy-cache-advanced",
    "session",
    "statsd",
    "statsd-advanced",
    "syslog",
    "tcp-log",
    "udp-log",
    "zipkin",
];

/// Whether the absence of a plugin grants access.
pub(super) fn is_guard(name: &str) -> bool {
    !HARMLESS.contains(&name)
}
