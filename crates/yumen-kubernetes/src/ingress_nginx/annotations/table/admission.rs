//! Annotations of hosts, authentication, addresses, limits and CORS.

use super::AnnotationRow;
use crate::ingress_nginx::annotations::AnnotationConsequence::{IngressDenied, IngressRefused, LeftOut};
use crate::ingress_nginx::annotations::AnnotationRisk::{self, High, Low, Medium};
use crate::ingress_nginx::annotations::value_rule::CharacterSet::{
    Basic, BasicSpaced, Extended, FieldNames, Url, UrlWithVariables, Variables,
};
use crate::ingress_nginx::annotations::value_rule::ValueRule::{
    self, Choice, Ciphers, CommonName, ErrorPage, ExposedFields, Methods, Networks, Number, Origins,
    ServerNames, Switch, Text,
};

const fn row(name: &'static str, risk: AnnotationRisk, rule: ValueRule) -> AnnotationRow {
    AnnotationRow::new(name, risk, rule, LeftOut)
}

const fn strict(name: &'static str, risk: AnnotationRisk, rule: ValueRule) -> AnnotationRow {
    AnnotationRow::new(name, risk, rule, IngressRefused)
}

/// An annotation of which a broken value must not let requests pass.
const fn guard(name: &'static str, risk: AnnotationRisk, rule: ValueRule) -> AnnotationRow {
    AnnotationRow::new(name, risk, rule, IngressDenied)
}

const CLIENT_MODES: ValueRule =
    Choice { words: &["on", "off", "optional", "optional_no_ca"], any_case: false };
const AUTH_METHODS: ValueRule = Choice {
    words: &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"],
    any_case: false,
};

pub(super) const HOSTS: &[AnnotationRow] = &[
    strict("server-alias", High, ServerNames).differs(
        "a name that begins with `~`, a regular expression, is left out; write each name, or `*.` and a name",
    ),
    strict("ssl-passthrough", Low, Switch),
    strict("ssl-ciphers", Low, Ciphers).differs(
        "names of OpenSSL's lists, such as `HIGH` or `!aNULL`, are passed over; TLS 1.2 and 1.3 suites count",
    ),
    row("ssl-prefer-server-ciphers", Low, Switch)
        .harmless("true")
        .no_effect("the server's order of cipher suites always decides"),
    strict("auth-tls-secret", Medium, Text(Basic)),
    row("auth-tls-verify-client", Medium, CLIENT_MODES),
    row("auth-tls-verify-depth", Low, Number),
    strict("auth-tls-error-page", High, ErrorPage).differs("a named location (`@name`) is left out"),
    strict("auth-tls-match-cn", High, CommonName),
    strict("auth-tls-pass-certificate-to-upstream", Low, Switch),
];

pub(super) const AUTHENTICATION: &[AnnotationRow] = &[
    strict("auth-type", Low, Choice { words: &["basic", "digest"], any_case: false })
        .harmless("basic")
        .denied(
            "digest authentication has no counterpart: browsers and RFC 7616 left MD5 behind",
            "use `auth-type: basic` over https",
        ),
    guard("auth-secret", Medium, Text(Basic)),
    strict("auth-secret-type", Low, Choice { words: &["auth-file", "auth-map"], any_case: false }),
    strict("auth-realm", Medium, Text(BasicSpaced)),
    strict("auth-url", High, Text(UrlWithVariables)),
    guard("auth-method", Low, AUTH_METHODS),
    row("auth-signin", High, Text(UrlWithVariables)),
    row("auth-signin-redirect-param", Medium, Text(Url)),
    guard("auth-response-headers", Medium, Text(FieldNames)),
    strict("auth-request-redirect", Medium, Text(Url)),
    guard("auth-proxy-set-headers", Medium, Text(Basic)),
    strict("auth-always-set-cookie", Low, Switch),
    row("auth-cache-key", Medium, Text(Variables)),
    guard("auth-cache-duration", Medium, Text(Extended)),
    row("auth-keepalive", Low, Number),
    row("auth-keepalive-share-vars", Low, Switch)
        .harmless("false")
        .no_effect("the request to the service has no variables of NGINX"),
    row("auth-keepalive-requests", Low, Number)
        .no_effect("connections to services are reused until they are idle"),
    row("auth-keepalive-timeout", Low, Number)
        .no_effect("the idle time of connections to services is the gateway's"),
    row("enable-global-auth", Low, Switch),
    row("satisfy", Low, Choice { words: &["any", "all"], any_case: false }),
];

pub(super) const LIMITS: &[AnnotationRow] = &[
    guard("allowlist-source-range", Medium, Networks).with_alias("whitelist-source-range"),
    guard("denylist-source-range", Medium, Networks),
    strict("limit-rps", Low, Number),
    strict("limit-rpm", Low, Number),
    row("limit-burst-multiplier", Low, Number),
    strict("limit-connections", Low, Number),
    strict("limit-allowlist", Low, Networks).with_alias("limit-whitelist"),
    row("limit-rate", Low, Number),
    row("limit-rate-after", Low, Number),
];

pub(super) const CORS: &[AnnotationRow] = &[
    row("enable-cors", Low, Switch),
    row("cors-allow-origin", Medium, Origins),
    row("cors-allow-methods", Medium, Methods),
    row("cors-allow-headers", Medium, Text(FieldNames)),
    row("cors-expose-headers", Medium, ExposedFields),
    row("cors-allow-credentials", Low, Switch),
    row("cors-max-age", Low, Number),
];
