//! `status.loadBalancer` of Ingresses.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::class::ServedClass;
use crate::derived::ParsedIngress;
use crate::engine::{TrackedView, UnitOutput};
use crate::ingress_nginx::ControllerSettings;
use crate::model::{ObjectKey, ServiceObject};
use crate::status::StatusDraft;

/// Adds the status of an Ingress, unless another controller may be writing it.
pub(super) fn add_status(
    view: &TrackedView<'_>,
    parsed: &ParsedIngress,
    class: ServedClass,
    defaults: &ControllerSettings,
    output: &mut UnitOutput,
) {
    if class == ServedClass::Adopted && !view.settings().ingress.take_over {
        return;
    }
    let addresses = addresses(view, defaults);
    if addresses.is_empty() {
        return;
    }
    let mut draft = StatusDraft { generation: parsed.object.meta.generation, ..StatusDraft::default() };
    draft.fields.insert("loadBalancer".to_owned(), json!({ "ingress": addresses }));
    output.statuses.insert(parsed.key.clone(), draft);
}

/// The addresses under which clients reach the listeners: those of the settings, else those of the published Service.
fn addresses(view: &TrackedView<'_>, defaults: &ControllerSettings) -> Vec<Value> {
    let flags = &defaults.flags;
    let written = [&flags.publish_addresses, &view.settings().publish_addresses];
    if let Some(written) = written.into_iter().find(|list| !list.is_empty()) {
        return written.iter().map(|address| address_value(address)).collect();
    }
    let service = flags.publish_service.as_ref().and_then(|key: &ObjectKey| view.get::<ServiceObject>(key));
    service.map(|service| addresses_of(service)).unwrap_or_default()
}

fn addresses_of(service: &ServiceObject) -> Vec<Value> {
    match &*service.spec.kind {
        "LoadBalancer" => {
            let known = service.status.load_balancer.ingress.iter();
            let address = |ip: &Option<_>, hostname: &Option<_>| match (ip, hostname) {
                (Some(ip), _) => Some(json!({ "ip": ip })),
                (None, Some(hostname)) => Some(json!({ "hostname": hostname })),
                (None, None) => None,
            };
            known.filter_map(|entry| address(&entry.ip, &entry.hostname)).collect()
        }
        "ExternalName" => service.spec.external_name.iter().map(|name| address_value(name)).collect(),
        _ => service
            .spec
            .cluster_ips
            .iter()
            .filter(|ip| &***ip != "None")
            .map(|ip| address_value(ip))
            .collect(),
    }
}

fn address_value(text: &str) -> Value {
    match text.parse::<IpAddr>() {
        Ok(_) => json!({ "ip": text }),
        Err(_) => json!({ "hostname": text }),
    }
}
