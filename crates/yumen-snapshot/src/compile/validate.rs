//! One object judged by its text alone: what the compiler would quarantine it for, before it is stored.
//!
//! Made of the compiler's own steps, so that both always agree. What this version cannot serve yet, and
//! what an object refers to, is no flaw of the object.

use serde::Deserialize;
use serde_json::{Map, Value};
use yumen_config::resource as config;
use yumen_config::resource::Plugins;
use yumen_config::{InvalidSettings, Kind, schema};
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::{Carry, MissingPlugins, PluginBuildContext, PluginRegistry};

use super::kind_table::KindCompiler;
use super::settings::{KnownPlugins, PluginOwner, PluginSettingsError, is_disabled};
use super::{KeyPairError, LoadCertificate, Variables, references, upstream};

/// What judging depends on beside the object.
#[derive(Clone, Copy)]
pub struct ObjectValidator<'j> {
    /// All plugins there are.
    pub registry: &'j PluginRegistry,
    /// Plugins that may be configured although this version does not run them.
    pub missing: &'j MissingPlugins,
    /// Loads certificates.
    pub load_certificate: &'j LoadCertificate,
    /// The environment that `$env://` in settings refers to.
    pub variables: &'j Variables,
}

/// Why an object was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectError {
    /// It does not meet the rules of its kind.
    Object(InvalidSettings),
    /// One of its plugins was refused.
    Plugin {
        /// The plugin's name.
        name: String,
        /// Why.
        flaw: PluginSettingsError,
    },
    /// `vars` is no condition.
    Vars(String),
    /// A client address is none; counts from 0 among those written.
    Address(usize),
    /// A certificate cannot be read, or its key does not fit.
    Certificate {
        /// Counts from 0: first `cert`, then `certs`.
        at: usize,
        /// Why.
        flaw: KeyPairError,
    },
    /// What an upstream shows its endpoints, or trusts, cannot be used.
    Upstream {
        /// Where.
        path: String,
        /// Why.
        message: String,
    },
    /// What handshakes shall ask cannot be asked.
    Handshake {
        /// The field of the ssl object.
        path: &'static str,
        /// Why.
        message: String,
    },
}

impl From<InvalidSettings> for ObjectError {
    fn from(invalid: InvalidSettings) -> ObjectError {
        ObjectError::Object(invalid)
    }
}

impl ObjectValidator<'_> {
    /// Judges `value` as an object of `kind`.
    pub fn judge(&self, kind: Kind, value: &Value) -> Result<(), ObjectError> {
        (KindCompiler::of(kind).judge)(self, value.clone())?;
        let upstreams = value.as_object().map(|object| config::upstreams_in(kind, object));
        // Those in plugins are judged with the plugin: what they say may be a reference.
        let own = upstreams.into_iter().flatten().filter(|(path, _)| !path.starts_with("plugins."));
        own.into_iter().try_for_each(|(path, upstream)| self.upstream(&path, upstream))
    }

    fn upstream(&self, path: &str, upstream: &Map<String, Value>) -> Result<(), ObjectError> {
        let tls = upstream.get("tls").and_then(|tls| config::UpstreamTlsSpec::deserialize(tls).ok());
        let checked = tls.map_or(Ok(()), |tls| upstream::check_tls(self.load_certificate, &tls));
        let dot = if path.is_empty() { "" } else { "." };
        checked.map_err(|(at, message)| ObjectError::Upstream { path: format!("{path}{dot}{at}"), message })
    }

    pub(super) fn known(&self) -> KnownPlugins<'_> {
        KnownPlugins { registry: self.registry, missing: self.missing, variables: self.variables }
    }

    pub(super) fn set(&self, plugins: Plugins) -> Result<(), ObjectError> {
        self.plugins(Some(plugins), PluginOwner::Traffic)
    }

    pub(super) fn plugins(&self, plugins: Option<Plugins>, side: PluginOwner) -> Result<(), ObjectError> {
        let known = self.known();
        let node = NodeFacts { workers: 1, tls_ports: Vec::new() };
        for (name, settings) in plugins.into_iter().flatten() {
            let split = (name == config::SPLITS_TRAFFIC).then(|| settings.clone());
            // Nothing carried outlives the judging, so that it never meets what is in force.
            let carry = Carry::default();
            let setup = PluginBuildContext {
                carry: &carry,
                owner: "judged",
                metadata: None,
                node: &node,
                objects: None,
            };
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
    /// Judges the upstreams in settings of a plugin that were found good otherwise.
    fn split(&self, plugin: &str, mut settings: Value) -> Result<(), ObjectError> {
        references::resolve(&mut settings, self.variables)?;
        let mut upstreams = config::upstreams_in_split(&settings).into_iter();
        upstreams
            .try_for_each(|(path, upstream)| self.upstream(&format!("plugins.{plugin}.{path}"), upstream))
    }
}

/// The settings of a plugin's metadata, checked and completed, where the plugin has a schema of them.
pub(super) fn metadata(
    known: &KnownPlugins<'_>,
    plugin: &str,
    written: config::PluginMetadata,
) -> Result<Value, InvalidSettings> {
    let mut settings = Value::Object(written.settings);
    let followed = references::resolve(&mut settings, known.variables)?;
    if let Some(schema) = known.registry.get(plugin).and_then(|one| one.metadata_schema()) {
        schema::validate(&schema, &mut settings)
            .map_err(|InvalidSettings { path, message }| InvalidSettings::at(path, followed.mask(message)))?;
    }
    Ok(settings)
}
