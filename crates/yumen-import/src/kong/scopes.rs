//! Scopes of plugins.
//!
//! In Kong, the instance with the closest scope replaces all others of its name, global ones included. A global rule of
//! the gateway would run beside them, so global plugins are attached to the services.

use serde_json::{Map, Value, json};

use super::document::{EntityIndex, KongDocument};
use super::entity::{KongEntity, UNSET_FIELDS};
use super::guards::is_guard;
use super::plugins::PluginTranslator;
use super::protocols::is_stream_protocol;
use crate::report::{ImportReport, dropped};

/// Plugins that only observe. As global rules they also observe requests that no route matches.
const OBSERVERS: [&str; 12] = [
    "prometheus",
    "correlation-id",
    "http-log",
    "file-log",
    "tcp-log",
    "udp-log",
    "syslog",
    "loggly",
    "datadog",
    "statsd",
    "zipkin",
    "opentelemetry",
];

/// Fields that decide whether and where a plugin applies.
const SETTINGS: [&str; 10] = [
    "name",
    "config",
    "_config",
    "enabled",
    "protocols",
    "ordering",
    "service",
    "route",
    "consumer",
    "consumer_group",
];

/// One enabled plugin of the file.
#[derive(Debug, Clone)]
pub(super) struct PluginUse {
    pub(super) label: String,
    /// Name in Kong.
    pub(super) name: String,
    /// The settings.
    pub(super) config: KongEntity,
    /// Conditions of the plugin, from its protocols and its scope.
    pub(super) filter: Vec<Value>,
    pub(super) scope: PluginScope,
    pub(super) standing: PluginStanding,
    /// Whether the protocols of the plugin include one of streams.
    names_streams: bool,
}

/// Whether a plugin can be converted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum PluginStanding {
    /// All settings are known.
    #[default]
    Known,
    /// A setting depends on a variable that is not set, or on shared settings that are missing.
    Unset,
    /// Requests are refused in its place, and the report names the reason.
    Closing,
}

/// The entities that a plugin is attached to, by index; none for a global plugin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct PluginScope {
    pub(super) service: Option<usize>,
    pub(super) route: Option<usize>,
    pub(super) consumer: Option<usize>,
    pub(super) group: Option<usize>,
}

/// The object whose requests a limit counts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitOwner {
    Global,
    Service(usize),
    Route,
}

impl PluginScope {
    /// Whether the plugin is attached to nothing.
    pub(super) fn is_global(self) -> bool {
        self == PluginScope::default()
    }

    /// Whether the plugin is attached to a consumer or a group.
    pub(super) fn has_consumer(self) -> bool {
        self.consumer.is_some() || self.group.is_some()
    }

    /// The owner of the counters of a limit with this scope.
    pub(super) fn limit_owner(self) -> LimitOwner {
        match (self.route, self.service) {
            (Some(_), _) => LimitOwner::Route,
            (None, Some(service)) => LimitOwner::Service(service),
            (None, None) => LimitOwner::Global,
        }
    }

    /// Precedence among scopes without a consumer.
    pub(super) fn closeness(self) -> u8 {
        // A plugin of the route replaces one of the service, whatever else it is attached to.
        2 * u8::from(self.route.is_some()) + u8::from(self.service.is_some())
    }
}

impl PluginUse {
    /// Whether the plugin applies to streams: by its protocols, or as it is attached to a route or service.
    pub(super) fn counts_for_streams(&self) -> bool {
        self.names_streams || self.scope.route.is_some() || self.scope.service.is_some()
    }
}

/// All enabled plugins.
#[derive(Debug, Default)]
pub(super) struct PluginUses(pub(super) Vec<PluginUse>);

impl PluginUses {
    /// The plugins of a route without plugins of its own.
    pub(super) fn of_service(&self, service: usize) -> Vec<&PluginUse> {
        // Global plugins belong to every service.
        self.closest(|scope| scope.route.is_none() && scope.service.is_none_or(|at| at == service))
    }

    /// The plugins of a route.
    pub(super) fn of_route(&self, route: usize, service: Option<usize>) -> Vec<&PluginUse> {
        self.closest(|scope| {
            scope.route.is_none_or(|at| at == route) && (scope.service.is_none() || scope.service == service)
        })
    }

    /// Whether a plugin of a route, of its service, or for consumers there guards access.
    pub(super) fn guard(&self, route: usize, service: Option<usize>) -> bool {
        let is_there = |scope: PluginScope| {
            scope.route.map_or_else(|| scope.service.is_some() && scope.service == service, |at| at == route)
        };
        self.0.iter().any(|one| is_guard(&one.name) && is_there(one.scope))
    }

    pub(super) fn of_consumer(&self, consumer: usize) -> Vec<&PluginUse> {
        self.0.iter().filter(|one| one.scope.consumer == Some(consumer)).collect()
    }

    pub(super) fn of_group(&self, group: usize) -> Vec<&PluginUse> {
        self.0.iter().filter(|one| one.scope.consumer.is_none() && one.scope.group == Some(group)).collect()
    }

    /// The closest plugin of each name among those that apply, without global rules.
    fn closest(&self, applies: impl Fn(PluginScope) -> bool) -> Vec<&PluginUse> {
        let mut applicable: Vec<&PluginUse> = Vec::new();
        for one in
            self.0.iter().filter(|one| !one.scope.has_consumer() && applies(one.scope) && !self.is_rule(one))
        {
            match applicable.iter_mut().find(|other| other.name == one.name) {
                // Kong runs the instance with the closest scope and no other of the name.
                Some(other) if other.scope.closeness() < one.scope.closeness() => *other = one,
                Some(_) => {}
                None => applicable.push(one),
            }
        }
        applicable
    }

    /// The plugins that become global rules.
    pub(super) fn rules(&self) -> impl Iterator<Item = &PluginUse> {
        self.0.iter().filter(|one| self.is_rule(one))
    }

    /// Whether a plugin may be a global rule: it only observes, and no other instance replaces it.
    fn is_rule(&self, one: &PluginUse) -> bool {
        // A rule runs beside other instances instead of being replaced by them.
        let is_only_instance = || self.0.iter().filter(|other| other.name == one.name).count() == 1;
        one.scope.is_global() && OBSERVERS.contains(&one.name.as_str()) && is_only_instance()
    }
}

/// Reads all plugins. Disabled ones are left out: in Kong, the next scope applies then.
pub(super) fn read(
    document: &mut KongDocument,
    translator: &PluginTranslator<'_>,
    report: &mut ImportReport,
) -> PluginUses {
    let indexes = [
        ("service", EntityIndex::of(&document.services)),
        ("route", EntityIndex::of(&document.routes)),
        ("consumer", EntityIndex::of(&document.consumers)),
        ("consumer_group", EntityIndex::of(&document.groups)),
    ];
    let mut uses = PluginUses::default();
    for mut entity in std::mem::take(&mut document.plugins) {
        let scope = indexes.each_ref().map(|(field, index)| index.take(&mut entity, field));
        name_scope(&mut entity, &scope, document, report);
        let one = read_one(&mut entity, &document.plugin_configs, report);
        let [service, route, consumer, group] = match scope {
            // A plugin whose scope is unknown must not become global.
            [Ok(service), Ok(route), Ok(consumer), Ok(group)] => [service, route, consumer, group],
            scope => {
                let missing: Vec<String> = scope.into_iter().filter_map(Result::err).collect();
                let why = format!("there is no {} it could belong to", missing.join(", "));
                let line = dropped(&entity.label, "", "left out").why(why);
                // Kong refuses such a file, so the plugin has never guarded; its author expects that it does.
                match one.is_some_and(|one| is_guard(&one.name)) {
                    true => report.weaken(line.hint("correct the reference and import again")),
                    false => report.add(line),
                }
                continue;
            }
        };
        entity.finish(report);
        uses.0.extend(
            one.map(|one| PluginUse { scope: PluginScope { service, route, consumer, group }, ..one }),
        );
    }
    keep_one_of_each(&mut uses, report);
    super::consumer_scopes::settle(&mut uses, document, translator, report);
    uses
}

/// Labels a plugin by all entities that it is attached to.
fn name_scope(
    entity: &mut KongEntity,
    scope: &[Result<Option<usize>, String>; 4],
    document: &KongDocument,
    report: &mut ImportReport,
) {
    let lists = [&document.services, &document.routes, &document.consumers, &document.groups];
    let named = scope.iter().zip(lists).filter_map(|(at, list)| at.as_ref().ok()?.map(|at| &list[at].label));
    let names: Vec<&str> = named.map(String::as_str).collect();
    let of = if names.is_empty() { String::new() } else { format!(" of {}", names.join(" and ")) };
    let label = format!("plugin {}{of}", entity.name);
    report.rename(&entity.label, &label);
    entity.label = label;
}

fn read_one(
    entity: &mut KongEntity,
    shared: &Map<String, Value>,
    report: &mut ImportReport,
) -> Option<PluginUse> {
    let name = entity.text("name", report).unwrap_or_default();
    let is_enabled = entity.flag("enabled", report).unwrap_or(true);
    let mut standing = match entity.lacks_any(&SETTINGS) {
        true => PluginStanding::Unset,
        false => PluginStanding::Known,
    };
    let mut settings = match entity.text("_config", report).map(|name| (shared.get(&name).cloned(), name)) {
        Some((Some(Value::Object(settings)), _)) => settings,
        Some((_, name)) => {
            let line = dropped(&entity.label, "_config", "left out");
            report.add(line.why(format!("there are no _plugin_configs called {name}")));
            standing = PluginStanding::Unset;
            Map::new()
        }
        None => Map::new(),
    };
    if settings.shift_remove(UNSET_FIELDS).is_some() {
        standing = PluginStanding::Unset;
    }
    // Own settings win over shared ones.
    if let Some(Value::Object(own)) = entity.take("config") {
        settings.extend(own);
    }
    entity.set("config", Value::Object(settings));
    let config = entity.child("config", report)?;
    let protocols = entity.texts("protocols", report);
    for field in ["instance_name", "tags"] {
        entity.skip(field, &Value::Null, "plugins have neither names nor labels here", report);
    }
    entity.skip("run_on", &json!("first"), "this means nothing to a gateway", report);
    entity.skip("ordering", &Value::Null, "plugins run in the order of their priorities", report);
    Some(PluginUse {
        label: entity.label.clone(),
        name,
        config,
        filter: scheme_filter(&protocols),
        scope: PluginScope::default(),
        standing,
        names_streams: protocols.iter().any(|protocol| is_stream_protocol(protocol)),
    })
    .filter(|_| is_enabled)
}

/// The condition of a plugin for only one of the schemes `http` and `https`.
pub(super) fn scheme_filter(protocols: &[String]) -> Vec<Value> {
    let has = |names: [&str; 3]| protocols.iter().any(|one| names.contains(&one.as_str()));
    match (has(["http", "grpc", "ws"]), has(["https", "grpcs", "wss"])) {
        (true, false) => vec![json!(["scheme", "==", "http"])],
        (false, true) => vec![json!(["scheme", "==", "https"])],
        _ => Vec::new(),
    }
}

/// Keeps the first of several plugins with the same name and scope.
fn keep_one_of_each(uses: &mut PluginUses, report: &mut ImportReport) {
    let mut seen = std::collections::HashSet::new();
    uses.0.retain(|one| {
        let is_first = seen.insert((one.name.clone(), one.scope));
        if !is_first {
            let why = "there is one of this name for the same scope already";
            report.add(dropped(&one.label, "", "left out").why(why));
        }
        is_first
    });
}
