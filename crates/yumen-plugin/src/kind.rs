//! How a plugin announces itself: name, priority, settings and how to build it from them.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use yumen_config::schema::{self, InvalidSettings};

use crate::{Carry, ObjectLookup, Plugin};

/// What a plugin may stand on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServedTraffic {
    /// Requests.
    #[default]
    Http,
    /// Streams: connections and sessions of datagrams whose content is not ours.
    Streams,
    /// Both.
    Both,
}

impl ServedTraffic {
    /// Whether it may stand on a stream route.
    pub fn streams(self) -> bool {
        self != ServedTraffic::Http
    }

    /// Whether it may stand on a route.
    pub fn http(self) -> bool {
        self != ServedTraffic::Streams
    }
}

/// A plugin that can be built from settings.
pub trait PluginFactory: Plugin + Sized {
    /// Its name in configuration.
    const NAME: &'static str;
    /// Its place in the order; higher runs first.
    const PRIORITY: i32;
    /// Its version, shown by the plugin list.
    const VERSION: &'static str = "0.1";
    /// Whether it finds out who the consumer is.
    const IS_AUTH: bool = false;
    /// Whether it is there to refuse requests: left out, it would open what it protects.
    const GUARDS: bool = Self::IS_AUTH;
    /// Whether an instance on the route makes the one of a global rule step back.
    const PREFERS_ROUTE: bool = false;
    /// What it may stand on.
    const SERVES: ServedTraffic = ServedTraffic::Http;
    /// Its settings. Their schema is the plugin's schema: validation, defaults and reference follow.
    type Config: DeserializeOwned + JsonSchema;

    /// Puts what the schema found into words of its own, where the contract asks for them.
    fn reword(refusal: InvalidSettings, _settings: &Value) -> InvalidSettings {
        refusal
    }

    /// Builds it. A message may name the path inside the settings.
    fn build(config: Self::Config, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings>;
}

/// An authentication plugin: consumers and credentials hold settings of it, found by a key.
pub trait ConsumerAuth: PluginFactory {
    /// What a consumer or credential holds.
    type Consumer: DeserializeOwned + JsonSchema + Send + Sync + 'static;
    /// The setting that must differ between all consumers: `key`, `username`.
    const KEY_FIELD: &'static str;

    /// The value of that setting.
    fn key(consumer: &Self::Consumer) -> &str;
}

/// What building a plugin may use.
pub struct PluginBuildContext<'a> {
    /// State that outlives snapshots, such as counters.
    pub carry: &'a Carry,
    /// The object the settings stand in, as `kind/id`: names what is carried.
    pub owner: &'a str,
    /// The plugin's metadata object, if there is one; already validated.
    pub metadata: Option<&'a Value>,
    /// Facts about the node.
    pub node: &'a NodeFacts,
    /// The other objects there are; `None` where settings are judged alone, and nothing will run.
    pub objects: Option<&'a dyn ObjectLookup>,
}

/// Facts about the node that plugins depend on.
#[derive(Debug, Clone, Default)]
pub struct NodeFacts {
    /// How many workers serve.
    pub workers: usize,
    /// Ports of the TLS listeners, in order.
    pub tls_ports: Vec<u16>,
}

type BuildFn = fn(Value, &PluginBuildContext<'_>) -> Result<Arc<dyn Plugin>, InvalidSettings>;
/// The key and the settings of one consumer or credential.
pub type ConsumerKey = (Box<[u8]>, Arc<dyn Any + Send + Sync>);

/// The consumer's side of an authentication plugin.
#[derive(Clone, Copy)]
pub struct ConsumerSettingsKind {
    /// The setting that must differ between all consumers.
    pub key_field: &'static str,
    schema: fn() -> Value,
    parse: fn(Value) -> Result<ConsumerKey, InvalidSettings>,
}

/// A plugin that can be configured.
#[derive(Clone, Copy)]
pub struct PluginKind {
    /// Its name.
    pub name: &'static str,
    /// Its place in the order.
    pub priority: i32,
    /// Its version.
    pub version: &'static str,
    /// Whether it finds out who the consumer is.
    pub is_auth: bool,
    /// Whether it is there to refuse requests: left out, it would open what it protects.
    pub guards: bool,
    /// Whether an instance on the route makes the one of a global rule step back.
    pub prefers_route: bool,
    /// What it may stand on.
    pub serves: ServedTraffic,
    /// The consumer's side, for authentication plugins.
    pub consumer: Option<ConsumerSettingsKind>,
    schema: fn() -> Value,
    metadata_schema: Option<fn() -> Value>,
    reword: fn(InvalidSettings, &Value) -> InvalidSettings,
    build: BuildFn,
}

impl PluginKind {
    /// The kind of plugin `T`.
    pub const fn of<T: PluginFactory>() -> PluginKind {
        PluginKind {
            name: T::NAME,
            priority: T::PRIORITY,
            version: T::VERSION,
            is_auth: T::IS_AUTH,
            guards: T::GUARDS,
            prefers_route: T::PREFERS_ROUTE,
            serves: T::SERVES,
            consumer: None,
            schema: schema::of::<T::Config>,
            metadata_schema: None,
            reword: T::reword,
            build: |settings, setup| {
                let config = serde_json::from_value(settings).map_err(InvalidSettings::from_serde)?;
                Ok(Arc::new(T::build(config, setup)?))
            },
        }
    }

    /// The kind of authentication plugin `T`.
    pub const fn of_auth<T: ConsumerAuth>() -> PluginKind {
        let mut kind = PluginKind::of::<T>();
        kind.consumer = Some(ConsumerSettingsKind {
            key_field: T::KEY_FIELD,
            schema: schema::of::<T::Consumer>,
            parse: |settings| {
                let consumer: T::Consumer =
                    serde_json::from_value(settings).map_err(InvalidSettings::from_serde)?;
                let key = T::key(&consumer).as_bytes().into();
                Ok((key, Arc::new(consumer)))
            },
        });
        kind
    }

    /// The same kind, with a metadata object of shape `M`.
    pub const fn with_metadata<M: JsonSchema>(mut self) -> PluginKind {
        self.metadata_schema = Some(schema::of::<M>);
        self
    }
}

/// A kind with its schemas at hand.
pub struct RegisteredPlugin {
    /// The kind.
    pub kind: PluginKind,
    schema: OnceLock<Value>,
    consumer_schema: OnceLock<Value>,
}

impl RegisteredPlugin {
    /// The JSON schema of its settings.
    pub fn schema(&self) -> &Value {
        self.schema.get_or_init(self.kind.schema)
    }

    /// The JSON schema of what a consumer holds of it.
    pub fn consumer_schema(&self) -> Option<&Value> {
        let consumer = self.kind.consumer.as_ref()?;
        Some(self.consumer_schema.get_or_init(consumer.schema))
    }

    /// The JSON schema of its metadata.
    pub fn metadata_schema(&self) -> Option<Value> {
        self.kind.metadata_schema.map(|schema| schema())
    }

    /// Validates settings, fills in defaults and builds the plugin. `_meta` was taken out before.
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

    /// Validates what a consumer holds of it and takes the key out; `None` where the plugin is not
    /// an authentication plugin.
    pub fn consumer_key(&self, mut settings: Value) -> Option<Result<ConsumerKey, InvalidSettings>> {
        let consumer = self.kind.consumer?;
        let schema = self.consumer_schema()?;
        Some(schema::validate(schema, &mut settings).and_then(|()| (consumer.parse)(settings)))
    }
}

/// All plugins there are, by name.
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

    /// The plugin of this name.
    pub fn get(&self, name: &str) -> Option<&RegisteredPlugin> {
        self.kinds.get(name)
    }

    /// All plugins, by name.
    pub fn iter(&self) -> impl Iterator<Item = &RegisteredPlugin> {
        self.kinds.values()
    }
}
