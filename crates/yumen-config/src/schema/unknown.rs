//! Members that a schema admits and does not name: they have no effect.

use std::cell::Cell;

use serde_json::{Map, Value};

use super::{patterns, validate};
use crate::hint::closest;

/// The most members that one search returns.
const MEMBERS_MAX: usize = 32;

thread_local! {
    static IS_NOTICED: Cell<bool> = const { Cell::new(false) };
}

/// A member without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownMember {
    /// Dotted path of the member.
    pub path: String,
    /// The reason why it has no effect.
    pub message: String,
    /// The name that was probably meant.
    pub meant: Option<String>,
}

/// Runs `work` and returns whether a validation in it met an object with a member that its schema does not name. The
/// member may still be named by another branch of the schema, which [`unknown_members`] decides.
pub fn notices_unknown_members<T>(work: impl FnOnce() -> T) -> (T, bool) {
    let outer = IS_NOTICED.replace(false);
    let done = work();
    let is_noticed = IS_NOTICED.get();
    IS_NOTICED.set(outer || is_noticed);
    (done, is_noticed)
}

pub(super) fn notice() {
    IS_NOTICED.set(true);
}

/// The members of a value, at any depth, that have no effect by a schema: no part of it names them, or only a part that
/// the other members exclude. Members that the schema forbids are left to [`validate`].
pub fn unknown_members(schema: &Value, instance: &Value) -> Vec<UnknownMember> {
    let mut complete = instance.clone();
    // Conditions such as `policy: redis` depend on defaults. A value that is refused is searched as written.
    let instance = match validate(schema, &mut complete) {
        Ok(()) => &complete,
        Err(_) => instance,
    };
    let mut found = Vec::new();
    search(&[schema], instance, "", &mut found);
    found
}

/// The schema nodes that apply to one value.
#[derive(Default)]
struct ApplicableNodes<'s> {
    /// Those whose conditions hold.
    nodes: Vec<&'s Map<String, Value>>,
    /// Those of branches that the value excludes.
    excluded: Vec<&'s Map<String, Value>>,
}

impl<'s> ApplicableNodes<'s> {
    fn add(&mut self, schema: &'s Value, instance: &Value) {
        let Value::Object(node) = schema else { return };
        self.nodes.push(node);
        for branches in ["allOf", "anyOf", "oneOf"] {
            for branch in node.get(branches).and_then(Value::as_array).into_iter().flatten() {
                self.add(branch, instance);
            }
        }
        if let Some(condition) = node.get("if") {
            let holds = validate(condition, &mut instance.clone()).is_ok();
            let (taken, other) = if holds { ("then", "else") } else { ("else", "then") };
            if let Some(taken) = node.get(taken) {
                self.add(taken, instance);
            }
            if let Some(other) = node.get(other) {
                self.exclude(other);
            }
        }
    }

    fn exclude(&mut self, schema: &'s Value) {
        let Value::Object(node) = schema else { return };
        self.excluded.push(node);
        ["then", "else"].into_iter().filter_map(|branch| node.get(branch)).for_each(|one| self.exclude(one));
    }

    fn names(&self) -> impl Iterator<Item = &'s str> {
        properties(&self.nodes).flat_map(|properties| properties.keys()).map(String::as_str)
    }

    /// Whether every member of the value has a meaning: nothing names members, or a value describes all others.
    fn is_open(&self) -> bool {
        let is_open = |node: &&Map<String, Value>| {
            node.get("additionalProperties").is_some_and(|others| *others != Value::Bool(false))
        };
        properties(&self.nodes).next().is_none() || self.nodes.iter().any(is_open)
    }

    /// The schemas of one member.
    fn of_member(&self, name: &str) -> Vec<&'s Value> {
        let named = properties(&self.nodes).filter_map(|properties| properties.get(name));
        let matching = self.nodes.iter().filter_map(|node| node.get("patternProperties")?.as_object());
        let matching = matching.flatten().filter(|(pattern, _)| {
            *pattern == ".*" || patterns::compiled(pattern).is_some_and(|regex| regex.is_match(name))
        });
        let schemas: Vec<&Value> = named.chain(matching.map(|(_, schema)| schema)).collect();
        match schemas.is_empty() {
            true => self.nodes.iter().filter_map(|node| node.get("additionalProperties")).collect(),
            false => schemas,
        }
    }

    /// The schemas of an item.
    fn of_item(&self, at: usize) -> Vec<&'s Value> {
        let of_item = |node: &&'s Map<String, Value>| match node.get("items") {
            Some(Value::Array(list)) => list.get(at),
            all => all,
        };
        self.nodes.iter().filter_map(of_item).collect()
    }
}

fn properties<'s>(nodes: &[&'s Map<String, Value>]) -> impl Iterator<Item = &'s Map<String, Value>> {
    nodes.iter().filter_map(|node| node.get("properties")?.as_object())
}

fn search(schemas: &[&Value], instance: &Value, path: &str, found: &mut Vec<UnknownMember>) {
    let mut applicable = ApplicableNodes::default();
    for schema in schemas {
        applicable.add(schema, instance);
    }
    match instance {
        Value::Object(members) => search_members(&applicable, members, path, found),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                search(&applicable.of_item(at), item, &format!("{path}[{at}]"), found);
            }
        }
        _ => {}
    }
}

fn search_members(
    applicable: &ApplicableNodes<'_>,
    members: &Map<String, Value>,
    path: &str,
    found: &mut Vec<UnknownMember>,
) {
    let is_open = applicable.is_open();
    for (name, member) in members {
        if found.len() >= MEMBERS_MAX {
            return;
        }
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match applicable.of_member(name) {
            // Admitted by `true`, or refused by `false`, which validation reports.
            schemas if schemas.iter().any(|schema| schema.is_boolean()) => {}
            schemas if schemas.is_empty() && !is_open => found.push(unknown(applicable, name, path)),
            schemas => search(&schemas, member, &path, found),
        }
    }
}

fn unknown(applicable: &ApplicableNodes<'_>, name: &str, path: String) -> UnknownMember {
    if properties(&applicable.excluded).any(|properties| properties.contains_key(name)) {
        let message = format!("\"{name}\" has no effect together with the other settings");
        return UnknownMember { path, message, meant: None };
    }
    let meant = closest(name, applicable.names()).map(str::to_owned);
    UnknownMember { path, message: format!("unknown member \"{name}\" has no effect"), meant }
}
