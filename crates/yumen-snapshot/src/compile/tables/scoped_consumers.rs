//! Consumers by the scopes that know them. Scopes have directories of their own, so that a key or name in one never
//! collides with one in another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use yumen_base::Problem;
use yumen_plugin::{Consumer, ConsumerIndex};

use super::consumer_directory::{ConsumerDirectory, StagedConsumerKey};
use crate::compile::names::ObjectName;
use crate::snapshot::ScopedTerms;

/// The listeners of the node's settings, in place of a scope.
const NODE: &str = "";

#[derive(Default)]
pub(crate) struct ScopedConsumers {
    /// Consumers without scopes.
    shared: ConsumerDirectory,
    /// No entry is empty.
    scoped: BTreeMap<Arc<str>, ConsumerDirectory>,
    /// The scopes of the consumers that have some.
    scopes: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    terms: Option<Arc<ScopedTerms<ConsumerIndex>>>,
    node: ConsumerIndex,
}

impl ScopedConsumers {
    /// The consumers for the listeners of the node's settings, and those of scopes.
    pub(crate) fn indexes(&mut self) -> (ConsumerIndex, Arc<ScopedTerms<ConsumerIndex>>) {
        if let Some(terms) = &self.terms {
            return (self.node.clone(), terms.clone());
        }
        let shared = Arc::new(self.shared.index().clone());
        let own = |directory: &ConsumerDirectory| directory.index().clone().before(&shared);
        self.node = self.scoped.get(NODE).map_or_else(|| (*shared).clone(), own);
        let scopes = self.scoped.iter().filter(|(scope, _)| &***scope != NODE);
        let own = scopes.map(|(scope, directory)| (scope.clone(), own(directory))).collect();
        let terms = Arc::new(ScopedTerms { shared: (*shared).clone(), own });
        self.terms = Some(terms.clone());
        (self.node.clone(), terms)
    }

    /// Sets the scopes of a consumer that is inserted next; `None` for all requests.
    pub(crate) fn set_scopes(&mut self, username: &Arc<str>, written: Option<&[Arc<str>]>) {
        match written {
            None => drop(self.scopes.remove(username)),
            Some([]) => drop(self.scopes.insert(username.clone(), BTreeSet::from([NODE.into()]))),
            Some(ids) => drop(self.scopes.insert(username.clone(), ids.iter().cloned().collect())),
        }
    }

    /// Adds or replaces a consumer. Its keys are claimed apart.
    pub(crate) fn insert(&mut self, consumer: &Arc<Consumer>) {
        self.each(&consumer.username, |directory| directory.insert(consumer.clone()));
    }

    /// Removes a consumer and its claims; returns the objects whose problems changed.
    pub(crate) fn remove(&mut self, name: &ObjectName) -> Vec<ObjectName> {
        let affected = self.in_all(|directory| directory.remove(name));
        self.scopes.remove(&name.id);
        affected
    }

    /// Replaces the keys that an object claims for `consumer`; returns the objects whose problems changed.
    pub(crate) fn claim(
        &mut self,
        name: &ObjectName,
        consumer: &Arc<Consumer>,
        credential_id: Option<Box<str>>,
        keys: &[StagedConsumerKey],
    ) -> Vec<ObjectName> {
        // The consumer may have had other scopes.
        let mut affected = self.release(name);
        self.each(&consumer.username, |directory| {
            affected.extend(directory.claim(name, consumer, credential_id.clone(), keys));
        });
        affected
    }

    /// Removes the claims of an object; returns the objects whose problems changed.
    pub(crate) fn release(&mut self, name: &ObjectName) -> Vec<ObjectName> {
        self.in_all(|directory| directory.release(name))
    }

    /// The objects with a key that another object has.
    pub(crate) fn objects_with_duplicates(&self) -> impl Iterator<Item = &ObjectName> {
        self.directories().flat_map(ConsumerDirectory::objects_with_duplicates)
    }

    /// The problems of keys that another object has.
    pub(crate) fn duplicates_of<'d>(&'d self, name: &'d ObjectName) -> impl Iterator<Item = &'d Problem> {
        // The same in each scope of the object.
        let found: BTreeMap<String, &Problem> = self
            .directories()
            .flat_map(|directory| directory.duplicates_of(name))
            .map(|problem| (problem.to_string(), problem))
            .collect();
        found.into_values()
    }

    fn directories(&self) -> impl Iterator<Item = &ConsumerDirectory> {
        std::iter::once(&self.shared).chain(self.scoped.values())
    }

    /// Acts on the directories of a consumer.
    fn each(&mut self, username: &str, mut act: impl FnMut(&mut ConsumerDirectory)) {
        self.terms = None;
        match self.scopes.get(username) {
            None => act(&mut self.shared),
            Some(scopes) => {
                for scope in scopes {
                    act(self.scoped.entry(scope.clone()).or_default());
                }
            }
        }
    }

    fn in_all(&mut self, mut act: impl FnMut(&mut ConsumerDirectory) -> Vec<ObjectName>) -> Vec<ObjectName> {
        self.terms = None;
        let mut affected = act(&mut self.shared);
        self.scoped.values_mut().for_each(|directory| affected.extend(act(directory)));
        self.scoped.retain(|_, directory| !directory.is_empty());
        affected
    }
}
