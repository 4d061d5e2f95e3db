//! Rules of ApisixRoutes for HTTP, each of which becomes one route.

use serde_json::{Map, Value, json};

use super::expressions::vars_value;
use super::plugins::plugins_value;
use super::route_backends::http_backends;
use crate::engine::{TrackedView, UnitOutput};
use crate::model::{
    ApisixAuthentication, ApisixHttpMatch, ApisixHttpRule, ApisixPluginListObject, ClusterKind, ObjectKey,
};
use crate::overrides::timeout_value;
use crate::resources::{ResourceName, SpecDefect, plugin_set_name};

/// A rule as members of a resource.
pub(super) struct RuleMembers {
    pub(super) members: Map<String, Value>,
    pub(super) defects: Vec<SpecDefect>,
    /// Backends that do not exist.
    pub(super) missing: Vec<String>,
    /// The plugins that the resource names.
    pub(super) plugin_set: Option<ResourceName>,
}

pub(super) fn rule_members(
    view: &TrackedView<'_>,
    route: &ObjectKey,
    rule: &ApisixHttpRule,
    output: &mut UnitOutput,
) -> RuleMembers {
    let (mut members, mut defects) = (Map::new(), Vec::new());
    if !rule.name.is_empty() {
        members.insert("name".to_owned(), rule.name.as_str().into());
    }
    add_match(&rule.matching, &mut members, &mut defects);
    if rule.priority != 0 {
        members.insert("priority".to_owned(), rule.priority.into());
    }
    let plugin_set = plugin_set(view, route, rule, &mut defects);
    if let Some(key) = &plugin_set {
        members.insert("plugin_config_id".to_owned(), (&*plugin_set_name(key).id).into());
        output.plugin_sets.insert(key.clone());
    }
    let mut plugins = plugins_value(view, route, &rule.plugins, &mut defects);
    add_authentication(&rule.authentication, &mut plugins, &mut defects);
    if !plugins.is_empty() {
        members.insert("plugins".to_owned(), plugins.into());
    }
    let backends = http_backends(view, route, rule);
    members.insert("backends".to_owned(), backends.value());
    output.upstreams.extend(backends.shares.iter().map(|(_, key)| key.clone()));
    if let Some(timeout) = &rule.timeout {
        match timeout_value(timeout) {
            Ok(value) => drop(members.insert("timeout".to_owned(), value)),
            Err(defect) => defects.push(defect),
        }
    }
    if let Some(enabled) = rule.websocket.or(backends.speaks_web_socket.then_some(true)) {
        members.insert("enable_websocket".to_owned(), enabled.into());
    }
    let plugin_set = plugin_set.map(|key| plugin_set_name(&key));
    RuleMembers { members, defects, missing: backends.missing, plugin_set }
}

fn add_match(written: &ApisixHttpMatch, members: &mut Map<String, Value>, defects: &mut Vec<SpecDefect>) {
    if written.paths.is_empty() {
        defects.push(SpecDefect::new("uris", "match.paths is empty"));
    }
    members.insert("uris".to_owned(), unique(written.paths.iter().cloned()));
    if !written.hosts.is_empty() {
        let hosts = written.hosts.iter().map(|host| host.trim().to_ascii_lowercase());
        members.insert("hosts".to_owned(), unique(hosts));
    }
    if !written.methods.is_empty() {
        members.insert("methods".to_owned(), unique(written.methods.iter().cloned()));
    }
    if !written.remote_addrs.is_empty() {
        members.insert("remote_addrs".to_owned(), unique(written.remote_addrs.iter().cloned()));
    }
    match vars_value(&written.exprs) {
        Ok(vars) if vars.is_empty() => {}
        Ok(vars) => drop(members.insert("vars".to_owned(), vars.into())),
        Err(defect) => defects.push(defect),
    }
    if let Some(function) = written.filter_func.as_ref().filter(|text| !text.is_empty()) {
        members.insert("filter_func".to_owned(), function.as_str().into());
    }
}

/// The texts without repetitions, which the schema of routes refuses.
fn unique(texts: impl Iterator<Item = String>) -> Value {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all.into()
}

/// The ApisixPluginConfig of a rule. If it does not exist, the resource names it all the same and refuses.
fn plugin_set(
    view: &TrackedView<'_>,
    route: &ObjectKey,
    rule: &ApisixHttpRule,
    defects: &mut Vec<SpecDefect>,
) -> Option<ObjectKey> {
    let name = rule.plugin_config_name.as_ref().filter(|name| !name.is_empty())?;
    let namespace = rule.plugin_config_namespace.as_ref().filter(|namespace| !namespace.is_empty());
    let key = ObjectKey {
        kind: ClusterKind::ApisixPluginConfig,
        namespace: namespace.unwrap_or(&route.namespace).clone(),
        name: name.clone(),
    };
    if view.get::<ApisixPluginListObject>(&key).is_none() {
        defects.push(SpecDefect::new("plugin_config_id", format!("{key} does not exist")));
    }
    Some(key)
}

fn add_authentication(
    written: &ApisixAuthentication,
    plugins: &mut Map<String, Value>,
    defects: &mut Vec<SpecDefect>,
) {
    if !written.enable {
        return;
    }
    let (plugin, settings) = match &*written.kind {
        "keyAuth" => ("key-auth", &written.key_auth),
        "jwtAuth" => ("jwt-auth", &written.jwt_auth),
        "ldapAuth" => ("ldap-auth", &written.ldap_auth),
        "hmacAuth" => ("hmac-auth", &None),
        "wolfRBAC" => ("wolf-rbac", &None),
        "basicAuth" | "" => ("basic-auth", &None),
        other => {
            let message = format!("authentication.type {other:?} is not supported");
            defects.push(SpecDefect::new("plugins", message));
            return;
        }
    };
    plugins.insert(plugin.to_owned(), settings.clone().unwrap_or_else(|| json!({})));
}
