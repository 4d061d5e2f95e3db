//! Findings about settings that are probably not intended: unreachable routes, contradictory plugins, weak
//! certificates, unused objects.
//!
//! Examines the resources and the snapshot compiled from them. Errors of the compiler are not repeated. Reads
//! neither the clock nor certificates: the caller passes both.

mod certificates;
mod objects;
mod plugins;
mod reach;
mod routes;
#[cfg(test)]
mod tests;
mod vars;

use std::collections::HashMap;

use serde_json::Value;
use yumen_base::Problem;
use yumen_config::Resource;

use crate::Snapshot;

pub use certificates::{CertificateFacts, KeyFacts};
pub(crate) use objects::collect as collect_names;

/// The input of the linter.
pub struct LintInput<'l> {
    /// The resources.
    pub resources: &'l [Resource],
    /// The snapshot compiled from them.
    pub snapshot: &'l Snapshot,
    /// The time, in seconds since the Unix epoch.
    pub now_unix_s: u64,
    /// Reads the first certificate of a PEM text.
    pub certificate: &'l dyn Fn(&str) -> Result<CertificateFacts, String>,
    /// Whether to report matters of taste as well: routes without authentication where no route has any, and
    /// TLS upstreams that are not verified.
    pub strict: bool,
}

/// All findings, by object.
pub fn lint(input: &LintInput<'_>) -> Vec<Problem> {
    let texts = ResourceTexts::new(input.resources);
    let mut problems = routes::check(input.snapshot);
    problems.extend(plugins::check(input, &texts));
    problems.extend(objects::check(input, &texts));
    problems.extend(vars::check(&texts));
    problems.extend(certificates::check(input, &texts));
    problems.extend(reach::check(input, &texts));
    problems.sort_by(|a, b| (&a.object, &a.path).cmp(&(&b.object, &b.path)));
    problems
}

/// The parsed texts of resources, by name such as `routes/1`.
pub(crate) struct ResourceTexts<'l> {
    by_name: HashMap<String, Value>,
    resources: &'l [Resource],
}

impl<'l> ResourceTexts<'l> {
    pub(crate) fn new(resources: &'l [Resource]) -> ResourceTexts<'l> {
        // The compiler reports texts that are not JSON.
        let parsed = |one: &Resource| Some((one.to_string(), serde_json::from_str(&one.json).ok()?));
        ResourceTexts { by_name: resources.iter().filter_map(parsed).collect(), resources }
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.by_name.get(name)
    }

    /// The settings of a plugin as written in an object.
    fn settings(&self, origin: &str, plugin: &str) -> Option<&Value> {
        self.get(origin)?.get("plugins")?.get(plugin)
    }

    fn iter(&self) -> impl Iterator<Item = (&'l Resource, &Value)> {
        self.resources.iter().filter_map(|one| Some((one, self.get(&one.to_string())?)))
    }
}
