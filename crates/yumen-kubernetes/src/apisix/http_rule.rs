//! Rules of ApisixRoutes for HTTP, each of which becomes one route.

use serde_json::{Map, Value, json};

use super::expressions::vars_value;
use super::plugins::{plugins_value, refuse_references};
use super::route_backends::{RuleBackends, http_backends};
use crate::engine::{TrackedView, UnitOutput};
use crate::grants::{GrantQuestion, is_permitted};
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
    /// A reference that is not permitted. The rule answers 503 then; its last good version must not stay, or a permission
    /// could not be revoked.
    pub(super) denied: Option<SpecDefect>,
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
    let plugin_set = match plugin_set(view, route, rule, &mut defects) {
        Ok(plugin_set) => plugin_set,
        Err(denied) => {
            members.insert("backends".to_owned(), RuleBackends::default().value());
            let denied = Some(denied);
            return RuleMembers { members, defects, missing: Vec::new(), plugin_set: None, denied };
        }
    };
    if let Some(key) = &plugin_set {
        members.insert("plugin_config_id".to_owned(), (&*plugin_set_name(key).id).into());
        output.plugin_sets.insert(key.clone());
    }
    let mut plugins = plugins_value(view, route, &rule.plugins, &mut defects);
    let mut authentication = Map::new();
    add_authentication(&rule.authentication, &mut authentication, &mut defects);
    match refuse_references(view, route, authentication) {
        Ok(authentication) => plugins.extend(authentication),
        Err(message) => defects.push(SpecDefect::new("plugins", message)),
    }
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
    RuleMembers { members, defects, missing: backends.missing, plugin_set, denied: None }
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
) -> Result<Option<ObjectKey>, SpecDefect> {
    let name = rule.plugin_config_name.as_ref().filter(|name| !name.is_empty());
    let Some(name) = name else { return Ok(None) };
    let namespace = rule.plugin_config_namespace.as_ref().filter(|namespace| !namespace.is_empty());
    let key = ObjectKey {
        kind: ClusterKind::ApisixPluginConfig,
        namespace: namespace.unwrap_or(&route.namespace).clone(),
        name: name.clone(),
    };
    let question = GrantQuestion {
        from: route.kind,
        from_namespace: &route.namespace,
        to_group: key.kind.api().group,
        to_kind: key.kind.name(),
        to_namespace: &key.namespace,
        to_name: &key.name,
    };
    if !is_permitted(view, question) {
        // Its plugins may hold secrets of that namespace, so the resource must not name them.
        let message = format!(
            "No ReferenceGrant in namespace {} permits {} of namespace {} to refer to {}.",
            key.namespace, route.kind, route.namespace, key.kind
        );
        return Err(SpecDefect::new("plugin_config_id", message));
    }
    if view.get::<ApisixPluginListObject>(&key).is_none() {
        defects.push(SpecDefect::new("plugin_config_id", format!("{key} does not exist")));
    }
    Ok(Some(key))
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
