//! Plugins that a configuration may contain but this version does not implement, and the effect of their
//! absence.
//!
//! The table of plugins comes from the crate with the built-in ones.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::ServedTraffic;

/// Well-known members of an object: names and their JSON Schema types.
pub type MemberTypes = &'static [(&'static str, &'static str)];

/// The effect of a plugin's absence on access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingRole {
    /// Without the plugin, the same clients reach the same upstream and see nothing that the plugin hides.
    Harmless,
    /// Without the plugin, clients get access that it denies, reach an upstream that it protects, or see data
    /// that it hides.
    Guard,
    /// A guard that identifies the consumer.
    Authentication,
}

/// A plugin that a configuration may contain but this version does not implement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingPlugin {
    /// Name in the configuration.
    pub name: &'static str,
    /// Priority; higher runs first.
    pub priority: i32,
    /// The effect of its absence.
    pub role: MissingRole,
    /// The traffic that the plugin supports.
    pub serves: ServedTraffic,
    /// Members of its plugin metadata; empty if the plugin has no metadata.
    pub metadata: MemberTypes,
    /// Members of its settings in consumers; empty if consumers have none of their own form.
    pub consumer: MemberTypes,
}

impl MissingPlugin {
    /// The schema of the metadata, which admits further members. `None` if the plugin has no metadata.
    pub fn metadata_schema(&self) -> Option<Value> {
        open_schema(self.metadata)
    }

    /// The schema of the settings in consumers, which admits further members.
    pub fn consumer_schema(&self) -> Option<Value> {
        open_schema(self.consumer)
    }

    /// Whether the absence of the plugin grants access.
    pub fn guards(&self) -> bool {
        self.role != MissingRole::Harmless
    }

    /// Whether the plugin identifies the consumer.
    pub fn is_auth(&self) -> bool {
        self.role == MissingRole::Authentication
    }
}

/// An object with members of these types, and any others.
fn open_schema(members: MemberTypes) -> Option<Value> {
    let typed = |(name, kind): &(&str, &str)| ((*name).to_owned(), json!({ "type": kind }));
    let properties: Map<String, Value> = members.iter().map(typed).collect();
    (!properties.is_empty()).then(|| json!({ "type": "object", "properties": properties }))
}

/// All missing plugins, and those that may be absent by the node settings.
#[derive(Debug, Clone, Default)]
pub struct MissingPlugins {
    table: &'static [MissingPlugin],
    allowed: Arc<[Box<str>]>,
}

impl MissingPlugins {
    /// The plugins of a table; the absence of a guard is not accepted.
    pub fn of(table: &'static [MissingPlugin]) -> MissingPlugins {
        MissingPlugins { table, allowed: Arc::default() }
    }

    /// The same table, with the absence of these plugins accepted. Names outside the table become known.
    pub fn allowing<N: AsRef<str>>(self, names: &[N]) -> MissingPlugins {
        MissingPlugins { allowed: names.iter().map(|name| name.as_ref().into()).collect(), ..self }
    }

    /// The table entry with this name for routes, or for stream routes.
    pub fn get(&self, name: &str, on_streams: bool) -> Option<&'static MissingPlugin> {
        let serves = |one: &&MissingPlugin| match on_streams {
            true => one.serves.streams(),
            false => one.serves.http(),
        };
        self.table.iter().filter(serves).find(|one| one.name == name)
    }

    /// Whether the absence of this plugin is accepted.
    pub fn allows(&self, name: &str) -> bool {
        self.allowed.iter().any(|allowed| **allowed == *name)
    }

    /// Whether routes may contain this plugin.
    pub fn is_known(&self, name: &str) -> bool {
        self.get(name, false).is_some() || self.allows(name)
    }

    /// The names that routes may contain, those of the table first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let table = self.table.iter().filter(|one| one.serves.http()).map(|one| one.name);
        let is_new = |name: &&str| self.get(name, false).is_none();
        table.chain(self.allowed.iter().map(|name| &**name).filter(is_new))
    }

    /// The names in the table that stream routes may contain.
    pub fn stream_names(&self) -> impl Iterator<Item = &str> {
        self.table.iter().filter(|one| one.serves.streams()).map(|one| one.name)
    }
}

#[cfg(test)]
mod tests {
    use super::{MissingPlugin, MissingPlugins, MissingRole};
    use crate::ServedTraffic;

    const TABLE: &[MissingPlugin] = &[
        entry("log", 1, MissingRole::Harmless, ServedTraffic::Both),
        entry("opa", 2, MissingRole::Guard, ServedTraffic::Http),
        entry("split", 3, MissingRole::Guard, ServedTraffic::Streams),
    ];

    const fn entry(
        name: &'static str,
        priority: i32,
        role: MissingRole,
        serves: ServedTraffic,
    ) -> MissingPlugin {
        MissingPlugin { name, priority, role, serves, metadata: &[], consumer: &[] }
    }

    #[test]
    fn entries_are_found_by_name_on_the_routes_they_serve() {
        let missing = MissingPlugins::of(TABLE);
        let found = |name, on_streams| missing.get(name, on_streams).map(|one| one.priority);
        assert_eq!((found("log", false), found("log", true)), (Some(1), Some(1)));
        assert_eq!((found("opa", false), found("opa", true)), (Some(2), None));
        assert_eq!((found("split", false), found("split", true)), (None, Some(3)));
        assert_eq!(found("own", false), None);
    }

    #[test]
    fn allowed_names_are_known_even_outside_the_table() {
        let missing = MissingPlugins::of(TABLE).allowing(&["opa", "own"]);
        assert_eq!(missing.names().collect::<Vec<_>>(), ["log", "opa", "own"]);
        assert_eq!(missing.stream_names().collect::<Vec<_>>(), ["log", "split"]);
        assert!(missing.is_known("own") && missing.allows("opa") && !missing.allows("log"));
        assert!(!MissingPlugins::of(TABLE).is_known("own"));
    }
}
