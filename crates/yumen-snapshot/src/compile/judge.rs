//! One object judged by its text alone: what the compiler would quarantine it for, before it is stored.
//!
//! Made of the compiler's own steps, so that both always agree. What this version cannot serve yet, and
//! what an object refers to, is no flaw of the object.

use serde::Deserialize;
use serde_json::{Map, Value};
use yumen_config::resource as config;
use yumen_config::resource::{Plugins, decode_value};
use yumen_config::{Invalid, Kind, schema};
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::proto::Protos;
use yumen_plugin::{Carry, MissingPlugins, Registry, Setup};

use super::settings::{Known, PluginFlaw, Side, is_disabled};
use super::{LoadCertificate, PairFlaw, Variables, certificate, references, route, stream, upstream};

/// What judging depends on beside the object.
#[derive(Clone, Copy)]
pub struct Judge<'j> {
    /// All plugins there are.
    pub registry: &'j Registry,
    /// Plugins that may be configured although this version does not run them.
    pub missing: &'j MissingPlugins,
    /// Loads certificates.
    pub load_certificate: &'j LoadCertificate,
    /// The environment that `$env://` in settings refers to.
    pub variables: &'j Variables,
}

/// Why an object was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// It does not meet the rules of its kind.
    Object(Invalid),
    /// One of its plugins was refused.
    Plugin {
        /// The plugin's name.
        name: String,
        /// Why.
        flaw: PluginFlaw,
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
        flaw: PairFlaw,
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

impl From<Invalid> for Flaw {
    fn from(invalid: Invalid) -> Flaw {
        Flaw::Object(invalid)
    }
}

impl Judge<'_> {
    /// Judges `value` as an object of `kind`.
    pub fn judge(&self, kind: Kind, value: &Value) -> Result<(), Flaw> {
        self.object(kind, value)?;
        let upstreams = value.as_object().map(|object| config::upstreams_in(kind, object));
        // Those in plugins are judged with the plugin: what they say may be a reference.
        let own = upstreams.into_iter().flatten().filter(|(path, _)| !path.starts_with("plugins."));
        own.into_iter().try_for_each(|(path, upstream)| self.upstream(&path, upstream))
    }

    fn upstream(&self, path: &str, upstream: &Map<String, Value>) -> Result<(), Flaw> {
        let tls = upstream.get("tls").and_then(|tls| config::UpstreamTls::deserialize(tls).ok());
        let checked = tls.map_or(Ok(()), |tls| upstream::check_tls(self.load_certificate, &tls));
        let dot = if path.is_empty() { "" } else { "." };
        checked.map_err(|(at, message)| Flaw::Upstream { path: format!("{path}{dot}{at}"), message })
    }

    fn object(&self, kind: Kind, value: &Value) -> Result<(), Flaw> {
        let copy = value.clone();
        match kind {
            Kind::Routes => {
                let written = decode_value::<config::Route>(copy)?;
                route::conditions(&written)?;
                self.plugins(written.plugins, Side::Traffic)
            }
            Kind::Services => self.plugins(decode_value::<config::Service>(copy)?.plugins, Side::Traffic),
            Kind::PluginConfigs => self.set(decode_value::<config::PluginConfig>(copy)?.plugins),
            Kind::ConsumerGroups => self.set(decode_value::<config::ConsumerGroup>(copy)?.plugins),
            Kind::GlobalRules => self.set(decode_value::<config::GlobalRule>(copy)?.plugins),
            Kind::Consumers => self.plugins(decode_value::<config::Consumer>(copy)?.plugins, Side::Consumer),
            Kind::Credentials => {
                self.plugins(decode_value::<config::Credential>(copy)?.plugins, Side::Credential)
            }
            Kind::PluginMetadata => {
                let written = decode_value::<config::PluginMetadata>(copy)?;
                let id = written.id.as_ref().map_or("", config::Id::as_str).to_owned();
                Ok(metadata(&self.known(), &id, written).map(drop)?)
            }
            Kind::Ssls => {
                let written = decode_value::<config::Ssl>(copy)?;
                certificate::load(self.load_certificate, self.variables, &written).map(drop)
            }
            Kind::StreamRoutes => {
                let written = decode_value::<config::StreamRoute>(copy)?;
                stream::check_matching(&written).map_err(|(path, message)| Invalid::at(path, message))?;
                self.plugins(written.plugins, Side::Stream)
            }
            Kind::Protos => Ok(Protos::compile(&decode_value::<config::Proto>(copy)?.content).map(drop)?),
            Kind::Upstreams | Kind::Secrets | Kind::Tests => Ok(config::check(kind, copy)?),
        }
    }

    fn known(&self) -> Known<'_> {
        Known { registry: self.registry, missing: self.missing, variables: self.variables }
    }

    fn set(&self, plugins: Plugins) -> Result<(), Flaw> {
        self.plugins(Some(plugins), Side::Traffic)
    }

    fn plugins(&self, plugins: Option<Plugins>, side: Side) -> Result<(), Flaw> {
        let known = self.known();
        let node = NodeFacts { workers: 1, tls_ports: Vec::new() };
        for (name, settings) in plugins.into_iter().flatten() {
            let split = (name == config::SPLITS_TRAFFIC).then(|| settings.clone());
            // Nothing carried outlives the judging, so that it never meets what is in force.
            let carry = Carry::default();
            let setup = Setup { carry: &carry, owner: "judged", metadata: None, node: &node, objects: None };
            if let Err(flaw) = known.parse(&name, settings, side, &setup) {
                return Err(Flaw::Plugin { name, flaw });
            }
            if let Some(split) = split.filter(|settings| !is_disabled(settings)) {
                self.split(&name, split)?;
            }
        }
        Ok(())
    }
}

impl Judge<'_> {
    /// Judges the upstreams in settings of a plugin that were found good otherwise.
    fn split(&self, plugin: &str, mut settings: Value) -> Result<(), Flaw> {
        references::resolve(&mut settings, self.variables)?;
        let mut upstreams = config::upstreams_in_split(&settings).into_iter();
        upstreams
            .try_for_each(|(path, upstream)| self.upstream(&format!("plugins.{plugin}.{path}"), upstream))
    }
}

/// The settings of a plugin's metadata, checked and completed, where the plugin has a schema of them.
pub(super) fn metadata(
    known: &Known<'_>,
    plugin: &str,
    written: config::PluginMetadata,
) -> Result<Value, Invalid> {
    let mut settings = Value::Object(written.settings);
    let followed = references::resolve(&mut settings, known.variables)?;
    if let Some(schema) = known.registry.get(plugin).and_then(|one| one.metadata_schema()) {
        schema::validate(&schema, &mut settings)
            .map_err(|Invalid { path, message }| Invalid::at(path, followed.mask(message)))?;
    }
    Ok(settings)
}
