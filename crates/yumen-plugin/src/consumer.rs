//! Consumers and the credentials that lead to them.

use std::any::Any;
use std::sync::Arc;

use crate::PluginInstance;

/// A compiled consumer.
pub struct Consumer {
    /// Its name.
    pub username: Box<str>,
    /// The group it belongs to.
    pub group_id: Option<Box<str>>,
    /// Label `custom_id`, sent upstream as `X-Consumer-Custom-ID`.
    pub custom_id: Option<Box<str>>,
    /// Its labels.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// Its own plugins and, where it has none of a name, its group's; authentication left out.
    /// Highest priority first.
    pub plugins: Box<[Arc<PluginInstance>]>,
    /// Names of plugins it, or its group, switches off: for it they run nowhere on the route either.
    pub switched_off: Box<[Box<str>]>,
}

impl Consumer {
    /// Whether routes run other plugins once it is known.
    pub fn changes_plugins(&self) -> bool {
        !(self.plugins.is_empty() && self.switched_off.is_empty())
    }
}

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer").field("username", &self.username).finish_non_exhaustive()
    }
}

/// What one key of one authentication plugin leads to.
#[derive(Clone)]
pub struct ConsumerIdentity {
    /// Who it is.
    pub consumer: Arc<Consumer>,
    /// The credential's id, where the key is a credential's and not the consumer's own.
    pub credential_id: Option<Box<str>>,
    /// The plugin's parsed consumer settings; downcast to the plugin's own type.
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

/// All consumers of a snapshot, by name and by key. Clones share structure.
#[derive(Clone, Default)]
pub struct ConsumerIndex {
    by_name: Names,
    by_key: Vec<(&'static str, Keys)>,
}

impl ConsumerIndex {
    /// The consumer that `key` of authentication plugin `plugin` leads to.
    pub fn find(&self, plugin: &str, key: &[u8]) -> Option<&ConsumerIdentity> {
        let (_, keys) = self.by_key.iter().find(|(name, _)| *name == plugin)?;
        keys.get(key).map(Arc::as_ref)
    }

    /// The consumer of this name.
    pub fn named(&self, username: &str) -> Option<&Consumer> {
        self.by_name.get(username).map(Arc::as_ref)
    }

    /// Adds or replaces a consumer.
    pub fn insert(&mut self, consumer: Arc<Consumer>) {
        self.by_name.insert(consumer.username.clone(), consumer);
    }

    /// Removes a consumer; its keys are removed one by one.
    pub fn remove(&mut self, username: &str) {
        self.by_name.remove(username);
    }

    /// Makes `key` of `plugin` lead to `identity`; says whom it led to before.
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

    /// Makes `key` of `plugin` lead nowhere.
    pub fn remove_key(&mut self, plugin: &str, key: &[u8]) {
        if let Some((_, keys)) = self.by_key.iter_mut().find(|(name, _)| *name == plugin) {
            keys.remove(key);
        }
    }

    /// How many consumers there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is none.
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
