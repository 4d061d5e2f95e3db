//! Warnings about members without effect, such as misspelt settings of plugins.
//!
//! Schemas that follow APISIX admit members that they do not name. Validation notices that an object has one, and a
//! search through the text then finds the paths, so that other objects cost nothing more.

use serde_json::{Map, Value};
use yumen_base::Problem;
use yumen_config::Kind;
use yumen_config::resource as config;
use yumen_config::schema::{UnknownMember, notices_unknown_members, unknown_members};
use yumen_plugin::kind::RegisteredPlugin;

use super::names::ObjectName;
use super::plugin_settings::{PluginOwner, is_disabled, meta_schema};
use super::secret_settings::may_be_secret;
use super::{Compiler, StageResult};

/// Members of plugin metadata and secrets that are no settings.
const NO_SETTINGS: [&str; 3] = ["id", "create_time", "update_time"];

/// Metrics of APISIX plugins that this version does not run, by the begin of their paths in metadata of `prometheus`.
const UNSUPPORTED_METRICS: [&str; 2] = ["disabled_labels.llm_", "disabled_labels.ai_"];

impl Compiler {
    /// Stages an object, with warnings about members and variables without effect.
    pub(super) fn stage_with_warnings(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let (staged, may_be_unknown) = notices_unknown_members(|| self.stage_with_names(name, json));
        let mut warnings = staged?;
        // The schemas of these kinds admit every member; that of the plugin or manager names them.
        if may_be_unknown || matches!(name.kind, Kind::PluginMetadata | Kind::Secrets) {
            warnings.extend(self.members_without_effect(name, json));
        }
        Ok(warnings)
    }

    /// Warnings about all members of an object without effect.
    pub(super) fn members_without_effect(&self, name: &ObjectName, json: &str) -> Vec<Problem> {
        let mut value = serde_json::from_str(json).unwrap_or(Value::Null);
        drop(config::take_defects(&mut value));
        let Value::Object(members) = &value else { return Vec::new() };
        let mut search = MemberSearch { name, found: Vec::new() };
        search.by_schema(config::schema_of(name.kind), &value, "");
        match name.kind {
            Kind::PluginMetadata => self.search_metadata(members, &mut search),
            Kind::Secrets => search_secret(members, &mut search),
            _ => self.search_plugins(members, &mut search),
        }
        search.found
    }

    fn search_plugins(&self, object: &Map<String, Value>, search: &mut MemberSearch<'_>) {
        let owner = PluginOwner::of(search.name.kind.descriptor().plugins);
        let plugins = object.get("plugins").and_then(Value::as_object).into_iter().flatten();
        for (plugin, settings) in plugins.filter(|(_, settings)| !is_disabled(settings)) {
            let path = format!("plugins.{plugin}");
            if let Some(meta) = settings.get("_meta") {
                search.by_schema(meta_schema(), meta, &format!("{path}._meta"));
            }
            let schema = self.context.registry.get(plugin).and_then(|one| settings_schema(one, owner));
            if let (Some(schema), Value::Object(mut settings)) = (schema, settings.clone()) {
                settings.remove("_meta");
                search.by_schema(schema, &Value::Object(settings), &path);
            }
        }
        for (path, upstream) in config::upstreams_in(search.name.kind, object) {
            // The other upstreams are part of the schema of the object.
            if path.starts_with("plugins.") {
                let upstream = Value::Object(upstream.clone());
                search.by_schema(config::schema_of(Kind::Upstreams), &upstream, &path);
            }
        }
    }

    fn search_metadata(&self, members: &Map<String, Value>, search: &mut MemberSearch<'_>) {
        let Some(registered) = self.context.registry.get(&search.name.id) else { return };
        let settings = settings_of(members);
        match registered.metadata_schema() {
            Some(schema) => search.by_schema(&schema, &Value::Object(settings), ""),
            None => search.found.extend(settings.keys().map(|member| {
                let message = format!("\"{member}\" has no effect: the plugin has no metadata");
                Problem::warning(search.name.to_string(), member, message)
            })),
        }
    }
}

fn search_secret(members: &Map<String, Value>, search: &mut MemberSearch<'_>) {
    let manager = search.name.id.split_once('/').map_or("", |(manager, _)| manager);
    if let Some(schema) = config::secret_schema(manager) {
        search.by_schema(schema, &Value::Object(settings_of(members)), "");
    }
}

fn settings_of(members: &Map<String, Value>) -> Map<String, Value> {
    let is_setting = |name: &str| !NO_SETTINGS.contains(&name);
    let settings = members.iter().filter(|(name, _)| is_setting(name));
    settings.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The schema of a plugin's settings in an object.
fn settings_schema(registered: &RegisteredPlugin, owner: PluginOwner) -> Option<&Value> {
    let is_key =
        registered.kind.role.is_auth() && matches!(owner, PluginOwner::Consumer | PluginOwner::Credential);
    if is_key { registered.consumer_schema() } else { Some(registered.schema()) }
}

/// Collects the warnings of one object.
struct MemberSearch<'s> {
    name: &'s ObjectName,
    found: Vec<Problem>,
}

impl MemberSearch<'_> {
    fn by_schema(&mut self, schema: &Value, value: &Value, under: &str) {
        self.found.extend(unknown_members(schema, value).into_iter().map(|unknown| {
            let UnknownMember { path, message, meant } = unknown;
            if meant.is_none() && may_be_secret(self.name, under, &path, value) {
                let message =
                    "an unknown member has no effect; its name, which may be a secret, is not shown";
                return Problem::warning(self.name.to_string(), under, message).hint("write name: value");
            }
            let path = if under.is_empty() { path } else { format!("{under}.{path}") };
            if is_unsupported(&path) {
                let message = format!("\"{path}\" has no effect: this version does not support it");
                return Problem::warning(self.name.to_string(), path, message);
            }
            let hint = meant.map(|name| format!("did you mean \"{name}\"?"));
            Problem { hint, ..Problem::warning(self.name.to_string(), path, message) }
        }));
    }
}

fn is_unsupported(path: &str) -> bool {
    UNSUPPORTED_METRICS.iter().any(|begin| path.starts_with(begin))
}

#[cfg(test)]
mod tests;
