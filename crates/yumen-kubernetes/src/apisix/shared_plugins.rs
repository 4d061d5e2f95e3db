//! Plugins of GatewayProxies, which hold for the Gateways that name them, and metadata, which holds for the node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};
use yumen_config::resource::is_plain_id;

use super::plugins::refuse_references;
use super::{WrittenPlugins, report, write_plugin_set};
use crate::engine::{TrackedView, UnitOutput};
use crate::gateway_proxy::{proxies_in_use, scopes_of_gateway};
use crate::model::{ClusterKind, ListedPlugin, ObjectKey};
use crate::resources::{ResourceName, TranslatedKind};

pub(crate) fn translate_shared_plugins(view: &TrackedView<'_>) -> UnitOutput {
    let mut output = UnitOutput::default();
    let mut owners: BTreeMap<String, ObjectKey> = BTreeMap::new();
    for used in proxies_in_use(view) {
        let proxy = used.object;
        let meta = &proxy.meta;
        let key = ObjectKey::new(ClusterKind::GatewayProxy, &meta.namespace, &meta.name);
        // Absent means off here, other than in all other lists.
        let is_on = |entry: &&ListedPlugin| entry.enable == Some(true);
        let entries: Vec<ListedPlugin> = proxy.spec.plugins.iter().filter(is_on).cloned().collect();
        let scopes: BTreeSet<Arc<str>> =
            used.gateways.iter().flat_map(|gateway| scopes_of_gateway(view, gateway)).collect();
        let of_node = used.is_of_node.then(BTreeSet::new);
        // A rule has either scopes or the listeners of the node's settings, which an empty list stands for.
        let rules = [("proxy", Some(scopes).filter(|scopes| !scopes.is_empty())), ("nodeproxy", of_node)];
        for (part, scopes) in rules.into_iter().filter(|_| !entries.is_empty()) {
            let Some(scopes) = scopes else { continue };
            let name = ResourceName::new(
                TranslatedKind::GlobalRules,
                format!("{}/{}!{part}", meta.namespace, meta.name),
            );
            let set = WrittenPlugins { entries: &entries, created_s: meta.created_s, scopes: Some(scopes) };
            write_plugin_set(view, &key, name, set, &mut output);
        }
        for (plugin, settings) in &proxy.spec.plugin_metadata {
            let path = format!("spec.pluginMetadata.{plugin}");
            if !used.is_of_class {
                // Metadata concerns every use of the plugin, so owners of single Gateways do not set it.
                let message = "only the GatewayProxy that a class names has metadata: these have no effect";
                report::warn(&mut output, &key, &path, message);
            } else if let Some(owner) = owners.get(&**plugin) {
                let message =
                    format!("{owner}, which is older, has metadata of the plugin: these have no effect");
                report::warn(&mut output, &key, &path, message);
            } else if let Err(message) = refused(view, &key, plugin, settings) {
                report::warn(&mut output, &key, &path, format!("{message}: these have no effect"));
            } else if settings.is_object() && is_plain_id(plugin) {
                owners.insert(plugin.to_string(), key.clone());
                output.add_resource(TranslatedKind::PluginMetadata, plugin.clone(), settings);
            } else {
                report::warn(
                    &mut output,
                    &key,
                    &path,
                    "not the name of a plugin with an object: this has no effect",
                );
            }
        }
    }
    output
}

fn refused(view: &TrackedView<'_>, key: &ObjectKey, plugin: &str, settings: &Value) -> Result<(), String> {
    let alone = Map::from_iter([(plugin.to_owned(), settings.clone())]);
    refuse_references(view, key, alone).map(drop)
}
