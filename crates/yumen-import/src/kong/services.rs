//! Kong's services: each becomes a service with its own upstream.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use yumen_config::{Kind, Resource};

use super::certificates::KongCertificates;
use super::document::{EntityIndex, KongDocument};
use super::entity::KongEntity;
use super::ids::IdAllocator;
use super::labels::labels;
use super::plugins::PluginTranslator;
use super::protocols::is_stream_protocol;
use super::scopes::PluginUses;
use super::upstreams::{KongUpstreams, split_address};
use crate::report::{ImportReport, different, dropped};

/// A service under conversion.
#[derive(Debug)]
pub(super) struct KongService {
    pub(super) id: String,
    pub(super) is_enabled: bool,
    /// Prefix of the upstream's paths; `/` adds nothing.
    pub(super) path: String,
    /// Whether the service forwards TCP streams or UDP sessions.
    pub(super) is_of_streams: bool,
    pub(super) host_preservation: HostPreservation,
    name: String,
    labels: Option<Value>,
    upstream: Map<String, Value>,
    /// Host for the endpoints if the client's is not preserved; `None` for the endpoint's own.
    upstream_host: Option<String>,
}

/// The routes of a service that preserve the client's host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HostPreservation {
    Never,
    Always,
    /// Some routes: they use a second upstream with this id.
    SomeRoutes(String),
}

/// All services, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct KongServices {
    pub(super) all: Vec<KongService>,
    pub(super) index: EntityIndex,
}

pub(super) fn translate(
    document: &mut KongDocument,
    upstreams: &KongUpstreams,
    certificates: &KongCertificates,
    report: &mut ImportReport,
) -> KongServices {
    let index = EntityIndex::of(&document.services);
    // Counted before the services are converted: the answer decides whether a second upstream is needed.
    let host_routes = host_routes(document, &index);
    let mut ids = IdAllocator::of(document.services.iter().map(|service| &*service.name));
    let mut all = Vec::new();
    for (at, entity) in document.services.iter_mut().enumerate() {
        spread_url(entity, report);
        entity.take("name");
        let id = ids.allocate(&entity.name);
        let protocol = entity.text("protocol", report).unwrap_or_else(|| "http".into());
        let host_preservation = match host_routes.get(&at) {
            None | Some(HostRoutes { preserving: 0, .. }) => HostPreservation::Never,
            Some(HostRoutes { rewriting: 0, .. }) => HostPreservation::Always,
            // One upstream has one rule for `Host`, so mixed routes need two.
            Some(_) => HostPreservation::SomeRoutes(ids.allocate(&format!("{id}-preserve-host"))),
        };
        let mut service = KongService {
            host_preservation,
            id,
            name: entity.name.clone(),
            is_enabled: entity.flag("enabled", report).unwrap_or(true),
            path: entity.text("path", report).unwrap_or_else(|| "/".into()),
            is_of_streams: is_stream_protocol(&protocol),
            labels: labels(entity, report),
            upstream: Map::new(),
            upstream_host: None,
        };
        match protocol.as_str() {
            "http" | "ws" => {}
            "https" | "wss" => drop(service.upstream.insert("scheme".into(), "https".into())),
            "grpc" | "grpcs" | "tcp" | "tls" | "udp" => {
                service.upstream.insert("scheme".into(), protocol.as_str().into());
            }
            // Forwarded without TLS termination.
            "tls_passthrough" => drop(service.upstream.insert("scheme".into(), "tcp".into())),
            other => {
                let line = different(&entity.label, "protocol", "http is spoken");
                report.add(line.why(format!("there is no protocol {other}")));
            }
        }
        let client_certificate = endpoints(entity, upstreams, &mut service, report);
        timing(entity, &mut service.upstream, report);
        tls(entity, client_certificate, certificates, &mut service.upstream, report);
        all.push(service);
    }
    KongServices { all, index }
}

/// Number of a service's routes by their treatment of the client's host.
#[derive(Debug, Default)]
struct HostRoutes {
    preserving: usize,
    rewriting: usize,
}

fn host_routes(document: &KongDocument, index: &EntityIndex) -> BTreeMap<usize, HostRoutes> {
    let mut found: BTreeMap<usize, HostRoutes> = BTreeMap::new();
    for route in &document.routes {
        let Some(at) = route.peek("service").and_then(|reference| index.find(reference)) else { continue };
        let routes = found.entry(at).or_default();
        match route.peek_flag("preserve_host") {
            Some(true) => routes.preserving += 1,
            _ => routes.rewriting += 1,
        }
    }
    found
}

/// Expands `url`, which is short for protocol, host, port and path.
fn spread_url(entity: &mut KongEntity, report: &mut ImportReport) {
    let Some(url) = entity.text("url", report) else { return };
    let Some((protocol, rest)) = url.split_once("://") else {
        report.add(dropped(&entity.label, "url", "left out").why(format!("\"{url}\" has no scheme")));
        return;
    };
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    // Kong derives the port from the scheme of `url`.
    let default = if matches!(protocol, "https" | "grpcs" | "wss" | "tls") { 443 } else { 80 };
    let Some((host, port)) = split_address(authority, default) else {
        report.add(dropped(&entity.label, "url", "left out").why(format!("\"{url}\" has no host")));
        return;
    };
    let mut expanded = vec![("protocol", json!(protocol)), ("host", json!(host)), ("port", json!(port))];
    if !path.is_empty() {
        expanded.push(("path", json!(path)));
    }
    for (field, value) in expanded {
        // Reported if the field is written as well, and `url` wins, as in Kong.
        entity.skip(field, &value, "conflicts with url", report);
        entity.set(field, value);
    }
}

/// Sets the endpoints. Returns the client certificate of the upstream, if any.
fn endpoints(
    entity: &mut KongEntity,
    upstreams: &KongUpstreams,
    service: &mut KongService,
    report: &mut ImportReport,
) -> Option<Value> {
    let host = entity.text("host", report).unwrap_or_default();
    let port = entity.count("port", report).filter(|port| (1..65536).contains(port));
    // Kong's default, whatever the protocol.
    let port = port.unwrap_or(80);
    // Kong looks the host up among its upstreams before it asks DNS.
    if let Some(balanced) = upstreams.of_host(&host) {
        service.upstream.extend(balanced.settings.clone());
        service.upstream_host = balanced.host_header.clone();
        if balanced.settings["nodes"].as_array().is_none_or(Vec::is_empty) {
            let line = different(&balanced.label, "targets", "requests are answered with 503");
            report.add(line.why("there is no endpoint"));
        }
        return balanced.client_certificate.clone();
    }
    if host.is_empty() {
        report.add(dropped(&entity.label, "host", "requests are answered with 503").why("there is no host"));
        service.upstream.insert("nodes".into(), json!([]));
        return None;
    }
    // Node hosts need brackets around IPv6 addresses.
    let bare_v6 = host.parse::<std::net::Ipv6Addr>().is_ok();
    let host = if bare_v6 { format!("[{host}]") } else { host };
    service.upstream.insert("nodes".into(), json!([{ "host": host, "port": port, "weight": 1 }]));
    None
}

/// Converts milliseconds to seconds. Common defaults are omitted.
fn timing(entity: &mut KongEntity, upstream: &mut Map<String, Value>, report: &mut ImportReport) {
    let mut millis = |field| entity.number(field, report).unwrap_or(60_000.0);
    let connect = millis("connect_timeout");
    let (send, read) = (millis("write_timeout"), millis("read_timeout"));
    // The defaults of both gateways are equal.
    if [connect, send, read] != [60_000.0; 3] {
        let seconds = |millis: f64| match millis / 1000.0 {
            whole if whole.fract() == 0.0 => json!(whole as u64),
            part => json!(part),
        };
        let timeout = json!({ "connect": seconds(connect), "send": seconds(send), "read": seconds(read) });
        upstream.insert("timeout".into(), timeout);
    }
    // Written even if it is Kong's default: the gateway's own depends on the number of endpoints.
    upstream.insert("retries".into(), json!(entity.count("retries", report).unwrap_or(5)));
}

fn tls(
    entity: &mut KongEntity,
    of_upstream: Option<Value>,
    certificates: &KongCertificates,
    upstream: &mut Map<String, Value>,
    report: &mut ImportReport,
) {
    // The certificate of the service takes precedence, as in Kong.
    let certificate = entity.take("client_certificate").or(of_upstream);
    let mut tls = Map::new();
    if let Some(reference) = certificate {
        match certificates.client(&reference) {
            Some(id) => drop(tls.insert("client_cert_id".into(), id.into())),
            None => {
                let line = dropped(&entity.label, "client_certificate", "no certificate is shown");
                report.add(line.why(format!("there is no certificate {reference}")));
            }
        }
    }
    if entity.flag("tls_verify", report) == Some(true) {
        tls.insert("verify".into(), true.into());
    }
    let authorities: Vec<Value> = entity.list("ca_certificates", report);
    let mut pem = String::new();
    for reference in &authorities {
        match certificates.authority(reference) {
            Some(text) => {
                pem.push_str(text.trim_end());
                pem.push('\n');
            }
            None => {
                let line = dropped(&entity.label, "ca_certificates", "left out");
                report.add(line.why(format!("there is no CA certificate {reference}")));
            }
        }
    }
    if !pem.is_empty() {
        tls.insert("ca".into(), pem.into());
    }
    entity.skip("tls_verify_depth", &Value::Null, "chains are not limited in length", report);
    entity.skip("tls_sans", &Value::Null, "the certificate is checked for the endpoint's name", report);
    if !tls.is_empty() {
        upstream.insert("tls".into(), Value::Object(tls));
    }
}

impl KongService {
    fn upstream(&self, preserves_host: bool) -> Value {
        let mut upstream = self.upstream.clone();
        match &self.upstream_host {
            // The client's `Host` is the gateway's default.
            _ if preserves_host || self.is_of_streams => {}
            Some(host) => {
                upstream.insert("pass_host".into(), "rewrite".into());
                upstream.insert("upstream_host".into(), host.as_str().into());
            }
            None => drop(upstream.insert("pass_host".into(), "node".into())),
        }
        Value::Object(upstream)
    }
}

/// The services with their plugins, and the upstreams of routes that preserve the client's host.
pub(super) fn resources(
    services: KongServices,
    uses: &PluginUses,
    translator: &mut PluginTranslator<'_>,
    report: &mut ImportReport,
) -> Vec<Resource> {
    let mut resources = Vec::new();
    for (at, service) in services.all.iter().enumerate() {
        let mut value = json!({ "name": service.name });
        if !service.is_of_streams {
            // Kong forwards WebSockets without a setting.
            value["enable_websocket"] = true.into();
        }
        if let Some(labels) = &service.labels {
            value["labels"] = labels.clone();
        }
        value["upstream"] = service.upstream(service.host_preservation == HostPreservation::Always);
        if let HostPreservation::SomeRoutes(id) = &service.host_preservation {
            resources.push(Resource::new(Kind::Upstreams, id, &service.upstream(true)));
        }
        // Plugins of streams are attached to their routes: plugins of services run for requests only.
        let plugins = match service.is_of_streams {
            true => Map::new(),
            false => translator.all(&uses.of_service(at), report),
        };
        if !plugins.is_empty() {
            value["plugins"] = Value::Object(plugins);
        }
        resources.push(Resource::new(Kind::Services, &service.id, &value));
    }
    resources
}
