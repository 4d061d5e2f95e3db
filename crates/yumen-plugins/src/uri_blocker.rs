//! `uri-blocker`: refuses requests whose target matches one of a list of patterns.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, PluginBuildContext, PluginFactory, RegexPattern,
    Step,
};

use crate::pattern;
use crate::text::final_status;

/// The settings.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct UriBlockerSettings {
    /// Patterns looked for in `$request_uri`: the path in its normal form, decoded, and the query as it came.
    #[schemars(extend("uniqueItems" = true), inner(length(min = 1, max = 4096)))]
    block_rules: Vec<String>,
    /// Status of the refusal; above 999 is 999.
    #[serde(default = "forbidden")]
    #[schemars(range(min = 200))]
    rejected_code: u64,
    /// Text of the refusal.
    #[schemars(length(min = 1))]
    rejected_msg: Option<String>,
    /// Whether the case of letters does not matter.
    #[serde(default)]
    case_insensitive: bool,
}

fn forbidden() -> u64 {
    403
}

/// The plugin.
pub(crate) struct UriBlocker {
    rules: Box<[RegexPattern]>,
    refusal: LocalResponse,
}

impl PluginFactory for UriBlocker {
    const NAME: &'static str = "uri-blocker";
    const PRIORITY: i32 = 2900;
    const GUARDS: bool = true;
    type Config = UriBlockerSettings;

    fn build(config: UriBlockerSettings, _: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let options = if config.case_insensitive { "i" } else { "" };
        // An empty list blocks everything, as in APISIX: the empty pattern matches.
        let rules = pattern::any_of(&config.block_rules, options, "block_rules")?;
        let status = final_status(config.rejected_code);
        let refusal = match &config.rejected_msg {
            Some(message) => LocalResponse::error_msg(status, message),
            None => LocalResponse::status(status),
        };
        Ok(UriBlocker { rules, refusal })
    }
}

impl Plugin for UriBlocker {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        // An undecided match counts as a block.
        if pattern::any_matches(&self.rules, &ex.request.request_uri(), ex.budget()) != Ok(false) {
            return Step::Respond(self.refusal.clone());
        }
        Step::Continue
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
