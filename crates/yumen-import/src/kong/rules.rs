//! Kong's global plugins that become global rules.

use serde_json::json;
use yumen_config::{Kind, Resource};

use super::plugins::PluginTranslator;
use super::scopes::PluginUses;
use crate::report::ImportReport;

/// Plugins that may be global rules, as such.
pub(super) fn resources(
    uses: &PluginUses,
    translator: &mut PluginTranslator<'_>,
    report: &mut ImportReport,
) -> Vec<Resource> {
    let mut resources = Vec::new();
    for one in uses.rules() {
        let plugins = translator.all(&[one], report);
        if !plugins.is_empty() {
            let id = super::ids::IdAllocator::of([]).give(&one.name);
            resources.push(Resource::new(Kind::GlobalRules, &id, &json!({ "plugins": plugins })));
        }
    }
    resources
}
