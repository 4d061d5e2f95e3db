//! Upstreams of Services, with the settings of the first Ingress that names the Service.

use serde_json::{Map, Value, json};
use yumen_base::problem::Problem;

use super::host_names::is_inner;
use super::members::first_of_service;
use crate::derived::{ParsedIngress, UpstreamFlavor, UpstreamKey};
use crate::endpoints::{endpoints_of, nodes_value};
use crate::engine::{ReferencedObject, TrackedView, UnitOutput};
use crate::ingress_nginx::{UpstreamBalance, UpstreamTlsChoice};
use crate::model::{ClusterKind, ObjectKey, ServiceObject};
use crate::resources::{SpecDefect, TranslatedKind, mark_broken};

/// Further endpoints that are tried after a failure; `proxy-next-upstream-tries` counts the first one.
const RETRIES: u32 = 2;
/// Seconds for which tunnels and streams to a removed endpoint may go on.
const DRAIN_S: u32 = 30;

pub(crate) fn translate_ingress_upstream(view: &TrackedView<'_>, key: &UpstreamKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let service =
        ObjectKey { kind: ClusterKind::Service, namespace: key.namespace.clone(), name: key.service.clone() };
    let Some(object) = view.get::<ServiceObject>(&service) else { return output };
    let (mut members, mut defects) = (Map::new(), Vec::new());
    let first = first_of_service(view, &key.namespace, &key.service);
    members.insert("scheme".to_owned(), scheme(key.flavor).into());
    let nodes = match &*object.spec.kind {
        "ExternalName" => external_nodes(view, key.port, object).unwrap_or_else(|reason| {
            let message = format!("{reason}: requests are answered 503");
            output.problems.push(Problem::warning(service.to_string(), "spec.externalName", message));
            json!([])
        }),
        _ => nodes(view, key, object, first.map(|first| &**first), &mut defects),
    };
    members.insert("nodes".to_owned(), nodes);
    if let Some(first) = first {
        add_balance(first, &mut members, &mut defects);
    }
    if matches!(key.flavor, UpstreamFlavor::Https | UpstreamFlavor::Grpcs) {
        let owner = key.gateway.as_ref().and_then(|ingress| view.parsed_ingress(ingress));
        let choice = owner.and_then(|owner| owner.settings.upstream.tls.as_ref());
        let value =
            choice.map_or_else(|| json!({ "verify": false }), |tls| tls_value(view, tls, &mut defects));
        members.insert("tls".to_owned(), value);
    }
    if key.flavor == UpstreamFlavor::Tcp && key.gateway.is_some() {
        members.insert("proxy_protocol".to_owned(), "v1".into());
    }
    if key.flavor != UpstreamFlavor::Udp {
        members.insert("retries".to_owned(), RETRIES.into());
        // The statuses of the application itself eject no endpoint.
        let ejection = json!({
            "consecutive_5xx": 0,
            "consecutive_gateway_failures": 5,
            "base_ejection_time": 10,
            "max_ejected_percent": 50,
        });
        members.insert("outlier_detection".to_owned(), ejection);
    }
    members.insert("on_change".to_owned(), json!({ "drain": DRAIN_S }));
    members.insert("labels".to_owned(), json!({ "origin": service.origin_label() }));
    mark_broken(&mut members, &defects);
    output.add_resource(TranslatedKind::Upstreams, key.id(), &members.into());
    output
}

fn scheme(flavor: UpstreamFlavor) -> &'static str {
    match flavor {
        UpstreamFlavor::Http => "http",
        UpstreamFlavor::Https => "https",
        UpstreamFlavor::Grpc => "grpc",
        UpstreamFlavor::Grpcs => "grpcs",
        UpstreamFlavor::Tcp | UpstreamFlavor::Sealed => "tcp",
        UpstreamFlavor::Udp => "udp",
    }
}

fn one_node(host: &str, port: u16) -> Value {
    json!([{ "host": host, "port": port, "weight": 1 }])
}

/// The name of a Service of type ExternalName, or the reason why requests do not go there.
fn external_nodes(view: &TrackedView<'_>, port: u16, service: &ServiceObject) -> Result<Value, String> {
    if view.settings().ingress.controller.flags.is_set("disable-svc-external-name") {
        return Err("the flag disable-svc-external-name forbids Services of this type".to_owned());
    }
    let name = service.spec.external_name.as_deref().unwrap_or_default().trim_end_matches('.');
    // It would expose the inner listeners of the gateway.
    if is_inner(name) {
        return Err(format!("{name:?} is the machine of the gateway or its link"));
    }
    Ok(json!([{ "host": name, "port": port, "weight": 1, "excludes_local": true }]))
}

fn nodes(
    view: &TrackedView<'_>,
    key: &UpstreamKey,
    service: &ServiceObject,
    first: Option<&ParsedIngress>,
    defects: &mut Vec<SpecDefect>,
) -> Value {
    let is_udp = key.flavor == UpstreamFlavor::Udp;
    let by_address = first.is_some_and(|first| first.settings.upstream.uses_service_address);
    if let Some(address) = service.spec.cluster_ips.first().filter(|_| by_address) {
        if &**address != "None" {
            return one_node(address, key.port);
        }
        defects.push(SpecDefect::new("nodes", "service-upstream needs a Service with an address of its own"));
    }
    let mut ports = service.spec.ports.iter();
    let Some(port) =
        ports.find(|port| port.port == key.port && (port.protocol.as_deref() == Some("UDP")) == is_udp)
    else {
        return json!([]);
    };
    nodes_value(&endpoints_of(view, service, &port.name, is_udp))
}

fn add_balance(first: &ParsedIngress, members: &mut Map<String, Value>, defects: &mut Vec<SpecDefect>) {
    let settings = &first.settings.upstream;
    if let Some(hash) = &settings.hash {
        members.insert("type".to_owned(), "chash".into());
        members.insert("hash_on".to_owned(), "vars_combinations".into());
        members.insert("key".to_owned(), hash.key.to_string().into());
        if hash.key.variables().next().is_none() {
            defects.push(SpecDefect::new("key", "upstream-hash-by has no variable"));
        }
    } else if settings.balance == UpstreamBalance::Ewma {
        members.insert("type".to_owned(), "ewma".into());
    }
}

fn tls_value(view: &TrackedView<'_>, tls: &UpstreamTlsChoice, defects: &mut Vec<SpecDefect>) -> Value {
    let mut members = Map::new();
    members.insert("verify".to_owned(), tls.verify.into());
    if let Some(name) = &tls.name {
        members.insert("server_name".to_owned(), (&**name).into());
    }
    if tls.verify {
        members.insert("verify_depth".to_owned(), tls.depth.into());
    }
    let Some(key) = &tls.secret else { return members.into() };
    match view.secret(&key.namespace, &key.name) {
        ReferencedObject::Found(secret) => {
            if let Some(ca) = secret.text("ca.crt").filter(|ca| !ca.trim().is_empty() && tls.verify) {
                members.insert("ca".to_owned(), ca.into());
            }
            if let (Some(cert), Some(key)) = (secret.text("tls.crt"), secret.text("tls.key")) {
                members.insert("client_cert".to_owned(), cert.into());
                members.insert("client_key".to_owned(), key.into());
            }
        }
        ReferencedObject::Missing | ReferencedObject::Pending => {
            let message = format!("Secret {}/{} of proxy-ssl-secret does not exist", key.namespace, key.name);
            defects.push(SpecDefect::new("tls", message));
        }
    }
    members.into()
}
