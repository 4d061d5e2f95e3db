//! Consumers, their groups and credentials, and the keys that lead to them.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use yumen_base::Problem;
use yumen_config::resource as config;
use yumen_config::{Kind, decode};
use yumen_plugin::{Consumer, ConsumerIdentity, MissingPlugin, PluginInstance};

use super::plugins::{self, PluginEntry};
use super::settings::PluginOwner;
use super::unavailable_plugin::UnavailablePlugin;
use super::{Compiler, KeyName, ObjectName, StageResult, invalid};

/// Authentication settings: what leads to a consumer.
#[derive(Clone)]
pub(super) struct StagedConsumerKey {
    pub(super) plugin: &'static str,
    pub(super) key: Box<[u8]>,
    pub(super) auth: Arc<dyn Any + Send + Sync>,
}

/// Who claims a key. The first by name gets it: a consumer before a credential, then by id.
pub(super) type Claims = BTreeMap<ObjectName, Arc<ConsumerIdentity>>;

/// What is kept of a consumer to link it again.
pub(super) struct StagedConsumer {
    group: Option<Arc<str>>,
    custom_id: Option<Box<str>>,
    labels: Box<[(Box<str>, Box<str>)]>,
    own: Box<[PluginEntry]>,
    keys: Vec<StagedConsumerKey>,
    /// As linked last.
    linked: Option<Arc<Consumer>>,
}

/// What is kept of a credential.
pub(super) struct StagedCredential {
    username: Arc<str>,
    keys: Vec<StagedConsumerKey>,
}

impl Compiler {
    pub(super) fn stage_consumer(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let mut written: config::ConsumerSpec = decode(json).map_err(|error| vec![invalid(name, error)])?;
        let built = self.build_plugins(name, written.plugins.take(), PluginOwner::Consumer);
        if built.failed {
            return Err(built.problems);
        }
        self.remove_consumer(name);
        let group = written.group_id.map(|id| id.0);
        if let Some(id) = &group {
            self.dependents.add(ObjectName::new(Kind::ConsumerGroups, id.clone()), name);
        }
        self.add_uses(name, built.entries.iter());
        let labels: Vec<(Box<str>, Box<str>)> =
            written.labels.into_iter().flatten().map(|(name, value)| (name.into(), value.into())).collect();
        let custom_id =
            labels.iter().find(|(name, _)| &**name == "custom_id").map(|(_, value)| value.clone());
        let held = StagedConsumer {
            group,
            custom_id,
            labels: labels.into(),
            own: built.entries.into(),
            keys: built.keys,
            linked: None,
        };
        self.staged_consumers.insert(name.id.clone(), held);
        Ok(built.problems)
    }

    pub(super) fn remove_consumer(&mut self, name: &ObjectName) {
        let Some(held) = self.staged_consumers.remove(&name.id) else { return };
        if let Some(id) = held.group {
            self.dependents.remove(ObjectName::new(Kind::ConsumerGroups, id), name);
        }
        self.remove_uses(name, held.own.iter());
        self.release_keys(name);
        self.consumers.remove(&name.id);
    }

    pub(super) fn link_consumer(&mut self, name: &ObjectName) -> Vec<Problem> {
        let Some(mut held) = self.staged_consumers.remove(&name.id) else { return Vec::new() };
        let mut problems = Vec::new();
        let group = held.group.as_ref().map(|id| self.consumer_groups.get(id).ok_or(id)).transpose();
        let (plugins, switched_off) = match group {
            Ok(group) => {
                let groups = group.map_or(&[][..], |set| &set.entries);
                self.beyond_authentication(&plugins::winning(&[&held.own, groups]))
            }
            // The group's plugins may be what guards.
            Err(id) => {
                let message = format!("consumer group {id} does not exist or is broken");
                let hint = "requests of this consumer are answered 503 until there is";
                problems.push(Problem::error(name.to_string(), "group_id", message).hint(hint));
                (vec![Arc::new(UnavailablePlugin::of_group(name.to_string().into()))], Vec::new())
            }
        };
        let consumer = Arc::new(Consumer {
            username: Box::from(&*name.id),
            group_id: held.group.as_deref().map(Box::from),
            custom_id: held.custom_id.clone(),
            labels: held.labels.clone(),
            plugins: plugins.into(),
            switched_off: switched_off.into(),
        });
        self.consumers.insert(consumer.clone());
        self.claim_keys(name, &consumer, None, held.keys.clone());
        held.linked = Some(consumer);
        self.staged_consumers.insert(name.id.clone(), held);
        problems
    }

    /// A consumer's plugins, highest priority first, and the names of those that are off. Authentication is
    /// over when the consumer is known, and no part of either.
    fn beyond_authentication(&self, winning: &[&PluginEntry]) -> (Vec<Arc<PluginInstance>>, Vec<Box<str>>) {
        let is_auth = |name: &str| self.registry.get(name).is_some_and(|one| one.kind.is_auth);
        // A missing one that is switched off here still guards the routes that it stands on.
        let is_missing_auth =
            |name: &str| self.env.missing.get(name, false).is_some_and(MissingPlugin::is_auth);
        let is_beyond = |entry: &PluginEntry| match entry {
            PluginEntry::On(_) => !is_auth(entry.name()),
            PluginEntry::Off(_) => !is_auth(entry.name()) && !is_missing_auth(entry.name()),
        };
        let beyond = || winning.iter().filter(|entry| is_beyond(entry));
        let mut instances: Vec<_> = beyond().filter_map(|entry| entry.instance()).cloned().collect();
        instances.sort_by(|a, b| b.priority.cmp(&a.priority).then_with(|| a.name.cmp(b.name)));
        let off = beyond().filter(|entry| entry.instance().is_none()).map(|entry| entry.name().into());
        (instances, off.collect())
    }

    pub(super) fn stage_credential(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let mut written: config::CredentialSpec = decode(json).map_err(|error| vec![invalid(name, error)])?;
        let Some((username, _)) = name.id.split_once("/credentials/") else {
            let message = "the id of a credential is consumer/credentials/id";
            return Err(vec![Problem::error(name.to_string(), "id", message)]);
        };
        let built = self.build_plugins(name, written.plugins.take(), PluginOwner::Credential);
        if built.failed {
            return Err(built.problems);
        }
        let username: Arc<str> = username.into();
        self.remove_credential(name);
        self.dependents.add(ObjectName::new(Kind::Consumers, username.clone()), name);
        self.credentials.insert(name.id.clone(), StagedCredential { username, keys: built.keys });
        Ok(built.problems)
    }

    pub(super) fn remove_credential(&mut self, name: &ObjectName) {
        let Some(held) = self.credentials.remove(&name.id) else { return };
        self.dependents.remove(ObjectName::new(Kind::Consumers, held.username), name);
        self.release_keys(name);
    }

    pub(super) fn link_credential(&mut self, name: &ObjectName) -> Vec<Problem> {
        let Some(held) = self.credentials.get(&name.id) else { return Vec::new() };
        let consumer = self.staged_consumers.get(&held.username).and_then(|held| held.linked.clone());
        let Some(consumer) = consumer else {
            let message = format!("consumer {} does not exist or is broken", held.username);
            self.release_keys(name);
            return vec![Problem::error(name.to_string(), "", message)];
        };
        let id = name.id.rsplit('/').next().map(Box::from);
        let keys = held.keys.clone();
        self.claim_keys(name, &consumer, id, keys);
        Vec::new()
    }

    fn claim_keys(
        &mut self,
        name: &ObjectName,
        consumer: &Arc<Consumer>,
        id: Option<Box<str>>,
        keys: Vec<StagedConsumerKey>,
    ) {
        self.release_keys(name);
        let mut claimed = Vec::with_capacity(keys.len());
        for StagedConsumerKey { plugin, key, auth } in keys {
            let identity = ConsumerIdentity { consumer: consumer.clone(), credential_id: id.clone(), auth };
            let of = (plugin, key);
            self.claims.entry(of.clone()).or_default().insert(name.clone(), Arc::new(identity));
            self.assign_key(&of);
            claimed.push(of);
        }
        if !claimed.is_empty() {
            self.claimed.insert(name.clone(), claimed);
        }
    }

    fn release_keys(&mut self, name: &ObjectName) {
        for of in self.claimed.remove(name).into_iter().flatten() {
            self.duplicates.remove(&(name.clone(), of.0));
            if let Some(claims) = self.claims.get_mut(&of) {
                claims.remove(name);
            }
            self.assign_key(&of);
        }
    }

    /// Gives a key to its first claimant and tells the others, unless that is the consumer they are credentials of:
    /// the key leads to the same one then, and the Admin API admits it.
    fn assign_key(&mut self, of: &KeyName) {
        let Some(claims) = self.claims.get(of) else { return };
        let mut all = claims.iter();
        let Some((first, identity)) = all.next() else {
            self.claims.remove(of);
            self.consumers.remove_key(of.0, &of.1);
            return;
        };
        self.consumers.insert_key(of.0, &of.1, identity.clone());
        self.duplicates.remove(&(first.clone(), of.0));
        for (later, claimed) in all {
            let is_own = first.kind == Kind::Consumers && *claimed.consumer.username == *first.id;
            if is_own {
                self.duplicates.remove(&(later.clone(), of.0));
                continue;
            }
            let message = format!("duplicate key of plugin {} found with {first}", of.0);
            let problem = Problem::error(later.to_string(), format!("plugins.{}", of.0), message);
            self.touched.insert(later.clone());
            self.duplicates.insert((later.clone(), of.0), problem);
        }
    }
}

#[cfg(test)]
mod tests;
