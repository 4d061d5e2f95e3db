//! Resources of a Gateway: `listeners`, `scopes`, `ssls`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::addresses;
use super::certificates::{CertificatePair, SectionCertificate};
use super::sections::ListenerSection;
use super::service::GatewayPortPlan;
use super::shared_ports::shared_listener_id;
use crate::derived::{GatewayPort, SectionProtocol, SharedPort};
use crate::engine::TrackedView;
use crate::model::{GatewayObject, ObjectKey};
use crate::resources::{ResourceName, TranslatedKind};
use crate::settings::{GatewayMode, TranslationSettings};

/// Intermediate certificates that a client's chain may have; the Gateway API has no bound.
const CLIENT_CHAIN_MAX: u8 = 10;

pub(super) struct ResourceWriter<'w> {
    settings: &'w TranslationSettings,
    gateway: &'w ObjectKey,
    created_s: i64,
    ports: &'w GatewayPortPlan,
    /// Address to bind in mode `Host`.
    host_address: Option<String>,
    resources: BTreeMap<ResourceName, Arc<str>>,
}

impl<'w> ResourceWriter<'w> {
    pub(super) fn new(
        view: &TrackedView<'w>,
        gateway: &'w ObjectKey,
        object: &GatewayObject,
        ports: &'w GatewayPortPlan,
    ) -> Self {
        let mut requested = addresses::requested(object);
        // Several addresses are covered by the address of all interfaces.
        let only = requested.next().filter(|_| requested.next().is_none());
        ResourceWriter {
            settings: view.settings(),
            gateway,
            created_s: object.meta.created_s,
            ports,
            host_address: only.map(str::to_owned),
            resources: BTreeMap::new(),
        }
    }

    /// Adds the resources of a section that is served. Returns those that it needs.
    pub(super) fn add_section(&mut self, section: &ListenerSection<'_>) -> Vec<ResourceName> {
        let scope = section.scope_id();
        let listener = self.add_listener(section);
        let needs = vec![
            ResourceName::new(TranslatedKind::Listeners, listener.id.clone()),
            ResourceName::new(TranslatedKind::Scopes, scope.clone()),
        ];
        if !listener.is_open {
            return needs;
        }
        self.add(TranslatedKind::Scopes, scope.clone(), self.scope(section, &listener.id));
        for (order, certificate) in section.certificates.iter().enumerate() {
            let value = self.certificate(section, &scope, order == 0, certificate);
            self.add(TranslatedKind::Ssls, section.certificate_id(certificate.position), value);
        }
        needs
    }

    /// Adds the certificate that backends with TLS are shown.
    pub(super) fn add_client_certificate(&mut self, pair: &CertificatePair) {
        let value = json!({
            "type": "client",
            "cert": pair.cert,
            "key": pair.key,
            "labels": { "origin": self.gateway.origin_label() },
        });
        self.add(TranslatedKind::Ssls, client_certificate_id(self.gateway), value);
    }

    pub(super) fn finish(self) -> BTreeMap<ResourceName, Arc<str>> {
        self.resources
    }

    fn add_listener(&mut self, section: &ListenerSection<'_>) -> SectionListener {
        let (port, is_udp) = (section.spec.port, section.protocol.is_udp());
        if self.settings.mode == GatewayMode::Merged {
            // The unit of shared ports opens it.
            let id = shared_listener_id(SharedPort { port, is_udp });
            return SectionListener { id, is_open: true };
        }
        let id = self.listener_id(port, is_udp);
        let Some(target) = self.ports.find(port, is_udp).and_then(bound_port) else {
            return SectionListener { id, is_open: false };
        };
        let address = match &self.host_address {
            Some(address) if self.settings.mode == GatewayMode::Host && address.contains(':') => {
                format!("[{address}]:{target}")
            }
            Some(address) if self.settings.mode == GatewayMode::Host => format!("{address}:{target}"),
            _ => any_address(self.settings, target),
        };
        let protocol = section.protocol.listener_protocol().unwrap_or_default();
        let mut value = listener_value(&address, protocol, port, self.gateway);
        value["create_time"] = self.created_s.into();
        self.add(TranslatedKind::Listeners, id.clone(), value);
        SectionListener { id, is_open: true }
    }

    fn listener_id(&self, port: u16, is_udp: bool) -> Arc<str> {
        let transport = if is_udp { "udp" } else { "tcp" };
        format!("{}/{}!listener!{port}.{transport}", self.gateway.namespace, self.gateway.name).into()
    }

    fn scope(&self, section: &ListenerSection<'_>, listener: &Arc<str>) -> Value {
        let mut members = Map::new();
        members.insert("listeners".to_owned(), json!([listener]));
        if let Some(hostname) = &section.hostname {
            members.insert("hosts".to_owned(), json!([hostname]));
        }
        members.insert("wildcard".to_owned(), "any".into());
        if let Some(tls) = tls_of(section) {
            members.insert("tls".to_owned(), tls);
        }
        members.insert("labels".to_owned(), json!({ "origin": section.parent.origin_label() }));
        // In the modes in which Gateways share addresses, the oldest one has a host name or an address.
        members.insert("create_time".to_owned(), self.created_s.into());
        members.into()
    }

    fn certificate(
        &self,
        section: &ListenerSection<'_>,
        scope: &Arc<str>,
        is_first: bool,
        certificate: &SectionCertificate,
    ) -> Value {
        let mut names: Vec<&str> =
            certificate.names.iter().map(String::as_str).filter(is_server_name).collect();
        // The first certificate of a listener serves names that no certificate has (and clients without a name).
        if is_first {
            names.push("*");
        } else if names.is_empty() {
            names.push(section.hostname.as_deref().unwrap_or("*"));
        }
        names.sort_unstable();
        names.dedup();
        json!({
            "snis": names,
            "cert": certificate.pair.cert,
            "key": certificate.pair.key,
            "scopes": [scope],
            "labels": { "origin": section.parent.origin_label() },
        })
    }

    fn add(&mut self, kind: TranslatedKind, id: Arc<str>, value: Value) {
        self.resources.insert(ResourceName::new(kind, id), value.to_string().into());
    }
}

struct SectionListener {
    id: Arc<str>,
    /// Whether the port to bind is settled.
    is_open: bool,
}

pub(super) fn client_certificate_id(gateway: &ObjectKey) -> Arc<str> {
    format!("{}/{}!clientssl", gateway.namespace, gateway.name).into()
}

pub(super) fn listener_value(address: &str, protocol: &str, port: u16, origin: &ObjectKey) -> Value {
    let labels = json!({ "origin": origin.origin_label() });
    json!({ "address": address, "protocol": protocol, "port": port, "labels": labels })
}

/// The address of all interfaces.
pub(super) fn any_address(settings: &TranslationSettings, port: u16) -> String {
    if settings.has_ipv6 { format!("[::]:{port}") } else { format!("0.0.0.0:{port}") }
}

fn bound_port(port: &GatewayPort) -> Option<u16> {
    port.target.filter(|_| port.is_observed)
}

fn tls_of(section: &ListenerSection<'_>) -> Option<Value> {
    if section.protocol == SectionProtocol::TlsPassthrough {
        return Some(json!({ "mode": "passthrough" }));
    }
    if !section.terminates_tls() {
        return None;
    }
    let mut tls = json!({ "mode": "terminate", "default_certificate": false });
    if let Some(client) = &section.client {
        let mode = if client.is_insecure { "allow_insecure_fallback" } else { "require" };
        tls["client"] = json!({ "ca": client.authorities, "depth": CLIENT_CHAIN_MAX, "mode": mode });
    }
    Some(tls)
}

/// Whether a name of a certificate can be a server name in `ssls`.
fn is_server_name(name: &&str) -> bool {
    let rest = name.strip_prefix('*').unwrap_or(name);
    !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte))
}
