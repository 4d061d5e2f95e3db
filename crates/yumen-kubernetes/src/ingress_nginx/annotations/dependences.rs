//! Annotations that have an effect only beside another one, here as in ingress-nginx.

use super::reader::AnnotationReader;

/// Annotations, and those of which one is needed.
const DEPENDENCES: [(&[&str], &[&str]); 15] = [
    (&["auth-secret", "auth-secret-type", "auth-realm"], &["auth-type"]),
    (
        &[
            "auth-signin",
            "auth-signin-redirect-param",
            "auth-response-headers",
            "auth-method",
            "auth-request-redirect",
            "auth-proxy-set-headers",
            "auth-always-set-cookie",
            "auth-cache-key",
            "auth-cache-duration",
            "auth-keepalive",
            "auth-snippet",
        ],
        &["auth-url"],
    ),
    (&["auth-signin-redirect-param"], &["auth-signin"]),
    (&["auth-cache-duration"], &["auth-cache-key"]),
    (
        &[
            "auth-tls-verify-client",
            "auth-tls-verify-depth",
            "auth-tls-error-page",
            "auth-tls-match-cn",
            "auth-tls-pass-certificate-to-upstream",
        ],
        &["auth-tls-secret"],
    ),
    (
        &[
            "proxy-ssl-verify",
            "proxy-ssl-verify-depth",
            "proxy-ssl-name",
            "proxy-ssl-server-name",
            "proxy-ssl-protocols",
            "proxy-ssl-ciphers",
        ],
        &["proxy-ssl-secret"],
    ),
    (
        &[
            "cors-allow-origin",
            "cors-allow-methods",
            "cors-allow-headers",
            "cors-expose-headers",
            "cors-allow-credentials",
            "cors-max-age",
        ],
        &["enable-cors"],
    ),
    (
        &[
            "affinity-mode",
            "affinity-canary-behavior",
            "session-cookie-name",
            "session-cookie-path",
            "session-cookie-domain",
            "session-cookie-max-age",
            "session-cookie-expires",
            "session-cookie-samesite",
            "session-cookie-conditional-samesite-none",
            "session-cookie-secure",
            "session-cookie-change-on-failure",
        ],
        &["affinity"],
    ),
    (&["limit-allowlist"], &["limit-rps", "limit-rpm", "limit-connections"]),
    (&["limit-burst-multiplier"], &["limit-rps", "limit-rpm"]),
    (&["canary-by-header-value", "canary-by-header-pattern"], &["canary-by-header"]),
    (&["permanent-redirect-code"], &["permanent-redirect"]),
    (&["temporal-redirect-code"], &["temporal-redirect"]),
    (&["mirror-host", "mirror-request-body"], &["mirror-target"]),
    (&["x-forwarded-prefix"], &["rewrite-target"]),
];

/// Reports the annotations of an Ingress that have no effect, since the one that they belong to is not written.
pub(super) fn report_lone(reader: &mut AnnotationReader<'_>) {
    for (names, needs) in DEPENDENCES {
        if needs.iter().any(|need| reader.is_requested(need)) {
            continue;
        }
        for name in names {
            reader.report_lone(name, needs);
        }
    }
}
