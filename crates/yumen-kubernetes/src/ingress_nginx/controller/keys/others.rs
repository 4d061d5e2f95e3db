//! Keys of snippets, modules and traces.

use super::{KeyRow, guard, no_effect, noted, refused};

const RAW: &str = "directives of this context have no translation";
const RAW_WAY: &str = "look for a key of the ConfigMap or a plugin with the same effect";
const GUARDING: &str = "every host answers 403 if the snippet protects and is refused";
const NO_FIREWALL: &str = "the gateway has no web application firewall";
const FIREWALL_WAY: &str = "put a firewall before or behind the gateway";
const NO_GEOIP: &str = "the gateway has no database of places";
const GEOIP_WAY: &str = "let the load balancer in front send the place in a field";
const TRACES: &str = "traces are a setting of the gateway";
const TRACES_WAY: &str = "add the plugin opentelemetry as a global rule";
const JAEGER: &str = "ingress-nginx 1.15 ignores it too";

pub(in crate::ingress_nginx::controller) const OTHERS: &[KeyRow] = &[
    noted("location-snippet", GUARDING),
    noted("server-snippet", GUARDING),
    refused("main-snippet", RAW, RAW_WAY),
    refused("http-snippet", RAW, RAW_WAY),
    refused("stream-snippet", RAW, RAW_WAY),
    guard("enable-modsecurity", NO_FIREWALL, FIREWALL_WAY),
    guard("enable-owasp-modsecurity-crs", NO_FIREWALL, FIREWALL_WAY),
    guard("modsecurity-snippet", NO_FIREWALL, FIREWALL_WAY),
    no_effect("lua-shared-dicts", "the gateway runs no Lua"),
    refused("use-geoip", NO_GEOIP, GEOIP_WAY),
    refused("use-geoip2", NO_GEOIP, GEOIP_WAY),
    no_effect("geoip2-autoreload-in-minutes", NO_GEOIP),
    refused("enable-opentelemetry", TRACES, TRACES_WAY),
    refused("opentelemetry-config", TRACES, TRACES_WAY),
    refused("opentelemetry-operation-name", TRACES, TRACES_WAY),
    refused("opentelemetry-trust-incoming-span", TRACES, TRACES_WAY),
    refused("otlp-collector-host", TRACES, TRACES_WAY),
    refused("otlp-collector-port", TRACES, TRACES_WAY),
    refused("otel-service-name", TRACES, TRACES_WAY),
    refused("otel-sampler", TRACES, TRACES_WAY),
    refused("otel-sampler-ratio", TRACES, TRACES_WAY),
    refused("otel-sampler-parent-based", TRACES, TRACES_WAY),
    refused("otel-max-queuesize", TRACES, TRACES_WAY),
    refused("otel-schedule-delay-millis", TRACES, TRACES_WAY),
    refused("otel-max-export-batch-size", TRACES, TRACES_WAY),
    no_effect("jaeger-baggage-header", JAEGER),
    no_effect("jaeger-collector-host", JAEGER),
    no_effect("jaeger-collector-port", JAEGER),
    no_effect("jaeger-debug-header", JAEGER),
    no_effect("jaeger-endpoint", JAEGER),
    no_effect("jaeger-propagation-format", JAEGER),
    no_effect("jaeger-sampler-host", JAEGER),
    no_effect("jaeger-sampler-param", JAEGER),
    no_effect("jaeger-sampler-port", JAEGER),
    no_effect("jaeger-sampler-type", JAEGER),
    no_effect("jaeger-service-name", JAEGER),
    no_effect("jaeger-trace-baggage-header-prefix", JAEGER),
    no_effect("jaeger-trace-context-header-name", JAEGER),
];
