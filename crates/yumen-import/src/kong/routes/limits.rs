//! Limits that several resulting routes share: those of a route that becomes several, of a service whose routes repeat them,
//! and global ones.

use serde_json::{Map, Value, json};
use yumen_config::{Kind, Resource};

use super::super::ids::IdAllocator;
use super::super::plugins::{LIMIT, SERVICE_KEY};
use super::super::scopes::{LimitOwner, PluginUse};
use super::super::services::KongServices;

/// Kong's plugins that become a limit.
const KONG_LIMITS: [&str; 2] = ["rate-limiting", "rate-limiting-advanced"];

/// Name of the counters that routes share.
pub(super) enum LimitName {
    /// The limit of one route that becomes several.
    Route(String),
    /// The limit of a service.
    Service(String),
    Global,
}

impl LimitName {
    /// The limit among the plugins of a route, unless one resulting route counts alone.
    pub(super) fn of(
        uses: &[&PluginUse],
        services: &KongServices,
        first: Option<&String>,
        routes: usize,
    ) -> Option<LimitName> {
        let limit = uses.iter().find(|one| KONG_LIMITS.contains(&one.name.as_str()))?;
        match limit.scope.limit_owner() {
            LimitOwner::Route => first.filter(|_| routes > 1).map(|first| LimitName::Route(first.clone())),
            LimitOwner::Service(at) => Some(LimitName::Service(services.all[at].id.clone())),
            LimitOwner::Global => Some(LimitName::Global),
        }
    }

    fn group(&self) -> String {
        match self {
            LimitName::Route(route) => format!("kong-route-{route}"),
            LimitName::Service(service) => format!("kong-service-{service}"),
            LimitName::Global => "kong-global".to_owned(),
        }
    }

    /// The name of a plugin config for the limit.
    fn config(&self) -> String {
        match self {
            LimitName::Route(route) => route.clone(),
            _ => self.group(),
        }
    }
}

/// Limits with several windows, as plugin configs: the routes of a plugin config share its counters.
pub(super) struct SharedLimits {
    ids: IdAllocator,
    all: Vec<SharedLimit>,
}

/// The limit of one plugin config.
struct SharedLimit {
    group: String,
    settings: Value,
    id: String,
}

/// Whether Kong counts the requests of each service separately.
fn counts_services(limit: &Value) -> bool {
    limit["key_type"] == "constant"
        || limit["rules"][0]["key"].as_str().is_some_and(|key| key.starts_with(SERVICE_KEY))
}

impl Default for SharedLimits {
    fn default() -> SharedLimits {
        SharedLimits { ids: IdAllocator::of([]), all: Vec::new() }
    }
}

impl SharedLimits {
    /// Makes routes share their limit: by a `group`, or with several windows, which cannot have one, by a plugin config,
    /// whose id is returned. `shared` are the plugins that the route inherits from its service.
    pub(super) fn share(
        &mut self,
        plugins: &mut Map<String, Value>,
        shared: &Map<String, Value>,
        name: &LimitName,
    ) -> Option<String> {
        let is_global = matches!(name, LimitName::Global);
        // An inherited limit of one service is counted there, whichever of its routes is used.
        let is_inherited = shared.get(LIMIT) == plugins.get(LIMIT) && !is_global;
        let settings = plugins.get_mut(LIMIT).filter(|_| !is_inherited)?;
        if settings.get("group").is_some() || (is_global && counts_services(settings)) {
            return None;
        }
        if settings.get("rules").is_none() {
            settings["group"] = json!(name.group());
            return None;
        }
        let settings = plugins.shift_remove(LIMIT)?;
        Some(self.id(name, settings))
    }

    fn id(&mut self, name: &LimitName, settings: Value) -> String {
        let group = name.group();
        let is_same = |one: &&SharedLimit| one.group == group && one.settings == settings;
        if let Some(known) = self.all.iter().find(is_same) {
            return known.id.clone();
        }
        let id = self.ids.allocate(&name.config());
        self.all.push(SharedLimit { group, settings, id: id.clone() });
        id
    }

    pub(super) fn resources(self) -> impl Iterator<Item = Resource> {
        let resource = |SharedLimit { id, settings, .. }: SharedLimit| {
            Resource::new(Kind::PluginConfigs, &id, &json!({ "plugins": { LIMIT: settings } }))
        };
        self.all.into_iter().map(resource)
    }
}
