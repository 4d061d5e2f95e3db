//! The kinds of `apisix.apache.org`: routes, certificates, consumers, plugins. Their resources belong to the default
//! scope, that is to the listeners of the node's settings.
//!
//! An object of version v2 is served if its IngressClass names this controller. A part that cannot be followed marks
//! its resource as broken: the compiler then keeps the last good version or refuses, so that no plugin is ever left out.
//! Policies are in `policy`, settings of upstreams in `overrides`, GatewayProxies in `gateway_proxy`.

mod class;
mod consumer;
mod credentials;
mod expressions;
mod gateway_consumer;
mod http_rule;
mod plugins;
mod report;
mod route;
mod route_backends;
mod shared_plugins;
mod tls;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::engine::{TrackedView, UnitOutput};
use crate::model::{
    ApisixPluginListObject, ApisixUpstreamObject, ClusterKind, ListedPlugin, ObjectKey, PluginConfigObject,
};
use crate::resources::{ResourceName, SpecDefect, TranslatedKind, mark_broken, plugin_set_name};

pub(crate) use shared_plugins::translate_shared_plugins;

/// The output of an object: resources, and the status.
pub(crate) fn translate_object(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    match key.kind {
        ClusterKind::ApisixRoute => route::translate(view, key),
        ClusterKind::ApisixTls => tls::translate(view, key),
        ClusterKind::ApisixConsumer => consumer::translate(view, key),
        ClusterKind::GatewayConsumer => gateway_consumer::translate(view, key),
        ClusterKind::ApisixUpstream => translate_upstream_status(view, key),
        ClusterKind::ApisixPluginConfig => translate_plugin_list_status(view, key),
        ClusterKind::ApisixGlobalRule => translate_global_rule(view, key),
        _ => UnitOutput::default(),
    }
}

/// The `plugin_configs` resource of an object that routes name.
pub(crate) fn translate_plugin_set(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let found = match key.kind {
        ClusterKind::PluginConfig => {
            view.get::<PluginConfigObject>(key).map(|object| (&object.spec.plugins, object.meta.created_s))
        }
        _ => view
            .get::<ApisixPluginListObject>(key)
            .map(|object| (&object.spec.plugins, object.meta.created_s)),
    };
    if let Some((entries, created_s)) = found {
        let set = WrittenPlugins { entries, created_s, scopes: None };
        write_plugin_set(view, key, plugin_set_name(key), set, &mut output);
    }
    output
}

/// The members of a resource that has plugins only.
struct WrittenPlugins<'w> {
    entries: &'w [ListedPlugin],
    created_s: i64,
    /// The scopes of a global rule; empty for the listeners of the node's settings.
    scopes: Option<BTreeSet<Arc<str>>>,
}

/// Writes a resource that has plugins only. Returns the parts that cannot be followed.
fn write_plugin_set(
    view: &TrackedView<'_>,
    key: &ObjectKey,
    name: ResourceName,
    written: WrittenPlugins<'_>,
    output: &mut UnitOutput,
) -> Vec<SpecDefect> {
    let mut defects = Vec::new();
    let plugins = plugins::plugins_value(view, key, written.entries, &mut defects);
    let mut members = Map::new();
    members.insert("plugins".to_owned(), plugins.into());
    if let Some(scopes) = &written.scopes {
        members.insert("scopes".to_owned(), scopes_value(scopes));
    }
    finish_members(&mut members, key, written.created_s, &defects);
    output.add_resource(name.kind, name.id, &members.into());
    defects
}

fn translate_global_rule(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let Some(object) = view.get::<ApisixPluginListObject>(key) else { return output };
    if !class::is_served(view, object.spec.ingress_class_name.as_deref()) {
        return output;
    }
    let id = format!("{}/{}!rule", key.namespace, key.name);
    let name = ResourceName::new(TranslatedKind::GlobalRules, id);
    // As all kinds of v2, it concerns the listeners of the node's settings.
    let set = WrittenPlugins {
        entries: &object.spec.plugins,
        created_s: object.meta.created_s,
        scopes: Some(BTreeSet::new()),
    };
    let defects = write_plugin_set(view, key, name.clone(), set, &mut output);
    report::add_status(&mut output, key, object.meta.generation, &defects, vec![name]);
    output
}

fn translate_plugin_list_status(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let Some(object) = view.get::<ApisixPluginListObject>(key) else { return output };
    if !class::is_served(view, object.spec.ingress_class_name.as_deref()) {
        return output;
    }
    let mut defects = Vec::new();
    plugins::plugins_value(view, key, &object.spec.plugins, &mut defects);
    report::add_status(&mut output, key, object.meta.generation, &defects, vec![plugin_set_name(key)]);
    output
}

fn translate_upstream_status(view: &TrackedView<'_>, key: &ObjectKey) -> UnitOutput {
    let mut output = UnitOutput::default();
    let Some(object) = view.get::<ApisixUpstreamObject>(key) else { return output };
    if !class::is_served(view, object.spec.ingress_class_name.as_deref()) {
        return output;
    }
    let defects = crate::overrides::defects_of(view, object);
    report::add_status(&mut output, key, object.meta.generation, &defects, Vec::new());
    let ports = object.spec.port_level_settings.iter().map(|one| &one.config);
    if std::iter::once(&object.spec.config).chain(ports).any(|config| !config.subsets.is_empty()) {
        report::warn_without_effect(&mut output, key, "spec.subsets");
    }
    output
}

fn scopes_value(scopes: &BTreeSet<Arc<str>>) -> Value {
    scopes.iter().map(|scope| Value::from(&**scope)).collect()
}

/// Adds the members that all resources have, and the mark of a broken one.
fn finish_members(members: &mut Map<String, Value>, key: &ObjectKey, created_s: i64, defects: &[SpecDefect]) {
    members.insert("create_time".to_owned(), created_s.into());
    members.insert("labels".to_owned(), json!({ "origin": key.origin_label() }));
    mark_broken(members, defects);
}
