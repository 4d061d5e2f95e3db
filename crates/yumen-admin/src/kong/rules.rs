//! Kong's global plugins that become global rules.

use serde_json::json;
use yumen_config::{Kind, Resource};

use super::plugins::Translator;
use super::report::Report;
use super::scopes::Uses;

/// Plugins that may be global rules, as such.
pub(super) fn resources(uses: &Uses, translator: &mut Translator<'_>, report: &mut Report) -> Vec<Resource> {
    let mut resources = Vec::new();
    for one in uses.rules() {
        let plugins = translator.all(&[one], report);
        if !plugins.is_empty() {
            let id = super::ids::Ids::of([]).give(&one.name);
            resources.push(Resource::new(Kind::GlobalRules, &id, &json!({ "plugins": plugins })));
        }
    }
    resources
}
