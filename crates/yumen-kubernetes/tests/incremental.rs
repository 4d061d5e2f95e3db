//! The translation of random changes, one by one, ends in the same state as that of a translator that is new.

mod cluster;

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use cluster::{CaseSettings, ModelCluster};

/// A change of one of a few objects, so that sequences change and remove the same ones again and again.
#[derive(Debug, Clone)]
struct RandomChange {
    object: usize,
    variant: u8,
}

const OBJECTS: usize = 48;
const VARIANTS: u8 = 6;

/// The object in a variant; `None` deletes it.
fn object(change: &RandomChange) -> (String, Option<Value>) {
    let variant = change.variant;
    let gateway_group = "gateway.networking.k8s.io/v1";
    let (api, kind, namespace, name) = match change.object {
        0 => (gateway_group, "GatewayClass", "", "yumen"),
        1 => (gateway_group, "Gateway", "infra", "web"),
        2 => (gateway_group, "Gateway", "infra", "api"),
        3 => (gateway_group, "Gateway", "shop", "web"),
        4 => (gateway_group, "ListenerSet", "infra", "one"),
        5 => (gateway_group, "ListenerSet", "shop", "two"),
        6 => (gateway_group, "ReferenceGrant", "certs", "grant"),
        7 => ("v1", "Secret", "certs", "far"),
        8 => ("v1", "Secret", "infra", "near"),
        9 => ("v1", "ConfigMap", "infra", "clients"),
        10 => ("v1", "Namespace", "", "shop"),
        11 => ("v1", "Pod", "yumen", "yumen-0"),
        12 => (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "",
            "gatewayclasses.gateway.networking.k8s.io",
        ),
        13 => (gateway_group, "ReferenceGrant", "shop", "other"),
        14 => ("v1", "Secret", "shop", "near"),
        15 => ("v1", "ConfigMap", "certs", "clients"),
        16 => (gateway_group, "HTTPRoute", "infra", "pages"),
        17 => (gateway_group, "HTTPRoute", "shop", "cart"),
        18 => (gateway_group, "GRPCRoute", "shop", "calls"),
        19 => (gateway_group, "TCPRoute", "infra", "bytes"),
        20 => (gateway_group, "TCPRoute", "infra", "later"),
        21 => (gateway_group, "TLSRoute", "infra", "names"),
        22 => ("v1", "Service", "shop", "cart"),
        23 => ("discovery.k8s.io/v1", "EndpointSlice", "shop", "cart-1"),
        24 => ("discovery.k8s.io/v1", "EndpointSlice", "shop", "cart-2"),
        25 => (gateway_group, "BackendTLSPolicy", "shop", "strict"),
        26 => (gateway_group, "BackendTLSPolicy", "shop", "other"),
        27 => ("v1", "ConfigMap", "shop", "clients"),
        at => apisix_kind(at),
    };
    let id =
        if namespace.is_empty() { format!("{kind}/{name}") } else { format!("{kind}/{namespace}/{name}") };
    if variant == 0 {
        return (id, None);
    }
    let metadata = json!({
        "name": name,
        "namespace": namespace,
        "generation": variant,
        "creationTimestamp": format!("2026-01-0{}T00:00:00Z", change.object % 5 + 1),
        "labels": { "edge": if variant.is_multiple_of(2) { "yes" } else { "no" } },
        "annotations": { "gateway.networking.k8s.io/bundle-version": format!("v1.{variant}.0") },
    });
    let mut value = json!({ "apiVersion": api, "kind": kind, "metadata": metadata });
    fill(&mut value, kind, variant);
    (id, Some(value))
}

fn apisix_kind(at: usize) -> (&'static str, &'static str, &'static str, &'static str) {
    let (v1alpha1, v2) = ("apisix.apache.org/v1alpha1", "apisix.apache.org/v2");
    match at {
        28 => ("networking.k8s.io/v1", "IngressClass", "", "yumen"),
        29 => (v1alpha1, "PluginConfig", "shop", "one"),
        30 => (v1alpha1, "PluginConfig", "shop", "two"),
        31 => (v1alpha1, "HTTPRoutePolicy", "shop", "one"),
        32 => (v1alpha1, "HTTPRoutePolicy", "shop", "two"),
        33 => (v1alpha1, "BackendTrafficPolicy", "shop", "one"),
        34 => (v1alpha1, "BackendTrafficPolicy", "shop", "two"),
        35 => (v1alpha1, "Consumer", "shop", "jack"),
        36 => (v1alpha1, "GatewayProxy", "infra", "one"),
        37 => (v1alpha1, "GatewayProxy", "infra", "two"),
        38 => (v2, "ApisixRoute", "shop", "cart"),
        39 => (v2, "ApisixUpstream", "shop", "cart"),
        40 => (v2, "ApisixTls", "shop", "tls"),
        41 => (v2, "ApisixConsumer", "shop", "jack"),
        42 => (v2, "ApisixPluginConfig", "shop", "one"),
        43 => (v2, "ApisixGlobalRule", "shop", "one"),
        44 => ("networking.k8s.io/v1", "Ingress", "shop", "one"),
        45 => ("networking.k8s.io/v1", "Ingress", "shop", "two"),
        46 => ("networking.k8s.io/v1", "Ingress", "infra", "three"),
        _ => ("networking.k8s.io/v1", "Ingress", "shop", "canary"),
    }
}

/// The specification of an object of `apisix.apache.org`, or of an IngressClass.
fn fill_apisix(value: &mut Value, kind: &str, variant: u8) {
    let is_even = variant.is_multiple_of(2);
    let class = ["yumen", "", "other"][usize::from(variant) % 3];
    let plugins = json!([{ "name": "request-id", "config": { "header_name": format!("X-{variant}") },
        "enabled": true, "secretRef": if is_even { "near" } else { "" } }]);
    let service = json!([{ "group": "", "kind": "Service", "name": "cart", "sectionName": if is_even { "web" } else { "" } }]);
    let parameters = json!({ "apiGroup": "apisix.apache.org", "kind": "GatewayProxy", "namespace": "infra",
        "name": if is_even { "one" } else { "two" } });
    value["spec"] = match kind {
        "IngressClass" => {
            value["metadata"]["annotations"] =
                json!({ "ingressclass.kubernetes.io/is-default-class": (variant < 4).to_string() });
            let controller = if variant == 1 { "example.com/other" } else { "gateway.yumen.io/controller" };
            json!({ "controller": controller, "parameters": parameters })
        }
        "HTTPRoutePolicy" => json!({
            "targetRefs": [{ "group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "cart" }],
            "priority": variant / 2, "vars": [["arg_a", "==", variant.to_string()]],
        }),
        "BackendTrafficPolicy" => json!({ "targetRefs": service, "retries": variant, "passHost": "node" }),
        "GatewayProxy" => {
            json!({ "plugins": plugins, "pluginMetadata": { "cors": { "allow_origins": { "a": format!("https://a{variant}.example.com") } } },
            "statusAddress": ["192.0.2.77"] })
        }
        "Consumer" => json!({
            "gatewayRef": { "name": if is_even { "web" } else { "api" }, "namespace": "infra" },
            "credentials": [{ "type": "key-auth", "name": "a", "config": { "key": variant.to_string() } },
                { "type": "key-auth", "name": "b", "secretRef": { "name": "far", "namespace": "certs" } }],
        }),
        "ApisixRoute" => json!({
            "ingressClassName": class,
            "http": [{ "name": "a", "match": { "paths": ["/a"] }, "plugins": plugins, "plugin_config_name": "one",
                "backends": [{ "serviceName": "cart", "servicePort": 80, "weight": variant }],
                "upstreams": [{ "name": "cart" }] }],
            "stream": [{ "name": "b", "protocol": "TCP", "match": { "ingressPort": 9000 + u16::from(variant) },
                "backend": { "serviceName": "cart", "servicePort": "tls" } }],
        }),
        "ApisixUpstream" => json!({
            "ingressClassName": class, "retries": variant,
            "externalNodes": [{ "type": "Domain", "name": "far.example.com", "weight": variant }],
            "tlsSecret": if variant < 3 { json!({ "name": "absent", "namespace": "shop" }) } else { Value::Null },
        }),
        "ApisixTls" => json!({
            "ingressClassName": class, "hosts": ["a.example.com"],
            "secret": { "name": "far", "namespace": if is_even { "certs" } else { "shop" } },
        }),
        "ApisixConsumer" => json!({
            "ingressClassName": class,
            "authParameter": { "keyAuth": { "value": { "key": variant.to_string() } } },
        }),
        _ => json!({ "ingressClassName": class, "plugins": plugins }),
    };
}

/// The specification and annotations of an Ingress. All have paths of one host, some a wildcard, aliases or a canary.
fn fill_ingress(value: &mut Value, variant: u8) {
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let is_even = variant.is_multiple_of(2);
    let prefix = "nginx.ingress.kubernetes.io";
    let mut annotations = json!({
        (format!("{prefix}/rewrite-target")): if variant == 1 { "/$1" } else { "/" },
        (format!("{prefix}/affinity")): "cookie",
        (format!("{prefix}/limit-rps")): variant.to_string(),
    });
    match variant {
        2 => annotations[format!("{prefix}/server-alias")] = "b.example.com".into(),
        3 => annotations[format!("{prefix}/auth-secret")] = "near".into(),
        4 => annotations[format!("{prefix}/from-to-www-redirect")] = "true".into(),
        _ => {}
    }
    if name == "canary" {
        annotations =
            json!({ (format!("{prefix}/canary")): "true", (format!("{prefix}/canary-weight")): "10" });
    }
    value["metadata"]["annotations"] = annotations;
    let backend = |port: u16| json!({ "service": { "name": "cart", "port": { "number": port } } });
    let second = if is_even { "b.example.com" } else { "*.example.com" };
    value["spec"] = json!({
        "ingressClassName": if variant == 5 { "other" } else { "yumen" },
        "tls": if variant == 2 { json!([{ "hosts": ["a.example.com"], "secretName": "near" }]) } else { json!([]) },
        "defaultBackend": if variant == 4 { backend(81) } else { Value::Null },
        "rules": [
            { "host": "a.example.com", "http": { "paths": [
                { "path": format!("/{name}"), "pathType": "Prefix", "backend": backend(80) },
                { "path": "/", "pathType": "Prefix", "backend": backend(80 + u16::from(variant) / 4) },
            ] } },
            { "host": second, "http": { "paths": [{ "path": "/", "pathType": "Exact", "backend": backend(80) }] } },
        ],
    });
}

/// The specification of a route, a Service, a slice or a policy.
fn fill_traffic(value: &mut Value, kind: &str, variant: u8) {
    let is_even = variant.is_multiple_of(2);
    let backends = json!([
        { "name": "cart", "namespace": "shop", "port": 80 + u16::from(variant) / 4, "weight": variant },
        { "name": "absent", "port": 80 },
    ]);
    let parents = json!([
        { "name": if is_even { "web" } else { "api" }, "namespace": "infra" },
        { "kind": "ListenerSet", "name": "one", "namespace": "infra", "sectionName": if variant < 3 { "http" } else { "https" } },
    ]);
    match kind {
        "HTTPRoute" | "GRPCRoute" | "TLSRoute" | "TCPRoute" => {
            let filters = json!([{ "type": "RequestHeaderModifier",
                "requestHeaderModifier": { "set": [{ "name": "x-variant", "value": variant.to_string() }] } }]);
            value["spec"] = json!({ "parentRefs": parents, "rules": [{ "backendRefs": backends }] });
            if kind != "TCPRoute" {
                value["spec"]["hostnames"] = json!([if is_even { "a.example.com" } else { "*.example.com" }]);
            }
            if kind == "HTTPRoute" && is_even {
                value["spec"]["rules"][0]["filters"] = filters;
            }
            if kind == "HTTPRoute" && variant > 2 {
                let name = if variant == 4 { "two" } else { "one" };
                value["spec"]["rules"][0]["filters"] = json!([{ "type": "ExtensionRef",
                    "extensionRef": { "group": "apisix.apache.org", "kind": "PluginConfig", "name": name } }]);
            }
        }
        "Service" => {
            let protocol = if is_even { Value::Null } else { json!("kubernetes.io/h2c") };
            value["spec"] = json!({ "clusterIPs": ["10.96.0.1"], "ports": [
                { "name": "web", "port": 80, "appProtocol": protocol }, { "name": "tls", "port": 81 },
            ] });
        }
        "EndpointSlice" => {
            let service = if variant < 5 { "cart" } else { "absent" };
            value["metadata"]["labels"] = json!({ "kubernetes.io/service-name": service });
            value["addressType"] = "IPv4".into();
            value["ports"] = json!([{ "name": "web", "port": 8080 }, { "name": "tls", "port": 8443 }]);
            value["endpoints"] = json!([
                { "addresses": [format!("10.1.0.{variant}")], "conditions": { "ready": is_even, "serving": true } },
                { "addresses": ["10.1.0.9"], "conditions": { "ready": variant < 3, "serving": true, "terminating": true } },
            ]);
        }
        "BackendTLSPolicy" => {
            let section = if is_even { json!("web") } else { Value::Null };
            value["spec"] = json!({
                "targetRefs": [{ "group": "", "kind": "Service", "name": "cart", "sectionName": section }],
                "validation": {
                    "caCertificateRefs": [{ "group": "", "kind": "ConfigMap", "name": if variant < 4 { "clients" } else { "absent" } }],
                    "hostname": "cart.example.com",
                },
            });
        }
        _ => fill_apisix(value, kind, variant),
    }
}

fn fill(value: &mut Value, kind: &str, variant: u8) {
    let hostname = ["a.example.com", "*.example.com", "b.example.com"][usize::from(variant) % 3];
    let references = json!([{ "name": "near" }, { "name": "far", "namespace": "certs" }]);
    let https = json!({ "name": "https", "port": 443, "protocol": "HTTPS", "hostname": hostname,
        "tls": { "certificateRefs": references } });
    let http = json!({ "name": "http", "port": 80, "protocol": if variant == 5 { "TCP" } else { "HTTP" } });
    let more = json!({ "name": "more", "port": 8080 + u16::from(variant), "protocol": "HTTP" });
    match kind {
        "GatewayClass" => {
            let controller = if variant == 1 { "example.com/other" } else { "gateway.yumen.io/controller" };
            value["spec"] = json!({ "controllerName": controller });
            if variant > 3 {
                value["spec"]["parametersRef"] = json!({ "group": "apisix.apache.org", "kind": "GatewayProxy",
                    "namespace": "infra", "name": "one" });
            }
        }
        "Gateway" => {
            let from = ["Same", "All", "Selector"][usize::from(variant) % 3];
            let reference = json!({ "group": "", "kind": "ConfigMap", "name": "clients",
                "namespace": if variant == 4 { "certs" } else { "infra" } });
            value["spec"] = json!({
                "gatewayClassName": "yumen",
                "allowedListeners": { "namespaces": { "from": from, "selector": { "matchLabels": { "edge": "yes" } } } },
                "listeners": if variant < 3 { json!([http, https]) } else { json!([https, http, more]) },
                "tls": { "frontend": { "default": { "validation": { "caCertificateRefs": [reference] } } } },
            });
            if variant < 3 {
                value["spec"]["tls"] = json!({ "backend": { "clientCertificateRef": { "name": "near" } } });
            }
        }
        "ListenerSet" => {
            let gateway = if variant.is_multiple_of(2) { "web" } else { "api" };
            let listeners = if variant < 4 { json!([http, more]) } else { json!([https]) };
            value["spec"] =
                json!({ "parentRef": { "name": gateway, "namespace": "infra" }, "listeners": listeners });
        }
        "ReferenceGrant" => {
            let namespace = if variant < 4 { "infra" } else { "shop" };
            let kinds = ["Gateway", "ListenerSet", "HTTPRoute", "TCPRoute", "TLSRoute"].map(
                |kind| json!({ "group": "gateway.networking.k8s.io", "kind": kind, "namespace": namespace }),
            );
            let to = ["Secret", "ConfigMap", "Service"][usize::from(variant) % 3];
            value["spec"] = json!({ "from": kinds, "to": [{ "group": "", "kind": to }] });
        }
        "Secret" => {
            let cert = if variant == 3 { "nonsense".to_owned() } else { format!("certificate {hostname}") };
            value["stringData"] = json!({ "tls.crt": cert, "tls.key": "key" });
        }
        "ConfigMap" => {
            // Upstreams have a lower bound on the length of authorities.
            let authorities = "authority ".repeat(16);
            value["data"] = json!({ "ca.crt": if variant < 4 { &authorities } else { "nonsense" } });
        }
        "Pod" => {
            let ready = if variant < 4 { "True" } else { "False" };
            value["status"] = json!({
                "podIPs": [{ "ip": "10.0.0.1" }],
                "conditions": [{ "type": "Ready", "status": ready }],
            });
        }
        "Ingress" => fill_ingress(value, variant),
        _ => fill_traffic(value, kind, variant),
    }
}

fn random_change() -> impl Strategy<Value = RandomChange> {
    (0..OBJECTS, 0..VARIANTS).prop_map(|(object, variant)| RandomChange { object, variant })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn incremental_equals_fresh(
        batches in prop::collection::vec(prop::collection::vec(random_change(), 1..12), 1..16)
    ) {
        let mut incremental = ModelCluster::new(CaseSettings::read(None));
        let mut present: BTreeMap<String, Value> = BTreeMap::new();
        for batch in &batches {
            let (mut objects, mut deleted) = (Vec::new(), Vec::new());
            // A batch has one change per object, as a step of the model cluster needs.
            let last: BTreeMap<usize, &RandomChange> =
                batch.iter().map(|change| (change.object, change)).collect();
            for (id, value) in last.into_values().map(object) {
                match value {
                    Some(value) => {
                        present.insert(id, value.clone());
                        objects.push(value);
                    }
                    None if present.remove(&id).is_some() => deleted.push(Value::from(id)),
                    None => {}
                }
            }
            incremental.step(objects, &deleted);
        }
        let mut fresh = ModelCluster::new(CaseSettings::read(None));
        fresh.step(incremental.all_objects(), &[]);
        prop_assert_eq!(incremental.state(), fresh.state());
    }
}
