//! Guards and credentials that a text names and that cannot be built: the plugin is missing, or its settings have a
//! reference or variable without a value.
//!
//! No last good version serves in place of such a text: it may be open, or hold the key that the text replaces. A last
//! good version that runs the same guard is neither, and stays (decision 50).

use serde_json::Value;
use yumen_config::Kind;
use yumen_config::resource::{ResourceDefect, defects};

use super::certificate::{self, requires_client_certificates};
use super::context::CompileContext;
use super::plugin_settings::{self, PluginOwner};
use super::{references, scope};

impl CompileContext {
    /// Whether a text, valid or not, names a guard or a credential that cannot be built. Disabled plugins do not count,
    /// nor do guards without a value that `good`, the last good version, runs.
    pub(super) fn lacks_guard(&self, kind: Kind, json: &str, good: Option<&str>) -> bool {
        let owner = PluginOwner::of(kind.descriptor().plugins);
        // A text that is not JSON names no plugin.
        let Ok(written) = serde_json::from_str::<Value>(json) else { return false };
        let defects = defects(json);
        // A credential identifies no client until its new key has a value, since the old one may have leaked.
        let is_credential = matches!(owner, PluginOwner::Consumer | PluginOwner::Credential);
        let good = good.filter(|_| !is_credential).and_then(|good| serde_json::from_str::<Value>(good).ok());
        let stays = |name: &str| {
            let settings = good.as_ref().and_then(|good| good.get("plugins")?.get(name));
            settings.is_some_and(|settings| !plugin_settings::is_disabled(settings))
        };
        match written.get("plugins") {
            Some(Value::Object(plugins)) => plugins.iter().any(|(name, settings)| {
                !plugin_settings::is_disabled(settings)
                    && (self.missing_guard(name, owner).is_some()
                        || self.is_unresolved_guard(name, settings, owner, &defects) && !stays(name))
            }),
            // An unset variable in place of all plugins may stand for guards.
            Some(other) => has_unset_variable(other, "plugins", &defects),
            None => false,
        }
    }

    /// Whether the plugin guards, or holds a credential, and its settings have a reference or variable without a value.
    fn is_unresolved_guard(
        &self,
        name: &str,
        settings: &Value,
        owner: PluginOwner,
        defects: &[ResourceDefect],
    ) -> bool {
        let known = self.known_plugins();
        if !known.registered(name, owner).is_some_and(|registered| registered.kind.role.guards()) {
            return false;
        }
        let is_resolved = || references::resolve(&mut settings.clone(), &known.values.unnoted()).is_ok();
        has_unset_variable(settings, &format!("plugins.{name}"), defects) || !is_resolved()
    }

    /// Whether an ssl object would begin to require client certificates, but its pair has a reference without a value;
    /// or whether a scope would, but its text is broken.
    pub(super) fn lacks_client_certificates(&self, kind: Kind, json: &str, previous: Option<&str>) -> bool {
        // A previous version that requires them is not open.
        if kind == Kind::Scopes {
            return scope::requires_client_certificates(json)
                && previous.is_some_and(|previous| !scope::requires_client_certificates(previous));
        }
        kind == Kind::Ssls
            && requires_client_certificates(json)
            && !previous.is_some_and(requires_client_certificates)
            && certificate::has_unresolved_pair(json, &self.reference_values().unnoted())
    }
}

/// Whether a value at `path` has a variable of the document that is not set. Other texts with `${{` are data.
fn has_unset_variable(value: &Value, path: &str, defects: &[ResourceDefect]) -> bool {
    defects.iter().any(|one| one.is_within(path)) && has_variable(value)
}

fn has_variable(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("${{"),
        Value::Array(items) => items.iter().any(has_variable),
        Value::Object(members) => {
            members.iter().any(|(name, member)| name.contains("${{") || has_variable(member))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
