//! Resource kinds and their descriptors: names, ids, verbs, references, secret members, schema.
//!
//! Code that treats kinds differently reads the descriptor instead of matching on [`Kind`]. The rows are in
//! `table.rs`. How a kind is compiled is a row of `yumen-snapshot`, on which this crate does not depend.

mod table;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::schema::InvalidSettings;

pub use table::Kind;

/// The properties of one resource kind.
#[derive(Debug)]
pub struct KindDescriptor {
    /// The kind of this row.
    pub kind: Kind,
    /// The purpose of the kind in one sentence.
    pub summary: &'static str,
    /// The names.
    pub names: KindNames,
    /// The kind that the objects are nested in: consumers contain credentials.
    pub parent: Option<Kind>,
    /// The form of ids.
    pub id: IdRule,
    /// The resource of the Admin API.
    pub admin_api: AdminApiShape,
    /// The traffic that objects serve.
    pub traffic: TrafficClass,
    /// The effect of the `plugins` of an object.
    pub plugins: PluginRole,
    /// The fields with the names of the hosts that an object matches, for one name and for several.
    pub host_fields: Option<(&'static str, &'static str)>,
    /// Whether `status: 0` disables an object.
    pub has_status: bool,
    /// References from objects of the kind and to them.
    pub references: KindReferences,
    /// The JSON Schema of an object, as the schema endpoint shows it.
    pub schema: fn() -> &'static Value,
    /// Checks an object without keeping its typed form.
    pub check: fn(Value) -> Result<(), InvalidSettings>,
}

/// The names of a kind.
#[derive(Debug)]
pub struct KindNames {
    /// The name in URIs, documents, store keys and problem objects: `stream_routes`.
    pub plural: &'static str,
    /// The name in schemas: `stream_route`.
    pub singular: &'static str,
    /// The name of one object in messages: `stream route`.
    pub label: &'static str,
}

/// A kind as a resource of the Admin API.
#[derive(Debug)]
pub struct AdminApiShape {
    /// The path of the list below `/apisix/admin/`.
    pub list_path: &'static str,
    /// The path of one object below `/apisix/admin/`.
    pub object_path: &'static str,
    /// The verbs beside GET, PUT and DELETE.
    pub verbs: OptionalVerbs,
    /// Reference fields that a list can be filtered by.
    pub filter_fields: &'static [&'static str],
    /// Members with private keys, which responses do not contain.
    pub secret_members: &'static [&'static str],
    /// Whether `/apisix/admin/configs` contains the kind.
    pub in_configs: bool,
}

/// References from objects of a kind and to them.
#[derive(Debug)]
pub struct KindReferences {
    /// The texts of the kind that the index of references parses.
    pub scan: ReferenceScan,
    /// The rule for references to an object of the kind. `None` if no field names one.
    pub rule: Option<ReferenceRule>,
}

/// The form of the ids of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdRule {
    /// 1 to 64 of `a-z A-Z 0-9 - _ .`. In a document the position of an item can stand in for its id.
    Name,
    /// The name of a plugin, in the same characters.
    PluginName,
    /// The member `username`: the object has no member `id`.
    Username,
    /// The id of the parent and a name: `jack/credentials/1`.
    WithinParent,
    /// The name of a secret manager and a name: `vault/1`.
    WithinManager,
}

impl IdRule {
    /// Whether `id` is a whole id of this form.
    pub fn admits(self, id: &str) -> bool {
        match self {
            IdRule::Name | IdRule::PluginName => is_plain_id(id),
            // A slash separates the parts of ids and store keys.
            IdRule::Username => (1..=256).contains(&id.len()) && !id.contains('/') && !is_dot_segment(id),
            IdRule::WithinParent => {
                // Without the separator, both parts are empty and neither is valid.
                let (owner, id) = id.split_once("/credentials/").unwrap_or(("", ""));
                IdRule::Username.admits(owner) && is_plain_id(id)
            }
            IdRule::WithinManager => {
                id.split_once('/').is_some_and(|(manager, id)| is_plain_id(manager) && is_plain_id(id))
            }
        }
    }
}

/// Whether `id` can be the last or only part of an id.
pub fn is_plain_id(id: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=64).contains(&id.len()) && id.bytes().all(is_allowed) && !is_dot_segment(id)
}

/// Whether `id` is `.` or `..`. Clients remove these segments from a URL (RFC 3986 §5.2.4), so a request for the object
/// would reach its parent: a deletion of the credential `..` would delete the consumer.
pub fn is_dot_segment(id: &str) -> bool {
    matches!(id, "." | "..")
}

/// The verbs that not every kind has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionalVerbs {
    /// POST to the list: the store chooses the id.
    pub post: bool,
    /// PATCH of an object: merges a part, or replaces one by its path.
    pub patch: bool,
}

/// The traffic that objects of a kind serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficClass {
    /// HTTP requests.
    Http,
    /// L4 streams. The Admin API has the kind only where the node serves streams.
    Stream,
    /// Both, or none directly.
    Shared,
}

/// The effect of the `plugins` of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginRole {
    /// The object has no plugins.
    None,
    /// They run for the requests that the object applies to.
    Requests,
    /// They run for all requests; each plugin may be in one such object only.
    AllRequests,
    /// They run for requests of a consumer and hold its keys.
    Consumer,
    /// They hold keys of a consumer.
    Credential,
    /// They run for streams.
    Streams,
}

impl PluginRole {
    /// Whether settings of authentication plugins are keys that identify a consumer.
    pub fn holds_keys(self) -> bool {
        matches!(self, PluginRole::Consumer | PluginRole::Credential)
    }
}

/// The texts of a kind that the index of references parses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceScan {
    /// None: an object refers to nothing.
    Never,
    /// Those that contain this field. Spares the index the parsing of many upstreams.
    Containing(&'static str),
    /// All.
    Always,
}

/// How other objects refer to an object of a kind, and how the Admin API refuses to delete it meanwhile.
#[derive(Debug)]
pub struct ReferenceRule {
    /// The field with the id.
    pub field: &'static str,
    /// Position of that field in the object.
    pub position: ReferencePlace,
    /// The kinds that may refer to it, in the order of the search, with their names in the refusal.
    pub users: &'static [(Kind, &'static str)],
    /// The words of the refusal.
    pub refusal: DeletionRefusal,
}

/// Position of a reference field in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferencePlace {
    /// At the top of the object. The Admin API requires that the named object exists.
    Object,
    /// In `tls` of an upstream, top-level or embedded.
    UpstreamTls,
    /// In `protocol` of a stream route.
    StreamProtocol,
    /// In settings of plugins only.
    Plugins,
}

impl ReferencePlace {
    /// Whether the linter reports objects that are never named by such a field.
    ///
    /// Clients choose most certificates by server name, and a superior stream route serves streams of its
    /// own.
    pub fn is_only_use(self) -> bool {
        matches!(self, ReferencePlace::Object | ReferencePlace::Plugins)
    }
}

/// The variable words in `can not delete this service directly, route [1] is still using it now`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletionRefusal {
    /// The words behind the label of the kind: ` directly`, or nothing.
    pub adverb: &'static str,
    /// Whether a reference from a plugin is named as such.
    pub names_plugin: bool,
    /// The words behind `using`.
    pub object: &'static str,
}

impl DeletionRefusal {
    /// The usual words.
    pub const PLAIN: DeletionRefusal = DeletionRefusal { adverb: "", names_plugin: false, object: "it now" };
}

impl Kind {
    /// Every kind in compilation order: a kind comes after those that its objects refer to.
    pub const ALL: [Kind; Kind::COUNT] = [
        Kind::Secrets,
        Kind::Protos,
        Kind::PluginMetadata,
        Kind::Listeners,
        Kind::Scopes,
        Kind::Ssls,
        Kind::Upstreams,
        Kind::Services,
        Kind::PluginConfigs,
        Kind::ConsumerGroups,
        Kind::Consumers,
        Kind::Credentials,
        Kind::GlobalRules,
        Kind::Routes,
        Kind::StreamRoutes,
        Kind::Tests,
    ];

    /// The properties of the kind.
    pub const fn descriptor(self) -> &'static KindDescriptor {
        &table::DESCRIPTORS[self as usize]
    }

    /// The descriptors of all kinds, in the order of [`Ord`].
    pub const fn descriptors() -> &'static [KindDescriptor; Kind::COUNT] {
        &table::DESCRIPTORS
    }

    /// The plural name in URIs, documents and problem objects.
    pub fn name(self) -> &'static str {
        self.descriptor().names.plural
    }

    /// The name of the list that URIs and keys of objects begin with: that of the parent where there is one.
    pub fn collection(self) -> &'static str {
        let descriptor = self.descriptor();
        descriptor.parent.map_or(descriptor.names.plural, Kind::name)
    }

    /// The kind of that plural name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind that `/{collection}/{id}/{name}` lists.
    pub fn nested(collection: &str, name: &str) -> Option<Kind> {
        let is_it = |one: &&KindDescriptor| {
            one.parent.is_some_and(|parent| parent.name() == collection) && one.names.plural == name
        };
        Kind::descriptors().iter().find(is_it).map(|one| one.kind)
    }
}

// The length of `ALL` is that of the table, so a list without duplicates has every kind.
const _: () = {
    let mut seen = [false; Kind::COUNT];
    let mut at = 0;
    while at < Kind::COUNT {
        assert!(!seen[Kind::ALL[at] as usize], "Kind::ALL contains a kind twice");
        seen[Kind::ALL[at] as usize] = true;
        at += 1;
    }
};
