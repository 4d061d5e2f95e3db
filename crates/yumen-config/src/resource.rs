//! The resources users write: their kinds, their compact stored form, and typed decoding.
//!
//! Knows nothing of stores, plugins' own settings or how a resource is compiled.

mod checks;
mod common;
mod consumer;
mod defect;
mod extra;
mod inline;
mod kind;
mod nodes;
mod place;
mod protection;
mod route;
mod rules;
mod secret;
mod service;
mod ssl;
mod test;
#[cfg(test)]
mod tests;
mod upstream;

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::schema::{self, Invalid};

pub use checks::{
    ActiveCheck, ActiveHealthy, ActiveUnhealthy, CheckType, Checks, PassiveCheck, PassiveHealthy,
    PassiveUnhealthy,
};
pub use common::{Id, Labels, Method, OneOrMany, Plugins, Timeout};
pub use consumer::{Consumer, Credential};
pub(crate) use defect::mark;
pub use defect::{Defect, defects, is_within, take_defects};
pub use extra::{Proto, StreamProtocol, StreamRoute};
pub use inline::{SPLITS_TRAFFIC, upstreams_in, upstreams_in_split};
pub use kind::{
    DeletionRefusal, IdRule, Kind, KindDescriptor, OptionalVerbs, PluginRole, ReferencePlace, ReferenceRule,
    ReferenceScan, TrafficClass, is_plain_id,
};
pub use nodes::{Node, Nodes};
pub(crate) use place::{id_of_place, is_named_by_place, place_of};
pub use place::{in_order, is_place};
pub use protection::{EndpointLimits, OutlierDetection, RetryBudget, SuccessRate, UpstreamLimits};
pub use route::Route;
pub use rules::{ConsumerGroup, GlobalRule, PluginConfig, PluginMetadata};
pub use secret::{Secret, secret_schema};
pub use service::Service;
pub use ssl::{Ssl, SslClient, SslProtocol, SslType};
pub use test::{Expectation, Question, Test};
pub use upstream::{
    Balance, HashOn, HttpVersion, KeepalivePool, OnChange, PassHost, ProxyProtocol, Scheme, Upstream,
    UpstreamTls,
};

/// One resource as the store keeps it: compact text, typed only while it is compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// What it is.
    pub kind: Kind,
    /// Its id within the kind; a credential's is `user/credentials/id`, a secret's `vault/1`.
    pub id: Arc<str>,
    /// Compact JSON, as the user wrote it, without injected defaults.
    pub json: Arc<str>,
}

impl Resource {
    /// A resource of `kind` called `id` whose settings are `value`.
    pub fn new(kind: Kind, id: &str, value: &Value) -> Resource {
        Resource { kind, id: id.into(), json: value.to_string().into() }
    }
}

/// The object's name in problems: `routes/1`.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.name(), self.id)
    }
}

/// A typed resource: what [`decode`] can produce.
pub trait ResourceType: DeserializeOwned + Sized {
    /// The kind it is stored under.
    const KIND: Kind;

    /// The JSON Schema users' text must meet; derived once.
    fn schema() -> &'static Value;

    /// Rules no schema can say, and normalisation such as default ports.
    fn settle(&mut self) -> Result<(), Invalid> {
        Ok(())
    }
}

/// Parses, checks against the schema (which injects defaults), types, and applies the cross-field rules.
pub fn decode<T: ResourceType>(json: &str) -> Result<T, Invalid> {
    let value: Value = serde_json::from_str(json).map_err(Invalid::from_serde)?;
    decode_value(value)
}

/// As [`decode`], from an already parsed value.
pub fn decode_value<T: ResourceType>(mut value: Value) -> Result<T, Invalid> {
    defect::refuse(&value)?;
    schema::validate(T::schema(), &mut value)?;
    let mut resource: T = serde_json::from_value(value).map_err(Invalid::from_serde)?;
    resource.settle()?;
    Ok(resource)
}

/// The schema of a kind, as the schema endpoint shows it.
pub fn schema_of(kind: Kind) -> &'static Value {
    (kind.descriptor().schema)()
}

/// Checks a resource of any kind without keeping the typed form.
pub fn check(kind: Kind, value: Value) -> Result<(), Invalid> {
    (kind.descriptor().check)(value)
}

/// Implements [`ResourceType`] with a schema derived on first use; `settle` names the rules, if any.
macro_rules! resource_type {
    ($type:ty, $kind:expr $(, settle = $settle:path)?) => {
        impl $crate::resource::ResourceType for $type {
            const KIND: $crate::resource::Kind = $kind;

            fn schema() -> &'static serde_json::Value {
                static SCHEMA: std::sync::LazyLock<serde_json::Value> =
                    std::sync::LazyLock::new($crate::schema::of::<$type>);
                &SCHEMA
            }

            $(fn settle(&mut self) -> Result<(), $crate::schema::Invalid> {
                $settle(self)
            })?
        }
    };
}
use resource_type;
