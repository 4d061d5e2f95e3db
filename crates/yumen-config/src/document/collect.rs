//! Takes a document apart while it is parsed, one item at a time, so that a large table never stands
//! in memory as a tree.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::{Map, Value};
use yumen_base::Problem;

use super::identity::{self, ItemIdentity};
use super::{Lookup, substitute};
use crate::duplicate_keys::{DuplicateCheckedValue, DuplicateKeyReader, told};
use crate::hint::closest;
use crate::resource::{Kind, Resource, ResourceDefect, id_of_place, is_named_by_place, mark};

/// How a document is meant.
#[derive(Clone, Copy)]
pub(super) enum DocumentUse<'l> {
    /// As the file of a node: variables are of its environment, and what is broken keeps its place, so that nothing
    /// opens in its stead.
    Active(Lookup<'l>),
    /// As what somebody sends and has refused: objects have the names they are to be known by.
    Submitted,
}

/// Gathers resources and problems.
pub(super) struct ResourceCollector<'l> {
    meant: DocumentUse<'l>,
    /// Whether there are variables at all.
    substitutes: bool,
    /// Whether a member `<<` is YAML's merge key.
    merges: bool,
    resources: Vec<Resource>,
    problems: Vec<Problem>,
    /// Items seen of each list, whether it is written in one piece or in several.
    counts: HashMap<Kind, usize>,
    /// The lists that were begun.
    begun: HashSet<Kind>,
    /// The ids that are taken, by the item of which place.
    seen: HashMap<(Kind, Arc<str>), usize>,
}

impl<'l> ResourceCollector<'l> {
    pub(super) fn new(meant: DocumentUse<'l>, substitutes: bool, merges: bool) -> ResourceCollector<'l> {
        ResourceCollector {
            meant,
            substitutes,
            merges,
            resources: Vec::new(),
            problems: Vec::new(),
            counts: HashMap::new(),
            begun: HashSet::new(),
            seen: HashMap::new(),
        }
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

    /// Notes that a list begins. One that is there already loses nothing in a file, where a node that refused the
    /// whole of it would serve nothing; who sends a document can mend it first.
    fn begin(&mut self, kind: Kind) {
        if self.begun.insert(kind) {
            return;
        }
        let name = kind.name();
        self.problems.push(match self.meant {
            DocumentUse::Active(_) => {
                Problem::warning("file", name, format!("{}; all its items count", told(name)))
                    .hint("write one list: other readers take the last alone")
            }
            DocumentUse::Submitted => Problem::error("file", name, told(name)),
        });
    }

    fn item(&mut self, kind: Kind, item: DuplicateCheckedValue) {
        let DuplicateCheckedValue { value: mut item, doubled } = item;
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let place = *count;
        if self.merges {
            substitute::merge_keys(&mut item);
        }
        let mut defects = match self.meant {
            DocumentUse::Active(lookup) if self.substitutes => substitute::resolve(&mut item, lookup),
            _ => Vec::new(),
        };
        // Any of them may have been meant, and the one that is gone may have guarded the rest.
        defects.extend(
            doubled.iter().map(|path| ResourceDefect::new(path, told(path)).hint(duplicate_hint(path))),
        );
        let mut members = match item {
            Value::Object(members) => members,
            _ => {
                defects.push(ResourceDefect::new("", "an item must be an object"));
                return self.nameless(kind, place, Map::new(), defects);
            }
        };
        members.shift_remove("modifiedIndex");
        members.shift_remove("createdIndex");
        match identity::stated(kind, &mut members) {
            ItemIdentity::Known(kind, id)
                if matches!(self.meant, DocumentUse::Submitted) && !defects.is_empty() =>
            {
                self.refuse(&format!("{}/{id}", kind.name()), defects);
            }
            ItemIdentity::Known(kind, id) => self.named(kind, id, place, members, defects),
            ItemIdentity::Absent => self.nameless(kind, place, members, defects),
            ItemIdentity::Unusable(why) => {
                // A variable that is not set says it all.
                if !defects.iter().any(|one| one.is_within(&why.path)) {
                    defects.insert(0, why);
                }
                self.nameless(kind, place, members, defects);
            }
        }
    }

    /// Keeps an item under its own id. The first of one id is it; whatever one after it is for must not open.
    fn named(
        &mut self,
        kind: Kind,
        id: String,
        place: usize,
        members: Map<String, Value>,
        mut defects: Vec<ResourceDefect>,
    ) {
        let id: Arc<str> = id.into();
        match self.seen.get(&(kind, id.clone())) {
            None => {
                self.seen.insert((kind, id.clone()), place);
                self.keep(kind, id, members, &defects);
            }
            Some(first) if self.is_by_place(kind) => {
                let message =
                    format!("item {place} has the id \"{id}\" of item {first}, which was there before");
                defects.insert(0, ResourceDefect::new("id", message).hint("give it an id of its own"));
                self.nameless(kind, place, members, defects);
            }
            Some(_) => {
                let object = format!("{}/{id}", kind.name());
                let message = "duplicate id: the first object is used";
                self.problems.push(Problem::error(object, "id", message));
            }
        }
    }

    /// Keeps an item by its place, where that will do.
    fn nameless(
        &mut self,
        kind: Kind,
        place: usize,
        members: Map<String, Value>,
        defects: Vec<ResourceDefect>,
    ) {
        if self.is_by_place(kind) {
            return self.keep(kind, id_of_place(kind, place).into(), members, &defects);
        }
        let object = format!("{}[{}]", kind.name(), place - 1);
        let defects = match defects.is_empty() {
            true => vec![identity::missing("id").hint("every item of a document needs an id of its own")],
            false => defects,
        };
        self.refuse(&object, defects);
    }

    /// Leaves an item out and tells why.
    fn refuse(&mut self, object: &str, defects: Vec<ResourceDefect>) {
        self.problems.extend(defects.into_iter().map(|ResourceDefect { path, message, hint }| Problem {
            hint,
            ..Problem::error(object, path, message)
        }));
    }

    fn is_by_place(&self, kind: Kind) -> bool {
        matches!(self.meant, DocumentUse::Active(_)) && is_named_by_place(kind)
    }

    fn keep(
        &mut self,
        kind: Kind,
        id: Arc<str>,
        mut members: Map<String, Value>,
        defects: &[ResourceDefect],
    ) {
        if matches!(self.meant, DocumentUse::Active(_)) {
            mark(&mut members, defects);
        }
        let json = Value::Object(members).to_string().into();
        self.resources.push(Resource { kind, id, json });
    }
}

impl<'de> Visitor<'de> for &mut ResourceCollector<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of lists of resources")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match Kind::from_name(&key) {
                Some(kind) => {
                    self.begin(kind);
                    map.next_value_seed(KindItemsSeed { collector: self, kind })?;
                }
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

fn duplicate_hint(path: &str) -> &'static str {
    match path.ends_with("<<") {
        true => "write the merged mappings as one list: <<: [*a, *b]",
        false => "leave one of them",
    }
}

/// The list under one key.
struct KindItemsSeed<'c, 'l> {
    collector: &'c mut ResourceCollector<'l>,
    kind: Kind,
}

impl KindItemsSeed<'_, '_> {
    fn not_a_list<E>(self) -> Result<(), E> {
        let name = self.kind.name();
        let problem = Problem::error("file", name, format!("\"{name}\" must be a list"));
        self.collector.problems.push(problem.hint("each item starts with \"- \" in YAML"));
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for KindItemsSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for KindItemsSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of resources")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(item) = seq.next_element_seed(DuplicateKeyReader)? {
            self.collector.item(self.kind, item);
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
