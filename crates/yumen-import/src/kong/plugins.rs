//! Conversion of single plugins. Differences in behaviour go to the report.

mod auth;
mod identity;
mod limits;
mod observe;
mod respond;
mod transform;

use serde_json::{Map, Value, json};
use yumen_config::{Kind, Resource};

use super::entity::KongEntity;
use super::guards::{UNGUARDED, is_guard};
use super::imported_consumers::ImportedConsumers;
use super::scopes::{PluginScope, PluginStanding, PluginUse};
use crate::report::{ImportReport, different, dropped};
pub(super) use limits::{LIMIT, SERVICE_KEY};
pub(super) use respond::message;

/// The authentication plugins that run with a plugin.
#[derive(Debug, Default)]
struct PluginAuthentication {
    count: usize,
    /// The anonymous consumers of these plugins.
    anonymous: Vec<String>,
}

impl PluginAuthentication {
    /// Whether every request belongs to a consumer.
    fn identifies(&self) -> bool {
        self.count > 0
    }
}

/// A consumer's instance would replace the rewrite that a route needs for its upstream.
const NOT_FOR_CONSUMERS: &str = "proxy-rewrite";

/// Converts plugins.
pub(super) struct PluginTranslator<'a> {
    consumers: &'a ImportedConsumers,
    runs: &'a dyn Fn(&str) -> bool,
    has_limits: bool,
}

/// One plugin under conversion.
struct PluginJob<'j> {
    label: &'j str,
    settings: KongEntity,
    consumers: &'j ImportedConsumers,
    authentication: &'j PluginAuthentication,
    /// Whether a part that is not converted denies access or hides data.
    loses_guard: bool,
    report: &'j mut ImportReport,
}

/// A plugin of the gateway.
struct ConvertedPlugin {
    name: &'static str,
    settings: Value,
}

/// The result for one Kong plugin.
struct PluginConversion {
    plugins: ConvertedPlugins,
    /// Whether a part that is not converted denies access or hides data.
    loses_guard: bool,
}

/// The plugins that one Kong plugin becomes.
type ConvertedPlugins = Vec<ConvertedPlugin>;

fn one(name: &'static str, settings: Value) -> ConvertedPlugins {
    vec![ConvertedPlugin { name, settings }]
}

impl<'a> PluginTranslator<'a> {
    pub(super) fn new(
        consumers: &'a ImportedConsumers,
        runs: &'a dyn Fn(&str) -> bool,
    ) -> PluginTranslator<'a> {
        PluginTranslator { consumers, runs, has_limits: false }
    }

    /// Whether the gateway runs a plugin.
    pub(super) fn runs(&self, plugin: &str) -> bool {
        (self.runs)(plugin)
    }

    /// Converts all plugins of one object. Several may become one.
    pub(super) fn all(&mut self, uses: &[&PluginUse], report: &mut ImportReport) -> Map<String, Value> {
        // Conversions depend on whether requests belong to a consumer.
        let identifies = |one: &&&PluginUse| auth::IDENTIFIES.contains(&one.name.as_str());
        let mut authentication = PluginAuthentication::default();
        for one in uses.iter().filter(identifies) {
            authentication.count += 1;
            let anonymous = one.config.peek("anonymous").and_then(|name| self.consumers.username(name));
            if let Some(name) =
                anonymous.filter(|name| !authentication.anonymous.iter().any(|one| one == name))
            {
                authentication.anonymous.push(name.to_owned());
            }
        }
        self.convert(uses, &authentication, report)
    }

    /// Whether a plugin can be converted without a part that denies access or hides data.
    pub(super) fn converts_wholly(&self, one: &PluginUse) -> bool {
        if one.standing != PluginStanding::Known {
            return false;
        }
        let mut report = ImportReport::default();
        let authentication = PluginAuthentication { count: 1, ..PluginAuthentication::default() };
        let converted = translate(&one.name, self.job(one, &authentication, &mut report));
        let is_usable = |plugin: &ConvertedPlugin| {
            (self.runs)(plugin.name)
                && (plugin.name != NOT_FOR_CONSUMERS || !transform::hides_content(&one.config))
        };
        converted.is_some_and(|all| !all.loses_guard && all.plugins.iter().all(is_usable))
    }

    fn job<'j>(
        &self,
        one: &'j PluginUse,
        authentication: &'j PluginAuthentication,
        report: &'j mut ImportReport,
    ) -> PluginJob<'j>
    where
        'a: 'j,
    {
        let settings = one.config.clone();
        let (label, consumers) = (one.label.as_str(), self.consumers);
        PluginJob { label, settings, consumers, authentication, loses_guard: false, report }
    }

    fn convert(
        &mut self,
        uses: &[&PluginUse],
        authentication: &PluginAuthentication,
        report: &mut ImportReport,
    ) -> Map<String, Value> {
        let mut plugins = Map::new();
        for one in uses {
            match one.standing {
                PluginStanding::Known => {}
                PluginStanding::Unset => {
                    leave_out_unset(one, &mut plugins, report);
                    continue;
                }
                PluginStanding::Closing => {
                    put_refusal(one.scope, &mut plugins);
                    continue;
                }
            }
            let Some(converted) = translate(&one.name, self.job(one, authentication, report)) else {
                // An unknown plugin may guard (decision 50).
                let line = dropped(&one.label, "", "left out").why("plugin not supported");
                report.add(line);
                refuse_requests(one, &mut plugins, report);
                continue;
            };
            if converted.loses_guard {
                refuse_requests(one, &mut plugins, report);
            }
            for plugin in converted.plugins {
                self.put(one, plugin, &mut plugins, report);
            }
        }
        plugins
    }

    /// Converts the plugins of a consumer or a group.
    pub(super) fn of_consumer(
        &mut self,
        uses: &[&PluginUse],
        report: &mut ImportReport,
    ) -> Map<String, Value> {
        // A consumer's plugins run only for identified requests.
        let authentication = PluginAuthentication { count: 1, ..PluginAuthentication::default() };
        self.convert(uses, &authentication, report)
    }

    fn put(
        &mut self,
        one: &PluginUse,
        ConvertedPlugin { name, mut settings }: ConvertedPlugin,
        plugins: &mut Map<String, Value>,
        report: &mut ImportReport,
    ) {
        if name == NOT_FOR_CONSUMERS && one.scope.has_consumer() {
            let line = dropped(&one.label, "", "left out");
            let why = format!("{name} of a consumer would replace what the route rewrites");
            report.add(line.why(why).hint("give the consumer routes of its own"));
            if transform::hides_content(&one.config) {
                refuse_requests(one, plugins, report);
            }
            return;
        }
        if name == limits::LIMIT {
            self.has_limits = true;
            limits::share_among_services(one.scope, &mut settings);
        }
        if !(self.runs)(name) {
            let line = dropped(&one.label, "", format!("kept as {name}, which does not run in this version"));
            report.add(line.hint("takes effect in a version that supports it"));
            // The object itself would be open where the plugin guards.
            refuse_requests(one, plugins, report);
        }
        if name == "proxy-rewrite" && !one.filter.is_empty() && !one.scope.has_consumer() {
            // The plugin also rewrites the path, which all requests need.
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
                    refuse_requests(one, plugins, report);
                }
            }
        }
    }

    /// Plugin metadata: the names of Kong's quota fields for limits.
    pub(super) fn metadata(&self) -> Option<Resource> {
        let names = json!({
            "limit_header": "RateLimit-Limit",
            "remaining_header": "RateLimit-Remaining",
            "reset_header": "RateLimit-Reset",
        });
        self.has_limits.then(|| Resource::new(Kind::PluginMetadata, "limit-count", &names))
    }
}

/// Refuses all requests in place of a missing guard.
fn refuse_requests(one: &PluginUse, plugins: &mut Map<String, Value>, report: &mut ImportReport) {
    if !is_guard(&one.name) {
        return;
    }
    let (instead, plugin) = match one.scope.has_consumer() {
        false => ("requests are answered 503, so that none passes unchecked", "fault-injection"),
        true => (
            "all requests of the consumer or group are answered 503, so that none passes unchecked",
            "mocking",
        ),
    };
    let hint = format!("once access is guarded in another way, remove {plugin} here");
    report.refuse(dropped(&one.label, "", instead).hint(hint));
    put_refusal(one.scope, plugins);
}

/// Refuses all requests of the owner of a plugin.
fn put_refusal(scope: PluginScope, plugins: &mut Map<String, Value>) {
    match scope.has_consumer() {
        false => close_requests(plugins),
        true => close_consumer(plugins),
    }
}

/// Refuses all requests of a route or service.
pub(super) fn close_requests(plugins: &mut Map<String, Value>) {
    let message = json!({ "message": UNGUARDED }).to_string();
    plugins.insert("fault-injection".into(), refusal(503, &message, None));
}

/// Refuses all requests of a consumer or group. `fault-injection` of the route runs before the consumer is known and
/// would keep that of the consumer from running; `mocking` runs after authentication.
pub(super) fn close_consumer(plugins: &mut Map<String, Value>) {
    plugins.insert("mocking".into(), consumer_refusal());
}

/// Settings of `mocking` that refuse all requests of a consumer.
pub(super) fn consumer_refusal() -> Value {
    let mut refusal = message(503, UNGUARDED);
    // Before the other plugins of the access phase.
    refusal["_meta"]["priority"] = json!(3002);
    refusal
}

/// Leaves out a plugin with a setting that is not set. A guard refuses requests instead.
fn leave_out_unset(one: &PluginUse, plugins: &mut Map<String, Value>, report: &mut ImportReport) {
    let line = dropped(&one.label, "", "left out").why("a setting is not set");
    let line = line.hint("set the variable, or name settings that exist, and import again");
    // Without its origins, `cors` would send the credentials of browsers to any of them.
    match one.name == "cors" {
        true => report.weaken(line),
        false => report.add(line),
    }
    refuse_requests(one, plugins, report);
}

/// Settings of `fault-injection` that respond to every request, or to those that meet a condition.
pub(super) fn refusal(status: u16, body: &str, condition: Option<Value>) -> Value {
    let mut abort = json!({
        "http_status": status, "body": body, "headers": { "Content-Type": "application/json; charset=utf-8" },
    });
    if let Some(condition) = condition {
        abort["vars"] = json!([[condition]]);
    }
    json!({ "abort": abort })
}

/// Adds conditions to those of a plugin.
fn add_filter(settings: &mut Value, conditions: &[Value]) {
    if conditions.is_empty() {
        return;
    }
    let mut all = conditions.to_vec();
    match settings.pointer("/_meta/filter") {
        // A filter may be one condition or a list of them.
        Some(Value::Array(own)) if own.first().is_some_and(Value::is_array) => all.extend(own.clone()),
        Some(own) => all.push(own.clone()),
        None => {}
    }
    settings["_meta"]["filter"] = Value::Array(all);
}

/// Converts a plugin; `None` if it is unknown.
fn translate(name: &str, mut job: PluginJob<'_>) -> Option<PluginConversion> {
    let plugins = match name {
        "key-auth" => auth::key_auth(&mut job),
        "basic-auth" => auth::basic_auth(&mut job),
        "jwt" => auth::jwt(&mut job),
        "hmac-auth" => auth::hmac_auth(&mut job),
        "ldap-auth" => auth::ldap_auth(&mut job),
        "ldap-auth-advanced" => identity::ldap_auth_advanced(&mut job),
        "openid-connect" => identity::openid_connect(&mut job),
        "opa" => identity::opa(&mut job),
        "jwe-decrypt" => {
            let why = "keys belong to consumers here, and are symmetric: write the plugin jwe-decrypt";
            identity::without_counterpart(&mut job, why)
        }
        "oauth2-introspection" => {
            let why = "openid-connect introspects tokens here, and needs the URL of the discovery document";
            identity::without_counterpart(&mut job, why)
        }
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
        "kafka-log" => observe::kafka_log(&mut job),
        "zipkin" => observe::zipkin(&mut job),
        "opentelemetry" => observe::opentelemetry(&mut job),
        "datadog" => observe::datadog(&mut job),
        "syslog" => observe::without_settings("syslog", &mut job),
        "loggly" => observe::loggly(&mut job),
        "grpc-web" => observe::without_settings("grpc-web", &mut job),
        _ => return None,
    };
    job.settings.finish(job.report);
    Some(PluginConversion { plugins, loses_guard: job.loses_guard })
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
