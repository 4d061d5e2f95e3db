//! Facts of an object: its references to others, and its unique values.
//!
//! Reads stored text without validating it.

use serde_json::{Map, Value};
use yumen_config::resource::{PluginRole, ReferencePlace, ReferenceScan, native_upstream_ids, upstreams_in};
use yumen_config::{Kind, schema};
use yumen_plugin::PluginRegistry;
use yumen_store::ResourceKey;

/// One fact of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ObjectFact {
    /// The object requires this other object.
    Uses(ResourceKey),
    /// A plugin of the object requires this other object.
    UsesInPlugin(ResourceKey),
    /// A consumer is found by this value of the plugin's key setting.
    FoundBy {
        /// The plugin.
        plugin: String,
        /// The value.
        value: String,
    },
    /// The plugin runs for every request.
    RunsEverywhere(String),
    /// A limit shares the counters of a group.
    LimitsGroup {
        /// The group.
        group: String,
        /// All settings of the limit, with defaults, in one form.
        settings: String,
    },
}

/// The plugin whose limits form groups.
pub(crate) const GROUPED: &str = "limit-count";

/// The kinds that objects refer to by a top-level member, with that member.
pub(crate) fn required_references() -> impl Iterator<Item = (&'static str, Kind)> {
    let rules =
        Kind::ALL.into_iter().filter_map(|kind| Some((kind.descriptor().references.rule.as_ref()?, kind)));
    rules.filter(|(rule, _)| rule.position == ReferencePlace::Object).map(|(rule, kind)| (rule.field, kind))
}

/// The member in `tls` of an upstream with the id of its client certificate.
const CERTIFICATE: &str = "client_cert_id";

/// All facts in the stored text of `key`.
pub(crate) fn of_text(registry: &PluginRegistry, key: &ResourceKey, json: &str) -> Vec<ObjectFact> {
    let is_read = match key.kind.descriptor().references.scan {
        ReferenceScan::Never => false,
        // A text search is cheaper than parsing; a false hit costs only the parsing.
        ReferenceScan::Containing(field) => json.contains(field),
        ReferenceScan::Always => true,
    };
    if !is_read {
        return Vec::new();
    }
    // An unreadable text has no facts.
    serde_json::from_str(json).map(|object| of(registry, key.kind, &object)).unwrap_or_default()
}

/// All facts of an object of this kind.
pub(crate) fn of(registry: &PluginRegistry, kind: Kind, object: &Map<String, Value>) -> Vec<ObjectFact> {
    let referred =
        |(field, kind): (&str, Kind)| Some(ObjectFact::Uses(ResourceKey::new(kind, id_in(object, field)?)));
    let mut facts: Vec<ObjectFact> = required_references().filter_map(referred).collect();
    for (path, upstream) in upstreams_in(kind, object) {
        let Some(id) = certificate_of(upstream) else { continue };
        let key = ResourceKey::new(Kind::Ssls, id);
        facts.push(if path.starts_with("plugins.") {
            ObjectFact::UsesInPlugin(key)
        } else {
            ObjectFact::Uses(key)
        });
    }
    let native = native_upstream_ids(object).filter_map(|member| id_in(member, "upstream_id"));
    facts.extend(native.map(|id| ObjectFact::Uses(ResourceKey::new(Kind::Upstreams, id))));
    let protocol = object.get("protocol").and_then(Value::as_object);
    if let Some(id) = protocol.and_then(|protocol| id_in(protocol, "superior_id")) {
        facts.push(ObjectFact::Uses(ResourceKey::new(Kind::StreamRoutes, id)));
    }
    let Some(plugins) = object.get("plugins").and_then(Value::as_object) else {
        return facts;
    };
    in_plugins(plugins, &mut facts);
    facts.extend(group_of(registry, plugins));
    match kind.descriptor().plugins {
        PluginRole::Consumer | PluginRole::Credential => facts.extend(found_by(registry, plugins)),
        PluginRole::AllRequests => facts.extend(plugins.keys().cloned().map(ObjectFact::RunsEverywhere)),
        PluginRole::None | PluginRole::Requests | PluginRole::Streams => {}
    }
    facts
}

fn in_plugins(plugins: &Map<String, Value>, facts: &mut Vec<ObjectFact>) {
    let rules = plugins.get("traffic-split").and_then(|split| split.get("rules")?.as_array());
    let weighted = |rule: &'_ Value| rule.get("weighted_upstreams").and_then(Value::as_array).cloned();
    for upstream in rules.into_iter().flatten().filter_map(weighted).flatten() {
        let id = upstream.as_object().and_then(|upstream| id_in(upstream, "upstream_id"));
        facts.extend(id.map(|id| ObjectFact::UsesInPlugin(ResourceKey::new(Kind::Upstreams, id))));
    }
    let transcode = plugins.get("grpc-transcode").and_then(Value::as_object);
    let proto = transcode.and_then(|transcode| id_in(transcode, "proto_id"));
    facts.extend(proto.map(|id| ObjectFact::UsesInPlugin(ResourceKey::new(Kind::Protos, id))));
}

/// The group of the limit among these plugins.
fn group_of(registry: &PluginRegistry, plugins: &Map<String, Value>) -> Option<ObjectFact> {
    let settings = plugins.get(GROUPED)?.as_object()?;
    let group = settings.get("group")?.as_str()?;
    let mut settings = settings.clone();
    settings.shift_remove("_meta");
    let mut settings = Value::Object(settings);
    // Settings with and without a default are equal. An invalid object has been refused before.
    if let Some(registered) = registry.get(GROUPED) {
        let _ = schema::validate(registered.schema(), &mut settings);
    }
    sort_members(&mut settings);
    Some(ObjectFact::LimitsGroup { group: group.to_owned(), settings: settings.to_string() })
}

/// Sorts members at every level, so that equal objects have equal texts.
fn sort_members(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(sort_members),
        Value::Object(members) => {
            members.sort_keys();
            members.values_mut().for_each(sort_members);
        }
        _ => {}
    }
}

fn found_by(registry: &PluginRegistry, plugins: &Map<String, Value>) -> Vec<ObjectFact> {
    let fact = |(plugin, settings): (&String, &Value)| {
        let value = settings.get(key_field(registry, plugin)?)?.as_str()?;
        Some(ObjectFact::FoundBy { plugin: plugin.clone(), value: value.to_owned() })
    };
    plugins.iter().filter_map(fact).collect()
}

/// The setting of an authentication plugin that identifies consumers.
pub(crate) fn key_field(registry: &PluginRegistry, plugin: &str) -> Option<&'static str> {
    registry.get(plugin)?.kind.consumer.map(|consumer| consumer.key_field)
}

/// The id of an upstream's client certificate.
pub(crate) fn certificate_of(upstream: &Map<String, Value>) -> Option<String> {
    id_in(upstream.get("tls")?.as_object()?, CERTIFICATE)
}

/// An id as text; it may be written as a number.
pub(crate) fn id_in(object: &Map<String, Value>, field: &str) -> Option<String> {
    match object.get(field)? {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}
