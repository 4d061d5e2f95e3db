//! Plugins that a configuration may name and this version does not run, and the effect of their absence.
//!
//! Knows no concrete plugin: the table comes from the crate that holds the built-in ones.

use std::sync::Arc;

use crate::ServedTraffic;

/// The effect of a plugin's absence on access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingRole {
    /// The plugin observes or decorates: without it the same clients reach the same upstream and receive the
    /// same data.
    Harmless,
    /// Without the plugin, clients gain access that it denies, reach an upstream that it shields, or receive
    /// data that it hides.
    Guard,
    /// A guard that identifies the client.
    Authentication {
        /// Whether consumers and credentials contain settings of the plugin: those identify a consumer and
        /// guard nothing.
        has_credentials: bool,
    },
}

/// A plugin that a configuration may name and this version does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingPlugin {
    /// The name of the plugin.
    pub name: &'static str,
    /// Position in the order: higher runs first.
    pub priority: i32,
    /// The effect of its absence.
    pub role: MissingRole,
    /// The routes that may name the plugin.
    pub serves: ServedTraffic,
}

impl MissingPlugin {
    /// Whether the absence opens access.
    pub fn guards(&self) -> bool {
        self.role != MissingRole::Harmless
    }

    /// Whether the plugin identifies the client.
    pub fn is_auth(&self) -> bool {
        matches!(self.role, MissingRole::Authentication { .. })
    }

    /// Whether consumers and credentials contain settings of the plugin.
    pub fn has_credentials(&self) -> bool {
        matches!(self.role, MissingRole::Authentication { has_credentials: true })
    }
}

/// All missing plugins, and those that the node is configured to run without.
#[derive(Debug, Clone, Default)]
pub struct MissingPlugins {
    table: &'static [MissingPlugin],
    allowed: Arc<[Box<str>]>,
}

impl MissingPlugins {
    /// The plugins of a table. The node runs without none of those that guard.
    pub fn of(table: &'static [MissingPlugin]) -> MissingPlugins {
        MissingPlugins { table, allowed: Arc::default() }
    }

    /// The plugins of a table, where the node is configured to run without these, guards included. Names
    /// outside the table are added.
    pub fn allowing<N: AsRef<str>>(self, names: &[N]) -> MissingPlugins {
        MissingPlugins { allowed: names.iter().map(|name| name.as_ref().into()).collect(), ..self }
    }

    /// Returns the entry of this name for routes, or for stream routes.
    pub fn get(&self, name: &str, on_streams: bool) -> Option<&'static MissingPlugin> {
        let serves = |one: &&MissingPlugin| match on_streams {
            true => one.serves.streams(),
            false => one.serves.http(),
        };
        self.table.iter().filter(serves).find(|one| one.name == name)
    }

    /// Whether the node is configured to run without this plugin.
    pub fn allows(&self, name: &str) -> bool {
        self.allowed.iter().any(|allowed| **allowed == *name)
    }

    /// Whether routes may name this plugin.
    pub fn is_known(&self, name: &str) -> bool {
        self.get(name, false).is_some() || self.allows(name)
    }

    /// The names that routes may use, those of the table first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let table = self.table.iter().filter(|one| one.serves.http()).map(|one| one.name);
        let is_new = |name: &&str| self.get(name, false).is_none();
        table.chain(self.allowed.iter().map(|name| &**name).filter(is_new))
    }
}

#[cfg(test)]
mod tests {
    use super::{MissingPlugin, MissingPlugins, MissingRole};
    use crate::ServedTraffic;

    const TABLE: &[MissingPlugin] = &[
        MissingPlugin { name: "log", priority: 1, role: MissingRole::Harmless, serves: ServedTraffic::Both },
        MissingPlugin { name: "opa", priority: 2, role: MissingRole::Guard, serves: ServedTraffic::Http },
        MissingPlugin {
            name: "split",
            priority: 3,
            role: MissingRole::Guard,
            serves: ServedTraffic::Streams,
        },
    ];

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
        assert!(missing.is_known("own") && missing.allows("opa") && !missing.allows("log"));
        assert!(!MissingPlugins::of(TABLE).is_known("own"));
    }
}
