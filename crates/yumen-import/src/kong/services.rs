//! Kong's services: each becomes a service with an upstream of its own.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use yumen_config::{Kind, Resource};

use super::certificates::KongCertificates;
use super::document::{EntityIndex, KongDocument};
use super::entity::KongEntity;
use super::ids::IdAllocator;
use super::labels::labels;
use super::plugins::PluginTranslator;
use super::scopes::PluginUses;
use super::upstreams::{KongUpstreams, split_address};
use crate::report::{ImportReport, different, dropped};

/// A service on its way.
#[derive(Debug)]
pub(super) struct KongService {
    pub(super) id: String,
    pub(super) is_enabled: bool,
    /// What the upstream's paths begin with; `/` adds nothing.
    pub(super) path: String,
    /// Whether it takes connections or datagrams, not requests.
    pub(super) is_of_streams: bool,
    /// The upstream that passes the client's host on, where only some routes want that.
    pub(super) preserving: Option<String>,
    name: String,
    labels: Option<Value>,
    upstream: Map<String, Value>,
    /// `pass_host` and what goes with it where the client's host is not passed on.
    own_host: Option<String>,
    passes_host: bool,
}

/// All services, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct KongServices {
    pub(super) all: Vec<KongService>,
    pub(super) index: EntityIndex,
}

/// Protocols that carry no requests.
pub(super) const STREAM_PROTOCOLS: [&str; 4] = ["tcp", "tls", "tls_passthrough", "udp"];

pub(super) fn translate(
    document: &mut KongDocument,
    upstreams: &KongUpstreams,
    certificates: &KongCertificates,
    report: &mut ImportReport,
) -> KongServices {
    let index = EntityIndex::of(&document.services);
    let preserving = preserving(document, &index);
    let mut ids = IdAllocator::of(document.services.iter().map(|service| &*service.name));
    let mut all = Vec::new();
    for (at, entity) in document.services.iter_mut().enumerate() {
        spread_url(entity, report);
        entity.take("name");
        let id = ids.give(&entity.name);
        let protocol = entity.text("protocol", report).unwrap_or_else(|| "http".into());
        let (some, every) = preserving.get(&at).copied().unwrap_or((false, false));
        let mut service = KongService {
            preserving: (some && !every).then(|| ids.give(&format!("{id}-preserve-host"))),
            id,
            name: entity.name.clone(),
            is_enabled: entity.flag("enabled", report).unwrap_or(true),
            path: entity.text("path", report).unwrap_or_else(|| "/".into()),
            is_of_streams: STREAM_PROTOCOLS.contains(&protocol.as_str()),
            labels: labels(entity, report),
            upstream: Map::new(),
            own_host: None,
            passes_host: some && every,
        };
        match protocol.as_str() {
            "http" | "ws" => {}
            "https" | "wss" => drop(service.upstream.insert("scheme".into(), "https".into())),
            "grpc" | "grpcs" | "tcp" | "tls" | "udp" => {
                service.upstream.insert("scheme".into(), protocol.as_str().into());
            }
            // Encrypted by the client, and passed on as it comes.
            "tls_passthrough" => drop(service.upstream.insert("scheme".into(), "tcp".into())),
            other => {
                let line = different(&entity.label, "protocol", "http is spoken");
                report.add(line.why(format!("there is no protocol {other}")));
            }
        }
        let shown = endpoints(entity, upstreams, &mut service, report);
        timing(entity, &mut service.upstream, report);
        tls(entity, shown, certificates, &mut service.upstream, report);
        all.push(service);
    }
    KongServices { all, index }
}

/// For each service: whether some of its routes preserve the client's host, and whether all do.
fn preserving(document: &KongDocument, index: &EntityIndex) -> BTreeMap<usize, (bool, bool)> {
    let mut found: BTreeMap<usize, (bool, bool)> = BTreeMap::new();
    for route in &document.routes {
        let Some(at) = route.peek("service").and_then(|reference| index.find(reference)) else { continue };
        let preserves = matches!(route.peek("preserve_host"), Some(Value::Bool(true)));
        let (some, every) = found.entry(at).or_insert((false, true));
        *some |= preserves;
        *every &= preserves;
    }
    found
}

/// `url` is short for protocol, host, port and path.
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
    let default = if matches!(protocol, "https" | "grpcs" | "wss" | "tls") { 443 } else { 80 };
    let Some((host, port)) = split_address(authority, default) else {
        report.add(dropped(&entity.label, "url", "left out").why(format!("\"{url}\" has no host")));
        return;
    };
    let mut said = vec![("protocol", json!(protocol)), ("host", json!(host)), ("port", json!(port))];
    if !path.is_empty() {
        said.push(("path", json!(path)));
    }
    for (field, value) in said {
        entity.skip(field, &value, "conflicts with url", report);
        entity.set(field, value);
    }
}

/// Fills in where requests go; gives the certificate to show there, if the upstream says so.
fn endpoints(
    entity: &mut KongEntity,
    upstreams: &KongUpstreams,
    service: &mut KongService,
    report: &mut ImportReport,
) -> Option<Value> {
    let host = entity.text("host", report).unwrap_or_default();
    let port = entity.count("port", report).filter(|port| (1..65536).contains(port));
    let port = port.unwrap_or(80);
    if let Some(balanced) = upstreams.of_host(&host) {
        service.upstream.extend(balanced.settings.clone());
        service.own_host = balanced.host_header.clone();
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
    let bare_v6 = host.parse::<std::net::Ipv6Addr>().is_ok();
    let host = if bare_v6 { format!("[{host}]") } else { host };
    service.upstream.insert("nodes".into(), json!([{ "host": host, "port": port, "weight": 1 }]));
    None
}

/// Milliseconds become seconds; what is the default here too is not written.
fn timing(entity: &mut KongEntity, upstream: &mut Map<String, Value>, report: &mut ImportReport) {
    let mut millis = |field| entity.number(field, report).unwrap_or(60_000.0);
    let connect = millis("connect_timeout");
    let (send, read) = (millis("write_timeout"), millis("read_timeout"));
    if [connect, send, read] != [60_000.0; 3] {
        let seconds = |millis: f64| match millis / 1000.0 {
            whole if whole.fract() == 0.0 => json!(whole as u64),
            part => json!(part),
        };
        let timeout = json!({ "connect": seconds(connect), "send": seconds(send), "read": seconds(read) });
        upstream.insert("timeout".into(), timeout);
    }
    upstream.insert("retries".into(), json!(entity.count("retries", report).unwrap_or(5)));
}

fn tls(
    entity: &mut KongEntity,
    shown: Option<Value>,
    certificates: &KongCertificates,
    upstream: &mut Map<String, Value>,
    report: &mut ImportReport,
) {
    let certificate = entity.take("client_certificate").or(shown);
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
    fn upstream(&self, passes_host: bool) -> Value {
        let mut upstream = self.upstream.clone();
        match &self.own_host {
            _ if passes_host || self.is_of_streams => {}
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
            value["enable_websocket"] = true.into();
        }
        if let Some(labels) = &service.labels {
            value["labels"] = labels.clone();
        }
        value["upstream"] = service.upstream(service.passes_host);
        if let Some(id) = &service.preserving {
            resources.push(Resource::new(Kind::Upstreams, id, &service.upstream(true)));
        }
        // Plugins of streams stand on their routes, as what is for requests does not serve them.
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
