//! `consumer-restriction`: admits or refuses requests by consumer, consumer group, service or route.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, PluginBuildContext, PluginFactory,
    Step,
};

use crate::text::final_status;

#[cfg(test)]
mod tests;

/// The property of a request that the lists contain.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RestrictionType {
    /// The name of the consumer.
    #[default]
    ConsumerName,
    /// The id of the service.
    ServiceId,
    /// The id of the route.
    RouteId,
    /// The id of the consumer's group.
    ConsumerGroupId,
}

impl RestrictionType {
    fn name(self) -> &'static str {
        match self {
            RestrictionType::ConsumerName => "consumer_name",
            RestrictionType::ServiceId => "service_id",
            RestrictionType::RouteId => "route_id",
            RestrictionType::ConsumerGroupId => "consumer_group_id",
        }
    }
}

fn type_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "string",
        "enum": ["consumer_name", "service_id", "route_id", "consumer_group_id"],
        "default": "consumer_name"
    })
}

/// The methods that one entry may use.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct AllowedMethods {
    /// Name or id, according to `type`.
    pub user: Option<String>,
    /// Methods that are allowed for it.
    #[schemars(length(min = 1))]
    pub methods: Option<Vec<AllowedMethod>>,
}

/// One HTTP method.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, description = "HTTP method", extend("enum" = [
    "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "TRACE", "PURGE"
]))]
pub(crate) struct AllowedMethod(String);

/// Settings of `consumer-restriction`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("anyOf" = [
    {"required": ["blacklist"]}, {"required": ["whitelist"]}, {"required": ["allowed_by_methods"]}
]))]
pub(crate) struct ConsumerRestrictionSettings {
    /// The property that is compared with the lists.
    #[serde(rename = "type", default)]
    #[schemars(schema_with = "type_schema")]
    pub kind: RestrictionType,
    /// Names or ids that are refused.
    #[schemars(length(min = 1))]
    pub blacklist: Option<Vec<String>>,
    /// The only names or ids that are admitted.
    #[schemars(length(min = 1))]
    pub whitelist: Option<Vec<String>>,
    /// Methods by name or id. An entry of the whitelist may use all methods.
    pub allowed_by_methods: Option<Vec<AllowedMethods>>,
    /// Status of the refusal.
    #[serde(default = "rejected_code")]
    #[schemars(range(min = 200))]
    pub rejected_code: u64,
    /// Message in the body of the refusal.
    pub rejected_msg: Option<String>,
}

fn rejected_code() -> u64 {
    403
}

type Names = HashSet<Box<str>, foldhash::fast::RandomState>;

/// The compiled lists.
#[derive(Debug)]
pub(crate) struct ConsumerRestriction {
    kind: RestrictionType,
    blacklist: Names,
    whitelist: Names,
    allowed_by_methods: Box<[AllowedMethods]>,
    rejected_code: u16,
    rejected_msg: Box<str>,
}

impl PluginFactory for ConsumerRestriction {
    const NAME: &'static str = "consumer-restriction";
    const PRIORITY: i32 = 2400;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = ConsumerRestrictionSettings;

    fn build(
        config: ConsumerRestrictionSettings,
        _setup: &PluginBuildContext<'_>,
    ) -> Result<Self, InvalidSettings> {
        let names = |list: Option<Vec<String>>| -> Names {
            list.unwrap_or_default().into_iter().map(Into::into).collect()
        };
        let rejected_msg =
            config.rejected_msg.unwrap_or_else(|| format!("The {} is forbidden.", config.kind.name()));
        Ok(ConsumerRestriction {
            kind: config.kind,
            blacklist: names(config.blacklist),
            whitelist: names(config.whitelist),
            allowed_by_methods: config.allowed_by_methods.unwrap_or_default().into(),
            // A status has three digits (RFC 9112 §4).
            rejected_code: final_status(config.rejected_code),
            rejected_msg: rejected_msg.into(),
        })
    }
}

impl Plugin for ConsumerRestriction {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        // As in APISIX, a request without the value is refused even if there is only a blacklist.
        let Some(value) = self.value(ex).filter(|value| !value.is_empty()) else {
            let kind = self.kind.name();
            let message = format!("The request is rejected, please check the {kind} for this request");
            return Step::Respond(LocalResponse::message(401, &message));
        };
        if self.admits(value, ex.request.method_name()) {
            return Step::Continue;
        }
        Step::Respond(LocalResponse::message(self.rejected_code, &self.rejected_msg))
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

impl ConsumerRestriction {
    fn value<'s>(&self, ex: &Exchange<'s>) -> Option<&'s str> {
        match self.kind {
            RestrictionType::ConsumerName => ex.consumer.map(|consumer| &*consumer.username),
            RestrictionType::ServiceId => ex.route.info.map(|route| &*route.service_id),
            RestrictionType::RouteId => ex.route.info.map(|route| &*route.id),
            RestrictionType::ConsumerGroupId => ex.consumer.and_then(|consumer| consumer.group_id.as_deref()),
        }
    }

    fn admits(&self, value: &str, method: &[u8]) -> bool {
        if self.blacklist.contains(value) {
            return false;
        }
        // As in APISIX, the whitelist takes precedence over `allowed_by_methods`.
        if self.whitelist.contains(value) {
            return true;
        }
        self.whitelist.is_empty() && self.allows_method(value, method)
    }

    /// The first entry for the value decides. A value without an entry may use all methods.
    fn allows_method(&self, value: &str, method: &[u8]) -> bool {
        let mut entries = self.allowed_by_methods.iter();
        let Some(entry) = entries.find(|entry| entry.user.as_deref() == Some(value)) else {
            return true;
        };
        entry.methods.iter().flatten().any(|allowed| allowed.0.as_bytes() == method)
    }
}
