//! Lists of plugins, with the entries of Secrets.

use serde_json::{Map, Value};

use crate::engine::TrackedView;
use crate::grants::granted_secret;
use crate::model::{ListedPlugin, ObjectKey, SecretObject};
use crate::resources::SpecDefect;

/// The member `plugins` of a resource. Of plugins with one name the last counts, as in APISIX.
pub(super) fn plugins_value(
    view: &TrackedView<'_>,
    owner: &ObjectKey,
    entries: &[ListedPlugin],
    defects: &mut Vec<SpecDefect>,
) -> Map<String, Value> {
    let mut plugins = Map::new();
    for entry in entries.iter().filter(|entry| entry.enable.unwrap_or(true)) {
        let mut settings = entry.config.clone().unwrap_or_else(|| Value::Object(Map::new()));
        if let Some(name) = entry.secret_ref.as_ref().filter(|name| !name.is_empty()) {
            let added = granted_secret(view, owner, &owner.namespace, name)
                .and_then(|secret| add_entries(secret, &mut settings));
            if let Err(message) = added {
                defects.push(SpecDefect::new(format!("plugins.{}", entry.name), message));
            }
        }
        plugins.insert(entry.name.to_string(), settings);
    }
    plugins
}

/// Sets a member per entry of a Secret; a dot in the name of an entry leads into an object.
fn add_entries(secret: &SecretObject, settings: &mut Value) -> Result<(), String> {
    let Value::Object(members) = settings else {
        return Err("settings that are no object cannot take entries of a Secret".to_owned());
    };
    for name in secret.data.keys().filter(|name| !name.is_empty()) {
        let text = secret.text(name).ok_or_else(|| {
            format!("entry {name} of Secret {}/{} is no text", secret.meta.namespace, secret.meta.name)
        })?;
        let mut parts = name.split('.');
        let last = parts.next_back().unwrap_or_default();
        let mut place = &mut *members;
        for part in parts {
            let inner = place.entry(part).or_insert_with(|| Value::Object(Map::new()));
            if !inner.is_object() {
                *inner = Value::Object(Map::new());
            }
            match inner {
                Value::Object(inner) => place = inner,
                _ => return Ok(()),
            }
        }
        place.insert(last.to_owned(), text.into());
    }
    Ok(())
}
