//! The table of keys of the ConfigMap, each with its effect or the reason why it has none.

mod class;
mod node;
mod others;

/// The effect of a key or flag.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum KeyEffect {
    /// A setting of the translation. The text adds to the name of the key, and may be empty.
    Used(&'static str),
    /// A setting of the node, by its dotted path in `yumen.yaml`.
    Node(&'static str),
    /// No effect, for this reason; clients and services see no difference.
    NoEffect(&'static str),
    /// Refused.
    Refused {
        /// The reason.
        reason: &'static str,
        /// Another way to the same effect.
        way_over: &'static str,
        /// Whether a protection is missing without it.
        guards: bool,
    },
}

/// A key of the ConfigMap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyRow {
    pub(crate) key: &'static str,
    pub(crate) effect: KeyEffect,
}

const fn used(key: &'static str) -> KeyRow {
    KeyRow { key, effect: KeyEffect::Used("") }
}

const fn noted(key: &'static str, note: &'static str) -> KeyRow {
    KeyRow { key, effect: KeyEffect::Used(note) }
}

const fn node(key: &'static str, path: &'static str) -> KeyRow {
    KeyRow { key, effect: KeyEffect::Node(path) }
}

const fn no_effect(key: &'static str, reason: &'static str) -> KeyRow {
    KeyRow { key, effect: KeyEffect::NoEffect(reason) }
}

const fn refused(key: &'static str, reason: &'static str, way_over: &'static str) -> KeyRow {
    KeyRow { key, effect: KeyEffect::Refused { reason, way_over, guards: false } }
}

const fn guard(key: &'static str, reason: &'static str, way_over: &'static str) -> KeyRow {
    KeyRow { key, effect: KeyEffect::Refused { reason, way_over, guards: true } }
}

/// A part of the table with its title.
pub(crate) struct KeyGroup {
    pub(crate) title: &'static str,
    pub(crate) rows: &'static [KeyRow],
}

/// All keys.
pub(crate) const KEY_GROUPS: [KeyGroup; 8] = [
    KeyGroup { title: "Rules for annotations", rows: class::POLICY },
    KeyGroup { title: "Defaults of annotations", rows: class::DEFAULTS },
    KeyGroup { title: "Fields, clients and compression", rows: class::HEADERS },
    KeyGroup { title: "TLS", rows: class::TLS },
    KeyGroup { title: "Authentication by a service", rows: class::AUTH },
    KeyGroup { title: "Connections and workers", rows: node::CONNECTIONS },
    KeyGroup { title: "Logs", rows: node::LOGS },
    KeyGroup { title: "Snippets, modules and traces", rows: others::OTHERS },
];

/// The row of a key.
pub(crate) fn find_key(key: &str) -> Option<&'static KeyRow> {
    KEY_GROUPS.iter().flat_map(|group| group.rows).find(|row| row.key == key)
}
