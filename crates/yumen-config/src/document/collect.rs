//! Takes a document apart while it is parsed, one item at a time, so that a large table never stands
//! in memory as a tree.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::{Map, Value};
use yumen_base::Problem;

use super::{Lookup, substitute};
use crate::hint::closest;
use crate::resource::{Kind, Resource};

/// Gathers resources and problems.
pub(super) struct Collector<'l> {
    substitutes: Option<Lookup<'l>>,
    /// Whether a member `<<` is YAML's merge key.
    merges: bool,
    resources: Vec<Resource>,
    problems: Vec<Problem>,
    seen: HashSet<(Kind, Arc<str>)>,
}

impl<'l> Collector<'l> {
    pub(super) fn new(substitutes: Option<Lookup<'l>>, merges: bool) -> Collector<'l> {
        Collector { substitutes, merges, resources: Vec::new(), problems: Vec::new(), seen: HashSet::new() }
    }

    pub(super) fn finish(self) -> (Vec<Resource>, Vec<Problem>) {
        (self.resources, self.problems)
    }

    fn unknown_key(&mut self, key: &str) {
        // The list of plugins to load, and versions of the API-driven mode, say nothing to this node.
        if key == "plugins" || key == "stream_plugins" || key.ends_with("_conf_version") {
            return;
        }
        let problem = Problem::warning("file", key, format!("unknown section \"{key}\" is ignored"));
        self.problems.push(match closest(key, Kind::ALL.map(Kind::name)) {
            Some(name) => problem.hint(format!("did you mean \"{name}\"?")),
            None => problem,
        });
    }

    fn item(&mut self, kind: Kind, index: usize, mut item: Value) {
        let place = format!("{}[{index}]", kind.name());
        if let Some(lookup) = self.substitutes
            && let Err(problem) = substitute::resolve(&mut item, lookup)
        {
            self.problems.push(Problem { object: named(kind, &item).unwrap_or(place), ..problem });
            return;
        }
        if self.merges {
            substitute::merge_keys(&mut item);
        }
        let Value::Object(mut members) = item else {
            self.problems.push(Problem::error(place, "", "an item must be an object"));
            return;
        };
        members.shift_remove("modifiedIndex");
        members.shift_remove("createdIndex");
        match identify(kind, &mut members) {
            Ok((kind, id)) => self.keep(kind, id, members),
            Err(problem) => self.problems.push(Problem { object: place, ..problem }),
        }
    }

    fn keep(&mut self, kind: Kind, id: String, members: Map<String, Value>) {
        let id: Arc<str> = id.into();
        if !self.seen.insert((kind, id.clone())) {
            let object = format!("{}/{id}", kind.name());
            let problem = Problem::error(object, "id", "this id was used before; the first one is kept");
            self.problems.push(problem);
            return;
        }
        let json = Value::Object(members).to_string().into();
        self.resources.push(Resource { kind, id, json });
    }
}

fn named(kind: Kind, item: &Value) -> Option<String> {
    let field = if kind == Kind::Consumers { "username" } else { "id" };
    match item.get(field)? {
        Value::String(id) => Some(format!("{}/{id}", kind.name())),
        Value::Number(id) => Some(format!("{}/{id}", kind.name())),
        _ => None,
    }
}

/// The kind and id an item is kept under. Credentials may ride among the consumers.
fn identify(kind: Kind, members: &mut Map<String, Value>) -> Result<(Kind, String), Problem> {
    let id = written_id(members)?;
    let (kind, id) = match (kind, id) {
        (Kind::Consumers, Some(id)) if id.contains("/credentials/") => (Kind::Credentials, id),
        (Kind::Consumers, id) => match members.get("username").and_then(Value::as_str) {
            Some(username) => (Kind::Consumers, username.to_owned()),
            None if id.is_some() => return Err(missing("username")),
            None => return Err(missing("username").hint("a consumer is known by its username")),
        },
        (Kind::Credentials, Some(id)) if !id.contains('/') => {
            let owner = ["username", "consumer"].iter().find_map(|field| members.shift_remove(*field));
            match owner {
                Some(Value::String(owner)) => (Kind::Credentials, format!("{owner}/credentials/{id}")),
                _ => return Err(missing("username").hint("or write the id as user/credentials/id")),
            }
        }
        (kind, Some(id)) => (kind, id),
        (Kind::PluginMetadata, None) => {
            return Err(missing("id").hint("the id is the name of the plugin"));
        }
        (_, None) => return Err(missing("id").hint("every item of a document needs an id of its own")),
    };
    match fits(kind, &id) {
        true => Ok((kind, id)),
        false => Err(Problem::error("", "id", format!("\"{id}\" is no valid id"))
            .hint("1 to 64 of a-z A-Z 0-9 - _ . are allowed")),
    }
}

fn missing(field: &str) -> Problem {
    Problem::error("", field, format!("property \"{field}\" is required"))
}

fn written_id(members: &Map<String, Value>) -> Result<Option<String>, Problem> {
    match members.get("id") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(id)) => Ok(Some(id.clone())),
        Some(Value::Number(id)) if id.as_u64().is_some_and(|id| id >= 1) => Ok(Some(id.to_string())),
        Some(other) => Err(Problem::error("", "id", format!("{other} is no valid id"))
            .hint("an id is text or an integer from 1")),
    }
}

fn fits(kind: Kind, id: &str) -> bool {
    let plain = |id: &str| {
        (1..=64).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    match kind {
        Kind::Consumers => (1..=100).contains(&id.len()) && !id.contains('/'),
        Kind::Credentials => {
            let (owner, id) = id.split_once("/credentials/").unwrap_or(("", ""));
            fits(Kind::Consumers, owner) && plain(id)
        }
        Kind::Secrets => id.split_once('/').is_some_and(|(manager, id)| plain(manager) && plain(id)),
        _ => plain(id),
    }
}

impl<'de> Visitor<'de> for &mut Collector<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of lists of resources")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match Kind::from_name(&key) {
                Some(kind) => map.next_value_seed(Items { collector: self, kind })?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                    self.unknown_key(&key);
                }
            }
        }
        Ok(())
    }

    /// Serde would quote the text, which may be a key in a file of its own.
    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        Err(E::invalid_type(Unexpected::Other("a text"), &self))
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// The list under one key.
struct Items<'c, 'l> {
    collector: &'c mut Collector<'l>,
    kind: Kind,
}

impl Items<'_, '_> {
    fn not_a_list<E>(self) -> Result<(), E> {
        let name = self.kind.name();
        let problem = Problem::error("file", name, format!("\"{name}\" must be a list"));
        self.collector.problems.push(problem.hint("each item starts with \"- \" in YAML"));
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Items<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of resources")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut index = 0;
        while let Some(item) = seq.next_element::<Value>()? {
            self.collector.item(self.kind, index, item);
            index += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut empty = true;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            empty = false;
        }
        // To the tools an empty object and an empty list are the same.
        if empty { Ok(()) } else { self.not_a_list() }
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.not_a_list()
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.not_a_list()
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.not_a_list()
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.not_a_list()
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.not_a_list()
    }
}
