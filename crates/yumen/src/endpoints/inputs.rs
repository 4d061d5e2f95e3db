//! Inputs of compilation: host names and services that the configuration requires, the known addresses and nodes, and
//! fetched values.
//!
//! Owns the format in which known inputs are passed to a successor; has no knowledge of resolvers and sources.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use yumen_config::resource::UpstreamNode;
use yumen_snapshot::compile::{ConfigChange, DiscoveryQuery, DiscoveryResult};

/// Host names to resolve, each with a request number. A changed number invalidates earlier results.
pub(crate) type RequiredHosts = Arc<BTreeMap<Box<str>, u64>>;

/// Services to discover, each with a request number. A changed number invalidates earlier results.
pub(crate) type RequiredServices = Arc<BTreeMap<Arc<DiscoveryQuery>, u64>>;

/// Addresses of a name, by family.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct HostAddresses {
    pub(crate) v4: Vec<IpAddr>,
    pub(crate) v6: Vec<IpAddr>,
}

impl HostAddresses {
    pub(crate) fn of(mut all: Vec<IpAddr>) -> HostAddresses {
        all.sort_unstable();
        all.dedup();
        let (v4, v6) = all.into_iter().partition(IpAddr::is_ipv4);
        HostAddresses { v4, v6 }
    }

    pub(crate) fn all(&self) -> Vec<IpAddr> {
        [&*self.v4, &*self.v6].concat()
    }

    /// Addresses in use: IPv6 only without IPv4, as in APISIX. A service that listens on one family must not
    /// refuse half of its connections.
    pub(crate) fn used(&self) -> Vec<IpAddr> {
        if self.v4.is_empty() { self.v6.clone() } else { self.v4.clone() }
    }
}

pub(crate) type AddressesByName = HashMap<Box<str>, HostAddresses>;

/// The body of a fetched value.
#[derive(Clone, PartialEq)]
pub(crate) struct KnownDocument {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fetched_ms: u64,
}

impl std::fmt::Debug for KnownDocument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The body may be a secret.
        f.debug_struct("KnownDocument").field("fetched_ms", &self.fetched_ms).finish_non_exhaustive()
    }
}

/// Fetched values by the digest of their request.
pub(crate) type KnownDocuments = BTreeMap<String, KnownDocument>;

/// Known inputs at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct KnownInputs {
    pub(crate) names: AddressesByName,
    pub(crate) services: HashMap<DiscoveryQuery, Vec<UpstreamNode>>,
    /// Fetched values, secrets among them: the successor needs them, and no file may contain them.
    pub(crate) documents: KnownDocuments,
}

impl KnownInputs {
    /// Exports the inputs as a JSON document.
    pub(crate) fn export(&self) -> Value {
        let services = self.services.iter().map(|(service, nodes)| export_service(service, nodes));
        json!({
            "names": export_names(&self.names),
            "services": services.collect::<Vec<Value>>(),
            "documents": export_documents(&self.documents),
        })
    }

    /// Parses an exported document. Entries of another format are skipped.
    pub(crate) fn parse(exported: &Value) -> KnownInputs {
        let names = exported["names"].as_object().into_iter().flatten();
        let services = exported["services"].as_array().into_iter().flatten();
        KnownInputs {
            names: names.filter_map(|(name, addresses)| name_of(name, addresses)).collect(),
            services: services.filter_map(service_of).collect(),
            documents: documents_of(&exported["documents"]),
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
        Some(ConfigChange::Discovered(service.clone(), DiscoveryResult { nodes: Some(nodes), error: None }))
    }
}

/// Exports a service with its nodes.
pub(crate) fn export_service(service: &DiscoveryQuery, nodes: &[UpstreamNode]) -> Value {
    json!({ "source": service.source, "name": service.name, "args": service.args, "nodes": nodes })
}

/// Parses an exported service.
pub(crate) fn service_of(exported: &Value) -> Option<(DiscoveryQuery, Vec<UpstreamNode>)> {
    let text = |name: &str| Some(Box::from(exported[name].as_str()?));
    let service = DiscoveryQuery { source: text("source")?, name: text("name")?, args: text("args")? };
    Some((service, serde_json::from_value(exported["nodes"].clone()).ok()?))
}

/// Exports fetched values.
pub(crate) fn export_documents(documents: &KnownDocuments) -> Value {
    let exported = documents.iter().map(|(digest, document)| {
        let KnownDocument { bytes, fetched_ms } = document;
        (digest.clone(), json!({ "body": BASE64.encode(bytes), "fetched_ms": fetched_ms }))
    });
    Value::Object(exported.collect())
}

/// Parses exported values. Entries of another format are skipped.
pub(crate) fn documents_of(exported: &Value) -> KnownDocuments {
    let entries = exported.as_object().into_iter().flatten();
    let parsed = entries.filter_map(|(digest, entry)| {
        let bytes = BASE64.decode(entry["body"].as_str()?).ok()?;
        Some((digest.clone(), KnownDocument { bytes, fetched_ms: entry["fetched_ms"].as_u64()? }))
    });
    parsed.collect()
}

/// Exports host names with their addresses.
pub(crate) fn export_names(names: &AddressesByName) -> Value {
    let addresses = names.iter().map(|(name, known)| (&**name, known.all()));
    json!(addresses.collect::<BTreeMap<&str, Vec<IpAddr>>>())
}

/// Parses one exported host name; `None` without addresses.
pub(crate) fn name_of(name: &str, exported: &Value) -> Option<(Box<str>, HostAddresses)> {
    let known: Vec<IpAddr> = serde_json::from_value(exported.clone()).ok()?;
    (!known.is_empty()).then(|| (name.into(), HostAddresses::of(known)))
}

#[cfg(test)]
mod tests;
