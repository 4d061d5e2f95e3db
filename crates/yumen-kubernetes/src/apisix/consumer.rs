//! ApisixConsumer.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::credentials::{METHODS, from_value};
use super::{class, finish_members, plugins, report, scopes_value};
use crate::engine::{TrackedView, UnitOutput};
use crate::grants::granted_secret;
use crate::model::{ApisixConsumerObject, ClusterKind, ObjectKey};
use crate::resources::{ResourceName, SpecDefect, TranslatedKind};

pub(super) fn translate(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let Some(object) = view.get::<ApisixConsumerObject>(key) else { return output };
    if !class::is_served(view, object.spec.ingress_class_name.as_deref()) {
        return output;
    }
    // A method that cannot be built is left out and admits no client: the last good version would keep a key in force that
    // was withdrawn.
    let (mut unusable, mut defects) = (Vec::new(), Vec::new());
    let mut all = auth_plugins(view, key, object, &mut unusable);
    all.extend(plugins::plugins_value(view, key, &object.spec.plugins, &mut defects));
    let consumer =
        WrittenConsumer { created_s: object.meta.created_s, plugins: all, scopes: BTreeSet::new() };
    let name = write_consumer(&mut output, key, consumer, &mut defects);
    defects.extend(unusable);
    report::add_status(&mut output, key, object.meta.generation, &defects, name.into_iter().collect());
    output
}

/// Whether an ApisixConsumer has the name of a Consumer, so that both would be one consumer.
pub(super) fn is_taken(view: &TrackedView<'_>, namespace: &str, name: &str) -> bool {
    let key = ObjectKey::new(ClusterKind::ApisixConsumer, namespace, name);
    let object = view.get::<ApisixConsumerObject>(&key);
    object.is_some_and(|object| class::is_served(view, object.spec.ingress_class_name.as_deref()))
}

/// The members of a consumer.
pub(super) struct WrittenConsumer {
    pub(super) created_s: i64,
    pub(super) plugins: Map<String, Value>,
    /// Empty for the listeners of the node's settings.
    pub(super) scopes: BTreeSet<Arc<str>>,
}

/// Writes a consumer, whose name is `{namespace}_{name}`. Without a valid name there is none.
pub(super) fn write_consumer(
    output: &mut UnitOutput,
    key: &ObjectKey,
    written: WrittenConsumer,
    defects: &mut Vec<SpecDefect>,
) -> Option<ResourceName> {
    let username = format!("{}_{}", key.namespace, key.name);
    if username.contains('.') {
        let message = format!("{username} is no name of a consumer: allowed are letters, digits, - and _");
        defects.push(SpecDefect::new("username", message));
        return None;
    }
    let mut members = Map::new();
    members.insert("username".to_owned(), username.as_str().into());
    members.insert("plugins".to_owned(), written.plugins.into());
    members.insert("scopes".to_owned(), scopes_value(&written.scopes));
    finish_members(&mut members, key, written.created_s, defects);
    let name = ResourceName::new(TranslatedKind::Consumers, username);
    output.add_resource(name.kind, name.id.clone(), &members.into());
    Some(name)
}

fn auth_plugins(
    view: &TrackedView<'_>,
    key: &ObjectKey,
    object: &ApisixConsumerObject,
    defects: &mut Vec<SpecDefect>,
) -> Map<String, Value> {
    let mut all = Map::new();
    for (member, parameter) in &object.spec.auth_parameter {
        let Some(method) = METHODS.iter().find(|method| method.member == &**member) else {
            let message = format!("authParameter.{member} is not supported");
            defects.push(SpecDefect::new("plugins", message));
            continue;
        };
        let settings = match (&parameter.value, &parameter.secret_ref) {
            (Some(value), _) => Ok(from_value(method, value)),
            (None, Some(secret)) => granted_secret(view, key, &key.namespace, &secret.name)
                .and_then(|secret| method.read_secret(secret)),
            (None, None) => Err(format!("authParameter.{member} needs value or secretRef")),
        };
        let settings = settings.and_then(|settings| {
            let alone = Map::from_iter([(method.plugin.to_owned(), settings)]);
            plugins::refuse_references(view, key, alone)
        });
        match settings {
            Ok(settings) => all.extend(settings),
            Err(message) => defects.push(SpecDefect::new(format!("plugins.{}", method.plugin), message)),
        }
    }
    all
}
