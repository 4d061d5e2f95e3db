//! Resources as users write them: kinds, compact stored form, typed decoding.
//!
//! Independent of stores, of the settings of plugins, and of compilation.

mod access;
mod actions;
mod backend;
mod checks;
mod common;
mod consumer;
mod defect;
mod host_names;
mod inline;
mod kind;
mod listener;
mod nodes;
mod position_id;
mod protection;
mod reply_actions;
mod route;
mod route_match;
mod rules;
mod scope;
mod secret;
mod service;
mod ssl;
mod stream_route;
mod test;
#[cfg(test)]
mod tests;
mod upstream;

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::schema::{self, InvalidSettings};

pub use access::{
    AccessSpec, AuthCacheDuration, AuthCacheSpec, AuthRequestSpec, BasicAuthFileSpec, ClientCertificateSpec,
    SatisfySpec,
};
pub use actions::{
    ActionStage, CorsSpec, ExternalAuthProtocol, ExternalAuthSpec, FieldEditsSpec, FieldPairs, MirrorSpec,
    PathEditSpec, RedirectSpec, RedirectWhenSpec, RespondSpec, RewriteSpec, RouteActionsSpec,
};
pub use backend::{
    BackendActionsSpec, BackendSpec, CanaryHeaderSpec, CanarySpec, CookieAttributes, RetrySpec, SameSiteSpec,
    SessionKind, SessionMode, SessionSpec,
};
pub use checks::{
    ActiveCheck, ActiveHealthy, ActiveUnhealthy, CheckType, HealthCheckSpec, PassiveCheck, PassiveHealthy,
    PassiveUnhealthy,
};
pub use common::{Labels, OneOrMany, Plugins, ResourceId, RouteMethod, TimeoutSpec};
pub use consumer::{ConsumerSpec, CredentialSpec};
pub use defect::{ResourceDefect, defects, is_within, mark, take_defects};
pub use inline::{SPLITS_TRAFFIC, native_upstream_ids, upstreams_in, upstreams_in_split};
pub use kind::{
    AdminApiShape, DeletionRefusal, IdRule, Kind, KindDescriptor, KindNames, KindReferences, OptionalVerbs,
    PluginRole, ReferencePlace, ReferenceRule, ReferenceScan, TrafficClass, is_dot_segment, is_plain_id,
};
pub use listener::{ListenerProtocolSpec, ListenerRealIpSpec, ListenerSpec};
pub use nodes::{UpstreamNode, UpstreamNodes};
pub(crate) use position_id::{id_of_position, is_named_by_position, position_of};
pub use position_id::{is_position_id, natural_order_key};
pub use protection::{
    EndpointLimitsSpec, OutlierDetectionSpec, RetryBudgetSpec, SuccessRateSpec, UpstreamLimitsSpec,
};
pub use reply_actions::{
    ErrorFormat, ErrorPagesSpec, ErrorResponsesSpec, ForwardedFieldsSpec, HstsSpec, ResponseRewriteSpec,
    RouteLimitsSpec, TextReplacementSpec,
};
pub use route::RouteSpec;
pub use route_match::{FieldMatchSpec, LiteralPathsSpec, PathRegexSpec, RouteMatchSpec};
pub use rules::{ConsumerGroup, GlobalRule, PluginConfig, PluginMetadata};
pub use scope::{ClientCertMode, ScopeClientSpec, ScopeSpec, ScopeTlsSpec, TlsModeSpec, WildcardLabels};
pub use secret::{SecretSpec, secret_schema};
pub use service::ServiceSpec;
pub use ssl::{PEM_CHARACTERS_MAX, SslClientSpec, SslProtocol, SslSpec, SslType};
pub use stream_route::{ProtoSpec, StreamRouteProtocol, StreamRouteSpec};
pub use test::{Expectation, Question, Test};
pub use upstream::{
    BalancerType, HashOn, KeepalivePool, OnChangeSpec, PassHostMode, ProxyProtocolSpec, SanSpec, SchemeSpec,
    UpstreamHttpVersion, UpstreamSpec, UpstreamTlsSpec,
};

/// One resource as the store keeps it: compact text, typed only while it is compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The kind.
    pub kind: Kind,
    /// The id within the kind; `user/credentials/id` for a credential, `vault/1` for a secret.
    pub id: Arc<str>,
    /// Compact JSON as the user wrote it, without injected defaults.
    pub json: Arc<str>,
}

impl Resource {
    /// Serializes `value` as a resource of `kind` with the id `id`.
    pub fn new(kind: Kind, id: &str, value: &Value) -> Resource {
        Resource { kind, id: id.into(), json: value.to_string().into() }
    }
}

/// Formats the name of the object in problems: `routes/1`.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.name(), self.id)
    }
}

/// A typed resource, the result of [`decode`].
pub trait ResourceType: DeserializeOwned + Sized {
    /// The kind under which the resource is stored.
    const KIND: Kind;

    /// The JSON Schema of the user's text; derived once.
    fn schema() -> &'static Value;

    /// Applies the rules whose messages take precedence over those of the schema.
    fn screen(_written: &Value) -> Result<(), InvalidSettings> {
        Ok(())
    }

    /// Applies the rules that the schema cannot express, and normalises values such as default ports.
    fn settle(&mut self) -> Result<(), InvalidSettings> {
        Ok(())
    }
}

/// Parses JSON, validates it against the schema, which injects defaults, converts it, and applies the
/// cross-field rules.
pub fn decode<T: ResourceType>(json: &str) -> Result<T, InvalidSettings> {
    let value: Value = serde_json::from_str(json).map_err(InvalidSettings::from_serde)?;
    decode_value(value)
}

/// As [`decode`], from an already parsed value.
pub fn decode_value<T: ResourceType>(mut value: Value) -> Result<T, InvalidSettings> {
    // A marked resource must not be used, even if the rest of its text is valid.
    defect::refuse(&value)?;
    T::screen(&value)?;
    // Before typed decoding, because its messages are the contract and name a path; serde's do not.
    schema::validate(T::schema(), &mut value).map_err(|invalid| host_names::with_remedy(invalid, &value))?;
    let mut resource: T = serde_json::from_value(value).map_err(InvalidSettings::from_serde)?;
    resource.settle()?;
    Ok(resource)
}

/// The schema of a kind, as the schema endpoint serves it.
pub fn schema_of(kind: Kind) -> &'static Value {
    (kind.descriptor().schema)()
}

/// Validates a resource of any kind without keeping the typed form.
pub fn check(kind: Kind, value: Value) -> Result<(), InvalidSettings> {
    (kind.descriptor().check)(value)
}

/// Implements [`ResourceType`] with a schema derived on first use; `screen` and `settle` are the functions with
/// the rules before and after the schema, if any.
macro_rules! resource_type {
    ($type:ty, $kind:expr $(, screen = $screen:path)? $(, settle = $settle:path)?) => {
        impl $crate::resource::ResourceType for $type {
            const KIND: $crate::resource::Kind = $kind;

            fn schema() -> &'static serde_json::Value {
                // Derivation costs more than a validation, and the schema never changes.
                static SCHEMA: std::sync::LazyLock<serde_json::Value> =
                    std::sync::LazyLock::new($crate::schema::of::<$type>);
                &SCHEMA
            }

            $(fn screen(written: &serde_json::Value) -> Result<(), $crate::schema::InvalidSettings> {
                $screen(written)
            })?

            $(fn settle(&mut self) -> Result<(), $crate::schema::InvalidSettings> {
                $settle(self)
            })?
        }
    };
}
use resource_type;
