//! Consumers, their credentials and groups.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use yumen_config::{Kind, Resource};

use super::document::{EntityIndex, KongCredential, KongDocument};
use super::entity::KongEntity;
use super::guards::is_guard;
use super::ids::IdAllocator;
use super::imported_consumers::{ImportedConsumer, ImportedConsumers, ImportedCredential, ImportedGroup};
use super::plugins::{self, PluginTranslator};
use super::scopes::{PluginUse, PluginUses};
use crate::report::{ImportReport, different, dropped};

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
    let lacks_group = consumer.lacks_any(&["groups"]);
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
        lacks_group,
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
    let mut identifiers = IdAllocator::of([]);
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
        let owner_name = &consumers[owner].username;
        let number = numbers.entry((owner, plugin)).or_default();
        *number += 1;
        let identifier = kong_identifier(entity, plugin, &settings);
        // Unique among all consumers: X-Credential-Identifier alone distinguishes credentials for upstreams.
        let name = identifier.clone().unwrap_or_else(|| format!("{owner_name}-{plugin}-{number}"));
        let last = identifiers.allocate(&name);
        if identifier.is_some_and(|identifier| identifier != last) {
            let line = different(&entity.label, "", format!("X-Credential-Identifier is {last}"));
            report.add(line.why("letters, digits, -, _ and . are allowed in ids, and an id is given once"));
        }
        let id = format!("{owner_name}/credentials/{last}");
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

/// The value that Kong sends as X-Credential-Identifier; `None` for an id that Kong would generate.
fn kong_identifier(entity: &KongEntity, plugin: &str, settings: &Value) -> Option<String> {
    let field = match plugin {
        "basic-auth" => "username",
        "hmac-auth" => "key_id",
        "jwt-auth" => "key",
        _ => return entity.peek("id").and_then(Value::as_str).map(str::to_owned),
    };
    settings[field].as_str().map(str::to_owned)
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
    let mut closed_groups = Vec::new();
    for (at, ImportedGroup { id, name }) in consumers.groups.iter().enumerate() {
        let plugins = translator.of_consumer(&uses.of_group(at), report);
        if plugins.get("mocking") == Some(&plugins::consumer_refusal()) {
            closed_groups.push(at);
        }
        let value = json!({ "name": name, "plugins": plugins });
        resources.push(Resource::new(Kind::ConsumerGroups, id, &value));
    }
    for (at, consumer) in consumers.all.iter().enumerate() {
        let mut value = json!({ "username": consumer.username });
        // A consumer has one group here; the report names the one that counts.
        if let Some(group) = consumer.consumer_groups.first() {
            value["group_id"] = json!(consumers.groups[*group].id);
        }
        if !consumer.labels.is_empty() {
            value["labels"] = Value::Object(consumer.labels.clone());
        }
        let (of_consumer, is_closed) = plugins_of(at, consumer, uses, report);
        let mut plugins = translator.of_consumer(&of_consumer, report);
        // A plugin of the consumer would replace the refusal of its group.
        if is_closed || consumer.consumer_groups.iter().any(|group| closed_groups.contains(group)) {
            plugins::close_consumer(&mut plugins);
        }
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

/// The plugins of a consumer: its own, and those of all its groups but the first, which the gateway would not apply.
fn plugins_of<'u>(
    at: usize,
    consumer: &ImportedConsumer,
    uses: &'u PluginUses,
    report: &mut ImportReport,
) -> (Vec<&'u PluginUse>, bool) {
    let mut all = uses.of_consumer(at);
    let mut is_closed = consumer.lacks_group;
    if is_closed {
        let line = dropped(&consumer.label, "groups", "all requests of the consumer are answered 503");
        report
            .refuse(line.why("a group is not set, and its plugins may guard them").hint("set the variable"));
    }
    let Some((first, others)) = consumer.consumer_groups.split_first() else { return (all, is_closed) };
    let own: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    let mut taken: Vec<&str> = uses.of_group(*first).iter().map(|one| one.name.as_str()).collect();
    for one in others.iter().flat_map(|group| uses.of_group(*group)) {
        // In Kong, a plugin of the consumer replaces those of its groups.
        if own.contains(&one.name.as_str()) {
            continue;
        }
        if !taken.contains(&one.name.as_str()) {
            taken.push(&one.name);
            all.push(one);
            let line =
                different(&consumer.label, "groups", format!("{} is repeated with the consumer", one.label));
            report.add(line.why("a consumer has one group here"));
            continue;
        }
        let why =
            format!("another group of the consumer has {} too, and a consumer has one group here", one.name);
        if is_guard(&one.name) {
            is_closed = true;
            let instead =
                format!("all requests of the consumer are answered 503, as {} may guard them", one.label);
            let line = dropped(&consumer.label, "groups", instead);
            report.refuse(line.why(why).hint("attach the plugin to the consumer"));
        } else {
            report
                .add(different(&consumer.label, "groups", format!("{} does not apply", one.label)).why(why));
        }
    }
    (all, is_closed)
}
