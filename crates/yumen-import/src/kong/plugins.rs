//! Kong's plugins as ours, one by one. What a plugin here does differently goes to the report.

mod auth;
mod limits;
mod observe;
mod respond;
mod transform;

use serde_json::{Map, Value, json};
use yumen_config::{Kind, Resource};

use super::consumers_and_credentials::ImportedConsumers;
use super::entity::KongEntity;
use super::scopes::PluginUse;
use crate::report::{ImportReport, different, dropped};
pub(super) use respond::message;

/// Plugins that observe, cache or relax: without one the same clients reach the same service and see nothing that it
/// hides. Every other plugin guards, those that nobody knows included.
const HARMLESS: [&str; 23] = [
    "acme",
    "ai-semantic-cache",
    "app-dynamics",
    "correlation-id",
    "cors",
    "datadog",
    "file-log",
    "graphql-proxy-cache-advanced",
    "grpc-web",
    "http-log",
    "kafka-log",
    "loggly",
    "opentelemetry",
    "prometheus",
    "proxy-cache",
    "proxy-cache-advanced",
    "session",
    "statsd",
    "statsd-advanced",
    "syslog",
    "tcp-log",
    "udp-log",
    "zipkin",
];

/// Plugins that adjust what passes, for one consumer in place of another instance that is in force.
const ADJUSTS: [&str; 10] = [
    "rate-limiting",
    "rate-limiting-advanced",
    "redirect",
    "request-size-limiting",
    "request-termination",
    "request-transformer",
    "request-transformer-advanced",
    "response-ratelimiting",
    "response-transformer",
    "response-transformer-advanced",
];

/// Whether the absence of a plugin opens access.
pub(super) fn guards(name: &str) -> bool {
    !HARMLESS.contains(&name)
}

/// Whether the absence of one instance of a plugin, beside another of its name, opens access.
pub(super) fn keeps_out(name: &str) -> bool {
    guards(name) && !ADJUSTS.contains(&name)
}

/// What a plugin finds around itself.
#[derive(Debug, Clone, Copy)]
struct PluginEnvironment {
    /// Whether every request that comes through belongs to a consumer.
    is_identified: bool,
    /// How many plugins here tell who a client is.
    authentications: usize,
}

/// Translates plugins.
pub(super) struct PluginTranslator<'a> {
    people: &'a ImportedConsumers,
    runs: &'a dyn Fn(&str) -> bool,
    has_limits: bool,
}

/// One plugin on its way.
struct PluginJob<'j> {
    label: &'j str,
    settings: KongEntity,
    people: &'j ImportedConsumers,
    place: PluginEnvironment,
    is_global: bool,
    /// Whether a part that cannot be carried over refuses or hides something.
    opens: bool,
    report: &'j mut ImportReport,
}

/// Name and settings of plugins here.
type Ours = Vec<(&'static str, Value)>;

impl<'a> PluginTranslator<'a> {
    pub(super) fn new(people: &'a ImportedConsumers, runs: &'a dyn Fn(&str) -> bool) -> PluginTranslator<'a> {
        PluginTranslator { people, runs, has_limits: false }
    }

    /// Whether this gateway runs a plugin.
    pub(super) fn runs(&self, plugin: &str) -> bool {
        (self.runs)(plugin)
    }

    /// All plugins of one place, merged where several become one here.
    pub(super) fn all(&mut self, uses: &[&PluginUse], report: &mut ImportReport) -> Map<String, Value> {
        let authentications = uses.iter().filter(|one| auth::IDENTIFIES.contains(&one.name.as_str())).count();
        self.in_place(uses, PluginEnvironment { is_identified: authentications > 0, authentications }, report)
    }

    fn in_place(
        &mut self,
        uses: &[&PluginUse],
        place: PluginEnvironment,
        report: &mut ImportReport,
    ) -> Map<String, Value> {
        let mut plugins = Map::new();
        for one in uses {
            let job = PluginJob {
                label: &one.label,
                settings: one.config.clone(),
                people: self.people,
                place,
                is_global: one.is_global,
                opens: false,
                report,
            };
            let Some((ours, opens)) = translate(&one.name, job) else {
                let line = dropped(&one.label, "", "left out").why("plugin not supported");
                report.add(line);
                guard(one, &mut plugins, report);
                continue;
            };
            if opens {
                guard(one, &mut plugins, report);
            }
            for (name, settings) in ours {
                self.put(one, name, settings, &mut plugins, report);
            }
        }
        plugins
    }

    /// One plugin of a consumer or a group.
    pub(super) fn of_people(&mut self, one: &PluginUse, report: &mut ImportReport) -> Map<String, Value> {
        self.in_place(&[one], PluginEnvironment { is_identified: true, authentications: 1 }, report)
    }

    fn put(
        &mut self,
        one: &PluginUse,
        name: &'static str,
        mut settings: Value,
        plugins: &mut Map<String, Value>,
        report: &mut ImportReport,
    ) {
        self.has_limits |= name == "limit-count";
        if !(self.runs)(name) {
            let line = dropped(&one.label, "", format!("kept as {name}, which does not run in this version"));
            report.add(line.hint("takes effect in a version that supports it"));
            guard(one, plugins, report);
        }
        if name == "proxy-rewrite" && !one.filter.is_empty() && !one.is_of_people() {
            // It is what rewrites the path too, which is for all requests.
            let why = "one plugin changes fields and the path here";
            report.add(different(&one.label, "protocols", "requests of both schemes are changed").why(why));
        } else {
            add_filter(&mut settings, &one.filter);
        }
        match plugins.get_mut(name) {
            None => drop(plugins.insert(name.to_owned(), settings)),
            Some(other) => {
                if *other != settings {
                    let line = dropped(&one.label, "", "left out");
                    report.add(line.why(format!("another plugin is {name} here already")));
                    guard(one, plugins, report);
                }
            }
        }
    }

    /// What all plugins of a kind share: limits tell clients their quota in Kong's fields.
    pub(super) fn metadata(&self) -> Option<Resource> {
        let names = json!({
            "limit_header": "RateLimit-Limit",
            "remaining_header": "RateLimit-Remaining",
            "reset_header": "RateLimit-Reset",
        });
        self.has_limits.then(|| Resource::new(Kind::PluginMetadata, "limit-count", &names))
    }
}

/// The message in place of a guard. It does not name the plugin: clients read it.
pub(super) const UNGUARDED: &str = "a plugin that guards access is not available";

/// Refuses everybody where the plugin that kept some out is not in force.
fn guard(one: &PluginUse, plugins: &mut Map<String, Value>, report: &mut ImportReport) {
    if !guards(&one.name) {
        return;
    }
    let hint = "once access is guarded in another way, remove fault-injection here";
    let line = dropped(&one.label, "", "requests are answered 503, so that none passes unchecked");
    report.refuse(line.hint(hint));
    let message = json!({ "message": UNGUARDED }).to_string();
    plugins.insert("fault-injection".into(), refusal(503, &message, None));
}

/// `fault-injection` that answers every request, or those that meet a condition.
pub(super) fn refusal(status: u16, body: &str, condition: Option<Value>) -> Value {
    let mut abort = json!({
        "http_status": status, "body": body, "headers": { "Content-Type": "application/json; charset=utf-8" },
    });
    if let Some(condition) = condition {
        abort["vars"] = json!([[condition]]);
    }
    json!({ "abort": abort })
}

/// Adds conditions to those a plugin has.
fn add_filter(settings: &mut Value, conditions: &[Value]) {
    if conditions.is_empty() {
        return;
    }
    let mut all = conditions.to_vec();
    match settings.pointer("/_meta/filter") {
        Some(Value::Array(own)) if own.first().is_some_and(Value::is_array) => all.extend(own.clone()),
        Some(own) => all.push(own.clone()),
        None => {}
    }
    settings["_meta"]["filter"] = Value::Array(all);
}

/// The plugins here, and whether a part that refuses or hides something is not among them.
fn translate(name: &str, mut job: PluginJob<'_>) -> Option<(Ours, bool)> {
    let ours = match name {
        "key-auth" => auth::key_auth(&mut job),
        "basic-auth" => auth::basic_auth(&mut job),
        "jwt" => auth::jwt(&mut job),
        "hmac-auth" => auth::hmac_auth(&mut job),
        "ldap-auth" => auth::ldap_auth(&mut job),
        "acl" => auth::acl(&mut job),
        "ip-restriction" => limits::ip_restriction(&mut job),
        "rate-limiting" => limits::rate_limiting(&mut job),
        "rate-limiting-advanced" => limits::rate_limiting_advanced(&mut job),
        "request-size-limiting" => limits::request_size_limiting(&mut job),
        "bot-detection" => limits::bot_detection(&mut job),
        "request-transformer" | "request-transformer-advanced" => transform::request_transformer(&mut job),
        "response-transformer" | "response-transformer-advanced" => transform::response_transformer(&mut job),
        "cors" => respond::cors(&mut job),
        "redirect" => respond::redirect(&mut job),
        "request-termination" => respond::request_termination(&mut job),
        "correlation-id" => observe::correlation_id(&mut job),
        "prometheus" => observe::prometheus(&mut job),
        "http-log" => observe::http_log(&mut job),
        "tcp-log" | "udp-log" => observe::socket_log(name, &mut job),
        "file-log" => observe::file_log(&mut job),
        "zipkin" => observe::zipkin(&mut job),
        "opentelemetry" => observe::as_it_is("opentelemetry", &mut job),
        "datadog" => observe::as_it_is("datadog", &mut job),
        "syslog" => observe::as_it_is("syslog", &mut job),
        "loggly" => observe::as_it_is("loggly", &mut job),
        "grpc-web" => observe::as_it_is("grpc-web", &mut job),
        _ => return None,
    };
    job.settings.finish(job.report);
    Some((ours, job.opens))
}

impl PluginJob<'_> {
    fn text(&mut self, field: &str) -> Option<String> {
        self.settings.text(field, self.report)
    }

    fn texts(&mut self, field: &str) -> Vec<String> {
        self.settings.texts(field, self.report)
    }

    fn flag(&mut self, field: &str, default: bool) -> bool {
        self.settings.flag(field, self.report).unwrap_or(default)
    }

    fn number(&mut self, field: &str) -> Option<f64> {
        self.settings.number(field, self.report)
    }

    fn count(&mut self, field: &str) -> Option<u64> {
        self.settings.count(field, self.report)
    }

    fn skip(&mut self, field: &str, default: Value, why: &str) {
        self.settings.skip(field, &default, why, self.report);
    }

    fn different(&mut self, field: &str, instead: impl Into<String>, why: impl Into<String>) {
        let path = self.path(field);
        self.report.add(different(self.label, &path, instead).why(why));
    }

    fn dropped(&mut self, field: &str, why: impl Into<String>) {
        let path = self.path(field);
        self.report.add(dropped(self.label, &path, "left out").why(why));
    }

    fn path(&self, field: &str) -> String {
        if field.is_empty() { String::new() } else { self.settings.path(field) }
    }
}
