//! The tables that the compiler keeps from one change to the next. Each one keeps its invariants by its methods.
//!
//! Must not know how an object of any kind is compiled.

mod consumer_directory;
mod discovered;
mod external_inputs;
mod fetched;
mod host_addresses;
mod listener_directory;
mod object_texts;
mod problem_ledger;
mod reference_graph;
mod routed_objects;
mod scope_directory;
mod scoped_consumers;
mod scoped_server_names;
mod server_names;
mod settings_agreements;
mod upstream_slots;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::names::ObjectName;

pub(crate) use consumer_directory::StagedConsumerKey;
pub use discovered::{DiscoveryQuery, DiscoveryResult};
pub(crate) use external_inputs::{ExternalInputs, InputEffect, UpstreamDependencies};
pub(crate) use fetched::RequestedFetch;
pub use fetched::{FetchFailure, FetchedResult};
pub(crate) use listener_directory::ListenerDirectory;
pub(crate) use object_texts::ObjectTexts;
pub(crate) use problem_ledger::ProblemLedger;
pub(crate) use reference_graph::ReferenceGraph;
pub(crate) use routed_objects::RoutedObjects;
pub(crate) use scope_directory::{ScopeDirectory, StagedScope};
pub(crate) use scoped_consumers::ScopedConsumers;
pub(crate) use scoped_server_names::ScopedServerNames;
pub(crate) use server_names::ServerNames;
pub(crate) use settings_agreements::{AgreementHash, AgreementKey, SettingsAgreements};
pub(crate) use upstream_slots::UpstreamSlots;

/// The tables that a connection is looked up in before its route.
pub(crate) struct DownstreamTables {
    pub(crate) listeners: ListenerDirectory,
    pub(crate) scopes: ScopeDirectory,
    pub(crate) server_names: ScopedServerNames,
}

impl DownstreamTables {
    /// `fetched`: ids of the objects with certificates that the node fetched by ACME.
    pub(crate) fn new(fetched: Arc<[Box<str>]>) -> DownstreamTables {
        DownstreamTables {
            listeners: ListenerDirectory::default(),
            scopes: ScopeDirectory::default(),
            server_names: ScopedServerNames::new(fetched),
        }
    }
}

/// Objects of one kind by id.
pub(crate) type Table<T> = HashMap<Arc<str>, T, RandomState>;

pub(crate) type SetOfNames = BTreeSet<ObjectName>;
