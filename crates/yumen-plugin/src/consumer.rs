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
    /// Names of the request fields by which the upstream knows users of the consumer.
    pub vouched_fields: VouchedFields,
}

/// Names of request fields with an identity that only a plugin sets, never a client.
pub type VouchedFields = Arc<[Box<str>]>;

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

type FieldCounts = imbl::GenericOrdMap<Box<str>, usize, imbl::shared_ptr::DefaultSharedPtr>;

/// The keys of an authentication plugin.
#[derive(Clone)]
struct PluginKeys {
    plugin: &'static str,
    keys: Keys,
    /// The vouched fields of all identities, with the number of identities that name them.
    vouched: FieldCounts,
}

impl PluginKeys {
    fn vouch(&mut self, identity: &ConsumerIdentity) {
        for name in identity.vouched_fields.iter() {
            *self.vouched.entry(name.clone()).or_default() += 1;
        }
    }

    fn withdraw(&mut self, identity: &ConsumerIdentity) {
        for name in identity.vouched_fields.iter() {
            match self.vouched.get(name).copied() {
                Some(count) if count > 1 => drop(self.vouched.insert(name.clone(), count - 1)),
                _ => drop(self.vouched.remove(name)),
            }
        }
    }
}

/// All consumers of a snapshot by name and by key. Clones share structure.
#[derive(Clone, Default)]
pub struct ConsumerIndex {
    by_name: Names,
    by_key: Vec<PluginKeys>,
    /// The consumers of all scopes, behind those of one scope.
    shared: Option<Arc<ConsumerIndex>>,
}

impl ConsumerIndex {
    /// The identity for `key` of the authentication plugin `plugin`.
    pub fn find(&self, plugin: &str, key: &[u8]) -> Option<&ConsumerIdentity> {
        // Few plugins authenticate, so that a search is cheaper than a hash.
        match self.of_plugin(plugin).and_then(|of_plugin| of_plugin.keys.get(key)) {
            Some(identity) => Some(identity),
            None => self.shared.as_ref()?.find(plugin, key),
        }
    }

    fn of_plugin(&self, plugin: &str) -> Option<&PluginKeys> {
        self.by_key.iter().find(|of_plugin| of_plugin.plugin == plugin)
    }

    /// Names of the request fields by which the upstream knows users of the consumers of `plugin`.
    pub fn vouched_fields(&self, plugin: &str) -> Vec<&str> {
        let mut names = self.shared.as_ref().map_or_else(Vec::new, |shared| shared.vouched_fields(plugin));
        names.extend(
            self.of_plugin(plugin)
                .into_iter()
                .flat_map(|of_plugin| of_plugin.vouched.keys())
                .map(|name| &**name),
        );
        names
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
        let at = match self.by_key.iter().position(|of_plugin| of_plugin.plugin == plugin) {
            Some(at) => at,
            None => {
                let vouched = FieldCounts::default();
                self.by_key.push(PluginKeys { plugin, keys: Keys::default(), vouched });
                self.by_key.len() - 1
            }
        };
        let of_plugin = &mut self.by_key[at];
        of_plugin.vouch(&identity);
        let former = of_plugin.keys.insert(key.into(), identity);
        former.iter().for_each(|former| of_plugin.withdraw(former));
        former
    }

    /// Removes `key` of `plugin`.
    pub fn remove_key(&mut self, plugin: &str, key: &[u8]) {
        if let Some(of_plugin) = self.by_key.iter_mut().find(|of_plugin| of_plugin.plugin == plugin)
            && let Some(former) = of_plugin.keys.remove(key)
        {
            of_plugin.withdraw(&former);
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
