//! `ua-restriction`: admits or refuses requests by their `User-Agent` field.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_http::KnownField;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, PluginBuildContext, PluginFactory,
    RegexPattern, Step,
};

use crate::pattern;

/// Settings of `ua-restriction`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [{"required": ["allowlist"]}, {"required": ["denylist"]}]))]
pub(crate) struct UaRestrictionSettings {
    /// Whether requests without `User-Agent` pass.
    #[serde(default)]
    bypass_missing: bool,
    /// Patterns of user agents that are admitted; all others are refused.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    allowlist: Option<Vec<String>>,
    /// Patterns of user agents that are refused.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    denylist: Option<Vec<String>>,
    /// Message in the body of the refusal.
    #[serde(default = "message")]
    #[schemars(length(min = 1, max = 1024))]
    message: String,
}

fn message() -> String {
    "Not allowed".to_owned()
}

/// The compiled settings.
pub(crate) struct UaRestriction {
    patterns: Vec<RegexPattern>,
    /// Whether the patterns are a denylist.
    refuses: bool,
    bypass_missing: bool,
    refusal: LocalResponse,
}

impl PluginFactory for UaRestriction {
    const NAME: &'static str = "ua-restriction";
    const PRIORITY: i32 = 2999;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = UaRestrictionSettings;

    fn build(config: UaRestrictionSettings, _: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let (list, refuses, path) = match (&config.allowlist, &config.denylist) {
            (Some(list), None) => (list, false, "allowlist"),
            (None, Some(list)) => (list, true, "denylist"),
            _ => return Err(InvalidSettings::new("exactly one of allowlist and denylist is needed")),
        };
        // APISIX passes these options to `ngx.re`; they have no effect here.
        let compile =
            |(at, text): (usize, &String)| pattern::with_options(text, "jo", &format!("{path}[{at}]"));
        Ok(UaRestriction {
            patterns: list.iter().enumerate().map(compile).collect::<Result<_, _>>()?,
            refuses,
            bypass_missing: config.bypass_missing,
            refusal: LocalResponse::message(403, &config.message),
        })
    }
}

impl UaRestriction {
    /// One matching field line decides, for admission as for refusal.
    fn admits(&self, ex: &Exchange<'_>) -> bool {
        let mut agents = ex.request.fields.all_known(KnownField::UserAgent).peekable();
        if agents.peek().is_none() {
            return self.bypass_missing;
        }
        let is_listed = |agent: &[u8]| {
            // Fail closed: a user agent that exceeds the backtracking budget is refused.
            pattern::any_matches(&self.patterns, agent.trim_ascii(), ex.budget()).unwrap_or(self.refuses)
        };
        agents.any(is_listed) != self.refuses
    }
}

impl Plugin for UaRestriction {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if self.admits(ex) { Step::Continue } else { Step::Respond(self.refusal.clone()) }
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
