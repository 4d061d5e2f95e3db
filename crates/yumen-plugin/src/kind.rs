//! Registration of plugins: name, priority, settings and constructor.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use yumen_config::schema::{self, InvalidSettings};

use crate::{Carry, NodeLogSink, ObjectLookup, Plugin, SinkRegistry, VouchedFields};

/// The traffic that a plugin supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServedTraffic {
    /// HTTP requests.
    #[default]
    Http,
    /// TCP streams and UDP sessions.
    Streams,
    /// HTTP requests and streams.
    Both,
}

impl ServedTraffic {
    /// Whether stream routes may have the plugin.
    pub fn streams(self) -> bool {
        self != ServedTraffic::Http
    }

    /// Whether routes may have the plugin.
    pub fn http(self) -> bool {
        self != ServedTraffic::Streams
    }
}

/// The role of a plugin in access control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessRole {
    /// Identifies the consumer; a guard too.
    Authentication,
    /// Refuses, limits or hides: its absence would grant access.
    Guard,
    /// Everything else.
    Ordinary,
}

impl AccessRole {
    /// Whether the plugin identifies the consumer.
    pub fn is_auth(self) -> bool {
        self == AccessRole::Authentication
    }

    /// Whether the absence of the plugin would grant access.
    pub fn guards(self) -> bool {
        self != AccessRole::Ordinary
    }
}

/// A plugin that is built from settings.
pub trait PluginFactory: Plugin + Sized {
    /// Name in the configuration.
    const NAME: &'static str;
    /// Priority; higher runs first.
    const PRIORITY: i32;
    /// Version in the plugin list.
    const VERSION: &'static str = "0.1";
    /// Role, which decides about a route whose plugin cannot run.
    const ROLE: AccessRole = AccessRole::Ordinary;
    /// Whether the plugin identifies the client without credentials in consumers, so that `multi-auth` may contain it.
    const AUTHENTICATES: bool = false;
    /// Whether an instance on the route suppresses that of a global rule.
    const PREFERS_ROUTE: bool = false;
    /// The supported traffic.
    const SERVES: ServedTraffic = ServedTraffic::Http;
    /// Type of the settings. The JSON schema for validation, defaults and reference derives from it.
    type Config: DeserializeOwned + JsonSchema;

    /// Replaces the message of a schema violation, if APISIX has another one.
    fn reword(refusal: InvalidSettings, _settings: &Value) -> InvalidSettings {
        refusal
    }

    /// Builds the plugin. An error may contain the path in the settings.
    fn build(config: Self::Config, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings>;
}

/// An authentication plugin. Consumers and credentials have settings of it, which are found by a key.
pub trait ConsumerAuth: PluginFactory {
    /// Type of the credentials in consumers.
    type Consumer: DeserializeOwned + JsonSchema + Send + Sync + 'static;
    /// The setting that must be unique over all consumers: `key`, `username`.
    const KEY_FIELD: &'static str;

    /// The value of this setting.
    fn key(consumer: &Self::Consumer) -> &str;

    /// Names of the request fields by which the upstream knows users of the consumer.
    fn user_fields(_consumer: &Self::Consumer) -> &[String] {
        &[]
    }

    /// Adds to the credentials the objects that they refer to, such as the upstream of a URL.
    fn complete(
        _consumer: &mut Self::Consumer,
        _setup: &PluginBuildContext<'_>,
    ) -> Result<(), InvalidSettings> {
        Ok(())
    }
}

/// The environment in which a plugin is built.
#[derive(Clone, Copy)]
pub struct PluginBuildContext<'a> {
    /// Carried state, such as counters.
    pub carry: &'a Carry,
    /// The object with the settings, as `kind/id`; part of the names of carried state.
    pub owner: &'a str,
    /// The validated metadata of the plugin, if configured.
    pub metadata: Option<&'a Value>,
    /// Facts about the node.
    pub node: &'a NodeFacts,
    /// Other objects; `None` if the settings are only validated and nothing will run.
    pub objects: Option<&'a dyn ObjectLookup>,
    /// Sinks of log entries; `None` in validation and trials.
    pub sinks: Option<&'a SinkRegistry>,
    /// Builds plugins inside the settings of a plugin; `None` if the settings are only validated.
    pub nested: Option<&'a dyn NestedPlugins>,
}

/// Builds the plugins inside the settings of a plugin, such as those of `multi-auth`.
pub trait NestedPlugins {
    /// Builds the plugin `name` from `settings`, which are at `path` in the settings of the outer plugin.
    fn build(&self, path: &str, name: &str, settings: Value) -> Result<Arc<dyn Plugin>, NestedPluginFault>;
}

/// The reason why a nested plugin was not built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NestedPluginFault {
    /// No plugin has the name.
    Unknown,
    /// This version does not run the plugin.
    Unavailable,
    /// The plugin does not identify consumers.
    NotAuthentication,
    /// The settings are invalid; the path is that of the nested settings.
    Settings(InvalidSettings),
}

impl PluginBuildContext<'_> {
    /// Reports a valid setting at `path` that has no effect, with the remedy.
    pub fn warn(&self, path: &str, message: impl Into<String>, remedy: &str) {
        if let Some(objects) = self.objects {
            objects.warn(path, message.into(), remedy);
        }
    }
}

/// Properties of the node that plugins depend on.
#[derive(Debug, Clone, Default)]
pub struct NodeFacts {
    /// Number of workers.
    pub workers: usize,
    /// Ports of the TLS listeners, in order.
    pub tls_ports: Vec<u16>,
    /// Settings of plugins that belong to the node, by the name of the plugin; null for their defaults.
    pub plugin_attributes: Value,
}

type BuildFn = fn(Value, &PluginBuildContext<'_>) -> Result<Arc<dyn Plugin>, InvalidSettings>;

/// Key and parsed credentials of one consumer or credential object.
#[derive(Clone)]
pub struct ConsumerKey {
    /// The key, unique over all consumers.
    pub key: Box<[u8]>,
    /// Parsed credentials.
    pub auth: Arc<dyn Any + Send + Sync>,
    /// Names of the request fields by which the upstream knows users of the consumer.
    pub vouched_fields: VouchedFields,
}

/// The consumer settings of an authentication plugin.
#[derive(Clone, Copy)]
pub struct ConsumerSettingsKind {
    /// The setting that must be unique over all consumers.
    pub key_field: &'static str,
    schema: fn() -> Value,
    parse: fn(Value, &PluginBuildContext<'_>) -> Result<ConsumerKey, InvalidSettings>,
}

/// A kind of plugin.
#[derive(Clone, Copy)]
pub struct PluginKind {
    /// Name in the configuration.
    pub name: &'static str,
    /// Priority; higher runs first.
    pub priority: i32,
    /// Version in the plugin list.
    pub version: &'static str,
    /// Role of the plugin.
    pub role: AccessRole,
    /// Whether an instance on the route suppresses that of a global rule.
    pub prefers_route: bool,
    /// Whether `multi-auth` may contain the plugin.
    pub may_nest: bool,
    /// The supported traffic.
    pub serves: ServedTraffic,
    /// Consumer settings, for authentication plugins.
    pub consumer: Option<ConsumerSettingsKind>,
    schema: fn() -> Value,
    metadata_schema: Option<fn() -> Value>,
    /// Opens the sink of the node's own log by the metadata of the plugin.
    pub node_log: Option<OpenNodeLog>,
    reword: fn(InvalidSettings, &Value) -> InvalidSettings,
    build: BuildFn,
}

impl PluginKind {
    /// Returns the kind of plugin `T`.
    pub const fn of<T: PluginFactory>() -> PluginKind {
        PluginKind {
            name: T::NAME,
            priority: T::PRIORITY,
            version: T::VERSION,
            role: T::ROLE,
            prefers_route: T::PREFERS_ROUTE,
            may_nest: T::AUTHENTICATES || matches!(T::ROLE, AccessRole::Authentication),
            serves: T::SERVES,
            consumer: None,
            schema: schema::of::<T::Config>,
            metadata_schema: None,
            node_log: None,
            reword: T::reword,
            build: |settings, setup| {
                let config = serde_json::from_value(settings).map_err(InvalidSettings::from_serde)?;
                Ok(Arc::new(T::build(config, setup)?))
            },
        }
    }

    /// Returns the kind of authentication plugin `T`.
    pub const fn of_auth<T: ConsumerAuth>() -> PluginKind {
        let mut kind = PluginKind::of::<T>();
        kind.consumer = Some(ConsumerSettingsKind {
            key_field: T::KEY_FIELD,
            schema: schema::of::<T::Consumer>,
            parse: |settings, setup| {
                let mut consumer: T::Consumer =
                    serde_json::from_value(settings).map_err(InvalidSettings::from_serde)?;
                T::complete(&mut consumer, setup)?;
                let key = T::key(&consumer);
                // Every client knows the empty key.
                if key.is_empty() {
                    let message =
                        format!("\"{}\" must not be empty: it would identify every client", T::KEY_FIELD);
                    return Err(InvalidSettings::at(T::KEY_FIELD, message));
                }
                let key = key.as_bytes().into();
                let vouched_fields =
                    T::user_fields(&consumer).iter().map(|name| Box::from(&**name)).collect();
                Ok(ConsumerKey { key, auth: Arc::new(consumer), vouched_fields })
            },
        });
        kind
    }

    /// The same kind, whose metadata opens the sink of the node's own log.
    pub const fn with_node_log(mut self, open: OpenNodeLog) -> PluginKind {
        self.node_log = Some(open);
        self
    }

    /// The same kind with metadata of type `M`.
    pub const fn with_metadata<M: JsonSchema>(mut self) -> PluginKind {
        self.metadata_schema = Some(schema::of::<M>);
        self
    }
}

/// Opens the sink of the node's own log by metadata.
pub type OpenNodeLog = fn(&Value, &SinkRegistry) -> Result<NodeLogSink, InvalidSettings>;

/// A kind with its JSON schemas, which are generated on first use.
pub struct RegisteredPlugin {
    /// The kind.
    pub kind: PluginKind,
    schema: OnceLock<Value>,
    consumer_schema: OnceLock<Value>,
}

impl RegisteredPlugin {
    /// The JSON schema of the settings.
    pub fn schema(&self) -> &Value {
        self.schema.get_or_init(self.kind.schema)
    }

    /// The JSON schema of the credentials in consumers.
    pub fn consumer_schema(&self) -> Option<&Value> {
        let consumer = self.kind.consumer.as_ref()?;
        Some(self.consumer_schema.get_or_init(consumer.schema))
    }

    /// The JSON schema of the metadata.
    pub fn metadata_schema(&self) -> Option<Value> {
        self.kind.metadata_schema.map(|schema| schema())
    }

    /// Validates the settings, applies defaults and builds the plugin. The caller has removed `_meta`.
    pub fn build(
        &self,
        mut settings: Value,
        setup: &PluginBuildContext<'_>,
    ) -> Result<Arc<dyn Plugin>, InvalidSettings> {
        if let Err(refusal) = schema::validate(self.schema(), &mut settings) {
            return Err((self.kind.reword)(refusal, &settings));
        }
        (self.kind.build)(settings, setup)
    }

    /// Validates credentials and extracts their key; `None` if the plugin does not authenticate.
    pub fn consumer_key(
        &self,
        mut settings: Value,
        setup: &PluginBuildContext<'_>,
    ) -> Option<Result<ConsumerKey, InvalidSettings>> {
        let consumer = self.kind.consumer?;
        let schema = self.consumer_schema()?;
        Some(schema::validate(schema, &mut settings).and_then(|()| (consumer.parse)(settings, setup)))
    }
}

/// All plugins by name.
pub struct PluginRegistry {
    kinds: BTreeMap<&'static str, RegisteredPlugin>,
}

impl PluginRegistry {
    /// A registry of these kinds.
    pub fn new(kinds: &[PluginKind]) -> PluginRegistry {
        let registered = |kind: &PluginKind| {
            let entry =
                RegisteredPlugin { kind: *kind, schema: OnceLock::new(), consumer_schema: OnceLock::new() };
            (kind.name, entry)
        };
        PluginRegistry { kinds: kinds.iter().map(registered).collect() }
    }

    /// The plugin with this name.
    pub fn get(&self, name: &str) -> Option<&RegisteredPlugin> {
        self.kinds.get(name)
    }

    /// All plugins, by name.
    pub fn iter(&self) -> impl Iterator<Item = &RegisteredPlugin> {
        self.kinds.values()
    }
}
