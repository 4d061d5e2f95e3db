//! Kong's routes of TCP, TLS and UDP as stream routes. Must not know routes of requests.

use serde_json::{Map, Value, json};
use yumen_config::{Kind, Resource};

use super::document::KongDocument;
use super::entity::KongEntity;
use super::guards::is_guard;
use super::ids::IdAllocator;
use super::plugins::PluginTranslator;
use super::protocols::is_stream_protocol;
use super::scopes::{PluginStanding, PluginUse, PluginUses};
use super::services::KongServices;
use crate::report::{ImportReport, different, dropped};

/// Plugins of the gateway that run for streams.
const STREAM_PLUGINS: [&str; 2] = ["ip-restriction", "prometheus"];

/// Whether all protocols of a route are of streams.
pub(super) fn is_stream(route: &KongEntity) -> bool {
    let protocols = route.peek("protocols").and_then(Value::as_array);
    let is_of_streams = |one: &Value| one.as_str().is_some_and(is_stream_protocol);
    // Without protocols, Kong assumes HTTP and HTTPS.
    protocols.is_some_and(|all| !all.is_empty() && all.iter().all(is_of_streams))
}

pub(super) fn translate(
    document: &mut KongDocument,
    services: &KongServices,
    uses: &PluginUses,
    translator: &mut PluginTranslator<'_>,
    report: &mut ImportReport,
) -> Vec<Resource> {
    let streams = document.routes.iter().filter(|route| is_stream(route));
    // All names first, so that a substitute never takes the name of a later route.
    let mut ids = IdAllocator::of(streams.map(|route| &*route.name));
    let mut resources = Vec::new();
    for (at, route) in document.routes.iter_mut().enumerate().filter(|(_, route)| is_stream(route)) {
        let Some(ConvertedStream { service, values }) = read(route, services, report) else {
            // The fields of a route that is left out are not reported.
            *route = KongEntity::default();
            continue;
        };
        let mut uses = uses.of_route(at, Some(service));
        uses.retain(|one| one.counts_for_streams());
        let plugins = plugins(&route.label, &uses, translator, report);
        for mut value in values {
            if !plugins.is_empty() {
                value["plugins"] = Value::Object(plugins.clone());
            }
            resources.push(Resource::new(Kind::StreamRoutes, &ids.allocate(&route.name), &value));
        }
    }
    resources
}

/// The stream routes that one Kong route becomes.
struct ConvertedStream {
    service: usize,
    /// One stream route per combination of the conditions.
    values: Vec<Value>,
}

/// Converts a route; `None` if the route is left out.
fn read(
    route: &mut KongEntity,
    services: &KongServices,
    report: &mut ImportReport,
) -> Option<ConvertedStream> {
    let label = route.label.clone();
    let left_out = |why: String| dropped(&label, "", "the route is left out").why(why);
    if let Some(field) = super::routes::unset_condition(route) {
        report.add(left_out(format!("a value of {field} is not set")));
        return None;
    }
    let service = match services.index.take(route, "service") {
        Ok(Some(at)) if services.all[at].is_of_streams && services.all[at].is_enabled => at,
        Ok(Some(_)) => {
            report.add(left_out("its service is switched off, or not one of streams".into()));
            return None;
        }
        Ok(None) => {
            report.add(left_out("it has no service".into()));
            return None;
        }
        Err(found) => {
            report.add(left_out(format!("there is no service {found}")));
            return None;
        }
    };
    // Read before, as the label; taken so that it is not reported.
    route.take("name");
    let protocols = route.texts("protocols", report);
    for (field, default) in [("strip_path", json!(true)), ("preserve_host", json!(false))] {
        route.skip(field, &default, "streams have neither path nor host", report);
    }
    route.skip("https_redirect_status_code", &json!(426), "streams are not redirected", report);
    let mut value = json!({ "name": route.name, "service_id": services.all[service].id });
    if let Some(labels) = super::labels::labels(route, report) {
        value["labels"] = labels;
    }
    let mut values = vec![value];
    let sources = ends(route, "sources", SOURCE, report)?;
    let destinations = ends(route, "destinations", DESTINATION, report)?;
    let names = route.texts("snis", report);
    // Server names in a ClientHello have no final dot (RFC 6066 §3).
    let names = names.iter().map(|name| json!({ "sni": name.trim_end_matches('.') })).collect();
    for choices in [sources, destinations, names] {
        values = product(&values, &choices);
    }
    report_listener_hint(&label, &protocols, &values, report);
    Some(ConvertedStream { service, values })
}

/// The fields of a stream route for one end of a connection.
#[derive(Clone, Copy)]
struct StreamEndFields {
    address: &'static str,
    /// `None` if stream routes have no such condition.
    port: Option<&'static str>,
}

const SOURCE: StreamEndFields = StreamEndFields { address: "remote_addr", port: None };
const DESTINATION: StreamEndFields = StreamEndFields { address: "server_addr", port: Some("server_port") };

/// The conditions on one end of a connection, as alternatives; `None` if none of them is supported.
fn ends(
    route: &mut KongEntity,
    field: &str,
    fields: StreamEndFields,
    report: &mut ImportReport,
) -> Option<Vec<Value>> {
    let label = route.label.clone();
    let all = route.list(field, report);
    let mut choices = Vec::new();
    for one in &all {
        let mut choice = Map::new();
        if let Some(ip) = one["ip"].as_str() {
            choice.insert(fields.address.to_owned(), ip.into());
        }
        let number = one["port"].as_u64();
        match (fields.port, number) {
            (Some(port), Some(number)) => drop(choice.insert(port.to_owned(), number.into())),
            (None, Some(number)) => {
                let line = dropped(&label, field, format!("port {number} is left out"));
                report.add(line.why("a client's port cannot be asked for here"));
                // Without its port the condition would match more than in Kong.
                continue;
            }
            (_, None) => {}
        }
        if !choice.is_empty() {
            choices.push(Value::Object(choice));
        }
    }
    // Without any condition the route would match every connection.
    if !all.is_empty() && choices.is_empty() {
        let line = dropped(&label, "", "the route is left out");
        report.add(line.why(format!("none of its {field} can be asked for")));
        return None;
    }
    Some(choices)
}

/// Combines every value with every choice; without choices, the values are unchanged.
fn product(values: &[Value], choices: &[Value]) -> Vec<Value> {
    if choices.is_empty() {
        return values.to_vec();
    }
    let with = |value: &Value, choice: &Value| {
        let mut both = value.clone();
        for (name, value) in choice.as_object().into_iter().flatten() {
            both[name] = value.clone();
        }
        both
    };
    values.iter().flat_map(|value| choices.iter().map(move |choice| with(value, choice))).collect()
}

/// Reports the listeners that the node needs: they are node settings, not resources.
fn report_listener_hint(label: &str, protocols: &[String], values: &[Value], report: &mut ImportReport) {
    let mut ports: Vec<u64> = values.iter().filter_map(|value| value["server_port"].as_u64()).collect();
    ports.sort_unstable();
    ports.dedup();
    let listeners: Vec<String> = match ports.as_slice() {
        [] => protocols.iter().map(|one| format!("{{address: \"0.0.0.0:PORT\", protocol: {one}}}")).collect(),
        ports => ports
            .iter()
            .flat_map(|port| protocols.iter().map(move |one| (port, one)))
            .map(|(port, one)| format!("{{address: \"0.0.0.0:{port}\", protocol: {one}}}"))
            .collect(),
    };
    let line = different(label, "protocols", "it gets what arrives at stream listeners of the node");
    let line = line.why("listeners are set in yumen.yaml");
    report.add(line.hint(format!("stream_listen: [{}]", listeners.join(", "))));
}

/// The plugins that run for streams. If a guard does not, all connections are refused.
fn plugins(
    label: &str,
    uses: &[&PluginUse],
    translator: &mut PluginTranslator<'_>,
    report: &mut ImportReport,
) -> Map<String, Value> {
    let all = translator.all(uses, report);
    let (mut supported, mut left): (Map<_, _>, Map<_, _>) =
        all.into_iter().partition(|(name, _)| STREAM_PLUGINS.contains(&name.as_str()));
    let is_refused = left.shift_remove("fault-injection").is_some();
    let is_missing = |one: &&&PluginUse| is_guard(&one.name) && !STREAM_PLUGINS.contains(&one.name.as_str());
    // With an allow and a deny list, one of them is in a plugin that does not run for streams.
    // From the uses, not from the results: a guard that was not converted at all is missing too.
    let missing = uses.iter().find(is_missing).map(|one| match one.standing {
        PluginStanding::Closing => "a plugin for consumers",
        _ => one.name.as_str(),
    });
    if let Some(name) = missing.or((is_refused || left.contains_key("mocking")).then_some("ip-restriction")) {
        let why = format!("{name} guards and does not serve streams");
        let line = dropped(label, "plugins", "connections are closed, so that nobody passes unchecked");
        report
            .refuse(line.why(why).hint("once access is guarded in another way, change ip-restriction here"));
        // All IPv4 and IPv6 addresses; no other stream plugin refuses connections.
        supported.insert("ip-restriction".into(), json!({ "blacklist": ["0.0.0.0/0", "::/0"] }));
    }
    for name in left.keys() {
        let line = dropped(label, "plugins", format!("{name} is left out"));
        report.add(line.why("it does not serve streams"));
    }
    supported
}
