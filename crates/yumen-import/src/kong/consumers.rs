//! Consumers, their credentials and groups.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use yumen_config::{Kind, Resource};

use super::document::{EntityIndex, KongCredential, KongDocument};
use super::entity::KongEntity;
use super::ids::IdAllocator;
use super::imported_consumers::{ImportedConsumer, ImportedConsumers, ImportedCredential, ImportedGroup};
use super::plugins::PluginTranslator;
use super::scopes::{PluginUse, PluginUses};
use crate::report::{ImportReport, different, dropped};

/// A consumer's instance would replace the rewrite that a route needs for its upstream.
const NOT_FOR_CONSUMERS: &str = "proxy-rewrite";

pub(super) fn translate(document: &mut KongDocument, report: &mut ImportReport) -> ImportedConsumers {
    let index = EntityIndex::of(&document.consumers);
    let group_index = EntityIndex::of(&document.groups);
    let mut ids = IdAllocator::of(document.groups.iter().map(|group| &*group.name));
    let mut consumers = ImportedConsumers::default();
    let names: Vec<ConsumerNaming> =
        document.consumers.iter_mut().map(|one| ConsumerNaming::of(one, report)).collect();
    // All names first, so that a written name is not given to another consumer.
    let mut usernames = IdAllocator::of_consumers(names.iter().map(|one| &*one.name));
    for group in &mut document.groups {
        group.take("name");
        super::labels::labels(group, report);
        consumers.groups.push(ImportedGroup { id: ids.allocate(&group.name), name: group.name.clone() });
    }
    for (consumer, naming) in document.consumers.iter_mut().zip(names) {
        consumers.all.push(convert_consumer(consumer, naming, &group_index, &mut usernames, report));
    }
    for (at, group) in document.groups.iter_mut().enumerate() {
        for member in group.list("consumers", report) {
            match index.find(&member) {
                // Both sides of the relation may name each other.
                Some(consumer) if !consumers.all[consumer].consumer_groups.contains(&at) => {
                    consumers.all[consumer].consumer_groups.push(at);
                }
                Some(_) => {}
                None => {
                    let line = dropped(&group.label, "consumers", "left out");
                    report.add(line.why(format!("there is no consumer {member}")));
                }
            }
        }
    }
    for acl in &mut document.acls {
        let group = acl.text("group", report).unwrap_or_default();
        super::labels::no_labels(acl, report);
        match index.take(acl, "consumer") {
            Ok(Some(at)) => drop(consumers.all[at].groups.insert(group)),
            _ => report.add(dropped(&acl.label, "consumer", "left out").why("there is no such consumer")),
        }
    }
    consumers.secrets_in_base64 = secrets_in_base64(document);
    consumers.credentials =
        credentials(document, &index, &consumers.all, consumers.secrets_in_base64 == Some(true), report);
    consumers.index = index;
    consumers
}

/// Whether the secrets of JWT credentials are in Base64. In Kong each plugin decides, here each credential; `None` if
/// plugins disagree.
fn secrets_in_base64(document: &KongDocument) -> Option<bool> {
    let setting = |plugin: &KongEntity| {
        let own = plugin.peek("config").and_then(|config| config.get("secret_is_base64"));
        let shared =
            || document.plugin_configs.get(plugin.peek("_config")?.as_str()?)?.get("secret_is_base64");
        own.or_else(shared).and_then(Value::as_bool).unwrap_or(false)
    };
    let mut plugins = document.plugins.iter().filter(|plugin| plugin.name == "jwt").map(setting);
    let first = plugins.next().unwrap_or(false);
    plugins.all(|other| other == first).then_some(first)
}

/// The standard alphabet of Base64 with padding (RFC 4648 §4). Kong also accepts the URL-safe one.
fn standard_base64(secret: &str) -> String {
    let mut text = secret.trim_end_matches('=').replace('-', "+").replace('_', "/");
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

/// The name of a consumer in the file.
struct ConsumerNaming {
    name: String,
    custom_id: Option<String>,
}

impl ConsumerNaming {
    fn of(consumer: &mut KongEntity, report: &mut ImportReport) -> ConsumerNaming {
        let written = consumer.text("username", report);
        let custom_id = consumer.text("custom_id", report);
        // Kong requires one of the two.
        let name = written.or_else(|| custom_id.clone()).unwrap_or_else(|| consumer.name.clone());
        ConsumerNaming { name, custom_id }
    }
}

fn convert_consumer(
    consumer: &mut KongEntity,
    ConsumerNaming { name, custom_id }: ConsumerNaming,
    groups: &EntityIndex,
    usernames: &mut IdAllocator,
    report: &mut ImportReport,
) -> ImportedConsumer {
    let username = usernames.allocate(&name);
    if username != name {
        let line = different(&consumer.label, "username", format!("it is called {username}"));
        report.add(line.why(match usernames.fits(&name) {
            true => "the name was taken",
            false => "letters, digits, - and _ are allowed in names of consumers",
        }));
    }
    let mut labels = match super::labels::labels(consumer, report) {
        Some(Value::Object(labels)) => labels,
        _ => Map::new(),
    };
    if let Some(custom_id) = custom_id {
        match custom_id.contains(char::is_whitespace) {
            false => drop(labels.insert("custom_id".into(), custom_id.into())),
            true => {
                let line = dropped(&consumer.label, "custom_id", "left out");
                report.add(line.why("labels may hold no white space"));
            }
        }
    }
    let mut consumer_groups = Vec::new();
    for group in consumer.list("groups", report) {
        match groups.find(&group) {
            Some(at) => consumer_groups.push(at),
            None => {
                let line = dropped(&consumer.label, "groups", "left out");
                report.add(line.why(format!("there is no consumer group {group}")));
            }
        }
    }
    ImportedConsumer {
        username,
        labels,
        groups: BTreeSet::new(),
        consumer_groups,
        label: consumer.label.clone(),
    }
}

fn credentials(
    document: &mut KongDocument,
    index: &EntityIndex,
    consumers: &[ImportedConsumer],
    in_base64: bool,
    report: &mut ImportReport,
) -> Vec<ImportedCredential> {
    let mut numbers: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    let mut credentials = Vec::new();
    for KongCredential { collection, entity } in &mut document.credentials {
        let owner = match index.take(entity, "consumer") {
            Ok(Some(owner)) => owner,
            _ => {
                report.add(dropped(&entity.label, "consumer", "left out").why("there is no such consumer"));
                // Its other fields are not reported one by one.
                *entity = KongEntity::default();
                continue;
            }
        };
        let labels = super::labels::labels(entity, report);
        entity.skip("ttl", &Value::Null, "credentials do not expire here", report);
        let Some((plugin, settings)) = credential(collection, entity, document.is_hashed, report) else {
            continue;
        };
        let mut settings = settings;
        let secret = settings["secret"].as_str().filter(|_| in_base64 && plugin == "jwt-auth");
        if let Some(secret) = secret.map(standard_base64) {
            settings["secret"] = secret.into();
            settings["base64_secret"] = true.into();
        }
        let number = numbers.entry((owner, plugin)).or_default();
        *number += 1;
        let id = format!("{}/credentials/{plugin}-{number}", consumers[owner].username);
        credentials.push(ImportedCredential {
            label: entity.label.clone(),
            owner,
            id,
            plugin,
            settings,
            labels,
        });
    }
    credentials
}

/// Length of Kong's password hashes: SHA-1 in hexadecimal digits.
const HASH_DIGITS: usize = 40;

/// The plugin of a credential, and its settings.
fn credential(
    collection: &str,
    entity: &mut KongEntity,
    is_hashed: bool,
    report: &mut ImportReport,
) -> Option<(&'static str, Value)> {
    // Kong generates missing keys, which no file contains.
    let mut needed = |entity: &mut KongEntity, field: &str| {
        let text = entity.text(field, report).filter(|text| !text.is_empty());
        if text.is_none() {
            let line = dropped(&entity.label, field, "the credential is left out");
            report.add(
                line.why("Kong would make up a value where there is none").hint("write it into the file"),
            );
        }
        text
    };
    match collection {
        "keyauth_credentials" => Some(("key-auth", json!({ "key": needed(entity, "key")? }))),
        "basicauth_credentials" => {
            let (username, password) = (needed(entity, "username")?, needed(entity, "password")?);
            // A hash cannot be turned back into the password.
            if is_hashed {
                let line = dropped(&entity.label, "password", "the credential is left out");
                let why = "with _transform: false the file contains a hash, not the password";
                report.add(line.why(why).hint("set the password anew"));
                return None;
            }
            // With a hash as the password, anyone with the dump could log in.
            if password.len() == HASH_DIGITS && password.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                let line = different(&entity.label, "password", "taken as the password itself");
                let why = "it looks like a hash of Kong, as dumps contain it";
                report.add(line.why(why).hint("if it is a hash, set the password anew"));
            }
            Some(("basic-auth", json!({ "username": username, "password": password })))
        }
        "hmacauth_credentials" => {
            let (username, secret) = (needed(entity, "username")?, needed(entity, "secret")?);
            Some(("hmac-auth", json!({ "key_id": username, "secret_key": secret })))
        }
        "jwt_secrets" => {
            let key = needed(entity, "key")?;
            let algorithm = entity.text("algorithm", report).unwrap_or_else(|| "HS256".into());
            let mut settings = json!({ "key": key, "algorithm": algorithm });
            for (kong_field, setting) in [("secret", "secret"), ("rsa_public_key", "public_key")] {
                if let Some(text) = entity.text(kong_field, report) {
                    settings[setting] = json!(text);
                }
            }
            Some(("jwt-auth", settings))
        }
        _ => {
            let line =
                dropped(&entity.label, "", "left out").why("there is no plugin here that would ask for it");
            report.add(line);
            // The fields of a credential that is left out are not reported.
            *entity = KongEntity::default();
            None
        }
    }
}

/// Consumers, groups and credentials, with the plugins of consumers and groups.
pub(super) fn resources(
    consumers: &ImportedConsumers,
    uses: &PluginUses,
    translator: &mut PluginTranslator<'_>,
    report: &mut ImportReport,
) -> Vec<Resource> {
    let mut resources = Vec::new();
    for (at, ImportedGroup { id, name }) in consumers.groups.iter().enumerate() {
        let plugins = allowed(&uses.of_group(at), translator, report);
        let value = json!({ "name": name, "plugins": plugins });
        resources.push(Resource::new(Kind::ConsumerGroups, id, &value));
    }
    for (at, consumer) in consumers.all.iter().enumerate() {
        let mut value = json!({ "username": consumer.username });
        // A consumer has one group here; the report names the one that counts.
        if let Some(group) = consumer.consumer_groups.first() {
            value["group_id"] = json!(consumers.groups[*group].id);
        }
        if consumer.consumer_groups.len() > 1 {
            let instead =
                format!("only the plugins of {} count", consumers.groups[consumer.consumer_groups[0]].name);
            let line = different(&consumer.label, "groups", instead);
            report.add(line.why("a consumer shares the plugins of one group"));
        }
        if !consumer.labels.is_empty() {
            value["labels"] = Value::Object(consumer.labels.clone());
        }
        let mut plugins = allowed(&uses.of_consumer(at), translator, report);
        let credentials = consumers.credentials.iter().filter(|credential| credential.owner == at);
        for credential in credentials {
            match translator.runs(credential.plugin) {
                true => resources.push(credential.resource()),
                false => keep_inactive(credential, &mut plugins, report),
            }
        }
        if !plugins.is_empty() {
            value["plugins"] = Value::Object(plugins);
        }
        resources.push(Resource::new(Kind::Consumers, &consumer.username, &value));
    }
    resources
}

/// Keeps the credential as a plugin of the consumer: a credential of a plugin that does not run would be rejected.
fn keep_inactive(
    credential: &ImportedCredential,
    plugins: &mut Map<String, Value>,
    report: &mut ImportReport,
) {
    let ImportedCredential { label, plugin, settings, .. } = credential;
    if plugins.contains_key(*plugin) {
        let line = dropped(label, "", "left out");
        report.add(line.why(format!("a consumer holds one {plugin} as long as that does not run")));
        return;
    }
    plugins.insert((*plugin).to_owned(), settings.clone());
    let line =
        dropped(label, "", format!("kept with the consumer as {plugin}, which does not run in this version"));
    report.add(line.hint("takes effect in a version that supports it"));
}

fn allowed(
    uses: &[&PluginUse],
    translator: &mut PluginTranslator<'_>,
    report: &mut ImportReport,
) -> Map<String, Value> {
    let mut all = Map::new();
    for one in uses {
        for (name, settings) in translator.of_consumer(one, report) {
            match name == NOT_FOR_CONSUMERS {
                false => drop(all.insert(name, settings)),
                true => {
                    let line = dropped(&one.label, "", "left out");
                    let why = format!("{name} of a consumer would replace what the route rewrites");
                    report.add(line.why(why).hint("give the consumer routes of its own"));
                }
            }
        }
    }
    all
}
