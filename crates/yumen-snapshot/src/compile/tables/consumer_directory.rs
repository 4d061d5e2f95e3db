//! Consumers by name and by authentication key, and the objects that claim each key.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use yumen_base::Problem;
use yumen_config::Kind;
use yumen_plugin::kind::ConsumerKey;
use yumen_plugin::{Consumer, ConsumerIdentity, ConsumerIndex};

use crate::compile::names::ObjectName;

/// Settings of an authentication plugin on a consumer or credential.
#[derive(Clone)]
pub(crate) struct StagedConsumerKey {
    pub(crate) plugin: &'static str,
    pub(crate) parsed: ConsumerKey,
}

/// An authentication plugin and a key of it.
type KeyName = (&'static str, Box<[u8]>);

/// The claimants of one key. The first by name gets the key: a consumer before a credential, then by id.
type KeyClaims = BTreeMap<ObjectName, Arc<ConsumerIdentity>>;

/// The index that snapshots find consumers in, and the claims that it follows from.
#[derive(Default)]
pub(crate) struct ConsumerDirectory {
    index: ConsumerIndex,
    claims: HashMap<KeyName, KeyClaims, RandomState>,
    /// The keys that each object claims; the inverse of `claims`.
    claimed: HashMap<ObjectName, Vec<KeyName>, RandomState>,
    /// Problems of claims that did not get their key, by claimant and plugin.
    duplicates: BTreeMap<(ObjectName, &'static str), Problem>,
}

impl ConsumerDirectory {
    /// The index, for a snapshot.
    pub(crate) fn index(&self) -> &ConsumerIndex {
        &self.index
    }

    /// Whether there is neither a consumer nor a claim.
    pub(crate) fn is_empty(&self) -> bool {
        self.index.is_empty() && self.claims.is_empty()
    }

    /// Adds or replaces a consumer. Its keys are claimed apart.
    pub(crate) fn insert(&mut self, consumer: Arc<Consumer>) {
        self.index.insert(consumer);
    }

    /// Removes a consumer and its claims; returns the objects whose problems changed.
    pub(crate) fn remove(&mut self, name: &ObjectName) -> Vec<ObjectName> {
        let affected = self.release(name);
        self.index.remove(&name.id);
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
        // Keys of the previous version must not identify any client.
        let mut affected = self.release(name);
        let mut claimed = Vec::with_capacity(keys.len());
        for StagedConsumerKey { plugin, parsed } in keys {
            let ConsumerKey { key, auth, vouched_fields } = parsed.clone();
            let (consumer, credential_id) = (consumer.clone(), credential_id.clone());
            let identity = ConsumerIdentity { consumer, credential_id, auth, vouched_fields };
            let key_name = (*plugin, key);
            self.claims.entry(key_name.clone()).or_default().insert(name.clone(), Arc::new(identity));
            affected.extend(self.assign(&key_name));
            claimed.push(key_name);
        }
        if !claimed.is_empty() {
            self.claimed.insert(name.clone(), claimed);
        }
        affected
    }

    /// Removes the claims of an object; returns the objects whose problems changed.
    pub(crate) fn release(&mut self, name: &ObjectName) -> Vec<ObjectName> {
        let mut affected = Vec::new();
        for key_name in self.claimed.remove(name).into_iter().flatten() {
            self.duplicates.remove(&(name.clone(), key_name.0));
            if let Some(claims) = self.claims.get_mut(&key_name) {
                claims.remove(name);
            }
            affected.extend(self.assign(&key_name));
        }
        affected
    }

    /// The objects with a key that another object has.
    pub(crate) fn objects_with_duplicates(&self) -> impl Iterator<Item = &ObjectName> {
        self.duplicates.keys().map(|(name, _)| name)
    }

    /// The problems of keys that another object has.
    pub(crate) fn duplicates_of<'d>(&'d self, name: &'d ObjectName) -> impl Iterator<Item = &'d Problem> {
        let of_name = self.duplicates.range((name.clone(), "")..).take_while(move |((of, _), _)| of == name);
        of_name.map(|(_, problem)| problem)
    }

    /// Gives a key to its first claimant and reports the others; returns those.
    fn assign(&mut self, key_name: &KeyName) -> Vec<ObjectName> {
        let (plugin, key) = key_name;
        let mut reported = Vec::new();
        let Some(claims) = self.claims.get(key_name) else { return reported };
        let mut claimants = claims.iter();
        let Some((first, identity)) = claimants.next() else {
            // The last claim is gone, so the key identifies no client.
            self.claims.remove(key_name);
            self.index.remove_key(plugin, key);
            return reported;
        };
        self.index.insert_key(plugin, key, identity.clone());
        self.duplicates.remove(&(first.clone(), plugin));
        for (later, claimed) in claimants {
            // A credential with a key of its own consumer leads to the same consumer, and the Admin API admits it.
            if first.kind == Kind::Consumers && *claimed.consumer.username == *first.id {
                self.duplicates.remove(&(later.clone(), plugin));
                continue;
            }
            let message = format!("duplicate key of plugin {plugin} found with {first}");
            let problem = Problem::error(later.to_string(), format!("plugins.{plugin}"), message);
            self.duplicates.insert((later.clone(), plugin), problem);
            reported.push(later.clone());
        }
        reported
    }
}

#[cfg(test)]
mod tests;
