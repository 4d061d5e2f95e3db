//! The file as flat lists of entities: defaults filled in, references to the environment resolved.
//! Must not know the meaning of an entity.

mod parse;

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::deck::DeckTemplates;
use super::entity::{KongEntity, UNREADABLE, UNSET_FIELDS};
use super::environment::{KongEnvironment, Lookup};
use crate::report::{ImportReport, dropped};

/// Collections of credentials.
pub(super) const CREDENTIALS: [&str; 6] = [
    "keyauth_credentials",
    "basicauth_credentials",
    "jwt_secrets",
    "hmacauth_credentials",
    "oauth2_credentials",
    "mtls_auth_credentials",
];

/// All entities of a file. An entity refers to its parents by fields.
#[derive(Debug, Default)]
pub(super) struct KongDocument {
    pub(super) services: Vec<KongEntity>,
    pub(super) routes: Vec<KongEntity>,
    pub(super) upstreams: Vec<KongEntity>,
    pub(super) targets: Vec<KongEntity>,
    pub(super) consumers: Vec<KongEntity>,
    pub(super) credentials: Vec<KongCredential>,
    pub(super) acls: Vec<KongEntity>,
    pub(super) groups: Vec<KongEntity>,
    pub(super) plugins: Vec<KongEntity>,
    pub(super) certificates: Vec<KongEntity>,
    pub(super) snis: Vec<KongEntity>,
    pub(super) ca_certificates: Vec<KongEntity>,
    /// Settings shared by several plugins, by name.
    pub(super) plugin_configs: Map<String, Value>,
    /// Format 3.0: a path is a pattern only if it begins with a tilde.
    pub(super) marks_patterns: bool,
    /// Whether passwords in the file are hashes.
    pub(super) is_hashed: bool,
}

/// A credential and its collection.
#[derive(Debug)]
pub(super) struct KongCredential {
    pub(super) collection: &'static str,
    pub(super) entity: KongEntity,
}

/// Parses the text, YAML or JSON.
pub(super) fn read(
    text: &str,
    lookup: Lookup<'_>,
    report: &mut ImportReport,
) -> Result<KongDocument, String> {
    // Editors write a byte order mark, which begins a document of its own for the parser.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (marked, templates) = DeckTemplates::mark(text);
    let mut value = parse::parse(&marked, !templates.is_empty(), report)?;
    if !value.is_object() {
        let found = parse::kind_of(&value);
        return Err(format!(
            "found {found}, expected an object with _format_version and lists such as services"
        ));
    }
    let version = version(&value)?;
    let environment = KongEnvironment::new(lookup, &value, templates);
    environment.resolve(&mut value, report);
    let Value::Object(mut top) = value else { return Err("a file of Kong is an object of lists".into()) };
    let mut document = KongDocument {
        marks_patterns: version >= 3.0,
        // Kong writes `_transform: false` into dumps whose passwords are hashed.
        is_hashed: top.shift_remove("_transform") == Some(Value::Bool(false)),
        ..KongDocument::default()
    };
    for name in ["_format_version", "_workspace", "_comment"] {
        top.shift_remove(name);
    }
    // decK's extension: settings that plugins share by name.
    if let Some(Value::Object(configs)) = top.shift_remove("_plugin_configs") {
        document.plugin_configs = configs;
    }
    let (defaults, select_tags) = info(&mut top, report);
    let mut reader = KongReader { defaults, select_tags, report, numbers: HashMap::new() };
    reader.collections(&mut top, &mut document);
    reader.rest(top);
    Ok(document)
}

/// decK's extension: defaults for entities that omit a field, and tags of all entities.
fn info(top: &mut Map<String, Value>, report: &mut ImportReport) -> (Value, Vec<Value>) {
    let fields = match top.shift_remove("_info") {
        Some(Value::Object(fields)) => fields,
        _ => return (Value::Null, Vec::new()),
    };
    let mut info = KongEntity::new("file".into(), String::new(), String::new(), Map::new());
    info.set("_info", Value::Object(fields));
    let Some(mut info) = info.child("_info", report) else { return (Value::Null, Vec::new()) };
    let defaults = info.take("defaults").unwrap_or_default();
    let select_tags = info.texts("select_tags", report).into_iter().map(Value::String).collect();
    let why = "the import reads this file alone, so it finds nothing by tags in a gateway";
    info.skip("default_lookup_tags", &Value::Null, why, report);
    info.finish(report);
    (defaults, select_tags)
}

fn version(value: &Value) -> Result<f64, String> {
    let declared = value.get("_format_version").unwrap_or(&Value::Null);
    let number = match declared {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_f64(),
        _ => None,
    };
    // A later format may give other meanings to known fields.
    let known = number.filter(|number| (1.0..4.0).contains(number));
    known.ok_or_else(|| {
        if declared.is_null() {
            return "the file has no _format_version, which Kong and decK require; add the line _format_version: \"3.0\" at \
                    its top for a file of Kong 3, or \"1.1\" for one of an older Kong"
                .to_owned();
        }
        format!(
            "this is no file of Kong: _format_version is {declared}; \"1.1\", \"2.1\" and \"3.0\" are known"
        )
    })
}

impl KongDocument {
    /// Reports the fields that no converter has taken.
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
        let credentials = self.credentials.into_iter().map(|credential| credential.entity);
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

    /// Resolves a foreign key: a name, an id, or an object with either.
    pub(super) fn find(&self, reference: &Value) -> Option<usize> {
        let text = match reference {
            Value::String(text) => text.as_str(),
            other => ["id", "name", "username"].iter().find_map(|field| other[field].as_str())?,
        };
        self.0.get(text).copied()
    }

    /// Takes a foreign key from an entity and resolves it. `Err` contains the key if it has no target.
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
    /// Tags that decK adds to every entity.
    select_tags: Vec<Value>,
    report: &'r mut ImportReport,
    /// Entities of each kind so far, to number those without a name.
    numbers: HashMap<&'static str, usize>,
}

impl KongReader<'_> {
    fn collections(&mut self, top: &mut Map<String, Value>, document: &mut KongDocument) {
        for mut service in self.take(top, "services", "service") {
            let parent = ParentEntity::of("service", &service);
            let routes = self.nested(&mut service, "routes", "route", &parent);
            document.routes.extend(routes);
            document.plugins.extend(self.nested(&mut service, "plugins", "plugin", &parent));
            document.plugins.extend(self.filters(service.take("filter_chains"), Some(&parent)));
            document.services.push(service);
        }
        // After the nested ones: routes of both places may have plugins.
        document.routes.extend(self.take(top, "routes", "route"));
        for at in 0..document.routes.len() {
            let route = &mut document.routes[at];
            let parent = ParentEntity::of("route", route);
            let plugins = self.nested(route, "plugins", "plugin", &parent);
            document.plugins.extend(plugins);
            let chains = route.take("filter_chains");
            document.plugins.extend(self.filters(chains, Some(&parent)));
        }
        for mut consumer in self.take(top, "consumers", "consumer") {
            let parent = ParentEntity::of("consumer", &consumer);
            document.plugins.extend(self.nested(&mut consumer, "plugins", "plugin", &parent));
            document.acls.extend(self.nested(&mut consumer, "acls", "acl", &parent));
            for collection in CREDENTIALS {
                let all = self.nested(&mut consumer, collection, singular(collection), &parent);
                document
                    .credentials
                    .extend(all.into_iter().map(|entity| KongCredential { collection, entity }));
            }
            document.consumers.push(consumer);
        }
        for mut group in self.take(top, "consumer_groups", "consumer group") {
            let parent = ParentEntity::of("consumer_group", &group);
            document.plugins.extend(self.nested(&mut group, "plugins", "plugin", &parent));
            document.groups.push(group);
        }
        for mut upstream in self.take(top, "upstreams", "upstream") {
            let parent = ParentEntity::of("upstream", &upstream);
            document.targets.extend(self.nested(&mut upstream, "targets", "target", &parent));
            document.upstreams.push(upstream);
        }
        for mut certificate in self.take(top, "certificates", "certificate") {
            let parent = ParentEntity::of("certificate", &certificate);
            document.snis.extend(self.nested(&mut certificate, "snis", "sni", &parent));
            document.certificates.push(certificate);
        }
        self.flat(top, document);
    }

    /// Collects entities at the top level that are usually nested.
    fn flat(&mut self, top: &mut Map<String, Value>, document: &mut KongDocument) {
        document.plugins.extend(self.take(top, "plugins", "plugin"));
        document.plugins.extend(self.filters(top.shift_remove("filter_chains"), None));
        document.acls.extend(self.take(top, "acls", "acl"));
        document.targets.extend(self.take(top, "targets", "target"));
        document.snis.extend(self.take(top, "snis", "sni"));
        document.ca_certificates = self.take(top, "ca_certificates", "CA certificate");
        for collection in CREDENTIALS {
            let all = self.take(top, collection, singular(collection));
            document.credentials.extend(all.into_iter().map(|entity| KongCredential { collection, entity }));
        }
    }

    /// Chains of WASM filters as unknown plugins: the behaviour of a filter is in its code, which does not run here.
    fn filters(&mut self, chains: Option<Value>, parent: Option<&ParentEntity>) -> Vec<KongEntity> {
        let Some(Value::Array(mut chains)) = chains else { return Vec::new() };
        for chain in chains.iter_mut().filter_map(Value::as_object_mut) {
            // The settings of a filter cannot be understood, so they are not reported field by field.
            chain.shift_remove("filters");
            chain.insert("name".into(), "WASM filters".into());
        }
        self.entities(Value::Array(chains), "filter_chains", "plugin", parent)
    }

    fn rest(&mut self, mut top: Map<String, Value>) {
        if let Some(Value::Array(vaults)) = top.shift_remove("vaults") {
            // The vault `env` is the environment, whose references have been resolved.
            for vault in vaults.iter().filter(|vault| vault["name"] != "env") {
                let label = format!("vault {}", vault["prefix"].as_str().unwrap_or("without a prefix"));
                let hint = "put its secrets into the environment and refer to them there";
                let line = dropped(&label, "", "left out").why("only the environment is asked for secrets");
                self.report.add(line.hint(hint));
            }
        }
        for (name, value) in &top {
            let message = match value {
                // An empty collection loses nothing.
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
    ) -> Vec<KongEntity> {
        let Some(value) = top.shift_remove(collection) else { return Vec::new() };
        self.entities(value, collection, kind, None)
    }

    fn nested(
        &mut self,
        of: &mut KongEntity,
        collection: &str,
        kind: &'static str,
        parent: &ParentEntity,
    ) -> Vec<KongEntity> {
        let Some(value) = of.take(collection) else { return Vec::new() };
        self.entities(value, collection, kind, Some(parent))
    }

    fn entities(
        &mut self,
        value: Value,
        collection: &str,
        kind: &'static str,
        parent: Option<&ParentEntity>,
    ) -> Vec<KongEntity> {
        let items = match value {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            // Lua tools write an empty list as an empty object.
            Value::Object(members) if members.is_empty() => Vec::new(),
            other => {
                let message = format!("left out: found {other}, expected a list");
                self.report.add(dropped("file", collection, message));
                if kind == "plugin" { vec![json!({ "name": UNREADABLE })] } else { Vec::new() }
            }
        };
        items.into_iter().filter_map(|item| self.entity(item, collection, kind, parent)).collect()
    }

    fn entity(
        &mut self,
        item: Value,
        collection: &str,
        kind: &'static str,
        parent: Option<&ParentEntity>,
    ) -> Option<KongEntity> {
        let mut fields = match item {
            Value::Object(fields) => fields,
            // The name alone stands for a server name, and for a plugin or target without settings.
            Value::String(name) if matches!(kind, "sni" | "plugin" | "target") => {
                let field = if kind == "target" { "target" } else { "name" };
                Map::from_iter([(field.to_owned(), Value::String(name))])
            }
            other => {
                let message = format!("left out: found {other}, expected an object");
                self.report.add(dropped("file", collection, message));
                if kind != "plugin" {
                    return None;
                }
                Map::from_iter([("name".to_owned(), json!(UNREADABLE))])
            }
        };
        if let Some(defaults) = self.defaults.get(kind.replace(' ', "_")).and_then(Value::as_object) {
            for (field, value) in defaults {
                // A field that is present wins over the default.
                fields.entry(field.clone()).or_insert_with(|| value.clone());
            }
            if defaults.contains_key(UNSET_FIELDS) {
                fields.insert(UNSET_FIELDS.to_owned(), defaults[UNSET_FIELDS].clone());
            }
        }
        self.add_tags(kind, &mut fields);
        let number = self.numbers.entry(kind).or_default();
        *number += 1;
        let text = |field: &str| fields.get(field).and_then(Value::as_str).map(str::to_owned);
        // Entities without an id get a key of their own, so that nested ones find their parent.
        let key = text("id").unwrap_or_else(|| format!("{kind}#{number}"));
        let given = ["name", "username", "custom_id", "target", "group"].iter().find_map(|f| text(f));
        // The name of a credential may be its key, which must not appear in the report.
        let secret = kind.ends_with("credential") || kind == "jwt secret";
        let of = parent.map(|parent| format!(" of {} {}", parent.field.replace('_', " "), parent.name));
        let name = match given {
            Some(name) if !secret => name,
            _ => text("id").unwrap_or_else(|| unnamed(kind, *number, &fields, parent)),
        };
        let label = match kind {
            // These names are ambiguous without their parent.
            "plugin" | "acl" | "target" | "sni" => format!("{kind} {name}{}", of.unwrap_or_default()),
            _ => format!("{kind} {name}"),
        };
        if let Some(parent) = parent {
            // Nested entities then look like those at the top level.
            fields.insert(parent.field.to_owned(), json!(parent.key));
        }
        self.report.object(&label);
        Some(KongEntity::new(label, name, key, fields))
    }
}

impl KongReader<'_> {
    /// Adds decK's tags to an entity whose resource has labels.
    fn add_tags(&self, kind: &str, fields: &mut Map<String, Value>) {
        if self.select_tags.is_empty() || !["service", "route", "consumer", "upstream"].contains(&kind) {
            return;
        }
        let tags = fields.entry("tags").or_insert_with(|| Value::Array(Vec::new()));
        if tags.is_null() {
            *tags = Value::Array(Vec::new());
        }
        if let Some(tags) = tags.as_array_mut() {
            tags.extend(self.select_tags.iter().cloned());
        }
    }
}

/// The entity around a nested one.
struct ParentEntity {
    /// Field of the child that refers to the parent.
    field: &'static str,
    key: String,
    name: String,
}

impl ParentEntity {
    fn of(field: &'static str, entity: &KongEntity) -> ParentEntity {
        ParentEntity { field, key: entity.key.clone(), name: entity.name.clone() }
    }
}

/// A name for an entity without one, from its parent and its first path or host.
fn unnamed(kind: &str, number: usize, fields: &Map<String, Value>, parent: Option<&ParentEntity>) -> String {
    let first_value = ["paths", "hosts"].iter().find_map(|field| fields.get(*field)?.get(0)?.as_str());
    match (kind, parent.map(|parent| &parent.name), first_value) {
        ("route", Some(parent), Some(first_value)) => {
            format!("{parent}{}{first_value}", if first_value.starts_with('/') { "" } else { "-" })
        }
        ("route", Some(parent), None) => format!("{parent}-{number}"),
        (_, Some(parent), _) => format!("{number} of {parent}"),
        ("route", None, Some(first_value)) => first_value.to_owned(),
        _ => number.to_string(),
    }
}

fn singular(collection: &str) -> &'static str {
    match collection {
        "keyauth_credentials" => "key-auth credential",
        "basicauth_credentials" => "basic-auth credential",
        "jwt_secrets" => "jwt secret",
        "hmacauth_credentials" => "hmac-auth credential",
        "oauth2_credentials" => "oauth2 credential",
        _ => "mtls-auth credential",
    }
}
