//! Which plugin counts where. In Kong the instance with the closest scope replaces all others of its name,
//! global ones included; a global rule here would run beside them. So global plugins go to the services.

use serde_json::{Map, Value, json};

use super::document::{EntityIndex, KongDocument};
use super::entity::KongEntity;
use super::plugins::{UNGUARDED, keeps_out};
use super::services::STREAM_PROTOCOLS;
use crate::report::{ImportReport, different, dropped};

/// Plugins that only watch: as global rules they also see requests that no route matches.
const WATCHERS: [&str; 12] = [
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

/// One plugin of the file that is switched on.
#[derive(Debug, Clone)]
pub(super) struct PluginUse {
    pub(super) label: String,
    /// Kong's name for it.
    pub(super) name: String,
    /// The settings.
    pub(super) config: KongEntity,
    /// A condition for its running, from the protocols it is for and the scope.
    pub(super) filter: Vec<Value>,
    pub(super) is_global: bool,
    /// Whether it names a protocol of streams.
    names_streams: bool,
    service: Option<usize>,
    route: Option<usize>,
    consumer: Option<usize>,
    group: Option<usize>,
}

impl PluginUse {
    pub(super) fn is_of_people(&self) -> bool {
        self.consumer.is_some() || self.group.is_some()
    }

    /// Whether it counts for streams: by its protocols, or since it is of the very route or service.
    pub(super) fn counts_for_streams(&self) -> bool {
        self.names_streams || self.route.is_some() || self.service.is_some()
    }

    /// How close its scope is, among those without a consumer.
    fn closeness(&self) -> u8 {
        2 * u8::from(self.route.is_some()) + u8::from(self.service.is_some())
    }
}

/// All plugins that are switched on.
#[derive(Debug, Default)]
pub(super) struct PluginUses(Vec<PluginUse>);

impl PluginUses {
    /// What counts for every route of a service that has nothing of its own.
    pub(super) fn of_service(&self, service: usize) -> Vec<&PluginUse> {
        self.closest(|one| one.route.is_none() && one.service.is_none_or(|at| at == service))
    }

    /// What counts for a route.
    pub(super) fn of_route(&self, route: usize, service: Option<usize>) -> Vec<&PluginUse> {
        self.closest(|one| {
            one.route.is_none_or(|at| at == route) && (one.service.is_none() || one.service == service)
        })
    }

    pub(super) fn of_consumer(&self, consumer: usize) -> Vec<&PluginUse> {
        self.0.iter().filter(|one| one.consumer == Some(consumer)).collect()
    }

    pub(super) fn of_group(&self, group: usize) -> Vec<&PluginUse> {
        self.0.iter().filter(|one| one.consumer.is_none() && one.group == Some(group)).collect()
    }

    /// The closest of each name among those that apply; what became a global rule is not one of them.
    fn closest(&self, applies: impl Fn(&PluginUse) -> bool) -> Vec<&PluginUse> {
        let mut kept: Vec<&PluginUse> = Vec::new();
        for one in self.0.iter().filter(|one| !one.is_of_people() && applies(one) && !self.is_rule(one)) {
            match kept.iter_mut().find(|other| other.name == one.name) {
                Some(other) if other.closeness() < one.closeness() => *other = one,
                Some(_) => {}
                None => kept.push(one),
            }
        }
        kept
    }

    /// Those that may stand as global rules.
    pub(super) fn rules(&self) -> impl Iterator<Item = &PluginUse> {
        self.0.iter().filter(|one| self.is_rule(one))
    }

    /// Whether it may stand as a global rule: it only watches, and nothing replaces it anywhere.
    fn is_rule(&self, one: &PluginUse) -> bool {
        let has_no_predecessor = || self.0.iter().filter(|other| other.name == one.name).count() == 1;
        one.is_global && WATCHERS.contains(&one.name.as_str()) && has_no_predecessor()
    }
}

/// Reads all plugins; those that are switched off are left out, as in Kong the next scope counts then.
pub(super) fn read(document: &mut KongDocument, report: &mut ImportReport) -> PluginUses {
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
            [Ok(service), Ok(route), Ok(consumer), Ok(group)] => [service, route, consumer, group],
            scope => {
                let missing: Vec<String> = scope.into_iter().filter_map(Result::err).collect();
                let why = format!("there is no {} it could belong to", missing.join(", "));
                report.add(dropped(&entity.label, "", "left out").why(why));
                continue;
            }
        };
        let is_global = [service, route, consumer, group].iter().all(Option::is_none);
        entity.finish(report);
        uses.0.extend(one.map(|one| PluginUse { service, route, consumer, group, is_global, ..one }));
    }
    keep_one_of_each(&mut uses, report);
    combine(&mut uses, document, report);
    uses
}

/// Calls a plugin after all it belongs to, however the file says so.
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
    let is_on = entity.flag("enabled", report).unwrap_or(true);
    let mut settings = match entity.text("_config", report).map(|name| (shared.get(&name).cloned(), name)) {
        Some((Some(Value::Object(settings)), _)) => settings,
        Some((_, name)) => {
            let line = dropped(&entity.label, "_config", "left out");
            report.add(line.why(format!("there are no _plugin_configs called {name}")));
            Map::new()
        }
        None => Map::new(),
    };
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
        is_global: false,
        names_streams: protocols.iter().any(|one| STREAM_PROTOCOLS.contains(&one.as_str())),
        service: None,
        route: None,
        consumer: None,
        group: None,
    })
    .filter(|_| is_on)
}

/// The condition of what is only for plain or only for encrypted requests.
pub(super) fn scheme_filter(protocols: &[String]) -> Vec<Value> {
    let has = |names: [&str; 3]| protocols.iter().any(|one| names.contains(&one.as_str()));
    match (has(["http", "grpc", "ws"]), has(["https", "grpcs", "wss"])) {
        (true, false) => vec![json!(["scheme", "==", "http"])],
        (false, true) => vec![json!(["scheme", "==", "https"])],
        _ => Vec::new(),
    }
}

/// Of several plugins with one name and one scope the first counts.
fn keep_one_of_each(uses: &mut PluginUses, report: &mut ImportReport) {
    let mut seen = std::collections::HashSet::new();
    uses.0.retain(|one| {
        let is_first = seen.insert((one.name.clone(), one.service, one.route, one.consumer, one.group));
        if !is_first {
            let why = "there is one of this name for the same scope already";
            report.add(dropped(&one.label, "", "left out").why(why));
        }
        is_first
    });
}

/// Plugins for a consumer on one route or service stay with the consumer and ask where they are, provided
/// no other of their name could count there.
fn combine(uses: &mut PluginUses, document: &KongDocument, report: &mut ImportReport) {
    let names: Vec<(String, bool)> =
        uses.0.iter().map(|one| (one.name.clone(), one.closeness() > 0 && one.is_of_people())).collect();
    uses.0.retain_mut(|one| {
        if one.closeness() == 0 || !one.is_of_people() {
            return true;
        }
        if names.iter().filter(|(name, _)| *name == one.name).count() > 1 {
            let is_guard = keeps_out(&one.name);
            let instead = if is_guard {
                "its requests are answered 503, so that none passes unchecked"
            } else {
                "left out"
            };
            let line = dropped(&one.label, "", instead);
            let why = "plugins for a consumer together with a route or service can only be told from others \
                       of their name if there are none";
            let line = line.why(why).hint("use limits with variables in their key, or a route of its own");
            if is_guard {
                report.refuse(line)
            } else {
                report.add(line)
            }
            if !is_guard {
                return false;
            }
            // An import must not open what was closed.
            let settings = [("status_code", json!(503)), ("message", json!(UNGUARDED))];
            let fields = settings.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
            one.config = KongEntity::new(one.label.clone(), String::new(), String::new(), fields);
            one.name = "request-termination".into();
            (one.consumer, one.group) = (None, None);
            return true;
        }
        let mut ask = |variable: &str, name: &str| one.filter.push(json!([variable, "==", name]));
        if let Some(at) = one.route {
            ask("route_name", &document.routes[at].name);
        }
        if let Some(at) = one.service {
            ask("service_name", &document.services[at].name);
        }
        report.add(different(&one.label, "", "it belongs to the consumer and asks which route it is on"));
        true
    });
}
