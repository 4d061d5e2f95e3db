//! Upstreams of Service ports.
//!
//! `translate_upstream` writes one `upstreams` resource with the id of the key: nodes by `endpoints`, scheme by flavor
//! and appProtocol, TLS by the policy that applies. A Service or port that does not exist gives no resource; the route
//! that names it then answers 500 for the share.

use serde_json::{Map, Value, json};

use crate::derived::{BackendTlsRules, UpstreamFlavor, UpstreamKey, UpstreamSource};
use crate::endpoints::{endpoints_of, nodes_value};
use crate::engine::{TrackedView, UnitOutput};
use crate::model::{ClusterKind, ObjectKey, ServiceObject, ServicePortSpec};
use crate::overrides::{apply_settings, apply_upstream, external_upstream, upstream_of};
use crate::policy::{PortTls, port_policy, traffic_policy};
use crate::resources::TranslatedKind;

/// Further endpoints that are tried after a failure, so that an endpoint that ends costs no request.
const RETRIES: u32 = 2;
/// Seconds for which tunnels and streams to a removed endpoint may go on.
const DRAIN_S: u32 = 30;

pub(crate) fn translate_upstream(view: &TrackedView<'_>, key: &UpstreamKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    if key.source == UpstreamSource::External {
        return external_upstream(view, key);
    }
    let service =
        ObjectKey { kind: ClusterKind::Service, namespace: key.namespace.clone(), name: key.service.clone() };
    let Some(service) = view.get::<ServiceObject>(&service) else { return output };
    let Some(port) = find_port(service, key.port, key.flavor == UpstreamFlavor::Udp) else { return output };
    if let Some(value) = upstream_value(view, key, service, port) {
        output.add_resource(TranslatedKind::Upstreams, key.id(), &value);
    }
    output
}

fn service_key(key: &UpstreamKey) -> ObjectKey {
    ObjectKey { kind: ClusterKind::Service, namespace: key.namespace.clone(), name: key.service.clone() }
}

/// The port of a Service with a number. TCP and UDP may share one.
pub(crate) fn find_port(service: &ServiceObject, number: u16, is_udp: bool) -> Option<&ServicePortSpec> {
    let wanted = if is_udp { "UDP" } else { "TCP" };
    let mut ports = service.spec.ports.iter();
    ports.find(|port| port.port == number && port.protocol.as_deref().unwrap_or("TCP") == wanted)
}

/// The protocol of a port, by its `appProtocol`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AppProtocol {
    /// Absent, `http`, or a name that means nothing here.
    Unknown,
    /// HTTP/2 without TLS, by prior knowledge.
    H2c,
    WebSocket,
    /// WebSocket over TLS.
    WebSocketTls,
    Https,
}

impl AppProtocol {
    pub(crate) fn of(port: &ServicePortSpec) -> AppProtocol {
        match port.app_protocol.as_deref() {
            Some("kubernetes.io/h2c") => AppProtocol::H2c,
            Some("kubernetes.io/ws") => AppProtocol::WebSocket,
            Some("kubernetes.io/wss") => AppProtocol::WebSocketTls,
            Some(name) if name.eq_ignore_ascii_case("https") => AppProtocol::Https,
            _ => AppProtocol::Unknown,
        }
    }
}

fn upstream_value(
    view: &TrackedView<'_>,
    key: &UpstreamKey,
    service: &ServiceObject,
    port: &ServicePortSpec,
) -> Option<Value> {
    let is_udp = key.flavor == UpstreamFlavor::Udp;
    let protocol = AppProtocol::of(port);
    let tls = match key.flavor {
        // The client's own TLS reaches the endpoint, and datagrams have none.
        UpstreamFlavor::Sealed | UpstreamFlavor::Udp => PortTls::Absent,
        _ if key.source != UpstreamSource::Policies => PortTls::Absent,
        _ => port_policy(view, &key.namespace, &key.service, &port.name).tls,
    };
    let rules = match &tls {
        PortTls::Verified(rules) => Some(rules),
        PortTls::Absent => None,
        PortTls::Refused => return None,
    };
    let is_http = matches!(key.flavor, UpstreamFlavor::Http | UpstreamFlavor::Grpc);
    let declares_tls = is_http && matches!(protocol, AppProtocol::Https | AppProtocol::WebSocketTls);
    let mut members = Map::new();
    members.insert("scheme".to_owned(), scheme(key.flavor, rules.is_some() || declares_tls).into());
    if key.flavor == UpstreamFlavor::Http && protocol == AppProtocol::H2c {
        members.insert("http_version".to_owned(), "2".into());
    }
    members.insert("nodes".to_owned(), nodes(view, key, service, port));
    if let Some(rules) = rules {
        members.insert("tls".to_owned(), tls_value(view, key, rules));
    }
    if !is_udp {
        members.insert("retries".to_owned(), RETRIES.into());
        members.insert("outlier_detection".to_owned(), outlier_detection());
    }
    members.insert("on_change".to_owned(), json!({ "drain": DRAIN_S }));
    members.insert("labels".to_owned(), json!({ "origin": service_key(key).origin_label() }));
    if key.source == UpstreamSource::Policies {
        if let Some((_, policy)) = traffic_policy(view, &key.namespace, &key.service, &port.name) {
            apply_settings(&policy.spec.settings, rules.is_some(), &mut members);
        }
    } else if let Some(object) = upstream_of(view, &key.namespace, &key.service) {
        apply_upstream(view, object, key.port, &mut members);
    }
    Some(members.into())
}

fn nodes(
    view: &TrackedView<'_>,
    key: &UpstreamKey,
    service: &ServiceObject,
    port: &ServicePortSpec,
) -> Value {
    let external = service.spec.external_name.as_ref().filter(|_| &*service.spec.kind == "ExternalName");
    match (key.source, external, service.spec.cluster_ips.first()) {
        (UpstreamSource::Apisix | UpstreamSource::ApisixAddress, Some(host), _) => {
            json!([{ "host": &**host, "port": port.port, "weight": 1, "excludes_local": true }])
        }
        (UpstreamSource::ApisixAddress, None, Some(address)) => {
            json!([{ "host": &**address, "port": port.port, "weight": 1 }])
        }
        _ => nodes_value(&endpoints_of(view, service, &port.name, key.flavor == UpstreamFlavor::Udp)),
    }
}

fn scheme(flavor: UpstreamFlavor, is_tls: bool) -> &'static str {
    match (flavor, is_tls) {
        (UpstreamFlavor::Http, false) => "http",
        (UpstreamFlavor::Http, true) | (UpstreamFlavor::Https, _) => "https",
        (UpstreamFlavor::Grpc, false) => "grpc",
        (UpstreamFlavor::Grpc, true) | (UpstreamFlavor::Grpcs, _) => "grpcs",
        (UpstreamFlavor::Tcp | UpstreamFlavor::Sealed, false) => "tcp",
        (UpstreamFlavor::Tcp | UpstreamFlavor::Sealed, true) => "tls",
        (UpstreamFlavor::Udp, _) => "udp",
    }
}

fn tls_value(view: &TrackedView<'_>, key: &UpstreamKey, rules: &BackendTlsRules) -> Value {
    let mut members = Map::new();
    members.insert("verify".to_owned(), true.into());
    if let Some(authorities) = &rules.authorities {
        members.insert("ca".to_owned(), (&**authorities).into());
    }
    members.insert("server_name".to_owned(), (&*rules.server_name).into());
    if !rules.names.is_empty() {
        let name = |name: &std::sync::Arc<str>| match name.split_once(':') {
            Some(("uri", uri)) => json!({ "uri": uri }),
            Some((_, host)) => json!({ "dns": host }),
            None => json!({ "dns": &**name }),
        };
        members.insert("subject_alt_names".to_owned(), rules.names.iter().map(name).collect());
    }
    let gateway = key.gateway.as_ref().and_then(|gateway| view.parent(gateway));
    if let Some(id) = gateway.and_then(|parent| parent.client_certificate.as_ref()) {
        members.insert("client_cert_id".to_owned(), (&**id).into());
    }
    members.into()
}

fn outlier_detection() -> Value {
    json!({
        "consecutive_5xx": 5,
        "consecutive_gateway_failures": 5,
        "base_ejection_time": 10,
        "max_ejected_percent": 50,
    })
}
