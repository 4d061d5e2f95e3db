//! Addresses of Gateways: those that the user requests, and those that the Service has.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::derived::ConditionReason;
use crate::model::{GatewayAddressSpec, GatewayObject, ServiceObject};

const ADDRESSES_MAX: usize = 16;

/// Why an address of the specification is not supported.
pub(super) fn refusal_of(addresses: &[GatewayAddressSpec]) -> Option<ConditionReason> {
    let message = addresses.iter().find_map(|address| {
        let kind = address.kind.as_deref().unwrap_or("IPAddress");
        match kind {
            "IPAddress" if address.value.is_empty() || address.value.parse::<IpAddr>().is_ok() => None,
            "IPAddress" => Some(format!("Address {:?} is not an IP address.", address.value)),
            // A load balancer may give a host name; a certain one cannot be requested.
            "Hostname" if address.value.is_empty() => None,
            _ => Some(format!(
                "Address {:?} of type {kind} is not supported; allowed: IPAddress.",
                address.value
            )),
        }
    });
    message.map(|message| ConditionReason::new("UnsupportedAddress", message))
}

/// The addresses that the user requests, without those that ask for any.
pub(super) fn requested(gateway: &GatewayObject) -> impl Iterator<Item = &str> {
    gateway.spec.addresses.iter().map(|address| address.value.as_str()).filter(|value| !value.is_empty())
}

/// The addresses of a Service, as `status.addresses` has them.
pub(super) fn of_service(service: &ServiceObject, published: &[Arc<str>]) -> Vec<Value> {
    let mut found: Vec<Value> = match &*service.spec.kind {
        "LoadBalancer" => {
            let ingress = service.status.load_balancer.ingress.iter();
            let address = |ip: &Option<Arc<str>>, hostname: &Option<Arc<str>>| match (ip, hostname) {
                (Some(ip), _) => Some(ip_value(ip)),
                (None, Some(hostname)) => Some(json!({ "type": "Hostname", "value": hostname })),
                (None, None) => None,
            };
            ingress.filter_map(|entry| address(&entry.ip, &entry.hostname)).collect()
        }
        "NodePort" if !published.is_empty() => of_node(published),
        _ => service.spec.cluster_ips.iter().filter(|ip| &***ip != "None").map(ip_value).collect(),
    };
    found.truncate(ADDRESSES_MAX);
    found
}

/// The addresses that the settings publish.
pub(super) fn of_node(published: &[Arc<str>]) -> Vec<Value> {
    let address = |text: &Arc<str>| match text.parse::<IpAddr>() {
        Ok(_) => ip_value(text),
        Err(_) => json!({ "type": "Hostname", "value": text }),
    };
    published.iter().take(ADDRESSES_MAX).map(address).collect()
}

/// Whether the addresses are exactly those requested, or any if none is.
pub(super) fn judge(requested: &[&str], found: &[Value]) -> Option<ConditionReason> {
    if found.is_empty() && requested.is_empty() {
        let message = "The Service of the Gateway has no address yet.";
        return Some(ConditionReason::new("AddressNotAssigned", message));
    }
    let values: Vec<&str> = found.iter().filter_map(|address| address["value"].as_str()).collect();
    let parsed = |text: &str| text.parse::<IpAddr>().map_err(|_| text.to_owned());
    let is_found = |wanted: &&str| values.iter().any(|value| parsed(value) == parsed(wanted));
    let fits = requested.is_empty() || (requested.iter().all(is_found) && values.len() == requested.len());
    let message = || {
        let assigned = if values.is_empty() { "none".to_owned() } else { values.join(", ") };
        format!("Requested addresses: {}; assigned: {assigned}.", requested.join(", "))
    };
    (!fits).then(|| ConditionReason::new("AddressNotUsable", message()))
}

fn ip_value(ip: &Arc<str>) -> Value {
    json!({ "type": "IPAddress", "value": ip })
}
