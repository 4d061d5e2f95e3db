//! Annotations of paths, redirects, canaries, fields, errors, logs and snippets.

use super::AnnotationRow;
use crate::ingress_nginx::annotations::AnnotationConsequence::{IngressRefused, LeftOut};
use crate::ingress_nginx::annotations::AnnotationRisk::{self, Critical, High, Low, Medium};
use crate::ingress_nginx::annotations::value_rule::CharacterSet::{
    Basic, PathWithGroups, Pattern, Url, Variables, Word,
};
use crate::ingress_nginx::annotations::value_rule::ValueRule::{
    self, Choice, ErrorStatuses, Number, ServerNames, ServiceName, Snippet, Switch, Text, Unspaced,
};

const fn row(name: &'static str, risk: AnnotationRisk, rule: ValueRule) -> AnnotationRow {
    AnnotationRow::new(name, risk, rule, LeftOut)
}

const fn strict(name: &'static str, risk: AnnotationRisk, rule: ValueRule) -> AnnotationRow {
    AnnotationRow::new(name, risk, rule, IngressRefused)
}

pub(super) const PATHS: &[AnnotationRow] = &[
    row("rewrite-target", Medium, Unspaced(PathWithGroups)),
    row("use-regex", Low, Switch),
    strict("x-forwarded-prefix", Medium, Text(PathWithGroups)),
    row("app-root", Medium, Unspaced(PathWithGroups)),
    row("ssl-redirect", Low, Switch),
    row("force-ssl-redirect", Medium, Switch),
    row("preserve-trailing-slash", Medium, Switch),
    strict("from-to-www-redirect", Low, Switch),
    strict("temporal-redirect", Medium, Unspaced(Url)),
    strict("temporal-redirect-code", Low, Number),
    strict("permanent-redirect", Medium, Unspaced(Url)),
    strict("permanent-redirect-code", Low, Number),
    strict("relative-redirects", Low, Switch),
    row("use-port-in-redirects", Low, Switch),
];

pub(super) const CANARY: &[AnnotationRow] = &[
    row("canary", Low, Switch),
    row("canary-by-header", Medium, Text(Basic)),
    row("canary-by-header-value", Medium, Text(Basic)),
    row("canary-by-header-pattern", Medium, Unspaced(Pattern)),
    row("canary-by-cookie", Medium, Text(Basic)),
    row("canary-weight", Low, Number),
    row("canary-weight-total", Low, Number),
];

const MIRROR_BODY: &str =
    "with `off`, requests with a body are not copied at all, since a copy is a whole request";
const TRACES: &str = "traces are a setting of the gateway, not of a path";

pub(super) const OTHERS: &[AnnotationRow] = &[
    row("custom-headers", Medium, Text(Basic)),
    strict("connection-proxy-header", Low, Choice { words: &["close", "keep-alive"], any_case: false })
        .no_effect("the gateway manages its connections to services; HTTP/1.1 keeps them open"),
    row("mirror-target", High, ServerNames)
        .differs("the copy goes to the host and port of the URL with the path of the request"),
    row("mirror-host", High, ServerNames),
    row("mirror-request-body", Low, Choice { words: &["on", "off"], any_case: false }).differs(MIRROR_BODY),
    strict("http2-push-preload", Low, Switch).no_effect("browsers have no server push any more"),
    strict("custom-http-errors", Low, ErrorStatuses),
    row("disable-proxy-intercept-errors", Low, Switch),
    strict("default-backend", Low, ServiceName),
    row("enable-access-log", Low, Switch),
    row("enable-rewrite-log", Low, Switch)
        .harmless("false")
        .no_effect("`yumen explain` shows how a request was rewritten"),
    row("enable-opentelemetry", Low, Switch)
        .harmless("false")
        .left_out(TRACES, "add the plugin `opentelemetry` as a global rule"),
    row("opentelemetry-trust-incoming-span", Low, Switch)
        .left_out(TRACES, "add the plugin `opentelemetry` as a global rule"),
    strict("opentelemetry-operation-name", Medium, Text(Word))
        .left_out(TRACES, "add the plugin `opentelemetry` as a global rule"),
];

const DIRECTIVES: &str = "the directives of the table below are translated; any other refuses the snippet";
const NO_FIREWALL: &str = "the gateway has no web application firewall";
const FIREWALL_WAY: &str = "put a firewall before or behind the gateway, or remove the annotation if the Ingress may be served without one";

pub(super) const SNIPPETS: &[AnnotationRow] = &[
    row("configuration-snippet", Critical, Snippet).differs(DIRECTIVES),
    row("server-snippet", Critical, Snippet).differs(DIRECTIVES),
    row("auth-snippet", Critical, Snippet)
        .differs("`proxy_set_header` with a text or a variable is translated"),
    row("stream-snippet", Critical, Snippet).left_out(
        "directives of NGINX's stream module have no translation",
        "use the ConfigMaps of TCP and UDP services, or a TCPRoute",
    ),
    row("enable-modsecurity", Low, Switch).harmless("false").denied(NO_FIREWALL, FIREWALL_WAY),
    row("enable-owasp-core-rules", Low, Switch).harmless("false").denied(NO_FIREWALL, FIREWALL_WAY),
    row("modsecurity-snippet", Critical, Snippet).denied(NO_FIREWALL, FIREWALL_WAY),
    row("modsecurity-transaction-id", High, Text(Variables)).left_out(NO_FIREWALL, FIREWALL_WAY),
];
