//! What a process knows of endpoints that the configuration only names: addresses of host names and nodes of
//! services, as another process goes on from it.
//!
//! Knows how that is told, and neither resolvers nor sources.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use yumen_config::resource::Node;
use yumen_snapshot::compile::{Change, Found, Service};

use crate::discovery::Ledger;
use crate::dns::{Addresses, Names};

/// Addresses by host name.
pub(crate) type AddressesByName = HashMap<Box<str>, Addresses>;

/// All of it at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Known {
    pub(crate) names: AddressesByName,
    pub(crate) services: HashMap<Service, Vec<Node>>,
}

/// Where it can be read while it changes.
#[derive(Clone)]
pub(crate) struct Knowledge {
    pub(crate) names: Arc<Names>,
    pub(crate) services: Arc<Ledger>,
}

impl Knowledge {
    /// What is known now.
    pub(crate) fn now(&self) -> Known {
        Known { names: self.names.known(), services: self.services.known().into_iter().collect() }
    }
}

impl Known {
    /// As a document.
    pub(crate) fn told(&self) -> Value {
        let services = self.services.iter().map(|(service, nodes)| told_service(service, nodes));
        json!({ "names": told_names(&self.names), "services": services.collect::<Vec<Value>>() })
    }

    /// Of such a document. What another version tells otherwise is passed over.
    pub(crate) fn of(told: &Value) -> Known {
        let names = told["names"].as_object().into_iter().flatten();
        let services = told["services"].as_array().into_iter().flatten();
        Known {
            names: names.filter_map(|(name, told)| name_of(name, told)).collect(),
            services: services.filter_map(service_of).collect(),
        }
    }

    /// Takes out the addresses of a host name, as what the compiler is told.
    pub(crate) fn take_name(&mut self, name: &str) -> Option<Change> {
        let (host, known) = self.names.remove_entry(name)?;
        Some(Change::Resolved { host, addrs: known.used() })
    }

    /// Takes out the nodes of a service, as what the compiler is told.
    pub(crate) fn take_service(&mut self, service: &Arc<Service>) -> Option<Change> {
        let nodes = self.services.remove(&**service)?;
        Some(Change::Discovered(service.clone(), Found { nodes: Some(nodes), trouble: None }))
    }
}

/// A service and its nodes as a document.
pub(crate) fn told_service(service: &Service, nodes: &[Node]) -> Value {
    json!({ "source": service.source, "name": service.name, "args": service.args, "nodes": nodes })
}

/// Of such a document.
pub(crate) fn service_of(told: &Value) -> Option<(Service, Vec<Node>)> {
    let text = |name: &str| Some(Box::from(told[name].as_str()?));
    let service = Service { source: text("source")?, name: text("name")?, args: text("args")? };
    Some((service, serde_json::from_value(told["nodes"].clone()).ok()?))
}

/// Host names and their addresses as a document.
pub(crate) fn told_names(names: &AddressesByName) -> Value {
    let told = names.iter().map(|(name, known)| (&**name, known.all()));
    json!(told.collect::<BTreeMap<&str, Vec<IpAddr>>>())
}

/// One of such a document.
pub(crate) fn name_of(name: &str, told: &Value) -> Option<(Box<str>, Addresses)> {
    let known: Vec<IpAddr> = serde_json::from_value(told.clone()).ok()?;
    (!known.is_empty()).then(|| (name.into(), Addresses::of(known)))
}

#[cfg(test)]
mod tests;
