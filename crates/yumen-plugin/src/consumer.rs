//! Consumers and their credentials.

use std::any::Any;
use std::sync::Arc;

use crate::PluginInstance;

/// A compiled consumer.
pub struct Consumer {
    /// The name.
    pub username: Box<str>,
    /// Id of the consumer's group.
    pub group_id: Option<Box<str>>,
    /// Label `custom_id`, forwarded as `X-Consumer-Custom-ID`.
    pub custom_id: Option<Box<str>>,
    /// Its labels.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// The consumer as written, as JSON; shared with the compiler.
    pub written: Option<Arc<str>>,
    /// Plugins of the consumer and, for other names, of its group, without authentication. Sorted by
    /// priority, highest first.
    pub plugins: Box<[Arc<PluginInstance>]>,
    /// Names of plugins that the consumer or its group disables, also those of the route.
    pub switched_off: Box<[Box<str>]>,
}

impl Consumer {
    /// Whether identifying the consumer changes the chain.
    pub fn changes_plugins(&self) -> bool {
        !(self.plugins.is_empty() && self.switched_off.is_empty())
    }
}

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer").field("username", &self.username).finish_non_exhaustive()
    }
}

/// A consumer with the credential that identified it.
#[derive(Clone)]
pub struct ConsumerIdentity {
    /// The consumer.
    pub consumer: Arc<Consumer>,
    /// Id of the credential; `None` if the key is in the consumer itself.
    pub credential_id: Option<Box<str>>,
    /// Parsed credentials; downcast to the type of the plugin.
    pub auth: Arc<dyn Any + Send + Sync>,
}

type Keys = imbl::GenericHashMap<
    Box<[u8]>,
    Arc<ConsumerIdentity>,
    foldhash::fast::RandomState,
    imbl::shared_ptr::DefaultSharedPtr,
>;
type Names = imbl::GenericHashMap<
    Box<str>,
    Arc<Consumer>,
    foldhash::fast::RandomState,
    imbl::shared_ptr::DefaultSharedPtr,
>;

/// All consumers of a snapshot by name and by key. Clones share structure.
#[derive(Clone, Default)]
pub struct ConsumerIndex {
    by_name: Names,
    by_key: Vec<(&'static str, Keys)>,
    /// The consumers of all scopes, behind those of one scope.
    shared: Option<Arc<ConsumerIndex>>,
}

impl ConsumerIndex {
    /// The identity for `key` of the authentication plugin `plugin`.
    pub fn find(&self, plugin: &str, key: &[u8]) -> Option<&ConsumerIdentity> {
        // Few plugins authenticate, so that a search is cheaper than a hash.
        let keys = self.by_key.iter().find(|(name, _)| *name == plugin).map(|(_, keys)| keys);
        match keys.and_then(|keys| keys.get(key)) {
            Some(identity) => Some(identity),
            None => self.shared.as_ref()?.find(plugin, key),
        }
    }

    /// The same index in front of another: a name or key that it lacks is looked up there.
    pub fn before(mut self, shared: &Arc<ConsumerIndex>) -> ConsumerIndex {
        self.shared = Some(shared.clone());
        self
    }

    /// The consumer with this name.
    pub fn named(&self, username: &str) -> Option<&Consumer> {
        match self.by_name.get(username) {
            Some(consumer) => Some(consumer),
            None => self.shared.as_ref()?.named(username),
        }
    }

    /// Adds or replaces a consumer.
    pub fn insert(&mut self, consumer: Arc<Consumer>) {
        self.by_name.insert(consumer.username.clone(), consumer);
    }

    /// Removes a consumer, but not its keys.
    pub fn remove(&mut self, username: &str) {
        self.by_name.remove(username);
    }

    /// Assigns `key` of `plugin` to `identity`; returns the previous one.
    pub fn insert_key(
        &mut self,
        plugin: &'static str,
        key: &[u8],
        identity: Arc<ConsumerIdentity>,
    ) -> Option<Arc<ConsumerIdentity>> {
        let at = match self.by_key.iter().position(|(name, _)| *name == plugin) {
            Some(at) => at,
            None => {
                self.by_key.push((plugin, Keys::default()));
                self.by_key.len() - 1
            }
        };
        self.by_key[at].1.insert(key.into(), identity)
    }

    /// Removes `key` of `plugin`.
    pub fn remove_key(&mut self, plugin: &str, key: &[u8]) {
        if let Some((_, keys)) = self.by_key.iter_mut().find(|(name, _)| *name == plugin) {
            keys.remove(key);
        }
    }

    /// The number of consumers.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are no consumers.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

impl std::fmt::Debug for ConsumerIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumers").field("len", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests;
