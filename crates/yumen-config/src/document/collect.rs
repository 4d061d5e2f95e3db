//! Collects resources while a document is parsed, one item at a time, so that a large document is never in
//! memory as a tree.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::{Map, Value};
use yumen_base::Problem;

use super::Lookup;
use super::foreign;
use super::identity::{self, ItemIdentity};
use super::substitute::{self, DocumentVariables};
use crate::duplicate_keys::{DuplicateCheckedValue, DuplicateKeyReader, expanded_bytes_max, message_at};
use crate::hint::suggestion;
use crate::resource::{
    self, Kind, PluginRole, Resource, ResourceDefect, id_of_position, is_named_by_position, mark,
};

/// The origin of a document, which decides how variables and invalid items are handled.
#[derive(Clone, Copy)]
pub(super) enum DocumentUse<'l> {
    /// The file of a node. Variables come from its environment, and an invalid item stays as a broken
    /// resource, so that no other route takes its requests.
    Active(Lookup<'l>),
    /// A document that a client submits. Every item needs an id, and invalid items are refused.
    Submitted,
}

/// Visitor that collects resources and problems.
pub(super) struct ResourceCollector<'l> {
    meant: DocumentUse<'l>,
    /// The variables of the document, if it has any that are replaced.
    variables: Option<DocumentVariables<'l>>,
    /// Whether a member `<<` is a YAML merge key; false for JSON.
    merges: bool,
    /// Bytes that names and texts of items may still have.
    bytes_left: usize,
    resources: Vec<Resource>,
    problems: Vec<Problem>,
    /// Items so far by kind, over all lists of the kind. Positions derive from these counts.
    counts: HashMap<Kind, usize>,
    /// Kinds with at least one list so far, to find duplicate lists.
    begun: HashSet<Kind>,
    /// The position of the item that first used each id.
    seen: HashMap<(Kind, Arc<str>), usize>,
    /// The source of each resource.
    sources: Vec<ItemSource>,
    /// The source of each problem of an item that is no resource, by the name of the object.
    refused: Vec<(String, ItemSource)>,
    /// Sections of no kind.
    unknown: Vec<String>,
    /// Items of the shape of Kong's.
    kong_items: usize,
    /// Items of the shape of ADC's.
    adc_items: usize,
}

/// The list of an item, and its position among all items of such lists, from 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemSource {
    pub(super) list: Kind,
    pub(super) position: usize,
}

impl<'l> ResourceCollector<'l> {
    pub(super) fn new(
        meant: DocumentUse<'l>,
        variables: Option<DocumentVariables<'l>>,
        merges: bool,
        bytes: usize,
    ) -> ResourceCollector<'l> {
        ResourceCollector {
            meant,
            variables,
            merges,
            bytes_left: expanded_bytes_max(bytes),
            resources: Vec::new(),
            problems: Vec::new(),
            counts: HashMap::new(),
            begun: HashSet::new(),
            seen: HashMap::new(),
            sources: Vec::new(),
            refused: Vec::new(),
            unknown: Vec::new(),
            kong_items: 0,
            adc_items: 0,
        }
    }

    /// The source of each object, by its name in problems.
    pub(super) fn sources(self) -> HashMap<String, ItemSource> {
        // A refused item never has the name of a resource that was kept before it.
        let kept = self.resources.iter().map(ToString::to_string).zip(self.sources);
        self.refused.into_iter().chain(kept).collect()
    }

    /// The problem of a document that belongs to another program.
    pub(super) fn foreign_problem(&mut self) -> Option<Problem> {
        let items = self.counts.values().sum::<usize>();
        foreign::of_sections(&self.unknown, !self.begun.is_empty())
            // One such item among others is a mistake in that item.
            .or_else(|| {
                let list = self.begun.iter().copied().min_by_key(|kind| kind.name())?;
                if items > 0 && self.adc_items == items {
                    return Some(foreign::of_adc_items(list));
                }
                (items > 0 && self.kong_items == items).then(|| foreign::of_kong_items(list))
            })
    }

    pub(super) fn finish(self) -> (Vec<Resource>, Vec<Problem>) {
        (self.resources, self.problems)
    }

    fn unknown_key(&mut self, key: &str) {
        // The versions of APISIX's API-driven mode order its documents; a file has no other order than time.
        if key.ends_with("_conf_version") {
            return;
        }
        if key == "plugins" || key == "stream_plugins" {
            let message =
                format!("the list \"{key}\" has no effect: every plugin of this version is enabled");
            let problem = Problem::warning("file", key, message);
            self.problems
                .push(problem.hint("remove it; objects enable a plugin by its settings in their plugins"));
            return;
        }
        self.unknown.push(key.to_owned());
        let problem = Problem::warning("file", key, format!("unknown section \"{key}\" is ignored"));
        let hint = suggestion(key, Kind::ALL.map(Kind::name));
        self.problems.push(Problem { hint, ..problem });
    }

    /// The name of a section, which may be a variable.
    fn section_name(&mut self, mut key: String) -> String {
        let Some(variables) = &self.variables else { return key };
        let mut unset = Vec::new();
        let resolved = variables.resolve_text(&mut key, "", &mut unset);
        self.refuse("file", unset);
        resolved.unwrap_or(key)
    }

    /// A list that is the value of a variable.
    fn list(&mut self, kind: Kind, mut value: Value) {
        let variables = self.variables.as_ref();
        let mut unset = variables.map_or_else(Vec::new, |variables| variables.resolve(&mut value));
        if !unset.is_empty() {
            unset.iter_mut().for_each(|one| one.path = kind.name().into());
            return self.refuse("file", unset);
        }
        match value {
            Value::Array(items) => {
                for value in items {
                    self.item(kind, DuplicateCheckedValue::of(value));
                }
            }
            _ => self.not_a_list(kind, "each item starts with \"- \" in YAML".to_owned()),
        }
    }

    fn not_a_list(&mut self, kind: Kind, hint: String) {
        let name = kind.name();
        let problem = Problem::error("file", name, format!("\"{name}\" must be a list"));
        self.problems.push(problem.hint(hint));
    }

    /// Records the start of a list. A second list of one kind is a warning in the file of a node, because a
    /// node that refused the file would serve nothing; it is an error in a submitted document, which the
    /// client can correct.
    fn begin(&mut self, kind: Kind) {
        if self.begun.insert(kind) {
            return;
        }
        // Merging the lists keeps the objects of both; ignoring one would delete objects, and the routes that they
        // guard would be open.
        let name = kind.name();
        self.problems.push(match self.meant {
            DocumentUse::Active(_) => {
                Problem::warning("file", name, format!("{}; all its items count", message_at(name)))
                    .hint("write one list: other readers take the last alone")
            }
            DocumentUse::Submitted => Problem::error("file", name, message_at(name)),
        });
    }

    fn item(&mut self, kind: Kind, item: DuplicateCheckedValue) {
        let (kept, reported) = (self.resources.len(), self.problems.len());
        self.read_item(kind, item);
        let source = ItemSource { list: kind, position: self.counts.get(&kind).copied().unwrap_or(0) };
        self.sources.extend((self.resources.len() > kept).then_some(source));
        let refused = self.problems[reported..].iter().map(|problem| (problem.object.clone(), source));
        self.refused.extend(refused);
    }

    fn read_item(&mut self, kind: Kind, item: DuplicateCheckedValue) {
        let DuplicateCheckedValue { value: mut item, duplicates, inexact } = item;
        let count = self.counts.entry(kind).or_default();
        // Counted before any check, so that a defective item does not shift the positions, and so the ids, of later ones.
        *count += 1;
        let position = *count;
        // Merge first: a variable in an overridden member is not looked up.
        if self.merges {
            substitute::merge_keys(&mut item);
        }
        let variables = self.variables.as_ref();
        let mut defects = variables.map_or_else(Vec::new, |variables| variables.resolve(&mut item));
        // Any of the duplicates may be the intended one, and the overwritten value may have guarded the
        // object.
        let variables = self.variables.as_ref();
        defects.extend(
            duplicates
                .iter()
                .map(|path| variables.map_or_else(|| path.clone(), |variables| variables.as_written(path)))
                .map(|path| ResourceDefect::new(&*path, message_at(&path)).hint(duplicate_hint(&path))),
        );
        defects.extend(inexact.iter().map(|(path, reason)| ResourceDefect::new(&**path, *reason)));
        let mut members = match item {
            Value::Object(members) => members,
            _ if self.is_unreadable_rule(kind) => return self.unreadable_rule(kind, position, defects),
            _ => {
                defects.push(ResourceDefect::new("", "an item must be an object"));
                return self.nameless(kind, position, Map::new(), defects);
            }
        };
        // A document read from the Admin API has these members.
        members.shift_remove("modifiedIndex");
        members.shift_remove("createdIndex");
        self.kong_items += usize::from(foreign::is_kong_item(kind, &members));
        self.adc_items += usize::from(foreign::is_adc_item(kind, &members));
        match identity::stated(kind, &mut members) {
            ItemIdentity::Known(kind, id)
                if matches!(self.meant, DocumentUse::Submitted) && !defects.is_empty() =>
            {
                // The client can correct the document, so no broken object is stored.
                self.refuse(&format!("{}/{id}", kind.name()), defects);
            }
            ItemIdentity::Known(kind, id) => self.named(kind, id, position, members, defects),
            ItemIdentity::Absent => self.nameless(kind, position, members, defects),
            ItemIdentity::Unusable(why) => {
                // The unset variable already explains the invalid id.
                if !defects.iter().any(|one| one.is_within(&why.path)) {
                    defects.insert(0, why);
                }
                self.nameless(kind, position, members, defects);
            }
        }
    }

    /// Whether an item of this kind that is no object makes its section unreadable.
    fn is_unreadable_rule(&self, kind: Kind) -> bool {
        // Nothing refers to a global rule, and no request is its own: left out, it would open every route that it
        // guards. Without items of other kinds, their own requests or those of their referrers are refused.
        matches!(self.meant, DocumentUse::Active(_)) && kind.descriptor().plugins == PluginRole::AllRequests
    }

    /// Reports an item whose plugins are unknown, as a section that is no list.
    fn unreadable_rule(&mut self, kind: Kind, position: usize, mut defects: Vec<ResourceDefect>) {
        let name = kind.name();
        // The item has the wrong type because of its unset variable.
        if !defects.is_empty() {
            defects.iter_mut().for_each(|one| one.path = name.into());
            return self.refuse("file", defects);
        }
        let message = format!("item {position} of \"{name}\" must be an object");
        let hint = "write it as \"- id: ...\", with the other members below it, indented by two spaces";
        self.problems.push(Problem::error("file", name, message).hint(hint));
    }

    /// Keeps an item under its own id. The first item with an id keeps it; a later one becomes a broken
    /// resource under its position, or is reported and dropped if the kind has no positions.
    fn named(
        &mut self,
        kind: Kind,
        id: String,
        position: usize,
        members: Map<String, Value>,
        mut defects: Vec<ResourceDefect>,
    ) {
        // One text for the key here and for the resource.
        let id: Arc<str> = id.into();
        match self.seen.get(&(kind, id.clone())) {
            None => {
                self.seen.insert((kind, id.clone()), position);
                self.keep(kind, id, members, &defects);
            }
            // A later item must not replace the first one, and must not vanish either: it may guard routes.
            Some(first) if self.is_positional(kind) => {
                let message =
                    format!("item {position} has the id \"{id}\" of item {first}, which was there before");
                defects.insert(0, ResourceDefect::new("id", message).hint("give it its own id"));
                self.nameless(kind, position, members, defects);
            }
            // A kind whose ids are names has no position as an id, so the item cannot stay.
            Some(_) => {
                let object = format!("{}/{id}", kind.name());
                let message = "duplicate id: the first object is used";
                self.problems.push(Problem::error(object, "id", message));
            }
        }
    }

    /// Keeps an item without a usable id by its position, if kind and origin allow that; otherwise refuses
    /// it.
    fn nameless(
        &mut self,
        kind: Kind,
        position: usize,
        members: Map<String, Value>,
        defects: Vec<ResourceDefect>,
    ) {
        if self.is_positional(kind) {
            return self.keep(kind, id_of_position(kind, position).into(), members, &defects);
        }
        // Paths count from 0; positions count from 1, as in the ids that APISIX gives to items of its file.
        let object = format!("{}[{}]", kind.name(), position - 1);
        let defects = match defects.is_empty() {
            true => vec![identity::missing("id").hint("every item of a document needs its own id")],
            false => defects,
        };
        self.refuse(&object, defects);
    }

    /// Reports the defects of an item that is left out.
    fn refuse(&mut self, object: &str, defects: Vec<ResourceDefect>) {
        self.problems.extend(defects.into_iter().map(|ResourceDefect { path, message, hint }| Problem {
            hint,
            ..Problem::error(object, path, message)
        }));
    }

    fn is_positional(&self, kind: Kind) -> bool {
        matches!(self.meant, DocumentUse::Active(_)) && is_named_by_position(kind)
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
        // Variables are resolved by now, so a changed variable changes the text, and the object is compiled again.
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
            let key = self.section_name(key);
            match Kind::from_name(&key) {
                Some(kind) => {
                    // Before the list, so that the warning precedes those of its items.
                    self.begin(kind);
                    map.next_value_seed(KindItemsSeed { collector: self, kind })?;
                }
                None => {
                    // The value must be consumed before the next key can be read.
                    map.next_value::<IgnoredAny>()?;
                    self.unknown_key(&key);
                }
            }
        }
        Ok(())
    }

    /// Serde would quote the text, which may be a private key if the file is not a document.
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

/// Seed for the list under one key.
struct KindItemsSeed<'c, 'l> {
    collector: &'c mut ResourceCollector<'l>,
    kind: Kind,
}

impl KindItemsSeed<'_, '_> {
    fn not_a_list<E>(self) -> Result<(), E> {
        self.collector.not_a_list(self.kind, "each item starts with \"- \" in YAML".to_owned());
        Ok(())
    }

    /// A scalar, which may stand for a variable whose value is a list.
    fn scalar<E>(self, value: Value) -> Result<(), E> {
        self.collector.list(self.kind, value);
        Ok(())
    }

    /// Refuses a section that is a mapping; `first` is its first key.
    fn mapping(self, first: &str) {
        let kind = self.kind;
        let is_member = resource::schema_of(kind)["properties"].get(first).is_some();
        let field = if kind == Kind::Consumers { "username" } else { "id" };
        let form = match is_member {
            // One object without the dash.
            true => format!("- {first}: ..."),
            false => format!("- {field}: {first}"),
        };
        let others = "with the other members below it, indented by two spaces";
        let hint = format!("write every object as a list item: \"{form}\", {others}");
        self.collector.not_a_list(kind, hint);
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
        while let Some(item) =
            seq.next_element_seed(DuplicateKeyReader { bytes_left: &mut self.collector.bytes_left })?
        {
            self.collector.item(self.kind, item);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut first = None;
        // Read to the end, because the parser continues behind the map.
        while let Some((key, _)) = map.next_entry::<String, IgnoredAny>()? {
            first.get_or_insert(key);
        }
        // APISIX tools may write an empty list as an empty object: Lua does not distinguish them.
        if let Some(first) = first {
            self.mapping(&first);
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.not_a_list()
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.scalar(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.scalar(value.into())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.not_a_list()
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.not_a_list()
    }
}
