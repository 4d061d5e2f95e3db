//! Server names of the listeners of the node's settings, and of each scope.

use std::collections::BTreeSet;
use std::sync::Arc;

use yumen_base::Problem;

use super::{ServerNames, Table};
use crate::certificates::{Certificates, CompiledCertificate};
use crate::compile::names::ObjectName;
use crate::route::ScopeIds;

/// The certificates by server name, apart for each scope.
pub(crate) struct ScopedServerNames {
    of_node: ServerNames,
    /// The names of each scope, whether or not the scope exists. No entry is empty.
    scoped: Table<ServerNames>,
    /// The scopes of the objects that have some.
    scopes: Table<Arc<ScopeIds>>,
    /// Scopes whose certificates changed.
    touched: BTreeSet<Arc<str>>,
}

impl ScopedServerNames {
    /// `fetched`: ids of the objects with certificates that the node fetched by ACME.
    pub(crate) fn new(fetched: Arc<[Box<str>]>) -> ScopedServerNames {
        ScopedServerNames {
            of_node: ServerNames::new(fetched),
            scoped: Table::default(),
            scopes: Table::default(),
            touched: BTreeSet::new(),
        }
    }

    /// Adds or replaces the certificate of an object, and claims its names in its scopes.
    pub(crate) fn insert(
        &mut self,
        id: &Arc<str>,
        certificate: CompiledCertificate,
        names: Vec<Box<str>>,
        scopes: Option<Arc<ScopeIds>>,
    ) {
        // The scopes of the previous version may be others.
        self.remove(id);
        let certificate = Arc::new(certificate);
        let Some(scopes) = scopes else { return self.of_node.insert(id, certificate, names) };
        for scope in scopes.iter() {
            let of_scope =
                self.scoped.entry(scope.clone()).or_insert_with(|| ServerNames::new(Arc::default()));
            of_scope.insert(id, certificate.clone(), names.clone());
            self.touched.insert(scope.clone());
        }
        self.scopes.insert(id.clone(), scopes);
    }

    /// Removes the certificate of an object; each of its names passes to the next claimant. Returns its scopes.
    pub(crate) fn remove(&mut self, id: &str) -> Option<Arc<ScopeIds>> {
        let Some(scopes) = self.scopes.remove(id) else {
            self.of_node.remove(id);
            return None;
        };
        for scope in scopes.iter() {
            let Some(of_scope) = self.scoped.get_mut(scope) else { continue };
            of_scope.remove(id);
            if of_scope.is_empty() {
                self.scoped.remove(scope);
            }
            self.touched.insert(scope.clone());
        }
        Some(scopes)
    }

    /// The scopes of an object; `None` for the listeners of the node's settings.
    pub(crate) fn scopes_of(&self, id: &str) -> Option<&Arc<ScopeIds>> {
        self.scopes.get(id)
    }

    /// Whether an object has a key to present.
    pub(crate) fn has_key(&self, id: &str) -> bool {
        self.tables_of(id).any(|names| names.has_key(id))
    }

    /// Whether any certificate without scopes requests one of the client.
    pub(crate) fn requests_client_certificates(&self) -> bool {
        self.of_node.requests_client_certificates()
    }

    /// The certificates without scopes by name, for a snapshot.
    pub(crate) fn presented(&self) -> Certificates {
        self.of_node.presented()
    }

    /// The certificates of a scope by name, for a snapshot.
    pub(crate) fn presented_in(&self, scope: &str) -> Certificates {
        self.scoped.get(scope).map(ServerNames::presented).unwrap_or_default()
    }

    /// The scopes whose certificates changed since the last call.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.touched)
    }

    /// Ids of the objects with a contested name.
    pub(crate) fn contested_objects(&self) -> impl Iterator<Item = &Arc<str>> {
        let tables = std::iter::once(&self.of_node).chain(self.scoped.values());
        tables.flat_map(ServerNames::contested_objects)
    }

    /// Warnings about names for which the certificate of another object is presented.
    pub(crate) fn problems_of(&self, name: &ObjectName) -> Vec<Problem> {
        let mut problems: Vec<Problem> =
            self.tables_of(&name.id).flat_map(|names| names.problems_of(name)).collect();
        // An object may lose the same name in each of its scopes.
        problems.dedup();
        problems
    }

    fn tables_of(&self, id: &str) -> impl Iterator<Item = &ServerNames> {
        let scopes = self.scopes.get(id);
        let of_node = scopes.is_none().then_some(&self.of_node);
        let scoped = scopes.into_iter().flat_map(|scopes| scopes.iter());
        of_node.into_iter().chain(scoped.filter_map(|scope| self.scoped.get(scope)))
    }
}
