//! Kong's global plugins as global rules.

use serde_json::json;
use yumen_config::{Kind, Resource};

use super::plugins::PluginTranslator;
use super::scopes::PluginUses;
use crate::report::ImportReport;

/// The plugins that may be global rules.
pub(super) fn resources(
    uses: &PluginUses,
    translator: &mut PluginTranslator<'_>,
    report: &mut ImportReport,
) -> Vec<Resource> {
    let mut resources = Vec::new();
    for one in uses.rules() {
        let plugins = translator.all(&[one], report);
        if !plugins.is_empty() {
            let id = super::ids::IdAllocator::of([]).allocate(&one.name);
            resources.push(Resource::new(Kind::GlobalRules, &id, &json!({ "plugins": plugins })));
        }
    }
    resources
}
