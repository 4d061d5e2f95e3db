//! `consumer-restriction`: admits or refuses by consumer, consumer group, service or route.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::Invalid;
use yumen_plugin::{Configure, Exchange, Foreseen, Phases, Plugin, Response, Setup, Step};

use crate::text::answerable;

#[cfg(test)]
mod tests;

/// What is restricted.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Type {
    /// The consumer's name.
    #[default]
    ConsumerName,
    /// The service's id.
    ServiceId,
    /// The route's id.
    RouteId,
    /// The id of the consumer's group.
    ConsumerGroupId,
}

impl Type {
    fn name(self) -> &'static str {
        match self {
            Type::ConsumerName => "consumer_name",
            Type::ServiceId => "service_id",
            Type::RouteId => "route_id",
            Type::ConsumerGroupId => "consumer_group_id",
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

/// The methods one consumer may use.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct AllowedMethods {
    /// What is restricted: a name or an id.
    pub user: Option<String>,
    /// What it may use.
    #[schemars(length(min = 1))]
    pub methods: Option<Vec<Method>>,
}

/// A method.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline, description = "HTTP method", extend("enum" = [
    "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "TRACE", "PURGE"
]))]
pub(crate) struct Method(String);

/// Settings of `consumer-restriction`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("anyOf" = [
    {"required": ["blacklist"]}, {"required": ["whitelist"]}, {"required": ["allowed_by_methods"]}
]))]
pub(crate) struct Config {
    /// What is restricted.
    #[serde(rename = "type", default)]
    #[schemars(schema_with = "type_schema")]
    pub kind: Type,
    /// Who is refused.
    #[schemars(length(min = 1))]
    pub blacklist: Option<Vec<String>>,
    /// Who alone is admitted.
    #[schemars(length(min = 1))]
    pub whitelist: Option<Vec<String>>,
    /// Who may use just some methods. Who is in the whitelist may use all.
    pub allowed_by_methods: Option<Vec<AllowedMethods>>,
    /// Status of the refusal.
    #[serde(default = "rejected_code")]
    #[schemars(range(min = 200))]
    pub rejected_code: u64,
    /// What a refused client is told.
    pub rejected_msg: Option<String>,
}

fn rejected_code() -> u64 {
    403
}

type Names = HashSet<Box<str>, foldhash::fast::RandomState>;

/// The plugin.
#[derive(Debug)]
pub(crate) struct ConsumerRestriction {
    kind: Type,
    blacklist: Names,
    whitelist: Names,
    allowed_by_methods: Box<[AllowedMethods]>,
    rejected_code: u16,
    rejected_msg: Box<str>,
}

impl Configure for ConsumerRestriction {
    const NAME: &'static str = "consumer-restriction";
    const PRIORITY: i32 = 2400;
    const GUARDS: bool = true;
    type Config = Config;

    fn build(config: Config, _setup: &Setup<'_>) -> Result<Self, Invalid> {
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
            // A status line has room for three digits (RFC 9112 §4).
            rejected_code: answerable(config.rejected_code),
            rejected_msg: rejected_msg.into(),
        })
    }
}

impl Plugin for ConsumerRestriction {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let Some(value) = self.value(ex).filter(|value| !value.is_empty()) else {
            let kind = self.kind.name();
            let message = format!("The request is rejected, please check the {kind} for this request");
            return Step::Respond(Response::message(401, &message));
        };
        if self.admits(value, ex.request.method_name()) {
            return Step::Continue;
        }
        Step::Respond(Response::message(self.rejected_code, &self.rejected_msg))
    }

    fn foresee(&self, phase: Phases, ex: &mut Exchange<'_>) -> Foreseen {
        Foreseen::by_running(self, phase, ex)
    }
}

impl ConsumerRestriction {
    fn value<'s>(&self, ex: &Exchange<'s>) -> Option<&'s str> {
        match self.kind {
            Type::ConsumerName => ex.consumer.map(|consumer| &*consumer.username),
            Type::ServiceId => ex.route.map(|route| &*route.service_id),
            Type::RouteId => ex.route.map(|route| &*route.id),
            Type::ConsumerGroupId => ex.consumer.and_then(|consumer| consumer.group_id.as_deref()),
        }
    }

    fn admits(&self, value: &str, method: &[u8]) -> bool {
        if self.blacklist.contains(value) {
            return false;
        }
        if self.whitelist.contains(value) {
            return true;
        }
        self.whitelist.is_empty() && self.allows_method(value, method)
    }

    /// The first entry of a user counts; who has none may use all methods.
    fn allows_method(&self, value: &str, method: &[u8]) -> bool {
        let mut entries = self.allowed_by_methods.iter();
        let Some(entry) = entries.find(|entry| entry.user.as_deref() == Some(value)) else {
            return true;
        };
        entry.methods.iter().flatten().any(|allowed| allowed.0.as_bytes() == method)
    }
}
