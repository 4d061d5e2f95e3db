//! Sections of the document and their items: identity and validation.

use std::collections::HashSet;
use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use yumen_config::Kind;
use yumen_config::resource::{IdRule, KindDescriptor, is_dot_segment, is_plain_id};
use yumen_store::{ResourceKey, StoreEntry, StoreState};

use super::indexes::{self, ItemIndexes};
use super::ledger;
use crate::api::AdminState;
use crate::refusal::ApiRefusal;
use crate::secrets::{self, SecretVisibility};
use crate::validate;

/// A list of the document: one kind and the kinds nested in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DocumentSection(usize);

/// Whether the document has a list for the kind. Nested kinds are in the list of their parent.
const fn has_section(descriptor: &KindDescriptor) -> bool {
    descriptor.admin_api.in_configs && descriptor.parent.is_none()
}

const SECTION_COUNT: usize = {
    let (mut count, mut at) = (0, 0);
    while at < Kind::COUNT {
        count += has_section(&Kind::descriptors()[at]) as usize;
        at += 1;
    }
    count
};

/// The kind that each section is named after.
const SECTION_KINDS: [Kind; SECTION_COUNT] = {
    let mut kinds = [Kind::ALL[0]; SECTION_COUNT];
    let (mut count, mut at) = (0, 0);
    while at < Kind::COUNT {
        let descriptor = &Kind::descriptors()[at];
        if has_section(descriptor) {
            kinds[count] = descriptor.kind;
            count += 1;
        }
        at += 1;
    }
    kinds
};

impl DocumentSection {
    pub(super) const ALL: [DocumentSection; SECTION_COUNT] = {
        let mut all = [DocumentSection(0); SECTION_COUNT];
        let mut at = 0;
        while at < all.len() {
            all[at] = DocumentSection(at);
            at += 1;
        }
        all
    };

    /// Position among all sections.
    pub(super) fn at(self) -> usize {
        self.0
    }

    /// The kind that the section is named after.
    pub(super) fn kind(self) -> Kind {
        SECTION_KINDS[self.0]
    }

    /// The kinds of its items.
    pub(super) fn kinds(self) -> impl Iterator<Item = Kind> {
        let nested = Kind::descriptors().iter().filter(move |one| one.parent == Some(self.kind()));
        std::iter::once(self.kind()).chain(nested.map(|one| one.kind))
    }

    pub(super) fn name(self) -> &'static str {
        self.kind().name()
    }

    /// The member with the version of the section.
    pub(super) fn version_key(self) -> String {
        format!("{}_conf_version", self.name())
    }

    /// All objects as items, ascending by kind and id, with the members that the reader may see. An error
    /// names the object that cannot be parsed.
    pub(super) fn read(
        self,
        state: &StoreState,
        indexes: &ItemIndexes,
        visibility: SecretVisibility,
    ) -> Result<Vec<Value>, String> {
        let of_kind = |kind: Kind| state.of_kind(kind).map(move |(id, entry)| (kind, id, entry));
        let entries = self.kinds().flat_map(of_kind);
        let item = |(kind, id, entry): (Kind, &Arc<str>, &StoreEntry)| {
            let mut item: Map<String, Value> = serde_json::from_str(&entry.json).map_err(|error| {
                format!("{}: the stored text cannot be read: {error}", ResourceKey::new(kind, id.clone()))
            })?;
            // The username identifies a consumer, so it has no `id`.
            if kind.descriptor().id != IdRule::Username {
                item.insert("id".into(), json!(**id));
            }
            secrets::in_document(visibility, kind, &mut item);
            // Tools compare objects by it.
            let index = indexes.get(kind, id, entry).map(|index| json!(index));
            item.insert("modifiedIndex".into(), index.unwrap_or_else(|| json!(entry.modified.0)));
            Ok(Value::Object(item))
        };
        entries.map(item).collect()
    }
}

/// An object of the document.
#[derive(Debug)]
pub(super) struct DocumentItem {
    pub(super) kind: Kind,
    pub(super) id: Arc<str>,
    /// The index that the tool gave the item.
    pub(super) index: Option<i64>,
    value: Map<String, Value>,
}

impl DocumentItem {
    /// The text to write over `stored`; `None` if the stored object is equal and stays. Times that the document
    /// omits are no difference.
    pub(super) fn differing(&self, stored: Option<&StoreEntry>) -> Option<String> {
        // An object with an expiry is written again, which removes the expiry.
        let stored = stored.filter(|stored| stored.expires_ms.is_none());
        let stored = stored.and_then(|stored| serde_json::from_str::<Map<String, Value>>(&stored.json).ok());
        let is_same = stored.is_some_and(|mut stored| {
            for time in ["create_time", "update_time"] {
                if !self.value.contains_key(time) {
                    stored.shift_remove(time);
                }
            }
            // The key has the id; a text may have it as a number, without its consumer, or not at all.
            let mut value = self.value.clone();
            value.shift_remove("id");
            stored.shift_remove("id");
            stored == value
        });
        (!is_same).then(|| Value::Object(self.value.clone()).to_string())
    }
}

/// Why an item is invalid.
struct InvalidItem {
    /// The id as written; empty if there is none.
    id: Value,
    index: usize,
    message: String,
}

impl InvalidItem {
    fn into_problem(self, section: DocumentSection) -> Map<String, Value> {
        let members = [
            ("resource_type", json!(section.name())),
            ("resource_id", self.id),
            ("index", json!(self.index)),
            ("error", json!(self.message)),
        ];
        members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The items of a section, all validated. The refusal is about the first invalid one: `error_msg` is the message of
/// APISIX, and the other members name the item.
pub(super) fn read(
    state: &AdminState,
    section: DocumentSection,
    document: &Map<String, Value>,
) -> Result<Vec<DocumentItem>, ApiRefusal> {
    let (items, wrong) = validated(state, section, document).map_err(ApiRefusal::invalid)?;
    let Some(wrong) = wrong.into_iter().next() else { return Ok(items) };
    let mut body = wrong.into_problem(section);
    let message = body.shift_remove("error").unwrap_or_default();
    body.shift_insert(0, "error_msg".to_owned(), message);
    Err(ApiRefusal::of(StatusCode::BAD_REQUEST, Value::Object(body)))
}

/// All errors of a section and its version.
pub(super) fn errors(
    state: &AdminState,
    section: DocumentSection,
    document: &Map<String, Value>,
) -> Vec<Value> {
    let about_section = |message: String| json!({ "resource_type": section.name(), "error": message });
    let version = ledger::mistyped_version(section, document).map(about_section);
    let items = match validated(state, section, document) {
        Ok((_, wrong)) => wrong.into_iter().map(|one| Value::Object(one.into_problem(section))).collect(),
        Err(message) => vec![about_section(message)],
    };
    version.into_iter().chain(items).collect()
}

fn validated(
    state: &AdminState,
    section: DocumentSection,
    document: &Map<String, Value>,
) -> Result<(Vec<DocumentItem>, Vec<InvalidItem>), String> {
    let written = match document.get(section.name()) {
        None | Some(Value::Null) => return Ok((Vec::new(), Vec::new())),
        // Lua does not distinguish an empty object from an empty list.
        Some(Value::Object(members)) if members.is_empty() => return Ok((Vec::new(), Vec::new())),
        Some(Value::Array(written)) => written,
        Some(_) => return Err(format!("{} must be an array", section.name())),
    };
    let (mut items, mut wrong) = (Vec::with_capacity(written.len()), Vec::new());
    let mut seen = HashSet::new();
    for (index, value) in written.iter().enumerate() {
        let written_id = ["id", "username"].into_iter().find_map(|name| value.get(name));
        let id =
            written_id.filter(|id| id.is_string() || id.is_number()).cloned().unwrap_or_else(|| json!(""));
        let mut refuse = |message| wrong.push(InvalidItem { id: id.clone(), index, message });
        match item(state, section, index, value) {
            Err(message) => refuse(message),
            Ok(item) if !seen.insert((item.kind, item.id.clone())) => {
                let what = match item.kind.descriptor().id {
                    IdRule::Username => "username",
                    IdRule::WithinParent => "credential id",
                    IdRule::Name | IdRule::PluginName | IdRule::WithinManager => "id",
                };
                refuse(format!("found duplicate {what} {} in {}", item.id, section.name()));
            }
            Ok(item) => items.push(item),
        }
    }
    Ok((items, wrong))
}

fn item(
    state: &AdminState,
    section: DocumentSection,
    position: usize,
    value: &Value,
) -> Result<DocumentItem, String> {
    let Value::Object(members) = value else { return Err("an item must be an object".into()) };
    let (kind, id) = id_of(section, position, value)?;
    if id.split('/').any(is_dot_segment) {
        return Err(format!("invalid id \"{id}\": no part of an id is . or .."));
    }
    if kind.descriptor().id == IdRule::PluginName {
        validate::plugin_name(state, &id)?;
    }
    let index = indexes::read(value)?;
    let mut members = members.clone();
    // A document that was read before contains them.
    for index in ["modifiedIndex", "createdIndex"] {
        members.shift_remove(index);
    }
    let value = Value::Object(members);
    validate::object(state, kind, &value)?;
    let Value::Object(value) = value else { return Err("an item must be an object".into()) };
    Ok(DocumentItem { kind, id: id.into(), index, value })
}

/// The kinds whose schema in APISIX requires an id. Items of other kinds are named by their position.
const KINDS_WITH_ID: [Kind; 3] = [Kind::GlobalRules, Kind::PluginConfigs, Kind::ConsumerGroups];

/// Kind and stored id of an item.
fn id_of(section: DocumentSection, position: usize, value: &Value) -> Result<(Kind, String), String> {
    let kind = section.kind();
    let id = match value.get("id") {
        Some(Value::String(id)) => Some(id.clone()),
        Some(Value::Number(id)) => Some(id.to_string()),
        _ => None,
    };
    match (kind.descriptor().id, id) {
        // In the document of APISIX, credentials are in the list of consumers.
        (IdRule::Username, Some(id)) if id.contains("/credentials/") => {
            let parts = id.split_once("/credentials/");
            let is_whole =
                parts.is_some_and(|(owner, id)| !owner.is_empty() && !owner.contains('/') && is_plain_id(id));
            if is_whole { Ok((Kind::Credentials, id)) } else { Err(format!("invalid credential id: {id}")) }
        }
        (IdRule::Username, _) => match value.get("username").and_then(Value::as_str) {
            Some(username) => Ok((kind, username.to_owned())),
            None => Err("invalid configuration: property \"username\" is required".into()),
        },
        (IdRule::WithinManager, id) => {
            let id = id.unwrap_or_default();
            let is_whole =
                id.split_once('/').is_some_and(|(manager, id)| !manager.is_empty() && is_plain_id(id));
            if is_whole { Ok((kind, id)) } else { Err(format!("invalid secret id: {id}")) }
        }
        (IdRule::Name | IdRule::PluginName | IdRule::WithinParent, Some(id)) => Ok((kind, id)),
        (IdRule::PluginName, None) => Err("missing plugin name".into()),
        // The id that APISIX gives an item by its position, from 1.
        (IdRule::Name, None) if !KINDS_WITH_ID.contains(&kind) => Ok((kind, format!("arr_{}", position + 1))),
        (IdRule::Name | IdRule::WithinParent, None) => {
            Err("invalid configuration: property \"id\" is required".into())
        }
    }
}
