//! Plugins and metadata of GatewayProxies, which hold for all requests of the node.

use std::collections::BTreeMap;

use yumen_config::resource::is_plain_id;

use super::{report, write_plugin_set};
use crate::engine::{TrackedView, UnitOutput};
use crate::gateway_proxy::proxies_in_use;
use crate::model::{ClusterKind, ListedPlugin, ObjectKey};
use crate::resources::{ResourceName, TranslatedKind};

pub(crate) fn translate_shared_plugins(view: &TrackedView<'_>) -> UnitOutput {
    let mut output = UnitOutput::default();
    let mut owners: BTreeMap<String, ObjectKey> = BTreeMap::new();
    for proxy in proxies_in_use(view) {
        let meta = &proxy.meta;
        let key = ObjectKey::new(ClusterKind::GatewayProxy, &meta.namespace, &meta.name);
        // Absent means off here, other than in all other lists.
        let is_on = |entry: &&ListedPlugin| entry.enable == Some(true);
        let entries: Vec<ListedPlugin> = proxy.spec.plugins.iter().filter(is_on).cloned().collect();
        if !entries.is_empty() {
            let id = format!("{}/{}!proxy", meta.namespace, meta.name);
            let name = ResourceName::new(TranslatedKind::GlobalRules, id);
            write_plugin_set(view, &key, name, &entries, meta.created_s, &mut output);
        }
        for (plugin, settings) in &proxy.spec.plugin_metadata {
            let path = format!("spec.pluginMetadata.{plugin}");
            if let Some(owner) = owners.get(&**plugin) {
                let message =
                    format!("{owner}, which is older, has metadata of the plugin: these have no effect");
                report::warn(&mut output, &key, &path, message);
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
