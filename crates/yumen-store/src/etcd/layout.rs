//! Layout of the keys in etcd: that of APISIX, plus Yumen's own directory. Pure.
//!
//! Does not interpret the values.

use std::sync::Arc;

use yumen_config::Kind;
use yumen_config::resource::IdRule;

use crate::state::ResourceKey;

/// Directory under the prefix that no other program writes.
const OWN: &str = "yumen";
const CREDENTIALS: &str = "/credentials/";

/// The keys of one store.
#[derive(Debug, Clone)]
pub(super) struct KeyLayout {
    /// Prefix with a trailing slash.
    root: String,
}

/// Content of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyRole {
    /// A resource.
    Resource(ResourceKey),
    /// A setting of the APIs.
    Setting(Arc<str>),
    /// Author of the last write.
    Note,
    /// The last confirmation of held deletions.
    Confirmation,
}

impl KeyLayout {
    /// Creates the layout under `prefix`, which has no trailing slash.
    pub(super) fn new(prefix: &str) -> KeyLayout {
        KeyLayout { root: format!("{prefix}/") }
    }

    /// Prefix of all keys.
    pub(super) fn root(&self) -> &str {
        &self.root
    }

    /// Prefix of the node records.
    pub(super) fn nodes(&self) -> String {
        format!("{}{OWN}/nodes/", self.root)
    }

    /// Prefix of the shared keys of the board `name`.
    pub(super) fn board(&self, name: &str) -> String {
        format!("{}{OWN}/{name}/", self.root)
    }

    /// Key in etcd.
    pub(super) fn path(&self, role: &KeyRole) -> String {
        let root = &self.root;
        match role {
            KeyRole::Resource(ResourceKey { kind, id }) => format!("{root}{}/{id}", kind.collection()),
            KeyRole::Setting(name) => format!("{root}{OWN}/settings/{name}"),
            KeyRole::Note => format!("{root}{OWN}/last_write"),
            KeyRole::Confirmation => format!("{root}{OWN}/confirmed"),
        }
    }

    /// Parses a key; `None` if the key is not Yumen's, such as a directory's placeholder.
    pub(super) fn role(&self, path: &[u8]) -> Option<KeyRole> {
        let path = std::str::from_utf8(path).ok()?.strip_prefix(&self.root)?;
        let (directory, id) = path.split_once('/').filter(|(_, id)| !id.is_empty())?;
        if directory == OWN {
            return match (id, id.strip_prefix("settings/")) {
                ("last_write", _) => Some(KeyRole::Note),
                ("confirmed", _) => Some(KeyRole::Confirmation),
                (_, Some(name)) => Some(KeyRole::Setting(name.into())),
                // Node records and boards are read elsewhere.
                _ => None,
            };
        }
        let kind = match Kind::from_name(directory)? {
            // APISIX stores credentials below their consumer: `consumers/NAME/credentials/ID`.
            Kind::Consumers if id.contains(CREDENTIALS) => Kind::Credentials,
            // Credentials are stored below their consumers only.
            kind if kind.descriptor().parent.is_some() => return None,
            kind => kind,
        };
        let is_name = |part: &str| !part.is_empty() && !part.contains('/');
        let is_whole = match kind.descriptor().id {
            IdRule::Name | IdRule::PluginName | IdRule::Username => !id.contains('/'),
            IdRule::WithinManager => {
                id.split_once('/').is_some_and(|(manager, id)| is_name(manager) && is_name(id))
            }
            IdRule::WithinParent => {
                id.split_once(CREDENTIALS).is_some_and(|(user, id)| is_name(user) && is_name(id))
            }
        };
        is_whole.then(|| KeyRole::Resource(ResourceKey::new(kind, id)))
    }

    /// Whether a key is under a resource directory but names no resource, so that no node serves its value.
    pub(super) fn is_stray(&self, path: &[u8]) -> bool {
        let within = path.strip_prefix(self.root.as_bytes()).unwrap_or_default();
        let mut parts = within.splitn(2, |byte| *byte == b'/');
        let kind = parts.next().and_then(|kind| Kind::from_name(std::str::from_utf8(kind).ok()?));
        // A trailing slash marks a directory's placeholder.
        let is_name = parts.next().is_some_and(|id| !id.is_empty() && !id.ends_with(b"/"));
        kind.is_some() && is_name && self.role(path).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_a_key_that_leads_back_to_it() {
        let layout = KeyLayout::new("/apisix");
        let resource = |kind, id| KeyRole::Resource(ResourceKey::new(kind, id));
        for (role, path) in [
            (resource(Kind::Routes, "1"), "/apisix/routes/1"),
            (resource(Kind::PluginMetadata, "file-logger"), "/apisix/plugin_metadata/file-logger"),
            (resource(Kind::Consumers, "jack"), "/apisix/consumers/jack"),
            (resource(Kind::Credentials, "jack/credentials/a"), "/apisix/consumers/jack/credentials/a"),
            (resource(Kind::Secrets, "vault/1"), "/apisix/secrets/vault/1"),
            (KeyRole::Setting("admin_keys".into()), "/apisix/yumen/settings/admin_keys"),
            (KeyRole::Note, "/apisix/yumen/last_write"),
            (KeyRole::Confirmation, "/apisix/yumen/confirmed"),
        ] {
            assert_eq!(layout.path(&role), path);
            assert_eq!(layout.role(path.as_bytes()), Some(role), "{path}");
        }
    }

    #[test]
    fn foreign_keys_have_no_role() {
        let layout = KeyLayout::new("/apisix");
        for path in [
            "/apisix",
            "/apisix/",
            "/apisix/routes",
            "/apisix/routes/",
            "/apisix/routes/1/2",
            "/apisix/plugins",
            "/apisix/plugins/reload",
            "/apisix/credentials/a",
            "/apisix/secrets/vault",
            "/apisix/secrets/vault/1/2",
            "/apisix/consumers/jack/credentials/",
            "/apisix/data_plane/server_info/1",
            "/apisix/yumen/nodes/a",
            "/apisix/yumen/board/note",
            "/other/routes/1",
        ] {
            assert_eq!(layout.role(path.as_bytes()), None, "{path}");
        }
        assert_eq!(layout.role(b"/apisix/routes/\xff"), None);
    }

    #[test]
    fn a_key_among_objects_that_names_none_is_astray() {
        let layout = KeyLayout::new("/apisix");
        for (path, expected) in [
            ("/apisix/routes/we ird/ü", true),
            ("/apisix/secrets/vault", true),
            ("/apisix/credentials/a", true),
            ("/apisix/routes/1", false),
            ("/apisix/routes/", false),
            ("/apisix/consumers/jack/credentials/", false),
            ("/apisix/plugins/reload", false),
            ("/apisix/data_plane/server_info/1", false),
            ("/other/routes/1/2", false),
        ] {
            assert_eq!(layout.is_stray(path.as_bytes()), expected, "{path}");
        }
        assert!(layout.is_stray(b"/apisix/routes/\xff"));
    }
}
