//! The file as lists of entities: nesting undone, defaults filled in, references to the environment
//! resolved. Knows nothing of what an entity means.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::entity::KongEntity;
use super::environment::{KongEnvironment, Lookup};
use crate::report::{ImportReport, dropped};

/// Credentials by the name of their collection.
pub(super) const CREDENTIALS: [&str; 6] = [
    "keyauth_credentials",
    "basicauth_credentials",
    "jwt_secrets",
    "hmacauth_credentials",
    "oauth2_credentials",
    "mtls_auth_credentials",
];

/// All entities of a file; an entity names those it belongs to in its own fields.
#[derive(Debug, Default)]
pub(super) struct KongDocument {
    pub(super) services: Vec<KongEntity>,
    pub(super) routes: Vec<KongEntity>,
    pub(super) upstreams: Vec<KongEntity>,
    pub(super) targets: Vec<KongEntity>,
    pub(super) consumers: Vec<KongEntity>,
    pub(super) credentials: Vec<(&'static str, KongEntity)>,
    pub(super) acls: Vec<KongEntity>,
    pub(super) groups: Vec<KongEntity>,
    pub(super) plugins: Vec<KongEntity>,
    pub(super) certificates: Vec<KongEntity>,
    pub(super) snis: Vec<KongEntity>,
    pub(super) ca_certificates: Vec<KongEntity>,
    /// Settings that several plugins share.
    pub(super) plugin_configs: Map<String, Value>,
    /// Whether a path is a pattern only where it begins with a tilde, as from 3.0.
    pub(super) marks_patterns: bool,
    /// Whether passwords in the file are hashes already.
    pub(super) is_hashed: bool,
}

/// Reads the text.
pub(super) fn read(
    text: &str,
    lookup: Lookup<'_>,
    report: &mut ImportReport,
) -> Result<KongDocument, String> {
    let mut value: Value = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).map_err(|error| error.to_string())?,
        false => serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?,
    };
    let version = version(&value)?;
    let environment = KongEnvironment::new(lookup, &value);
    environment.resolve(&mut value, "", report);
    let Value::Object(mut top) = value else { return Err("a file of Kong is an object of lists".into()) };
    let mut document = KongDocument {
        marks_patterns: version >= 3.0,
        is_hashed: top.shift_remove("_transform") == Some(Value::Bool(false)),
        ..KongDocument::default()
    };
    for name in ["_format_version", "_workspace", "_comment"] {
        top.shift_remove(name);
    }
    if let Some(Value::Object(configs)) = top.shift_remove("_plugin_configs") {
        document.plugin_configs = configs;
    }
    let defaults = top.shift_remove("_info").map(|info| info["defaults"].clone()).unwrap_or_default();
    let mut reader = KongReader { defaults, report, numbers: HashMap::new() };
    reader.collections(&mut top, &mut document);
    reader.rest(top);
    Ok(document)
}

fn version(value: &Value) -> Result<f64, String> {
    let written = value.get("_format_version").unwrap_or(&Value::Null);
    let number = match written {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_f64(),
        _ => None,
    };
    let known = number.filter(|number| (1.0..4.0).contains(number));
    known.ok_or_else(|| {
        format!(
            "this is no file of Kong: _format_version is {written}; \"1.1\", \"2.1\" and \"3.0\" are known"
        )
    })
}

impl KongDocument {
    /// Reports the fields nobody took.
    pub(super) fn finish(self, report: &mut ImportReport) {
        let lists = [
            self.services,
            self.routes,
            self.upstreams,
            self.targets,
            self.consumers,
            self.acls,
            self.groups,
            self.plugins,
            self.certificates,
            self.snis,
            self.ca_certificates,
        ];
        let credentials = self.credentials.into_iter().map(|(_, entity)| entity);
        for entity in lists.into_iter().flatten().chain(credentials) {
            entity.finish(report);
        }
    }
}

/// Entities by name and by id.
#[derive(Debug, Default)]
pub(super) struct EntityIndex(HashMap<String, usize>);

impl EntityIndex {
    pub(super) fn of(entities: &[KongEntity]) -> EntityIndex {
        let mut index = HashMap::new();
        for (at, entity) in entities.iter().enumerate() {
            index.entry(entity.key.clone()).or_insert(at);
            index.entry(entity.name.clone()).or_insert(at);
        }
        EntityIndex(index)
    }

    /// Whom a foreign key means: a name, an id, or an object with one of both.
    pub(super) fn find(&self, reference: &Value) -> Option<usize> {
        let text = match reference {
            Value::String(text) => text.as_str(),
            other => ["id", "name", "username"].iter().find_map(|field| other[field].as_str())?,
        };
        self.0.get(text).copied()
    }

    /// Takes a foreign key off an entity. `Err` holds what it says where it leads nowhere.
    pub(super) fn take(&self, entity: &mut KongEntity, field: &str) -> Result<Option<usize>, String> {
        let Some(reference) = entity.take(field) else { return Ok(None) };
        self.find(&reference).map(Some).ok_or_else(|| match &reference {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    }
}

struct KongReader<'r> {
    defaults: Value,
    report: &'r mut ImportReport,
    /// How many of each kind have been read, to number those without a name.
    numbers: HashMap<&'static str, usize>,
}

impl KongReader<'_> {
    fn collections(&mut self, top: &mut Map<String, Value>, document: &mut KongDocument) {
        for mut service in self.take(top, "services", "service", None) {
            let parent = Some(("service", service.key.clone(), service.name.clone()));
            let routes = self.nested(&mut service, "routes", "route", &parent);
            document.routes.extend(routes);
            document.plugins.extend(self.nested(&mut service, "plugins", "plugin", &parent));
            document.plugins.extend(self.filters(service.take("filter_chains"), &parent));
            document.services.push(service);
        }
        document.routes.extend(self.take(top, "routes", "route", None));
        for at in 0..document.routes.len() {
            let route = &mut document.routes[at];
            let parent = Some(("route", route.key.clone(), route.name.clone()));
            let plugins = self.nested(route, "plugins", "plugin", &parent);
            document.plugins.extend(plugins);
            let chains = route.take("filter_chains");
            document.plugins.extend(self.filters(chains, &parent));
        }
        for mut consumer in self.take(top, "consumers", "consumer", None) {
            let parent = Some(("consumer", consumer.key.clone(), consumer.name.clone()));
            document.plugins.extend(self.nested(&mut consumer, "plugins", "plugin", &parent));
            document.acls.extend(self.nested(&mut consumer, "acls", "acl", &parent));
            for kind in CREDENTIALS {
                let all = self.nested(&mut consumer, kind, singular(kind), &parent);
                document.credentials.extend(all.into_iter().map(|entity| (kind, entity)));
            }
            document.consumers.push(consumer);
        }
        for mut group in self.take(top, "consumer_groups", "consumer group", None) {
            let parent = Some(("consumer_group", group.key.clone(), group.name.clone()));
            document.plugins.extend(self.nested(&mut group, "plugins", "plugin", &parent));
            document.groups.push(group);
        }
        for mut upstream in self.take(top, "upstreams", "upstream", None) {
            let parent = Some(("upstream", upstream.key.clone(), upstream.name.clone()));
            document.targets.extend(self.nested(&mut upstream, "targets", "target", &parent));
            document.upstreams.push(upstream);
        }
        for mut certificate in self.take(top, "certificates", "certificate", None) {
            let parent = Some(("certificate", certificate.key.clone(), certificate.name.clone()));
            document.snis.extend(self.nested(&mut certificate, "snis", "sni", &parent));
            document.certificates.push(certificate);
        }
        self.flat(top, document);
    }

    /// What usually stands inside another entity, standing on its own.
    fn flat(&mut self, top: &mut Map<String, Value>, document: &mut KongDocument) {
        document.plugins.extend(self.take(top, "plugins", "plugin", None));
        document.plugins.extend(self.filters(top.shift_remove("filter_chains"), &None));
        document.acls.extend(self.take(top, "acls", "acl", None));
        document.targets.extend(self.take(top, "targets", "target", None));
        document.snis.extend(self.take(top, "snis", "sni", None));
        document.ca_certificates = self.take(top, "ca_certificates", "CA certificate", None);
        for kind in CREDENTIALS {
            let all = self.take(top, kind, singular(kind), None);
            document.credentials.extend(all.into_iter().map(|entity| (kind, entity)));
        }
    }

    /// Chains of WASM filters as plugins that nobody knows: what a filter does is in its code, which does not run here.
    fn filters(&mut self, chains: Option<Value>, parent: &Parent) -> Vec<KongEntity> {
        let Some(Value::Array(mut chains)) = chains else { return Vec::new() };
        for chain in chains.iter_mut().filter_map(Value::as_object_mut) {
            chain.shift_remove("filters");
            chain.insert("name".into(), "WASM filters".into());
        }
        self.entities(Value::Array(chains), "filter_chains", "plugin", parent)
    }

    fn rest(&mut self, mut top: Map<String, Value>) {
        if let Some(Value::Array(vaults)) = top.shift_remove("vaults") {
            for vault in vaults.iter().filter(|vault| vault["name"] != "env") {
                let label = format!("vault {}", vault["prefix"].as_str().unwrap_or("without a prefix"));
                let hint = "put its secrets into the environment and refer to them there";
                let line = dropped(&label, "", "left out").why("only the environment is asked for secrets");
                self.report.add(line.hint(hint));
            }
        }
        for (name, value) in &top {
            let message = match value {
                Value::Null => continue,
                Value::Array(items) if items.is_empty() => continue,
                Value::Array(items) => format!("{} objects left out", items.len()),
                _ => "left out".to_owned(),
            };
            let line = dropped("file", name, message).why("there is nothing here that it could become");
            self.report.add(line);
        }
    }

    fn take(
        &mut self,
        top: &mut Map<String, Value>,
        collection: &str,
        kind: &'static str,
        parent: Parent,
    ) -> Vec<KongEntity> {
        let Some(value) = top.shift_remove(collection) else { return Vec::new() };
        self.entities(value, collection, kind, &parent)
    }

    fn nested(
        &mut self,
        of: &mut KongEntity,
        collection: &str,
        kind: &'static str,
        parent: &Parent,
    ) -> Vec<KongEntity> {
        let Some(value) = of.take(collection) else { return Vec::new() };
        self.entities(value, collection, kind, parent)
    }

    fn entities(
        &mut self,
        value: Value,
        collection: &str,
        kind: &'static str,
        parent: &Parent,
    ) -> Vec<KongEntity> {
        let items = match value {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            Value::Object(members) if members.is_empty() => Vec::new(),
            other => {
                let message = format!("left out: found {other}, expected a list");
                self.report.add(dropped("file", collection, message));
                // One of them may guard access, as any plugin that nobody knows.
                let unreadable = || json!({ "name": "unreadable" });
                if kind == "plugin" { vec![unreadable()] } else { Vec::new() }
            }
        };
        items.into_iter().filter_map(|item| self.entity(item, collection, kind, parent)).collect()
    }

    fn entity(
        &mut self,
        item: Value,
        collection: &str,
        kind: &'static str,
        parent: &Parent,
    ) -> Option<KongEntity> {
        let mut fields = match item {
            Value::Object(fields) => fields,
            // A server name, and a plugin without settings, may be written as the name alone.
            Value::String(name) if matches!(kind, "sni" | "plugin" | "target") => {
                let field = if kind == "target" { "target" } else { "name" };
                Map::from_iter([(field.to_owned(), Value::String(name))])
            }
            other => {
                let message = format!("left out: found {other}, expected an object");
                self.report.add(dropped("file", collection, message));
                return None;
            }
        };
        if let Some(defaults) = self.defaults.get(kind.replace(' ', "_")).and_then(Value::as_object) {
            for (field, value) in defaults {
                fields.entry(field.clone()).or_insert_with(|| value.clone());
            }
        }
        let number = self.numbers.entry(kind).or_default();
        *number += 1;
        let text = |field: &str| fields.get(field).and_then(Value::as_str).map(str::to_owned);
        let key = text("id").unwrap_or_else(|| format!("{kind}#{number}"));
        let own = ["name", "username", "custom_id", "target", "group"].iter().find_map(|f| text(f));
        let secret = kind.ends_with("credential") || kind == "jwt secret";
        let of = parent.as_ref().map(|(kind, _, name)| format!(" of {} {name}", kind.replace('_', " ")));
        let name = match own {
            Some(name) if !secret => name,
            _ => text("id").unwrap_or_else(|| unnamed(kind, *number, &fields, parent)),
        };
        let label = match kind {
            // Names of these say little without what they belong to.
            "plugin" | "acl" | "target" | "sni" => format!("{kind} {name}{}", of.unwrap_or_default()),
            _ => format!("{kind} {name}"),
        };
        if let Some((field, key, _)) = parent {
            fields.insert((*field).to_owned(), json!(key));
        }
        self.report.object(&label);
        Some(KongEntity::new(label, name, key, fields))
    }
}

/// The field a child names its parent in, the parent's key and its name.
type Parent = Option<(&'static str, String, String)>;

/// What something without a name is called: after what it belongs to and where it leads.
fn unnamed(kind: &str, number: usize, fields: &Map<String, Value>, parent: &Parent) -> String {
    let place = ["paths", "hosts"].iter().find_map(|field| fields.get(*field)?.get(0)?.as_str());
    match (kind, parent, place) {
        ("route", Some((_, _, of)), Some(place)) => {
            format!("{of}{}{place}", if place.starts_with('/') { "" } else { "-" })
        }
        ("route", Some((_, _, of)), None) => format!("{of}-{number}"),
        (_, Some((_, _, of)), _) => format!("{number} of {of}"),
        ("route", None, Some(place)) => place.to_owned(),
        _ => number.to_string(),
    }
}

fn singular(kind: &'static str) -> &'static str {
    match kind {
        "keyauth_credentials" => "key-auth credential",
        "basicauth_credentials" => "basic-auth credential",
        "jwt_secrets" => "jwt secret",
        "hmacauth_credentials" => "hmac-auth credential",
        "oauth2_credentials" => "oauth2 credential",
        _ => "mtls-auth credential",
    }
}
