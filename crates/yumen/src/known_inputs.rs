//! Known endpoint inputs of a process, for its successor: addresses of host names and nodes of services.
//!
//! Owns the exported format; has no knowledge of resolvers and sources.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use yumen_config::resource::UpstreamNode;
use yumen_snapshot::compile::{ConfigChange, DiscoveryQuery, DiscoveryResult};

use crate::discovery::ServiceLedger;
use crate::dns::{HostAddresses, HostNames};

pub(crate) type AddressesByName = HashMap<Box<str>, HostAddresses>;

/// Known inputs at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct KnownInputs {
    pub(crate) names: AddressesByName,
    pub(crate) services: HashMap<DiscoveryQuery, Vec<UpstreamNode>>,
}

/// Live sources of known inputs.
#[derive(Clone)]
pub(crate) struct InputSources {
    pub(crate) names: Arc<HostNames>,
    pub(crate) services: Arc<ServiceLedger>,
}

impl InputSources {
    /// Copies the current inputs.
    pub(crate) fn now(&self) -> KnownInputs {
        KnownInputs { names: self.names.known(), services: self.services.known().into_iter().collect() }
    }
}

impl KnownInputs {
    /// Exports the inputs as a JSON document.
    pub(crate) fn told(&self) -> Value {
        let services = self.services.iter().map(|(service, nodes)| export_service(service, nodes));
        json!({ "names": export_names(&self.names), "services": services.collect::<Vec<Value>>() })
    }

    /// Parses an exported document. Entries of another format are skipped.
    pub(crate) fn of(told: &Value) -> KnownInputs {
        let names = told["names"].as_object().into_iter().flatten();
        let services = told["services"].as_array().into_iter().flatten();
        KnownInputs {
            names: names.filter_map(|(name, told)| name_of(name, told)).collect(),
            services: services.filter_map(service_of).collect(),
        }
    }

    /// Removes the addresses of a host name and returns them as a change for the compiler.
    pub(crate) fn take_name(&mut self, name: &str) -> Option<ConfigChange> {
        let (host, known) = self.names.remove_entry(name)?;
        Some(ConfigChange::Resolved { host, addrs: known.used() })
    }

    /// Removes the nodes of a service and returns them as a change for the compiler.
    pub(crate) fn take_service(&mut self, service: &Arc<DiscoveryQuery>) -> Option<ConfigChange> {
        let nodes = self.services.remove(&**service)?;
        Some(ConfigChange::Discovered(service.clone(), DiscoveryResult { nodes: Some(nodes), trouble: None }))
    }
}

/// Exports a service with its nodes.
pub(crate) fn export_service(service: &DiscoveryQuery, nodes: &[UpstreamNode]) -> Value {
    json!({ "source": service.source, "name": service.name, "args": service.args, "nodes": nodes })
}

/// Parses an exported service.
pub(crate) fn service_of(told: &Value) -> Option<(DiscoveryQuery, Vec<UpstreamNode>)> {
    let text = |name: &str| Some(Box::from(told[name].as_str()?));
    let service = DiscoveryQuery { source: text("source")?, name: text("name")?, args: text("args")? };
    Some((service, serde_json::from_value(told["nodes"].clone()).ok()?))
}

/// Exports host names with their addresses.
pub(crate) fn export_names(names: &AddressesByName) -> Value {
    let told = names.iter().map(|(name, known)| (&**name, known.all()));
    json!(told.collect::<BTreeMap<&str, Vec<IpAddr>>>())
}

/// Parses one exported host name; `None` without addresses.
pub(crate) fn name_of(name: &str, told: &Value) -> Option<(Box<str>, HostAddresses)> {
    let known: Vec<IpAddr> = serde_json::from_value(told.clone()).ok()?;
    (!known.is_empty()).then(|| (name.into(), HostAddresses::of(known)))
}

#[cfg(test)]
mod tests;
