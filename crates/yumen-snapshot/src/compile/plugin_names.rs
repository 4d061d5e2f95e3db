//! Names of plugins in other gateways and in everyday language, with the plugins that do the same here.

/// Pairs of a name, in lower case with dashes, and a plugin.
const COUNTERPARTS: [(&str, &str); 31] = [
    ("basic-authentication", "basic-auth"),
    ("bot-detection", "ua-restriction"),
    ("circuit-breaker", "api-breaker"),
    ("concurrency-limit", "limit-conn"),
    ("correlation-id", "request-id"),
    ("header-rewrite", "proxy-rewrite"),
    ("hmac", "hmac-auth"),
    ("ip-filter", "ip-restriction"),
    ("ip-whitelist", "ip-restriction"),
    ("jwt", "jwt-auth"),
    ("limit-rate", "limit-count"),
    ("mirror", "proxy-mirror"),
    ("mock", "mocking"),
    ("oidc", "openid-connect"),
    ("oauth2", "openid-connect"),
    ("path-rewrite", "proxy-rewrite"),
    ("rate-limit", "limit-count"),
    ("rate-limiter", "limit-count"),
    ("rate-limiting", "limit-count"),
    ("rate-limiting-advanced", "limit-count"),
    ("ratelimit", "limit-count"),
    ("request-size-limiting", "client-control"),
    ("request-termination", "fault-injection"),
    ("request-transformer", "proxy-rewrite"),
    ("request-transformer-advanced", "proxy-rewrite"),
    ("request-validator", "request-validation"),
    ("response-ratelimiting", "limit-count"),
    ("response-transformer", "response-rewrite"),
    ("response-transformer-advanced", "response-rewrite"),
    ("rewrite", "proxy-rewrite"),
    ("throttle", "limit-count"),
];

/// The counterpart of a plugin of another gateway.
pub(super) fn counterpart(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    COUNTERPARTS.iter().find(|(other, _)| *other == name).map(|(_, plugin)| *plugin)
}
