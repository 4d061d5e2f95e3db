//! Consumers and their credentials: staged from text, then linked to group and consumer.

use std::sync::Arc;

use yumen_base::Problem;
use yumen_config::resource as config;
use yumen_config::{Kind, decode};
use yumen_plugin::{Consumer, MissingPlugin, PluginInstance};

use super::names::ObjectName;
use super::plugin_settings::PluginOwner;
use super::plugins::{self, PluginEntry, metadata_of};
use super::tables::StagedConsumerKey;
use super::unavailable_plugin::UnavailablePlugin;
use super::{Compiler, StageResult, invalid};

/// A consumer before it is linked to its group.
pub(super) struct StagedConsumer {
    group: Option<Arc<str>>,
    custom_id: Option<Box<str>>,
    labels: Box<[(Box<str>, Box<str>)]>,
    own: Box<[PluginEntry]>,
    keys: Vec<StagedConsumerKey>,
    /// The consumer as last linked; absent until then.
    linked: Option<Arc<Consumer>>,
}

/// A credential before it is linked to its consumer.
pub(super) struct StagedCredential {
    username: Arc<str>,
    keys: Vec<StagedConsumerKey>,
}

impl Compiler {
    pub(super) fn stage_consumer(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let mut written: config::ConsumerSpec = decode(json).map_err(|error| vec![invalid(name, error)])?;
        let built = self.plugin_builder().build(name, written.plugins.take(), PluginOwner::Consumer);
        if built.failed {
            return Err(built.problems);
        }
        // The previous keys are released before the new ones are claimed at linking.
        self.remove_consumer(name);
        let scopes: Option<Vec<Arc<str>>> =
            written.scopes.map(|ids| ids.into_iter().map(|id| id.0).collect());
        self.consumers.set_scopes(&name.id, scopes.as_deref());
        let labels: Vec<(Box<str>, Box<str>)> =
            written.labels.into_iter().flatten().map(|(name, value)| (name.into(), value.into())).collect();
        let custom_id =
            // APISIX sends this label upstream as `X-Consumer-Custom-ID`.
            labels.iter().find(|(name, _)| &**name == "custom_id").map(|(_, value)| value.clone());
        let staged = StagedConsumer {
            group: written.group_id.map(|id| id.0),
            custom_id,
            labels: labels.into(),
            own: built.entries.into(),
            keys: built.keys,
            linked: None,
        };
        self.references.add_all(staged.references(), name);
        self.staged.consumers.insert(name.id.clone(), staged);
        Ok(built.problems)
    }

    pub(super) fn remove_consumer(&mut self, name: &ObjectName) {
        let Some(removed) = self.staged.consumers.remove(&name.id) else { return };
        self.references.remove_all(removed.references(), name);
        let affected = self.consumers.remove(name);
        self.problems.touch_all(affected);
    }

    pub(super) fn link_consumer(&mut self, name: &ObjectName) -> Vec<Problem> {
        let Some(staged) = self.staged.consumers.get(&name.id) else { return Vec::new() };
        let mut problems = Vec::new();
        let group = staged.group.as_ref().map(|id| self.staged.consumer_groups.get(id).ok_or(id)).transpose();
        let (plugins, switched_off) = match group {
            Ok(group) => {
                let groups = group.map_or(&[][..], |set| &set.entries);
                // The consumer's own plugins take precedence over those of its group.
                self.beyond_authentication(&plugins::winning(&[&staged.own, groups]))
            }
            // The plugins of the missing group may be guards, so requests are refused instead of served without them.
            Err(id) => {
                let message = format!("consumer group {id} does not exist or is broken");
                let hint = "requests of this consumer are answered 503 until there is";
                problems.push(Problem::error(name.to_string(), "group_id", message).hint(hint));
                (vec![Arc::new(UnavailablePlugin::of_group(name.to_string().into()))], Vec::new())
            }
        };
        let consumer = Arc::new(Consumer {
            username: Box::from(&*name.id),
            group_id: staged.group.as_deref().map(Box::from),
            custom_id: staged.custom_id.clone(),
            labels: staged.labels.clone(),
            written: self.texts.in_force(name).cloned(),
            plugins: plugins.into(),
            switched_off: switched_off.into(),
        });
        // Before the claim, which maps keys to this version of the consumer.
        self.consumers.insert(&consumer);
        let affected = self.consumers.claim(name, &consumer, None, &staged.keys);
        self.problems.touch_all(affected);
        if let Some(staged) = self.staged.consumers.get_mut(&name.id) {
            // Credentials link to this version; their rank comes later.
            staged.linked = Some(consumer);
        }
        problems
    }

    /// A consumer's plugins, highest priority first, and the names of plugins that are off. Authentication plugins are
    /// in neither: authentication has ended when the consumer is known.
    fn beyond_authentication(&self, winning: &[&PluginEntry]) -> (Vec<Arc<PluginInstance>>, Vec<Box<str>>) {
        let is_auth = |name: &str| self.context.registry.get(name).is_some_and(|one| one.kind.role.is_auth());
        // A consumer cannot switch off a missing authentication plugin of a route: its refusal still guards the route.
        let is_missing_auth =
            |name: &str| self.context.env.missing.get(name, false).is_some_and(MissingPlugin::is_auth);
        let is_beyond = |entry: &PluginEntry| match entry {
            PluginEntry::On(_) => !is_auth(entry.name()),
            PluginEntry::Off(_) => !is_auth(entry.name()) && !is_missing_auth(entry.name()),
        };
        let beyond = || winning.iter().filter(|entry| is_beyond(entry));
        let mut instances: Vec<_> = beyond().filter_map(|entry| entry.instance()).cloned().collect();
        // The name breaks ties, so that equal resources give equal chains.
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
        let built = self.plugin_builder().build(name, written.plugins.take(), PluginOwner::Credential);
        if built.failed {
            return Err(built.problems);
        }
        self.remove_credential(name);
        let staged = StagedCredential { username: username.into(), keys: built.keys };
        self.references.add(staged.consumer(), name);
        self.staged.credentials.insert(name.id.clone(), staged);
        Ok(built.problems)
    }

    pub(super) fn remove_credential(&mut self, name: &ObjectName) {
        let Some(removed) = self.staged.credentials.remove(&name.id) else { return };
        self.references.remove(removed.consumer(), name);
        let affected = self.consumers.release(name);
        self.problems.touch_all(affected);
    }

    pub(super) fn link_credential(&mut self, name: &ObjectName) -> Vec<Problem> {
        let Some(staged) = self.staged.credentials.get(&name.id) else { return Vec::new() };
        let consumer = self.staged.consumers.get(&staged.username).and_then(|one| one.linked.as_ref());
        let (affected, problems) = match consumer {
            Some(consumer) => {
                // The id has the form `consumer/credentials/id`.
                let id = name.id.rsplit('/').next().map(Box::from);
                (self.consumers.claim(name, consumer, id, &staged.keys), Vec::new())
            }
            None => {
                let message = format!("consumer {} does not exist or is broken", staged.username);
                // Keys of an absent consumer must identify no client.
                (self.consumers.release(name), vec![Problem::error(name.to_string(), "", message)])
            }
        };
        self.problems.touch_all(affected);
        problems
    }
}

impl StagedConsumer {
    /// The objects that the consumer depends on.
    fn references(&self) -> impl Iterator<Item = ObjectName> {
        let group = self.group.clone().map(|id| ObjectName::new(Kind::ConsumerGroups, id));
        group.into_iter().chain(metadata_of(&self.own))
    }
}

impl StagedCredential {
    fn consumer(&self) -> ObjectName {
        ObjectName::new(Kind::Consumers, self.username.clone())
    }
}

#[cfg(test)]
mod tests;
