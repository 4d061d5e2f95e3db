//! Conversion of other gateways' configuration into resources, with a report of the settings that are not carried over exactly.
//!
//! Pure: the text and the environment come in, resources and a report go out. Must not know stores, the compiler, or the
//! code of plugins; the caller states which plugins run.

pub mod kong;
mod report;

use yumen_config::Resource;

pub use report::{ImportCounts, ImportFinding, ImportLevel, ImportReport};

/// Facts about the gateway that an import depends on.
pub struct ImportContext<'a> {
    /// Looks up an environment variable.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// Whether the gateway runs the plugin of this name. Settings of other plugins are kept in the result and stay
    /// inactive.
    pub runs: &'a dyn Fn(&str) -> bool,
}

/// The converted configuration.
#[derive(Debug)]
pub struct ImportResult {
    /// The resources, each after those it refers to.
    pub resources: Vec<Resource>,
    /// Differences from the original.
    pub report: ImportReport,
}
