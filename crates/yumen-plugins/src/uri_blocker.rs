//! `uri-blocker`: refuses requests with a target that matches a pattern.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, PluginBuildContext, PluginFactory,
    RegexPattern, Step,
};

use crate::pattern;
use crate::text::final_status;

/// Settings of `uri-blocker`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct UriBlockerSettings {
    /// Patterns over `$request_uri`: the normalized and decoded path, and the query as received.
    #[schemars(extend("uniqueItems" = true), inner(length(min = 1, max = 4096)))]
    block_rules: Vec<String>,
    /// Status of the refusal; a number above 999 counts as 999.
    #[serde(default = "forbidden")]
    #[schemars(range(min = 200))]
    rejected_code: u64,
    /// Message in the body of the refusal.
    #[schemars(length(min = 1))]
    rejected_msg: Option<String>,
    /// Whether the patterns are case-insensitive.
    #[serde(default)]
    case_insensitive: bool,
}

fn forbidden() -> u64 {
    403
}

/// The compiled settings.
pub(crate) struct UriBlocker {
    rules: Box<[RegexPattern]>,
    refusal: LocalResponse,
}

impl PluginFactory for UriBlocker {
    const NAME: &'static str = "uri-blocker";
    const PRIORITY: i32 = 2900;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = UriBlockerSettings;

    fn build(config: UriBlockerSettings, _: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let options = if config.case_insensitive { "i" } else { "" };
        // As in APISIX, an empty list blocks everything: the empty pattern matches.
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
        // Fail closed: a target that exceeds the backtracking budget is refused.
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
