//! Validation of a single object by its text, before it is stored: the problems that would put it into quarantine.
//!
//! The steps are those of the compiler, so both agree. References to other objects, and features that this version does
//! not serve, are no fault of the object.

use serde::Deserialize;
use serde_json::{Map, Value};
use yumen_config::resource as config;
use yumen_config::resource::Plugins;
use yumen_config::{InvalidSettings, Kind, schema};
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::{Carry, MissingPlugins, PluginBuildContext, PluginRegistry};

use super::certificate::{KeyPairError, LoadCertificate};
use super::kind_table::KindCompiler;
use super::nested_plugins::NestedValidator;
use super::plugin_settings::{KnownPlugins, PluginOwner, PluginSettingsError, is_disabled};
use super::references::{self, ReferenceValues, Variables};
use super::upstream;

/// Validates single objects.
#[derive(Clone, Copy)]
pub struct ObjectValidator<'j> {
    /// The plugins of this version.
    pub registry: &'j PluginRegistry,
    /// Plugins that objects may configure although this version does not run them.
    pub missing: &'j MissingPlugins,
    /// Loads certificates.
    pub load_certificate: &'j LoadCertificate,
    /// The environment that `$env://` in settings refers to.
    pub variables: &'j Variables,
}

/// The reason for which an object is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectError {
    /// The object breaks a rule of its kind.
    Object(InvalidSettings),
    /// The settings of a plugin are refused.
    Plugin {
        /// The plugin's name.
        name: String,
        /// The reason.
        flaw: PluginSettingsError,
    },
    /// `vars` is no condition.
    Vars(String),
    /// A client address is invalid; counts the addresses of the object from 0.
    Address(usize),
    /// A certificate cannot be loaded, or its key does not match.
    Certificate {
        /// The pair, from 0: `cert` comes before `certs`.
        at: usize,
        /// The reason.
        flaw: KeyPairError,
    },
    /// A certificate of an upstream cannot be loaded.
    Upstream {
        /// The path of the field.
        path: String,
        /// The reason.
        message: String,
    },
    /// A handshake rule is not supported.
    Handshake {
        /// The field of the ssl object.
        path: &'static str,
        /// The reason.
        message: String,
    },
}

impl From<InvalidSettings> for ObjectError {
    fn from(invalid: InvalidSettings) -> ObjectError {
        ObjectError::Object(invalid)
    }
}

impl ObjectValidator<'_> {
    /// Validates `value` as an object of `kind`.
    pub fn validate(&self, kind: Kind, value: &Value) -> Result<(), ObjectError> {
        (KindCompiler::of(kind).validate)(self, value.clone())?;
        let upstreams = value.as_object().map(|object| config::upstreams_in(kind, object));
        // Upstreams inside plugin settings are validated with the plugin, after its references were resolved.
        let own = upstreams.into_iter().flatten().filter(|(path, _)| !path.starts_with("plugins."));
        own.into_iter().try_for_each(|(path, upstream)| self.upstream(&path, upstream))
    }

    fn upstream(&self, path: &str, upstream: &Map<String, Value>) -> Result<(), ObjectError> {
        let tls = upstream.get("tls").and_then(|tls| config::UpstreamTlsSpec::deserialize(tls).ok());
        let checked = tls.map_or(Ok(()), |tls| upstream::check_tls(self.load_certificate, &tls));
        checked.map_err(|error| {
            let InvalidSettings { path, message, .. } =
                if path.is_empty() { error } else { error.under(path) };
            ObjectError::Upstream { path, message }
        })
    }

    /// References to secrets stay as written: their managers and values may arrive later.
    pub(super) fn values(&self) -> ReferenceValues<'_> {
        ReferenceValues::of_one(self.variables)
    }

    pub(super) fn known(&self) -> KnownPlugins<'_> {
        KnownPlugins { registry: self.registry, missing: self.missing, values: self.values() }
    }

    pub(super) fn set(&self, plugins: Plugins) -> Result<(), ObjectError> {
        self.plugins(Some(plugins), PluginOwner::Traffic)
    }

    pub(super) fn plugins(&self, plugins: Option<Plugins>, side: PluginOwner) -> Result<(), ObjectError> {
        let known = self.known();
        let node = NodeFacts { workers: 1, ..NodeFacts::default() };
        for (name, settings) in plugins.into_iter().flatten() {
            let split = (name == config::SPLITS_TRAFFIC).then(|| settings.clone());
            // Carried state of its own, so that a trial plugin never shares state with the plugins in force.
            let carry = Carry::default();
            let setup = PluginBuildContext {
                carry: &carry,
                owner: "judged",
                metadata: None,
                node: &node,
                objects: None,
                sinks: None,
                nested: None,
            };
            let nested = NestedValidator { known, setup: &setup };
            let setup = PluginBuildContext { nested: Some(&nested), ..setup };
            if let Err(flaw) = known.parse(&name, settings, side, &setup) {
                return Err(ObjectError::Plugin { name, flaw });
            }
            if let Some(split) = split.filter(|settings| !is_disabled(settings)) {
                self.split(&name, split)?;
            }
        }
        Ok(())
    }
}

impl ObjectValidator<'_> {
    /// Validates the upstreams in the settings of a plugin, after the rest of the settings.
    fn split(&self, plugin: &str, mut settings: Value) -> Result<(), ObjectError> {
        references::resolve(&mut settings, &self.values())?;
        let mut upstreams = config::upstreams_in_split(&settings).into_iter();
        upstreams
            .try_for_each(|(path, upstream)| self.upstream(&format!("plugins.{plugin}.{path}"), upstream))
    }
}

/// The settings in plugin metadata: references resolved, then validated and completed if the plugin has a schema.
pub(super) fn metadata(
    known: &KnownPlugins<'_>,
    plugin: &str,
    written: config::PluginMetadata,
) -> Result<Value, InvalidSettings> {
    let mut settings = Value::Object(written.settings);
    let followed = references::resolve(&mut settings, &known.values)?;
    if let Some(schema) = known.registry.get(plugin).and_then(|one| one.metadata_schema()) {
        match schema::validate(&schema, &mut settings) {
            Err(invalid) if !followed.may_heal(&invalid.path) => {
                let path = invalid.path.clone();
                return Err(invalid.map_message(|message| followed.mask(&path, message)));
            }
            _ => {}
        }
    }
    Ok(settings)
}
