//! What a path names: a kind, perhaps the object it stands under, an id, and a path into the object.

use axum::http::StatusCode;
use percent_encoding::percent_decode_str;
use yumen_config::Kind;
use yumen_store::Key;

use crate::refusal::Refusal;

const PREFIX: &str = "/apisix/admin/";

/// What a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    /// The consumer of a credential, the manager of a secret.
    pub(crate) parent: Option<String>,
    /// The id within the kind and the parent.
    pub(crate) id: Option<String>,
    /// The path into the object.
    pub(crate) within: Vec<String>,
}

impl Target {
    pub(crate) fn of(path: &str) -> Result<Target, Refusal> {
        let path = path.strip_prefix(PREFIX).unwrap_or_default();
        let decoded = percent_decode_str(path).decode_utf8_lossy();
        let mut segments = decoded.split('/').filter(|segment| !segment.is_empty()).map(str::to_owned);
        let name = segments.next().unwrap_or_default();
        let mut segments: Vec<String> = segments.collect();
        let kind = match (name.as_str(), segments.get(1).map(String::as_str)) {
            // Served elsewhere, but not with this verb or at this depth.
            ("schema" | "plugins" | "configs", _) => {
                return Err(Refusal::new(StatusCode::NOT_FOUND, "not found"));
            }
            ("consumers", Some("credentials")) => {
                segments.remove(1);
                Kind::Credentials
            }
            (name, _) => {
                let kind = Kind::from_name(name).filter(|kind| *kind != Kind::Credentials);
                let unknown = || format!("Unsupported resource type: {name}");
                kind.ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, unknown()))?
            }
        };
        let mut segments = segments.into_iter();
        let has_parent = matches!(kind, Kind::Credentials | Kind::Secrets);
        let parent = if has_parent { segments.next() } else { None };
        Ok(Target { kind, parent, id: segments.next(), within: segments.collect() })
    }

    /// The store's id of the object called `id` here.
    pub(crate) fn stored_id(&self, id: &str) -> String {
        match (&self.parent, self.kind) {
            (Some(parent), Kind::Credentials) => format!("{parent}/credentials/{id}"),
            (Some(parent), _) => format!("{parent}/{id}"),
            (None, _) => id.to_owned(),
        }
    }

    /// The key of the object the path names, or what to say where it names none.
    pub(crate) fn key(&self) -> Result<Key, Refusal> {
        let missing = || Refusal::invalid(format!("missing {} id", word(self.kind)));
        let id = self.id.as_deref().ok_or_else(missing)?;
        Ok(Key::new(self.kind, self.stored_id(id)))
    }
}

/// The name of one object of a kind in messages.
pub(crate) fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Routes => "route",
        Kind::Services => "service",
        Kind::Upstreams => "upstream",
        Kind::Consumers => "consumer",
        Kind::Credentials => "credential",
        Kind::ConsumerGroups => "consumer group",
        Kind::PluginConfigs => "plugin config",
        Kind::GlobalRules => "global rule",
        Kind::PluginMetadata => "plugin_metadata",
        Kind::Ssls => "ssl",
        Kind::Protos => "proto",
        Kind::StreamRoutes => "stream route",
        Kind::Secrets => "secret",
        Kind::Tests => "test",
    }
}

/// Whether `id` may name an object.
pub(crate) fn is_id(id: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=64).contains(&id.len()) && id.bytes().all(is_allowed)
}
