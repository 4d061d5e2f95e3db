//! Lists of plugins, with the entries of Secrets.

use serde_json::{Map, Value};

use crate::engine::TrackedView;
use crate::gateway_proxy::is_of_operator;
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
        let checked = refuse_references(view, owner, Map::from_iter([(entry.name.to_string(), settings)]));
        match checked {
            Ok(settings) => plugins.extend(settings),
            Err(message) => {
                defects.push(SpecDefect::new(format!("plugins.{}", entry.name), message));
                plugins.insert(entry.name.to_string(), Value::Object(Map::new()));
            }
        }
    }
    plugins
}

/// The settings, unless they refer to the environment or a secret manager of the gateway: those belong to the operator,
/// and a plugin that sets a response field would reveal them.
pub(super) fn refuse_references(
    view: &TrackedView<'_>,
    owner: &ObjectKey,
    settings: Map<String, Value>,
) -> Result<Map<String, Value>, String> {
    match settings.iter().find_map(|(name, value)| reference_in(name, value)) {
        Some((path, form)) if !is_of_operator(view, &owner.namespace) => Err(format!(
            "{path} has a reference {form}, which is for objects in the namespace of the GatewayProxy of a class only; \
             use a Secret of Kubernetes (secretRef)"
        )),
        _ => Ok(settings),
    }
}

/// The path and form of the first reference in a value, or in a name of a member. Depth is bounded by the decoder.
fn reference_in(path: &str, value: &Value) -> Option<(String, &'static str)> {
    match value {
        Value::String(text) => Some((path.to_owned(), reference_form(text)?)),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(at, item)| reference_in(&format!("{path}[{at}]"), item))
        }
        Value::Object(members) => members.iter().find_map(|(name, member)| {
            let path = format!("{path}.{name}");
            let of_name = reference_form(name).map(|form| (path.clone(), form));
            of_name.or_else(|| reference_in(&path, member))
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// The form of a reference in a text, in any case: `$ENV://` is one as well.
fn reference_form(text: &str) -> Option<&'static str> {
    if !text.contains('$') {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    ["$env://", "$secret://", "${{"].into_iter().find(|form| lower.contains(form))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::reference_in;

    fn check(settings: serde_json::Value, expected: Option<&str>) {
        let found = reference_in("plugin", &settings).map(|(path, _)| path);
        assert_eq!(found.as_deref(), expected, "{settings}");
    }

    #[test]
    fn references_are_found_at_any_depth() {
        check(json!({ "headers": { "set": { "X": "$env://HOME" } } }), Some("plugin.headers.set.X"));
        check(json!({ "list": ["a", { "b": "$SECRET://vault/1/a" }] }), Some("plugin.list[1].b"));
        check(json!({ "a": "x ${{ HOME }}" }), Some("plugin.a"));
        check(json!({ "$env://HOME": 1 }), Some("plugin.$env://HOME"));
        check(json!({ "a": "$http_host", "b": "env://HOME", "c": "${arg_x}" }), None);
    }
}
