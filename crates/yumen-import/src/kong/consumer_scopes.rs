//! Plugins for consumers and groups. Kong selects one instance of a name for each request; the gateway merges the plugins
//! of a consumer over those of the route. Where the two differ, the guarded requests are refused.

use serde_json::{Value, json};

use super::document::KongDocument;
use super::guards::is_guard;
use super::plugins::PluginTranslator;
use super::scopes::{PluginScope, PluginStanding, PluginUse, PluginUses};
use crate::report::{ImportReport, different, dropped};

/// Name of a use that refuses requests. Kong has no such plugin, so no other use replaces it.
const CLOSED: &str = "(closed)";

/// Plugins of Kong that run before authentication here: an instance of the route runs before the consumer is known.
const EARLY: [&str; 2] = ["redirect", "request-size-limiting"];

/// Settles which instance applies for consumers.
pub(super) fn settle(
    uses: &mut PluginUses,
    document: &KongDocument,
    translator: &PluginTranslator<'_>,
    report: &mut ImportReport,
) {
    let all = uses.0.clone();
    for one in &mut uses.0 {
        if !one.scope.has_consumer() {
            close_preceding(one, &all, report);
        } else if one.scope.closeness() == 0 {
            close_consumer(one, &all, report);
        }
    }
    uses.0.retain_mut(|one| combine(one, &all, document, translator, report));
}

/// Closes a route whose instance precedes those of consumers: Kong prefers an instance of a route and its service to one
/// of a consumer, and the gateway does not.
fn close_preceding(one: &mut PluginUse, all: &[PluginUse], report: &mut ImportReport) {
    let is_of_both = one.scope.service.is_some() && one.scope.route.is_some();
    let is_rival = |other: &&PluginUse| {
        other.name == one.name && other.scope.has_consumer() && other.scope.closeness() == 0
    };
    let Some(rival) = all.iter().find(is_rival).filter(|_| is_of_both) else { return };
    let why = "here a plugin of a consumer precedes all plugins of routes";
    if is_guard(&one.name) {
        let line = dropped(&one.label, "", "all requests of the route are answered 503");
        let why = format!("{} would take precedence; {why}", rival.label);
        report.refuse(line.why(why).hint("attach the plugin to the route without its service"));
        close(one);
    } else {
        let line = different(&one.label, "", format!("{} takes precedence", rival.label));
        report.add(line.why(why));
    }
}

/// Closes the requests of a consumer whose instance would hide another plugin, or has no effect beside it.
fn close_consumer(one: &mut PluginUse, all: &[PluginUse], report: &mut ImportReport) {
    let is_late = |other: &&PluginUse| {
        EARLY.contains(&&*one.name) && other.name == one.name && !other.scope.has_consumer()
    };
    let why = if let Some(other) = all.iter().find(is_late) {
        format!("{} is applied before the consumer is known", other.label)
    } else if let Some(other) = all.iter().find(|other| collide(one, other)) {
        format!("it would hide {}, which becomes the same plugin here", other.label)
    } else {
        return;
    };
    let line = dropped(&one.label, "", "its requests are answered 503 on every route");
    report.refuse(line.why(why).hint("give the consumer routes of its own"));
    one.standing = PluginStanding::Closing;
}

/// Whether two instances with different names become one plugin of the gateway, although Kong runs both.
fn collide(one: &PluginUse, other: &PluginUse) -> bool {
    let family = |name: &str| name.strip_suffix("-advanced").unwrap_or(name).to_owned();
    let has = |one: &PluginUse, lists: [&str; 2]| {
        lists
            .iter()
            .any(|list| one.config.peek(list).and_then(Value::as_array).is_some_and(|all| !all.is_empty()))
    };
    // The second list of `ip-restriction` becomes `mocking`, as `request-termination` does.
    let is_mocking = |one: &PluginUse| match one.name.as_str() {
        "request-termination" => true,
        "ip-restriction" => has(one, ["allow", "whitelist"]) && has(one, ["deny", "blacklist"]),
        _ => false,
    };
    one.name != other.name
        && (family(&one.name) == family(&other.name) || (is_mocking(one) && is_mocking(other)))
}

/// Attaches a plugin for a consumer on one route or service to the consumer, with a condition on the route or service.
///
/// Possible only if the conversion is complete and no other plugin of the name applies; otherwise a guard refuses the
/// requests of the route. `false` if the plugin is left out.
fn combine(
    one: &mut PluginUse,
    all: &[PluginUse],
    document: &KongDocument,
    translator: &PluginTranslator<'_>,
    report: &mut ImportReport,
) -> bool {
    if one.scope.closeness() == 0 || !one.scope.has_consumer() {
        return true;
    }
    // Kong would prefer the other instance on some requests, which conditions cannot express.
    let is_alone = all.iter().filter(|other| other.name == one.name || collide(one, other)).count() == 1;
    let why = match (is_alone, translator.converts_wholly(one)) {
        (false, _) => {
            "plugins for a consumer together with a route or service can only be distinguished from others of their \
             name if there are none"
        }
        (true, false) => {
            "it cannot be converted, and the consumer is not known early enough to refuse it alone"
        }
        (true, true) => {
            require_place(one, document);
            let instead = "it belongs to the consumer and asks which route it is on";
            report.add(different(&one.label, "", instead));
            return true;
        }
    };
    let hint = "use limits with variables in their key, or a route of its own";
    if !is_guard(&one.name) {
        report.add(dropped(&one.label, "", "left out").why(why).hint(hint));
        return false;
    }
    let place = if one.scope.route.is_some() { "route" } else { "service" };
    let line = dropped(&one.label, "", format!("all requests of the {place} are answered 503"));
    report.refuse(line.why(why).hint(hint));
    close(one);
    true
}

/// Adds the conditions on the route and the service.
fn require_place(one: &mut PluginUse, document: &KongDocument) {
    let mut require = |variable: &str, name: &str| one.filter.push(json!([variable, "==", name]));
    if let Some(at) = one.scope.route {
        // By name, since one Kong route may become several.
        require("route_name", &document.routes[at].name);
    }
    if let Some(at) = one.scope.service {
        require("service_name", &document.services[at].name);
    }
}

/// Makes a use refuse all requests of its route or service: an import must not grant access that the original denied.
fn close(one: &mut PluginUse) {
    one.standing = PluginStanding::Closing;
    one.name = CLOSED.to_owned();
    one.filter.clear();
    one.scope = PluginScope { consumer: None, group: None, ..one.scope };
}
