//! Annotations of services, sessions, requests and responses.

use super::AnnotationRow;
use crate::ingress_nginx::annotations::AnnotationConsequence::{IngressDenied, IngressRefused, LeftOut};
use crate::ingress_nginx::annotations::AnnotationRisk::{self, High, Low, Medium};
use crate::ingress_nginx::annotations::value_rule::CharacterSet::{Basic, Url, Variables};
use crate::ingress_nginx::annotations::value_rule::ValueRule::{
    self, Choice, Ciphers, CookieDomain, NextUpstream, Number, Seconds, ServerNames, Size, Switch, Text,
};

const fn row(name: &'static str, risk: AnnotationRisk, rule: ValueRule) -> AnnotationRow {
    AnnotationRow::new(name, risk, rule, LeftOut)
}

const fn strict(name: &'static str, risk: AnnotationRisk, rule: ValueRule) -> AnnotationRow {
    AnnotationRow::new(name, risk, rule, IngressRefused)
}

const ON_OFF: ValueRule = Choice { words: &["on", "off"], any_case: false };
const FASTCGI: &str = "the gateway does not send FastCGI";
const FASTCGI_WAY: &str =
    "put a web server, such as the nginx image, beside the FastCGI process, and name its port";

pub(super) const SERVICES: &[AnnotationRow] = &[
    row(
        "backend-protocol",
        Low,
        Choice { words: &["HTTP", "HTTPS", "AUTO_HTTP", "GRPC", "GRPCS", "FCGI"], any_case: true },
    ),
    strict("fastcgi-index", Medium, Text(Basic)).left_out(FASTCGI, FASTCGI_WAY),
    strict("fastcgi-params-configmap", Medium, Text(Basic)).left_out(FASTCGI, FASTCGI_WAY),
    row("service-upstream", Low, Switch),
    strict("load-balance", Low, Choice { words: &["round_robin", "ewma"], any_case: false }),
    strict("upstream-hash-by", High, Text(Variables)),
    strict("upstream-hash-by-subset", Low, Switch).harmless("false").left_out(
        "a key maps to one endpoint, not to a subset",
        "leave the annotation out: one endpoint per key needs no subset unless a key has very many requests",
    ),
    strict("upstream-hash-by-subset-size", Low, Number)
        .left_out("a key maps to one endpoint, not to a subset", "leave the annotation out"),
    strict("upstream-vhost", Low, ServerNames).differs(
        "a value with a variable other than `$host` or the names of Service and namespace is left out",
    ),
    AnnotationRow::new("proxy-ssl-secret", Medium, Text(Basic), IngressDenied),
    row("proxy-ssl-verify", Low, ON_OFF),
    row("proxy-ssl-verify-depth", Low, Number),
    row("proxy-ssl-name", High, ServerNames),
    row("proxy-ssl-server-name", Low, ON_OFF)
        .harmless("on")
        .differs("the server name is always sent (RFC 6066 §3), which servers without names ignore"),
    row(
        "proxy-ssl-protocols",
        Low,
        Choice { words: &["TLSv1.2", "TLSv1.3", "TLSv1.2 TLSv1.3", "TLSv1.3 TLSv1.2"], any_case: false },
    )
    .harmless("TLSv1.2 TLSv1.3")
    .left_out("TLS 1.2 and 1.3 are offered to all services", "restrict the versions at the service"),
    row("proxy-ssl-ciphers", Medium, Ciphers).harmless("DEFAULT").left_out(
        "the cipher suites towards services are the gateway's",
        "restrict the suites at the service",
    ),
];

pub(super) const SESSIONS: &[AnnotationRow] = &[
    row("affinity", Low, Choice { words: &["cookie"], any_case: false })
        .differs("sessions of ingress-nginx's cookies move once, with the first response of Yumen"),
    row("affinity-mode", Medium, Choice { words: &["balanced", "persistent"], any_case: false }),
    row("affinity-canary-behavior", Low, Choice { words: &["sticky", "legacy"], any_case: false }),
    row("session-cookie-name", Medium, Text(Basic)),
    row("session-cookie-path", Medium, Text(Url)),
    row("session-cookie-domain", Medium, Text(Basic)),
    row("session-cookie-max-age", Medium, Seconds),
    row("session-cookie-expires", Medium, Seconds),
    row("session-cookie-samesite", Low, Choice { words: &["None", "Lax", "Strict"], any_case: true }),
    row("session-cookie-conditional-samesite-none", Low, Switch),
    row("session-cookie-secure", Low, Switch),
    row("session-cookie-change-on-failure", Low, Switch),
];

const STREAMED: &str = "bodies are streamed with bounded memory, and nothing is written to disk";
const REQUEST_BUFFERING: &str = "bodies are streamed; a request is repeated on another endpoint as long as its body fits the replay buffer";

pub(super) const PROXY: &[AnnotationRow] = &[
    row("proxy-connect-timeout", Low, Number),
    row("proxy-send-timeout", Low, Number),
    row("proxy-read-timeout", Low, Number),
    row("proxy-next-upstream", Medium, NextUpstream),
    row("proxy-next-upstream-tries", Low, Number),
    row("proxy-next-upstream-timeout", Low, Number).harmless("0").left_out(
        "the number of attempts and the timeouts of each bound them",
        "use proxy-next-upstream-tries and proxy-read-timeout",
    ),
    row("proxy-body-size", Medium, Size),
    strict("client-body-buffer-size", Low, Size).no_effect(STREAMED),
    row("proxy-buffering", Low, ON_OFF).no_effect(STREAMED),
    row("proxy-buffer-size", Low, Size)
        .no_effect("heads of responses up to the gateway's limit are accepted"),
    row("proxy-buffers-number", Low, Number).no_effect(STREAMED),
    row("proxy-busy-buffers-size", Low, Size).no_effect(STREAMED),
    row("proxy-max-temp-file-size", Low, Size).no_effect(STREAMED),
    row("proxy-request-buffering", Low, ON_OFF).no_effect(REQUEST_BUFFERING),
    row("proxy-http-version", Low, Choice { words: &["1.0", "1.1"], any_case: false })
        .harmless("1.1")
        .left_out(
            "requests to services are of HTTP/1.1",
            "serve HTTP/1.1, which every server of HTTP/1.0 may receive",
        ),
    row("proxy-cookie-domain", Medium, CookieDomain),
    row("proxy-cookie-path", Medium, Text(Url)),
    row("proxy-redirect-from", Medium, Text(Url)),
    row("proxy-redirect-to", Medium, Text(Url)),
];
