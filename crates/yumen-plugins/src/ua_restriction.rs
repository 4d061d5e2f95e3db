//! `ua-restriction`: admits or refuses clients by their `User-Agent`.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::Invalid;
use yumen_http::Known;
use yumen_plugin::{Configure, Exchange, Foreseen, Pattern, Phases, Plugin, Response, Setup, Step};

use crate::pattern;

/// Settings of `ua-restriction`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [{"required": ["allowlist"]}, {"required": ["denylist"]}]))]
pub(crate) struct Config {
    /// Whether requests without the field pass.
    #[serde(default)]
    bypass_missing: bool,
    /// Patterns of the only agents that are admitted.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    allowlist: Option<Vec<String>>,
    /// Patterns of agents that are refused.
    #[schemars(length(min = 1), inner(length(min = 1)))]
    denylist: Option<Vec<String>>,
    /// What a refused client is told.
    #[serde(default = "message")]
    #[schemars(length(min = 1, max = 1024))]
    message: String,
}

fn message() -> String {
    "Not allowed".to_owned()
}

/// The plugin.
pub(crate) struct UaRestriction {
    patterns: Vec<Pattern>,
    /// Whether the patterns are of agents that are refused.
    refuses: bool,
    bypass_missing: bool,
    refusal: Response,
}

impl Configure for UaRestriction {
    const NAME: &'static str = "ua-restriction";
    const PRIORITY: i32 = 2999;
    const GUARDS: bool = true;
    type Config = Config;

    fn build(config: Config, _: &Setup<'_>) -> Result<Self, Invalid> {
        let (list, refuses, path) = match (&config.allowlist, &config.denylist) {
            (Some(list), None) => (list, false, "allowlist"),
            (None, Some(list)) => (list, true, "denylist"),
            _ => return Err(Invalid::new("exactly one of allowlist and denylist is needed")),
        };
        let compile =
            |(at, text): (usize, &String)| pattern::with_options(text, "jo", &format!("{path}[{at}]"));
        Ok(UaRestriction {
            patterns: list.iter().enumerate().map(compile).collect::<Result<_, _>>()?,
            refuses,
            bypass_missing: config.bypass_missing,
            refusal: Response::message(403, &config.message),
        })
    }
}

impl UaRestriction {
    /// One agent on the list is enough, be it to pass or to be refused.
    fn admits(&self, ex: &Exchange<'_>) -> bool {
        let mut agents = ex.request.fields.all_known(Known::UserAgent).peekable();
        if agents.peek().is_none() {
            return self.bypass_missing;
        }
        let is_listed = |agent: &[u8]| {
            // An agent that takes too long to match is refused.
            pattern::any_matches(&self.patterns, agent.trim_ascii(), &ex.budget).unwrap_or(self.refuses)
        };
        agents.any(is_listed) != self.refuses
    }
}

impl Plugin for UaRestriction {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if self.admits(ex) { Step::Continue } else { Step::Respond(self.refusal.clone()) }
    }

    fn foresee(&self, phase: Phases, ex: &mut Exchange<'_>) -> Foreseen {
        Foreseen::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
