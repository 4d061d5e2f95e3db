//! Parsing of one plugin's settings in an object. The compiler and the validation of single objects share it.
//!
//! Knows no object beside the one with the settings.

use std::ops::BitOr;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use yumen_config::{InvalidSettings, schema};
use yumen_plugin::kind::{ConsumerKey, RegisteredPlugin};
use yumen_plugin::vars::with_data_values;
use yumen_plugin::{
    ConditionExpr, MissingPlugin, MissingPlugins, Plugin, PluginBuildContext, PluginKind, PluginMeta,
    PluginRegistry, VarInputs,
};

use super::references::{self, ReferenceValues, ResolvedReferences};

/// The role of the object with the plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PluginOwner {
    /// The plugins run for requests.
    Traffic,
    /// The plugins run for streams.
    Stream,
    /// Settings of authentication plugins are keys; the other plugins run.
    Consumer,
    /// Settings of authentication plugins are keys; other plugins are refused.
    Credential,
}

/// The plugins that objects may configure.
#[derive(Clone, Copy)]
pub(crate) struct KnownPlugins<'k> {
    pub(crate) registry: &'k PluginRegistry,
    /// Plugins that this version does not run.
    pub(crate) missing: &'k MissingPlugins,
    /// The values that settings refer to.
    pub(crate) values: ReferenceValues<'k>,
}

/// The result of parsing.
pub(crate) enum ParsedPlugin<'k> {
    /// `_meta.disable` is set.
    Disabled,
    /// This version does not run the plugin. The entry is absent for a plugin that only the node's settings name.
    Missing { entry: Option<&'static MissingPlugin>, meta: Box<PluginMeta>, filter: Value },
    /// A key of a consumer or credential.
    Key { plugin: &'static str, key: ConsumerKey },
    /// A plugin that runs.
    Plugin { kind: &'k PluginKind, plugin: Arc<dyn Plugin>, meta: Box<PluginMeta>, reads: VarInputs },
    /// A plugin of a trial that is built when the values of its secrets arrive.
    Awaited { kind: &'k PluginKind },
}

/// The reason for which a plugin's settings are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginSettingsError {
    /// The settings are of this JSON type instead of an object. The value is not shown: it may be a bare secret.
    NotAnObject(&'static str),
    /// The plugin is unknown.
    Unknown,
    /// The settings break a rule of the plugin or of `_meta`.
    Settings(InvalidSettings),
    /// `_meta.filter` is no condition.
    Filter(String),
    /// A credential has a plugin that does not authenticate.
    NotAuthentication,
}

impl PluginSettingsError {
    /// The error without values that references stand for.
    fn masked(self, followed: &ResolvedReferences) -> PluginSettingsError {
        match self {
            PluginSettingsError::Settings(invalid) => {
                let path = invalid.path.clone();
                PluginSettingsError::Settings(invalid.map_message(|message| followed.mask(&path, message)))
            }
            PluginSettingsError::Filter(message) => {
                PluginSettingsError::Filter(followed.mask("_meta.filter", message))
            }
            other => other,
        }
    }

    /// The path of the error inside the settings, if a value there is at fault.
    fn path(&self) -> Option<&str> {
        match self {
            PluginSettingsError::Settings(invalid) => Some(&invalid.path),
            PluginSettingsError::Filter(_) => Some("_meta.filter"),
            _ => None,
        }
    }

    /// The error at its path inside the settings.
    pub(crate) fn into_invalid(self, name: &str) -> InvalidSettings {
        match self {
            PluginSettingsError::NotAnObject(found) => InvalidSettings::new(format!(
                "invalid plugin conf for plugin [{name}]: expected object, got {found}"
            )),
            PluginSettingsError::Unknown => InvalidSettings::new(format!("unknown plugin [{name}]")),
            PluginSettingsError::Settings(invalid) => invalid,
            PluginSettingsError::Filter(message) => InvalidSettings::at("_meta.filter", message),
            PluginSettingsError::NotAuthentication => {
                InvalidSettings::new(format!("plugin {name} is not an authentication plugin"))
            }
        }
    }
}

impl<'k> KnownPlugins<'k> {
    /// Parses the settings of the plugin called `name`.
    pub(crate) fn parse(
        self,
        name: &str,
        mut settings: Value,
        side: PluginOwner,
        setup: &PluginBuildContext<'_>,
    ) -> Result<ParsedPlugin<'k>, PluginSettingsError> {
        // The tools of APISIX write an empty object as an empty list, and know both as tables.
        if !settings.is_object() && !settings.is_array() {
            return Err(PluginSettingsError::NotAnObject(json_type(&settings)));
        }
        let registered = self.registered(name, side);
        let missing = self.missing.get(name, side == PluginOwner::Stream);
        // `plugins.allow_missing` may list plugins of the operator's own that no table contains.
        if registered.is_none() && missing.is_none() && !self.missing.allows(name) {
            return Err(PluginSettingsError::Unknown);
        }
        let is_auth = registered.map(|one| one.kind.role.is_auth()).or(missing.map(MissingPlugin::is_auth));
        // The other plugins of a credential would never run.
        if side == PluginOwner::Credential && is_auth == Some(false) {
            return Err(PluginSettingsError::NotAuthentication);
        }
        // References of a plugin that does not run are not resolved: they may lead nowhere on this node.
        let mut followed = ResolvedReferences::default();
        if registered.is_some() && !is_disabled(&settings) {
            followed = references::resolve(&mut settings, &self.values.of_plugin(name))
                .map_err(PluginSettingsError::Settings)?;
        }
        let Some(registered) = registered else { return parse_missing(missing, settings) };
        let parsed = with_data_values(followed.data_values(), || build(registered, settings, side, setup));
        parsed.or_else(|flaw| match flaw.path().is_some_and(|path| followed.may_heal(path)) {
            true => Ok(ParsedPlugin::Awaited { kind: &registered.kind }),
            false => Err(flaw.masked(&followed)),
        })
    }

    /// The plugin called `name`, if it serves the traffic of objects of this role.
    pub(super) fn registered(&self, name: &str, side: PluginOwner) -> Option<&'k RegisteredPlugin> {
        // A plugin that serves the other traffic only is as good as unknown here.
        self.registry.get(name).filter(|one| match side {
            PluginOwner::Stream => one.kind.serves.streams(),
            _ => one.kind.serves.http(),
        })
    }
}

/// The JSON type of a value.
fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Builds a plugin or parses a key, after the references in the settings were resolved.
fn build<'k>(
    registered: &'k RegisteredPlugin,
    mut settings: Value,
    side: PluginOwner,
    setup: &PluginBuildContext<'_>,
) -> Result<ParsedPlugin<'k>, PluginSettingsError> {
    let reads = reads(&settings);
    let Some(meta) = take_meta(&mut settings)? else { return Ok(ParsedPlugin::Disabled) };
    let kind = &registered.kind;
    if matches!(side, PluginOwner::Consumer | PluginOwner::Credential) && kind.role.is_auth() {
        let key = registered
            .consumer_key(settings, setup)
            .unwrap_or_else(|| Err(InvalidSettings::new("the plugin cannot be configured on a consumer")));
        return Ok(ParsedPlugin::Key { plugin: kind.name, key: key.map_err(PluginSettingsError::Settings)? });
    }
    let plugin = registered.build(settings, setup).map_err(PluginSettingsError::Settings)?;
    Ok(ParsedPlugin::Plugin { kind, plugin, meta: Box::new(meta), reads })
}

/// Parses `_meta` of a plugin that this version does not run. The other settings have no meaning here.
fn parse_missing<'k>(
    entry: Option<&'static MissingPlugin>,
    mut settings: Value,
) -> Result<ParsedPlugin<'k>, PluginSettingsError> {
    // Cloned before `_meta` is removed.
    let filter = settings.pointer("/_meta/filter").cloned().unwrap_or_default();
    Ok(match take_meta(&mut settings)? {
        None => ParsedPlugin::Disabled,
        Some(meta) => ParsedPlugin::Missing { entry, meta: Box::new(meta), filter },
    })
}

/// The schema of `_meta`, common to all plugins.
pub fn meta_schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        json!({
            "type": "object",
            "properties": {
                "disable": { "type": "boolean", "description": "whether the plugin is left out" },
                "error_response": {
                    "oneOf": [{ "type": "string" }, { "type": "object" }],
                    "description": "replaces the body of the plugin's own answers"
                },
                "priority": { "type": "integer", "description": "replaces the plugin's own priority" },
                "filter": { "type": "array", "description": "run only where this condition holds" },
                "pre_function": { "type": "string", "description": "Lua; kept and not run" }
            }
        })
    });
    &SCHEMA
}

/// The inputs that the variables in the texts of settings need.
pub(crate) fn reads(settings: &Value) -> VarInputs {
    match settings {
        Value::String(text) => VarInputs::of(text),
        Value::Array(items) => items.iter().map(reads).fold(VarInputs::default(), VarInputs::bitor),
        Value::Object(members) => members.values().map(reads).fold(VarInputs::default(), VarInputs::bitor),
        _ => VarInputs::default(),
    }
}

/// Whether `_meta` disables the plugin.
pub(super) fn is_disabled(settings: &Value) -> bool {
    settings.pointer("/_meta/disable").and_then(Value::as_bool) == Some(true)
}

/// Removes `_meta` from the settings and parses it. `None` for a disabled plugin, whose settings are not checked.
pub(crate) fn take_meta(settings: &mut Value) -> Result<Option<PluginMeta>, PluginSettingsError> {
    if is_disabled(settings) {
        return Ok(None);
    }
    let Some(mut written) = settings.as_object_mut().and_then(|settings| settings.remove("_meta")) else {
        return Ok(Some(PluginMeta::default()));
    };
    schema::validate(meta_schema(), &mut written).map_err(|invalid| {
        // The message of APISIX, whose validator reports the outer property.
        let outer = |inner| format!("property \"_meta\" validation failed: {inner}");
        PluginSettingsError::Settings(invalid.under("_meta").map_message(outer))
    })?;
    let mut meta = PluginMeta::default();
    let filter = written.get("filter").filter(|filter| filter.as_array().is_some_and(|all| !all.is_empty()));
    if let Some(filter) = filter {
        meta.filter = Some(ConditionExpr::parse(filter).map_err(PluginSettingsError::Filter)?);
    }
    if let Some(priority) = written.get("priority") {
        let number = priority.as_i64().and_then(|number| i32::try_from(number).ok());
        let refused =
            || InvalidSettings::at("_meta.priority", format!("{priority} is not an integer of 32 bits"));
        meta.priority = Some(number.ok_or_else(refused).map_err(PluginSettingsError::Settings)?);
    }
    meta.error_response = written.get("error_response").cloned();
    Ok(Some(meta))
}
